//! Text format of results: fields and blocks.

use std::fmt::{Display, Write};

use super::plain::{inline, lines};

/// The detail of a shown result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DetailLevel {
    Short,
    Full,
}

/// Fields, one `Label: value` per line, and blocks: a `Label:` line, the content, and an empty line.
#[derive(Debug)]
pub(crate) struct TextPage {
    text: String,
    pub(crate) detail: DetailLevel,
    /// True to show the messages of tasks.
    pub(crate) history: bool,
    /// True to show the time of a task's status.
    pub(crate) times: bool,
}

impl TextPage {
    pub(crate) fn new(detail: DetailLevel) -> Self {
        let full = detail == DetailLevel::Full;
        Self { text: String::new(), detail, history: full, times: full }
    }

    /// One field.
    pub(crate) fn field(&mut self, label: &str, value: impl Display) {
        let value = inline(&value.to_string());
        writeln!(self.text, "{label}: {value}").expect("writing to a string");
    }

    /// A field that is omitted if it has no value.
    pub(crate) fn optional(&mut self, label: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.field(label, value);
        }
    }

    /// Content of several lines. An empty line would end the block, and the rest could imitate fields, so it gets
    /// a space.
    pub(crate) fn block(&mut self, label: &str, content: &str) {
        let content = lines(content);
        writeln!(self.text, "{label}:").expect("writing to a string");
        for line in content.trim_end_matches('\n').split('\n') {
            let line = if line.is_empty() { " " } else { line };
            writeln!(self.text, "{line}").expect("writing to a string");
        }
        self.text.push('\n');
    }

    /// A table, whose cells are escaped already.
    pub(crate) fn table(&mut self, table: &str) {
        self.text.push_str(table);
    }

    /// An empty line between two entries of a list.
    pub(crate) fn gap(&mut self) {
        self.text.push('\n');
    }

    pub(crate) fn finish(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_cannot_imitate_a_field() {
        let mut page = TextPage::new(DetailLevel::Short);
        page.field("Name", "a\nState: COMPLETED");
        page.block("Text", "one\n\nState: COMPLETED\n\n");
        page.field("State", "FAILED");
        let expected =
            "Name: a\\nState: COMPLETED\nText:\none\n \nState: COMPLETED\n\nState: FAILED\n";
        assert_eq!(page.finish(), expected);
    }
}
