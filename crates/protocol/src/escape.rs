//! Decodes JSON, percent and backslash escapes, so that a secret is found in any encoding.

/// The first character of a text and its length in bytes, with escapes of JSON, of queries and of common
/// program output decoded. Quoted text may be quoted again, so any number of escapes counts as one, and a
/// backslash is part of the character after it. `None` for a text of backslashes alone.
///
/// ```
/// use herald_protocol::escape::letter;
///
/// assert_eq!(letter("key"), Some(('k', 1)));
/// assert_eq!(letter(r"\u006Bey"), Some(('k', 6)));
/// assert_eq!(letter("%256Bey"), Some(('k', 5)));
/// ```
pub fn letter(text: &str) -> Option<(char, usize)> {
    let escape = backslashes(text);
    let (bare, is_escaped) = (&text[escape..], escape > 0);
    let first = bare.chars().next()?;
    let escaped = match first {
        '%' => percent(bare),
        'u' if is_escaped => utf16(bare),
        'n' if is_escaped => Some(('\n', 1)),
        'r' if is_escaped => Some(('\r', 1)),
        't' if is_escaped => Some(('\t', 1)),
        _ => None,
    };
    let (letter, length) = escaped.unwrap_or((first, first.len_utf8()));
    Some((letter, escape + length))
}

/// True for control characters, which a terminal could act on, and for marks of writing direction, which
/// could mislead a reader by reversing text.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}' | '\u{2029}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// The number of bytes of leading backslashes, escaped or not.
pub fn backslashes(text: &str) -> usize {
    let mut bare = text.trim_start_matches('\\');
    while let Some(('\\', length)) = percent(bare) {
        bare = bare[length..].trim_start_matches('\\');
    }
    text.len() - bare.len()
}

/// `%6B`, also as `%256B`, and `%C3%A4`. Incomplete UTF-8 is not decoded.
fn percent(text: &str) -> Option<(char, usize)> {
    let (mut bytes, mut rest) = ([0; 4], text);
    for count in 1..=bytes.len() {
        let digits = rest.strip_prefix('%')?;
        let again = digits.trim_start_matches("25");
        let Some(byte) = hex(again.get(..2)).and_then(|code| u8::try_from(code).ok()) else {
            // An escaped percent sign.
            let alone = count == 1 && again.len() < digits.len();
            return alone.then_some(('%', text.len() - again.len()));
        };
        (bytes[count - 1], rest) = (byte, &again[2..]);
        if let Some(letter) =
            str::from_utf8(&bytes[..count]).ok().and_then(|read| read.chars().next())
        {
            return Some((letter, text.len() - rest.len()));
        }
    }
    None
}

/// The character at the beginning of a text such as `u006B` or `ud83e\udd80`, and the length of its escape.
/// Text that was escaped several times has more backslashes between the two halves of a pair.
fn utf16(text: &str) -> Option<(char, usize)> {
    let unit = |text: &str| u16::try_from(hex(text.strip_prefix('u')?.get(..4))?).ok();
    let high = unit(text)?;
    if let Some(letter) = char::from_u32(high.into()) {
        return Some((letter, 5));
    }
    let low = text[5..].trim_start_matches('\\');
    let letter = char::decode_utf16([high, unit(low)?]).next()?.ok()?;
    Some((letter, text.len() - low.len() + 5))
}

fn hex(digits: Option<&str>) -> Option<u32> {
    let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
    u32::from_str_radix(digits, 16).ok()
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
            ("%C3%A9 é", "é é"),
            ("%C3x %A9 %C3%", "%C3x %A9 %C3%"),
            (r"\ud83e\udd80 \ud83e\\udd80", "🦀 🦀"),
            ("a%5Cx%255C%5Cy", "axy"),
            (r"cut\\", "cut"),
            (r"\ud800", "ud800"),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
