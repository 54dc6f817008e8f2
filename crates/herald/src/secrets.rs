//! What must not be shown, wherever it stands: an agent may send back what it was sent.

use std::sync::{Arc, PoisonError, RwLock};

use herald_client::Token;
use herald_protocol::percent;

/// What is shorter is no secret, and would blot out words in a sentence.
const SHORTEST: usize = 6;

/// All secrets of a run, those included that come while it goes on. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    /// In every form, the longer first, so that a secret within another leaves nothing of it.
    all: Arc<RwLock<Vec<String>>>,
}

impl Secrets {
    pub(crate) fn add(&self, secret: &str) {
        if secret.is_empty() {
            return;
        }
        let mut escaped = String::new();
        percent::encode(&mut escaped, secret);
        // As a query has it.
        let query = escaped.replace("%20", "+").replace("%2A", "*").replace('~', "%7E");
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.extend([query, escaped, secret.to_owned()]);
        all.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        all.dedup();
    }

    /// What an authorization server gave out.
    pub(crate) fn add_token(&self, token: &Token) {
        for secret in [Some(&token.access), token.refresh.as_ref()].into_iter().flatten() {
            self.add(secret.expose());
        }
    }

    /// A text without any of them.
    pub(crate) fn redact(&self, text: &str) -> String {
        self.without(text, 1)
    }

    /// A sentence without those that are long enough to be one.
    pub(crate) fn redact_sentence(&self, text: &str) -> String {
        self.without(text, SHORTEST)
    }

    fn without(&self, text: &str, shortest: usize) -> String {
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let hidden = all.iter().filter(|secret| secret.len() >= shortest);
        hidden.fold(text.to_owned(), |text, secret| text.replace(secret, "…"))
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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
}
