//! Signatures of deliveries, as Standard Webhooks defines them.
//!
//! The signed content is `{id}.{timestamp}.{body}`. Each secret and each key adds one signature to the header, so
//! that receivers accept the old and the new one while they are replaced.

use std::{fmt, sync::Arc};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::WebhookSettingError;
use crate::signing::SigningKey;

/// The prefix of secrets.
const SECRET_PREFIX: &str = "whsec_";

/// Signer of deliveries.
pub(super) struct DeliverySigner {
    secrets: Vec<hmac::Key>,
    keys: Vec<Arc<SigningKey>>,
}

impl fmt::Debug for DeliverySigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secrets = self.secrets.len();
        f.debug_struct("DeliverySigner")
            .field("secrets", &secrets)
            .field("keys", &self.keys)
            .finish()
    }
}

impl DeliverySigner {
    pub(super) fn new(
        secrets: &[String],
        keys: &[Arc<SigningKey>],
    ) -> Result<Self, WebhookSettingError> {
        let secret = |(index, text): (usize, &String)| {
            let bytes = text.trim().strip_prefix(SECRET_PREFIX);
            let bytes = bytes.and_then(|text| STANDARD.decode(text).ok());
            let bytes = bytes.filter(|bytes| (24..=64).contains(&bytes.len()));
            let bytes = bytes.ok_or(WebhookSettingError::SigningSecret(index + 1))?;
            Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
        };
        if let Some(other) = keys.iter().find(|key| !key.is_ed25519()) {
            return Err(WebhookSettingError::SigningKey(other.id().to_owned()));
        }
        let secrets = secrets.iter().enumerate().map(secret).collect::<Result<_, _>>()?;
        Ok(Self { secrets, keys: keys.to_vec() })
    }

    /// The keys that sign.
    pub(super) fn keys(&self) -> &[Arc<SigningKey>] {
        &self.keys
    }

    /// The value of `webhook-signature`, if there is a secret or a key.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> Option<String> {
        if self.secrets.is_empty() && self.keys.is_empty() {
            return None;
        }
        let mut content = format!("{id}.{timestamp}.").into_bytes();
        content.extend_from_slice(body);
        let symmetric = self
            .secrets
            .iter()
            .map(|secret| format!("v1,{}", STANDARD.encode(hmac::sign(secret, &content))));
        let asymmetric = self.keys.iter().filter_map(|key| {
            Some(format!("v1a,{}", STANDARD.encode(key.sign_ed25519(&content)?)))
        });
        Some(symmetric.chain(asymmetric).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn the_example_of_the_standard_has_its_signature() {
        let signer = DeliverySigner::new(&[SECRET.to_owned()], &[]).unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = signer.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body).unwrap();
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn each_secret_and_each_key_signs() {
        let directory = tempfile::tempdir().unwrap();
        let key = |name: &str| {
            let path = directory.path().join(name);
            Arc::new(SigningKey::read_or_create_ed25519(&path).unwrap())
        };
        let keys = [key("a.pem"), key("b.pem")];
        let other = format!("whsec_{}", STANDARD.encode([7; 24]));
        let signer = DeliverySigner::new(&[SECRET.to_owned(), other], &keys).unwrap();
        let signed = signer.sign("id", 1, b"{}").unwrap();
        let versions: Vec<_> = signed.split(' ').map(|one| one.split_once(',').unwrap()).collect();
        let names: Vec<_> = versions.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["v1", "v1", "v1a", "v1a"]);
        assert_ne!(versions[0].1, versions[1].1);
        for (key, (_, signature)) in keys.iter().zip(&versions[2..]) {
            let public = UnparsedPublicKey::new(&ED25519, key.ed25519_public_key().unwrap());
            public.verify(b"id.1.{}", &STANDARD.decode(signature).unwrap()).unwrap();
            assert!(public.verify(b"id.2.{}", &STANDARD.decode(signature).unwrap()).is_err());
        }
        assert!(!format!("{signer:?}").contains("MfKQ9"));
    }

    #[test]
    fn without_a_secret_or_a_key_there_is_no_signature() {
        assert_eq!(DeliverySigner::new(&[], &[]).unwrap().sign("id", 1, b""), None);
    }

    #[test]
    fn malformed_secrets_and_keys_of_another_kind_are_refused() {
        for secret in ["", "whsec_", "whsec_short", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_?"] {
            let error = DeliverySigner::new(&[SECRET.to_owned(), secret.to_owned()], &[]);
            assert_eq!(error.unwrap_err(), WebhookSettingError::SigningSecret(2), "{secret}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = SigningKey::create(directory.path(), "es256").unwrap();
        let key = Arc::new(SigningKey::read(&path).unwrap());
        let error = DeliverySigner::new(&[], &[key]).unwrap_err();
        assert_eq!(error, WebhookSettingError::SigningKey("es256".to_owned()));
    }
}
