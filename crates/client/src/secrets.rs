//! Redaction of known secrets in any text, because agents echo what they were sent.

use std::{
    cmp::Reverse,
    collections::VecDeque,
    fmt,
    sync::{Arc, RwLock},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use herald_protocol::{
    escape::{backslashes, letter},
    locks,
};

use crate::{credential::Credential, oauth::Token};

/// Shortest secret that is redacted in sentences: shorter ones would hide ordinary words.
const SHORTEST: usize = 6;

/// Limit of remembered tokens: a long-lived client gets new ones all the time.
const TOKENS: usize = 32;

/// The secrets of a run, also those that are added later. Clones share them.
///
/// They are found in any JSON or percent encoding, and at the end of a truncated text also in part.
#[derive(Clone, Default)]
pub struct Secrets(Arc<RwLock<KnownSecrets>>);

#[derive(Default)]
struct KnownSecrets {
    /// Longest first, so that a secret within another one leaves no part of that.
    all: Vec<String>,
    /// The tokens among them, the oldest first.
    tokens: VecDeque<String>,
}

impl KnownSecrets {
    /// Adds a secret. Returns whether it is new.
    fn add(&mut self, secret: &str) -> bool {
        if secret.is_empty() || self.all.iter().any(|known| known == secret) {
            return false;
        }
        self.all.push(secret.to_owned());
        self.all.sort_by_key(|secret| Reverse(secret.len()));
        true
    }
}

impl Secrets {
    /// Adds a secret.
    pub fn add(&self, secret: &str) {
        locks::write(&self.0).add(secret);
    }

    /// Adds the secrets of a credential.
    pub fn add_credential(&self, credential: &Credential) {
        match credential {
            Credential::Bearer(secret) | Credential::ApiKey(secret) => self.add(secret.expose()),
            Credential::Basic(name, password) => {
                self.add(password.expose());
                self.add(&STANDARD.encode(format!("{name}:{}", password.expose())));
            }
            // The key of a certificate is never sent.
            Credential::Certificate(..) => {}
            Credential::OAuth(oauth) => {
                if let Some((secret, pair)) = oauth.proof() {
                    self.add(secret.expose());
                    self.add(pair.expose());
                }
            }
        }
    }

    /// Adds the secrets of a token. Those of the oldest tokens are dropped after a while.
    pub fn add_token(&self, token: &Token) {
        let mut known = locks::write(&self.0);
        for secret in [Some(&token.access), token.refresh.as_ref()].into_iter().flatten() {
            if known.add(secret.expose()) {
                known.tokens.push_back(secret.expose().to_owned());
            }
            if known.tokens.len() > TOKENS
                && let Some(oldest) = known.tokens.pop_front()
            {
                known.all.retain(|secret| *secret != oldest);
            }
        }
    }

    /// The text with all secrets replaced.
    pub fn redact(&self, text: &str) -> String {
        self.without(text, 1)
    }

    /// The same for a sentence: secrets that are too short are left.
    pub fn redact_sentence(&self, text: &str) -> String {
        self.without(text, SHORTEST)
    }

    fn without(&self, text: &str, shortest: usize) -> String {
        let known = locks::read(&self.0);
        if known.all.is_empty() {
            return text.to_owned();
        }
        let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(first) = rest.chars().next() {
            let mut secrets = known.all.iter().filter(|secret| secret.len() >= shortest);
            let taken = match secrets.find_map(|secret| spelled(rest, secret)) {
                Some(taken) => {
                    shown.push('…');
                    taken
                }
                None => {
                    // Behind every backslash of a row is the same letter.
                    let taken = backslashes(rest).max(first.len_utf8());
                    shown.push_str(&rest[..taken]);
                    taken
                }
            };
            rest = &rest[taken..];
        }
        shown
    }
}

/// Length of the secret at the beginning of a text, in any encoding; at the end of the text a part of the secret
/// is enough.
fn spelled(text: &str, secret: &str) -> Option<usize> {
    if text.starts_with(secret) {
        return Some(secret.len());
    }
    let (mut rest, mut wanted, mut found) = (text, secret, 0);
    while let Some((expected, length)) = letter(wanted) {
        let Some((read, taken)) = letter(rest) else {
            return (found >= SHORTEST).then_some(text.len());
        };
        // A query encodes a space as `+`.
        if read != expected && (read, expected) != ('+', ' ') {
            return None;
        }
        (rest, wanted, found) = (&rest[taken..], &wanted[length..], found + 1);
    }
    Some(text.len() - rest.len())
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_shown_in_no_form() {
        let secrets = Secrets::default();
        secrets.add("k&=1");
        secrets.add("k&=12");
        assert_eq!(secrets.redact("GET /?key=k%26%3D12 k&=1 k&=12"), "GET /?key=… … …");
        let later = secrets.clone();
        later.add("hunter2");
        assert_eq!(secrets.redact_sentence("hunter2 sent k&=1"), "… sent k&=1");
    }

    #[test]
    fn a_secret_is_found_behind_escapes_and_at_the_end_of_what_was_cut() {
        let secrets = Secrets::default();
        secrets.add_credential(&Credential::basic("me", "a/b c%41\\x-canary"));
        for (text, expected) in [
            (r#"{"key":"a\/b c%41\\x-canary"}"#, r#"{"key":"…"}"#),
            (r#"{"key":"\u0061\/b c%41\\x-canary"}"#, r#"{"key":"…"}"#),
            (r#""{\"key\":\"a\\/b c%41\\\\x-canary\"}""#, r#""{\"key\":\"…\"}""#),
            ("/?key=a%2Fb+c%2541%5Cx-canary&x", "/?key=…&x"),
            (r"\\\\ a/b c%41\x-canary", r"\\\\ …"),
            ("Basic bWU6YS9iIGMlNDFceC1jYW5hcnk= was wrong", "Basic … was wrong"),
            ("cut: a/b c%41", "cut: …"),
            (r"cut: a\/b c%41\", "cut: …"),
            ("no: a/b", "no: a/b"),
            ("no: a/b c%42\\x-canary", "no: a/b c%42\\x-canary"),
            // Forms that docs/agents.md lists as not recognized.
            ("no: a&#x2F;b c%41\\x-canary", "no: a&#x2F;b c%41\\x-canary"),
            ("no: YS9iIGMlNDFceC1jYW5hcnk=", "no: YS9iIGMlNDFceC1jYW5hcnk="),
            ("no: 612f6220632534315c782d63616e617279", "no: 612f6220632534315c782d63616e617279"),
            ("no: c%41\\x-canary", "no: c%41\\x-canary"),
        ] {
            assert_eq!(secrets.redact(text), expected, "{text}");
        }
    }

    #[test]
    fn letters_beyond_ascii_and_backslashes_hide_no_secret() {
        let secrets = Secrets::default();
        secrets.add(r"päss🦀\next99");
        for spelled in [
            r"päss🦀\next99",
            r"p\u00e4ss\ud83e\udd80\\next99",
            "p%C3%A4ss%F0%9F%A6%80%5Cnext99",
            "p%25C3%25A4ss%25F0%259F%25A6%2580%255Cnext99",
        ] {
            assert_eq!(secrets.redact(&format!("key={spelled}&x")), "key=…&x", "{spelled}");
        }
    }

    #[test]
    fn a_row_of_backslashes_is_passed_at_once() {
        let secrets = Secrets::default();
        secrets.add("hunter2");
        for row in ["\\".repeat(1 << 20), "%5C".repeat(1 << 20)] {
            assert_eq!(secrets.redact(&row), row);
        }
    }
}
