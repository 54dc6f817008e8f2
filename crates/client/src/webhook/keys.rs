//! Keys for the signatures of webhooks: shared secrets and ed25519 public keys.

use std::{cell::OnceCell, fmt};

use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    hmac,
    signature::{ED25519, UnparsedPublicKey},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde::Deserialize;

use super::proof::WebhookProof;
use crate::error::Error;

/// Limit of keys of one kind. With the limit of signatures it bounds the cost of a forged webhook.
const MAX_KEYS: usize = 8;

/// Limit of signatures that are looked at in one webhook. A rotation of both kinds of keys needs four.
const MAX_SIGNATURES: usize = 8;

/// The trusted keys.
#[derive(Default)]
pub(super) struct SignatureKeys {
    secrets: Vec<hmac::Key>,
    public: Vec<[u8; 32]>,
}

#[derive(Deserialize)]
struct PublishedKeys<'a> {
    #[serde(borrow)]
    keys: Vec<&'a serde_json::value::RawValue>,
}

/// A key of a set, with the members of an ed25519 key.
#[derive(Deserialize)]
struct PublishedKey {
    kty: String,
    crv: Option<String>,
    x: Option<String>,
    r#use: Option<String>,
}

impl SignatureKeys {
    pub(super) fn is_empty(&self) -> bool {
        self.secrets.is_empty() && self.public.is_empty()
    }

    pub(super) fn add_secret(&mut self, text: &str) -> Result<(), Error> {
        let encoded = text.strip_prefix("whsec_").unwrap_or(text);
        let secret =
            STANDARD.decode(encoded).ok().filter(|secret| (24..=64).contains(&secret.len()));
        let secret = secret.ok_or_else(|| {
            Error::setup("a secret for webhooks is whsec_ and 24 to 64 bytes in base64")
        })?;
        if self.secrets.len() == MAX_KEYS {
            return Err(Error::setup(format!(
                "there are more than {MAX_KEYS} secrets for webhooks"
            )));
        }
        self.secrets.push(hmac::Key::new(hmac::HMAC_SHA256, &secret));
        Ok(())
    }

    pub(super) fn add_public_key(&mut self, text: &str) -> Result<(), Error> {
        let encoded = text.strip_prefix("whpk_").unwrap_or(text);
        let key = STANDARD.decode(encoded).ok().and_then(|key| key.try_into().ok());
        self.add_key(key.ok_or_else(|| {
            Error::setup(
                "a public key for webhooks is whpk_ and the 32 bytes of an ed25519 key in base64",
            )
        })?)
    }

    pub(super) fn add_jwks(&mut self, json: &[u8]) -> Result<(), Error> {
        let set: PublishedKeys<'_> =
            serde_json::from_slice(json).map_err(|_| Error::setup("not a JSON Web Key Set"))?;
        let found = set.keys.iter().filter_map(|raw| PublishedKey::ed25519(raw.get()));
        let mut count = 0;
        for key in found {
            self.add_key(key)?;
            count += 1;
        }
        if count == 0 {
            return Err(Error::setup("the JSON Web Key Set has no ed25519 key for signatures"));
        }
        Ok(())
    }

    fn add_key(&mut self, key: [u8; 32]) -> Result<(), Error> {
        if self.public.contains(&key) {
            return Ok(());
        }
        if self.public.len() == MAX_KEYS {
            let text = format!("there are more than {MAX_KEYS} public keys for webhooks");
            return Err(Error::setup(text));
        }
        self.public.push(key);
        Ok(())
    }

    /// The kind of the first valid signature. `head` is the signed text before the body.
    pub(super) fn find_valid(
        &self,
        head: &str,
        body: &[u8],
        signatures: &str,
    ) -> Option<WebhookProof> {
        // A body is hashed once for each key, however many signatures there are.
        let (tags, message) = (OnceCell::new(), OnceCell::new());
        let signatures = signatures.split(' ').filter(|one| !one.is_empty());
        signatures.take(MAX_SIGNATURES).find_map(|one| {
            let (version, encoded) = one.split_once(',')?;
            let signature = STANDARD.decode(encoded).ok()?;
            match version {
                "v1" => {
                    let mut tags = tags.get_or_init(|| self.tags(head, body)).iter();
                    let equal = |tag: &hmac::Tag| verify_slices_are_equal(tag.as_ref(), &signature);
                    tags.any(|tag| equal(tag).is_ok()).then_some(WebhookProof::Hmac)
                }
                "v1a" => {
                    let message = message.get_or_init(|| [head.as_bytes(), body].concat());
                    let signed = |key: &[u8; 32]| {
                        UnparsedPublicKey::new(&ED25519, key).verify(message, &signature).is_ok()
                    };
                    self.public.iter().any(signed).then_some(WebhookProof::Ed25519)
                }
                // Other versions may be beside a known one.
                _ => None,
            }
        })
    }

    fn tags(&self, head: &str, body: &[u8]) -> Vec<hmac::Tag> {
        let tag = |secret| {
            let mut context = hmac::Context::with_key(secret);
            context.update(head.as_bytes());
            context.update(body);
            context.sign()
        };
        self.secrets.iter().map(tag).collect()
    }
}

impl PublishedKey {
    fn ed25519(json: &str) -> Option<[u8; 32]> {
        // A set may contain keys of unknown types.
        let key: Self = serde_json::from_str(json).ok()?;
        let signs = key.r#use.is_none_or(|r#use| r#use == "sig");
        if key.kty != "OKP" || key.crv.as_deref() != Some("Ed25519") || !signs {
            return None;
        }
        URL_SAFE_NO_PAD.decode(key.x?).ok()?.try_into().ok()
    }
}

impl fmt::Debug for SignatureKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignatureKeys")
            .field("secrets", &self.secrets.len())
            .field("public", &self.public.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_standard_webhooks_is_valid() {
        let mut keys = SignatureKeys::default();
        keys.add_secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (head, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.", br#"{"test": 2432232314}"#);
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(keys.find_valid(head, body, signature), Some(WebhookProof::Hmac));
        assert_eq!(keys.find_valid(head, b"{}", signature), None);
    }
}
