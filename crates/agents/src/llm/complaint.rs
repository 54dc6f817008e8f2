//! What an endpoint says about a failure, as far as it is told. Many repeat what they were sent: the
//! key in a header, or the whole request with the system prompt.

use herald_client::Secrets;
use herald_protocol::escape;
use serde_json::Value;

/// Members that hold the word for an error, by whatever name an endpoint calls them.
const NAMES: [&str; 4] = ["error", "message", "detail", "msg"];

/// Letters of a word that are told.
const MOST: usize = 500;

/// Letters in a row that are no coincidence.
const ROW: usize = 20;

/// What is shorter than this cannot be told from the words of a sentence.
const SHORTEST: usize = 6;

/// The endpoint's word for an error. What else its JSON holds is not told; a text is a word.
pub(super) fn word(said: &str) -> Option<String> {
    match serde_json::from_str(said) {
        Ok(json) => word_in(&json),
        Err(_) => Some(said.to_owned()),
    }
}

/// The same of JSON that has been read.
pub(super) fn word_in(json: &Value) -> Option<String> {
    match json {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items.first().and_then(word_in),
        Value::Object(members) => NAMES.iter().find_map(|name| word_in(members.get(*name)?)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// A word without secrets, as far as it does not repeat the system prompt.
pub(super) fn discreet(word: &str, secrets: &Secrets, system: Option<&str>) -> Option<String> {
    let mut word: String = secrets.redact_sentence(word).trim().chars().take(2 * MOST).collect();
    if let Some(repeated) = system.and_then(|system| repeated(&word, system)) {
        word.truncate(repeated);
        word.push('…');
    }
    let word: String = word.chars().take(MOST).collect();
    Some(word).filter(|word| !word.is_empty())
}

/// Where a text begins to repeat another, with whatever marks and breaks between the letters.
fn repeated(text: &str, private: &str) -> Option<usize> {
    let private: String = letters(private).map(|(_, letter)| letter).collect();
    let row = private.chars().count().min(ROW);
    if row < SHORTEST {
        return None;
    }
    let letters: Vec<_> = letters(text).collect();
    let mut rows = letters.windows(row).map(|row| {
        let (places, row): (Vec<_>, String) = row.iter().copied().unzip();
        (places[0], row)
    });
    rows.find(|(_, row)| private.contains(row)).map(|(place, _)| place)
}

/// The letters and digits of a text, and where they stand.
fn letters(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut at = 0;
    let all = std::iter::from_fn(move || {
        let (letter, length) = escape::letter(&text[at..])?;
        at += length;
        Some((at - length, letter))
    });
    all.filter(|(_, letter)| letter.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_for_an_error_is_found_by_any_name() {
        for (said, expected) in [
            (r#"{"error":{"message":"no","code":"x"}}"#, Some("no")),
            (r#"{"error":"no","request":"secret"}"#, Some("no")),
            (r#"[{"error":{"code":400,"message":"no"}}]"#, Some("no")),
            (r#"{"object":"error","message":"no"}"#, Some("no")),
            (r#"{"error":true,"message":"no"}"#, Some("no")),
            (r#"{"detail":[{"loc":["body"],"msg":"no","input":{"model":1}}]}"#, Some("no")),
            ("404 page not found", Some("404 page not found")),
            (r#"{"status":"no"}"#, None),
            ("[]", None),
        ] {
            assert_eq!(word(said).as_deref(), expected, "{said}");
        }
    }

    #[test]
    fn a_word_ends_where_it_repeats_the_system_prompt() {
        let system = "Be a poet.\nNever say “no”.\nThe password is swordfish.";
        for (said, expected) in [
            (r"bad input 'Be a poet.\nNever say \u201cno\u201d.\nThe pass", "bad input '…"),
            (r#"bad "say \\u201cno\\u201d.\\nThe password is swordf"#, "bad \"…"),
            ("the password is wrong", "the password is wrong"),
        ] {
            let told = discreet(said, &Secrets::default(), Some(system));
            assert_eq!(told.as_deref(), Some(expected), "{said}");
        }
        let short = discreet("bad: Sing!", &Secrets::default(), Some("Sing"));
        assert_eq!(short.as_deref(), Some("bad: Sing!"), "a word is no secret");
        let short = discreet("bad: Sing well!", &Secrets::default(), Some("Sing well."));
        assert_eq!(short.as_deref(), Some("bad: …"));
    }
}
