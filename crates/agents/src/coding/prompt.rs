//! Prompts on a terminal: a coding agent that prints `… [Y/n]` outside its protocol and waits for a line.

use std::time::Duration;

use herald_protocol::lines::BoundedLine;

use super::dialect::{Approval, ApprovalChoice};

/// Interval of the search for a prompt. An agent that prints nothing more for so long waits.
pub(super) const PROMPT_CHECK: Duration = Duration::from_millis(300);

/// Id of the approval, which no dialect uses.
const ID: &str = "terminal-prompt";

/// Ends of a prompt for yes or no, in lower case.
const ENDS: [&str; 6] = ["[y/n]", "(y/n)", "[yes/no]", "(yes/no)", "[y/n/a]", "(y/n/a)"];

/// Bytes of a line in which a prompt is looked for.
const MAX_LINE: usize = 16 << 10;

/// Search for a prompt that the agent waits at: the same text in two checks, with nothing after it.
#[derive(Debug, Default)]
pub(super) struct PromptWatch {
    /// The last line that was printed, if it is a prompt.
    line: Option<String>,
    /// The last line of plain text before it, which has the question if the prompt is `[Y/n]` alone.
    before: String,
    /// The prompt of the last check.
    seen: Option<String>,
}

impl PromptWatch {
    /// Notes a whole line.
    pub(super) fn note(&mut self, line: &BoundedLine) {
        let (BoundedLine::Whole(line) | BoundedLine::Truncated(line)) = line;
        self.line = prompt(line);
        self.seen = None;
        if let (None, Some(text)) = (&self.line, plain_text(line)) {
            self.before = text;
        }
    }

    /// Checks whether the agent waits at a prompt; `unfinished` is the line that it has begun. Returns the
    /// prompt once.
    pub(super) fn check(&mut self, unfinished: &[u8]) -> Option<String> {
        let found = if unfinished.is_empty() { self.line.clone() } else { prompt(unfinished) };
        if found.is_some() && found == self.seen {
            let before = std::mem::take(self).before;
            return found.map(|text| if text.is_empty() { before } else { text });
        }
        self.seen = found;
        None
    }
}

impl Approval {
    /// The approval of a prompt.
    pub(super) fn of_prompt(prompt: &str) -> Self {
        Self {
            id: ID.to_owned(),
            prompt: prompt.trim_end_matches([' ', '?', ':']).to_owned(),
            choices: vec![
                ApprovalChoice::new("y", "Yes", true),
                ApprovalChoice::new("n", "No", false),
            ],
            ..Self::default()
        }
    }

    /// True for the approval of a prompt, whose answer is a line with the choice.
    pub(super) fn is_prompt(&self) -> bool {
        self.id == ID
    }
}

/// The text before `[Y/n]` or the like, if the line ends with that.
fn prompt(line: &[u8]) -> Option<String> {
    let plain = plain_text(line)?;
    let plain = plain.trim_end_matches([':', '?', '>', ' ']);
    let lower = plain.to_ascii_lowercase();
    let end = ENDS.iter().find(|end| lower.ends_with(*end))?;
    Some(plain[..plain.len() - end.len()].trim().to_owned())
}

/// The text of a line outside the protocols of the agents, whose lines are objects.
fn plain_text(line: &[u8]) -> Option<String> {
    if line.len() > MAX_LINE || line.starts_with(b"{") {
        return None;
    }
    let text = without_escapes(&String::from_utf8_lossy(line)).trim().to_owned();
    Some(text).filter(|text| !text.is_empty())
}

/// The text without the escape sequences that colour it.
fn without_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            // `ESC [`, parameters, and one letter.
            letters.by_ref().skip(1).find(char::is_ascii_alphabetic);
        } else if !letter.is_control() {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_is_a_line_that_ends_with_yes_or_no() {
        for (line, expected) in [
            ("Run rm -r build? [Y/n]", Some("Run rm -r build?")),
            ("Run it? [Y/n] ", Some("Run it?")),
            ("Run it (y/n)?", Some("Run it")),
            ("Continue (yes/no): ", Some("Continue")),
            ("\u{1b}[1mRun it?\u{1b}[0m [y/N]: ", Some("Run it?")),
            ("[Y/n]", Some("")),
            ("Say [Y/n] to go on", None),
            ("{\"text\":\"Run it? [Y/n]\"", None),
            ("", None),
        ] {
            assert_eq!(prompt(line.as_bytes()).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn an_agent_waits_if_nothing_follows_the_prompt() {
        let whole = |text: &str| BoundedLine::Whole(text.as_bytes().to_vec());
        let mut watch = PromptWatch::default();
        assert_eq!(watch.check(b"Run it? [Y/n]"), None, "seen for the first time");
        assert_eq!(watch.check(b"Run it? [Y/n]").as_deref(), Some("Run it?"));
        assert_eq!(watch.check(b""), None, "once");

        watch.note(&whole("Run it? [Y/n]"));
        assert_eq!(watch.check(b""), None);
        watch.note(&whole("{}"));
        assert_eq!(watch.check(b""), None, "it went on");
        assert_eq!(watch.check(b""), None);
        watch.note(&whole("Run it? [Y/n]"));
        assert_eq!((watch.check(b""), watch.check(b"").as_deref()), (None, Some("Run it?")));

        watch.note(&whole("Delete the branch?"));
        let alone = (watch.check(b"[y/N] "), watch.check(b"[y/N] "));
        assert_eq!(alone, (None, Some("Delete the branch?".to_owned())), "the line before it");
    }
}
