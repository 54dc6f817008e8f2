//! JSON on standard output.

use std::fmt::Write;

use serde::Serialize;

use super::plain::is_active;

/// One document.
pub(super) fn document(value: &(impl Serialize + ?Sized)) -> String {
    finish(&serde_json::to_string_pretty(value).expect("our types can be written as JSON"))
}

/// One line.
pub(super) fn line(value: &(impl Serialize + ?Sized)) -> String {
    finish(&serde_json::to_string(value).expect("our types can be written as JSON"))
}

/// Writes out what JSON allows in strings and a terminal would act on: the value stays the same.
pub(super) fn finish(json: &str) -> String {
    let mut text = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c {
            '\n' => text.push('\n'),
            c if is_active(c) => write!(text, "\\u{:04x}", u32::from(c)).expect("a string"),
            c => text.push(c),
        }
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_written_out_and_reads_as_the_same() {
        let hostile = "\u{1b}[2J \u{7f} \u{9b}1m \u{202e} é";
        let text = line(hostile);
        assert!(!text.trim_end().chars().any(is_active), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
    }
}
