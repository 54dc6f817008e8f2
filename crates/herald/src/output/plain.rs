//! Escapes for foreign text, so that an agent cannot control the terminal or change the direction of lines.

use std::fmt::Write;

pub(crate) use herald_protocol::escape::is_active;

/// A text in one line: all control characters are escaped, line ends included.
pub(crate) fn inline(text: &str) -> String {
    escaped(text, |c| c == '\t')
}

/// A text of several lines: all control characters except line ends and tabs are escaped.
pub(crate) fn lines(text: &str) -> String {
    escaped(&text.replace("\r\n", "\n"), |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, kept: impl Fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            c if kept(c) || !is_active(c) => plain.push(c),
            '\n' => plain.push_str("\\n"),
            '\r' => plain.push_str("\\r"),
            c => write!(plain, "\\u{{{:x}}}", u32::from(c)).expect("writing to a string"),
        }
    }
    plain
}

/// A word in quotes, if a shell needs them.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", inline(word).replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        let hostile = "a\u{1b}[2Jb\u{7}c\u{9b}31md\re\u{202e}f\ng";
        let expected = "a\\u{1b}[2Jb\\u{7}c\\u{9b}31md\\re\\u{202e}f";
        assert_eq!(inline(hostile), format!("{expected}\\ng"));
        assert_eq!(lines(hostile), format!("{expected}\ng"));
        assert_eq!(lines("één\r\n\ttwo"), "één\n\ttwo");
    }

    #[test]
    fn a_quoted_word_is_unchanged_for_the_shell() {
        assert_eq!(quoted("http://a:1/x"), "http://a:1/x");
        assert_eq!(quoted("it's $HOME"), "'it'\\''s $HOME'");
        assert_eq!(quoted(""), "''");
    }
}
