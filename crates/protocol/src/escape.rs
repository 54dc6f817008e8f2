//! Letters behind escapes: to find in a text what it quotes, however that was written there.

/// The first letter of a text, with the bytes it takes, as JSON, a query or a program's own notation
/// may have escaped it. What was quoted may have been quoted again, so any number of escapes is one.
/// The end of a text that is nothing but backslashes is no letter.
///
/// ```
/// use herald_protocol::escape::letter;
///
/// assert_eq!(letter("key"), Some(('k', 1)));
/// assert_eq!(letter(r"\u006Bey"), Some(('k', 6)));
/// assert_eq!(letter("%256Bey"), Some(('k', 5)));
/// ```
pub fn letter(text: &str) -> Option<(char, usize)> {
    let bare = text.trim_start_matches('\\');
    let escape = text.len() - bare.len();
    let first = bare.chars().next()?;
    let escaped = match first {
        '%' => percent(bare),
        'u' if escape > 0 => code(bare.get(1..5)).map(|letter| (letter, 5)),
        'n' if escape > 0 => Some(('\n', 1)),
        'r' if escape > 0 => Some(('\r', 1)),
        't' if escape > 0 => Some(('\t', 1)),
        _ => None,
    };
    let (letter, length) = escaped.unwrap_or((first, first.len_utf8()));
    Some((letter, escape + length))
}

/// `%6B`, also as `%256B`. Bytes that are only part of a letter are left alone.
fn percent(text: &str) -> Option<(char, usize)> {
    let digits = text.strip_prefix('%')?;
    let again = digits.trim_start_matches("25");
    let before = text.len() - again.len();
    match code(again.get(..2)) {
        Some(letter) => letter.is_ascii().then_some((letter, before + 2)),
        None => (again.len() < digits.len()).then_some(('%', before)),
    }
}

fn code(digits: Option<&str>) -> Option<char> {
    let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    char::from_u32(u32::from_str_radix(digits, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut text: &str) -> String {
        let mut read = String::new();
        while let Some((letter, length)) = letter(text) {
            read.push(letter);
            text = &text[length..];
        }
        read
    }

    #[test]
    fn a_letter_is_read_behind_any_escape_and_what_is_none_stays() {
        for (text, expected) in [
            ("plain", "plain"),
            (r"a\/b\\\/c", "a/b/c"),
            (r"\u0061\\u0062\U", "abU"),
            (r"one\ntwo\\tthree", "one\ntwo\tthree"),
            ("%41%2542%252543", "ABC"),
            ("100% %2 %25", "100% %2 %"),
            (r"\u00zz%zz", "u00zz%zz"),
            ("%C3%A9 é", "%C3%A9 é"),
            (r"cut\\", "cut"),
            (r"\ud800", "ud800"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
