//! JSON on standard output.

use std::fmt::Write;

use serde::Serialize;

use super::plain::is_active;

/// One document.
pub(super) fn document(value: &(impl Serialize + ?Sized)) -> String {
    finish(&pretty(value))
}

/// A value on several lines. serde_json's own formatter leaves open values, which are text already,
/// on one line.
pub(crate) fn pretty(value: &(impl Serialize + ?Sized)) -> String {
    indent(&serde_json::to_string(value).expect("our types can be written as JSON"))
}

/// Breaks JSON without white space into lines.
fn indent(json: &str) -> String {
    let mut text = String::with_capacity(json.len() * 2);
    let (mut level, mut in_string, mut escaped) = (0, false, false);
    let mut chars = json.chars().peekable();
    while let Some(c) = chars.next() {
        if in_string {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            text.push(c);
            continue;
        }
        let begin_line = |text: &mut String, level: usize| {
            text.push('\n');
            text.extend(std::iter::repeat_n("  ", level));
        };
        match c {
            '{' | '[' if chars.peek().is_some_and(|next| matches!(next, '}' | ']')) => {
                text.push(c);
                text.extend(chars.next());
            }
            '{' | '[' => {
                level += 1;
                text.push(c);
                begin_line(&mut text, level);
            }
            '}' | ']' => {
                level -= 1;
                begin_line(&mut text, level);
                text.push(c);
            }
            ',' => {
                text.push(c);
                begin_line(&mut text, level);
            }
            ':' => text.push_str(": "),
            '"' => {
                in_string = true;
                text.push(c);
            }
            c => text.push(c),
        }
    }
    text
}

/// One line.
pub(crate) fn line(value: &(impl Serialize + ?Sized)) -> String {
    finish(&serde_json::to_string(value).expect("our types can be written as JSON"))
}

/// Escapes the characters that JSON allows in strings and that control a terminal. The value stays the same.
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
    fn lines_are_broken_as_serde_json_breaks_them() {
        let json = r#"{"a":[],"b":{},"c":[1,[true,null],{"d":"x:,[]{}\\\"\\\\"}],"e\"":-1.5}"#;
        let value: serde_json::Value = serde_json::from_str(json).unwrap();
        let expected = serde_json::to_string_pretty(&value).unwrap();
        assert_eq!(pretty(&value), expected);
        assert_eq!(pretty(&herald_protocol::Json::from(value)), expected);
    }

    #[test]
    fn escapes_do_not_change_the_value_of_a_string() {
        let hostile = "\u{1b}[2J \u{7f} \u{9b}1m \u{202e} é";
        let text = line(hostile);
        assert!(!text.trim_end().chars().any(is_active), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), hostile);
    }
}
