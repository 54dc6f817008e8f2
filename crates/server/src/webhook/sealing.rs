//! Encryption of the stored tokens and credentials of webhooks, with AES-256-GCM.
//!
//! A sealed secret is a version, the id of its key, a random nonce and the ciphertext. The URL of the webhook is
//! authenticated with it: who can write to the store cannot redirect a token to another receiver.

use std::{
    fmt, fs,
    io::{self, Write},
    path::Path,
};

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use herald_engine::webhooks::sender::SealedSecrets;
use serde::{Deserialize, Serialize};

use super::WebhookSettingError;

/// The version of the format.
const VERSION: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const KEY_ID_CONTEXT: &str = "herald 2026-11-17 id of a key of webhook secrets";

/// The secrets of a webhook.
#[derive(Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct WebhookSecrets {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheme: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) credentials: Option<String>,
}

impl fmt::Debug for WebhookSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecrets(…)")
    }
}

/// A key that encrypts the secrets of webhooks. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretsKey([u8; 32]);

impl fmt::Debug for SecretsKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretsKey(…)")
    }
}

impl SecretsKey {
    /// A random key.
    pub fn generate() -> io::Result<Self> {
        let mut bytes = [0; 32];
        aws_lc_rs::rand::fill(&mut bytes)
            .map_err(|_| io::Error::other("the system has no random numbers"))?;
        Ok(Self(bytes))
    }

    /// Reads 32 bytes in base64.
    pub fn parse(text: &str) -> Result<Self, WebhookSettingError> {
        let bytes = STANDARD.decode(text.trim()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or(WebhookSettingError::SecretsKey)
    }

    /// Reads the key in a file, or generates one and writes it to the file, readable by its owner only.
    pub fn read_or_create(path: &Path) -> io::Result<Self> {
        match Self::read(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            read => return read,
        }
        let key = Self::generate()?;
        let mut options = fs::File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path)?;
        writeln!(file, "{}", STANDARD.encode(key.0))?;
        file.sync_all()?;
        Ok(key)
    }

    /// Reads the key in a file.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(path)?;
        Self::parse(&text).map_err(|_| {
            let text = "it is not a key of 32 bytes in base64; restore the file from a backup, or remove \
                        it, which loses the tokens and credentials of the stored webhooks";
            io::Error::new(io::ErrorKind::InvalidData, text)
        })
    }

    fn id(&self) -> [u8; KEY_ID_BYTES] {
        let hash = blake3::derive_key(KEY_ID_CONTEXT, &self.0);
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&hash[..KEY_ID_BYTES]);
        id
    }
}

/// Sealer of secrets.
pub(super) struct SecretSealer(Vec<([u8; KEY_ID_BYTES], RandomizedNonceKey)>);

impl fmt::Debug for SecretSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretSealer").field("keys", &self.0.len()).finish()
    }
}

impl SecretSealer {
    /// The first key seals, all open. The list must not be empty.
    pub(super) fn new(keys: &[SecretsKey]) -> Self {
        let key = |key: &SecretsKey| {
            let cipher = RandomizedNonceKey::new(&AES_256_GCM, &key.0);
            (key.id(), cipher.expect("the key has the length of the cipher"))
        };
        Self(keys.iter().map(key).collect())
    }

    /// Seals secrets for a URL.
    pub(super) fn seal(&self, secrets: &WebhookSecrets, url: &str) -> Option<SealedSecrets> {
        if *secrets == WebhookSecrets::default() {
            return Some(SealedSecrets::default());
        }
        let (id, key) = self.0.first()?;
        let mut text = serde_json::to_vec(secrets).ok()?;
        let nonce = key.seal_in_place_append_tag(Aad::from(url.as_bytes()), &mut text).ok()?;
        let sealed = [&[VERSION][..], &id[..], &nonce.as_ref()[..], &text[..]].concat();
        Some(SealedSecrets(Bytes::from(sealed)))
    }

    /// Opens the secrets of a URL. The error is for administrators.
    pub(super) fn open(
        &self,
        sealed: &SealedSecrets,
        url: &str,
    ) -> Result<WebhookSecrets, &'static str> {
        const DAMAGED: &str = "the stored token or credentials of the webhook are damaged, or were \
                               stored for another URL; register the webhook again";
        if sealed.0.is_empty() {
            return Ok(WebhookSecrets::default());
        }
        let (version, rest) = sealed.0.split_first().ok_or(DAMAGED)?;
        let (id, rest) = rest.split_at_checked(KEY_ID_BYTES).ok_or(DAMAGED)?;
        let (nonce, text) = rest.split_at_checked(NONCE_LEN).ok_or(DAMAGED)?;
        if *version != VERSION {
            return Err(
                "the stored token or credentials of the webhook have the format of a newer \
                        version of Herald",
            );
        }
        let key = self.0.iter().find(|(known, _)| known == id);
        let (_, key) = key.ok_or(
            "the key of the stored token or credentials of the webhook is missing: add it to `[push] \
             secrets_key` or restore push.key, or register the webhook again",
        )?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| DAMAGED)?;
        let mut text = text.to_vec();
        let text = key.open_in_place(nonce, Aad::from(url.as_bytes()), &mut text);
        serde_json::from_slice(text.map_err(|_| DAMAGED)?).map_err(|_| DAMAGED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "https://receiver.example.com/hook";

    fn secrets() -> WebhookSecrets {
        WebhookSecrets { token: Some("canary-7c5e-sealed".to_owned()), ..WebhookSecrets::default() }
    }

    #[test]
    fn secrets_are_sealed_opened_and_not_readable_between() {
        let sealer = SecretSealer::new(&[SecretsKey::generate().unwrap()]);
        let sealed = sealer.seal(&secrets(), URL).unwrap();
        assert_eq!(sealer.open(&sealed, URL).unwrap(), secrets());
        assert!(!sealed.0.windows(6).any(|part| part == b"canary"));
        assert_ne!(sealer.seal(&secrets(), URL).unwrap(), sealed, "the nonce is random");
        assert!(!format!("{:?}", secrets()).contains("canary"));
        let none = WebhookSecrets::default();
        assert_eq!(sealer.seal(&none, URL).unwrap(), SealedSecrets::default());
        assert_eq!(sealer.open(&SealedSecrets::default(), URL).unwrap(), none);
    }

    #[test]
    fn every_changed_byte_and_every_shorter_text_is_refused() {
        let sealer = SecretSealer::new(&[SecretsKey::generate().unwrap()]);
        let sealed = sealer.seal(&secrets(), URL).unwrap().0;
        for index in 0..sealed.len() {
            let mut changed = sealed.to_vec();
            changed[index] ^= 1;
            assert!(sealer.open(&SealedSecrets(changed.into()), URL).is_err(), "byte {index}");
            if index > 0 {
                let shorter = SealedSecrets(sealed.slice(..index));
                assert!(sealer.open(&shorter, URL).is_err(), "{index} bytes");
            }
        }
        assert!(sealer.open(&SealedSecrets(sealed), "https://other.example.com/").is_err());
    }

    #[test]
    fn the_first_key_seals_and_all_keys_open() {
        let [old, new] = [(); 2].map(|()| SecretsKey::generate().unwrap());
        let before = SecretSealer::new(std::slice::from_ref(&old));
        let sealed = before.seal(&secrets(), URL).unwrap();
        let rotated = SecretSealer::new(&[new.clone(), old]);
        assert_eq!(rotated.open(&sealed, URL).unwrap(), secrets());
        let resealed = rotated.seal(&secrets(), URL).unwrap();
        let after = SecretSealer::new(&[new]);
        assert_eq!(after.open(&resealed, URL).unwrap(), secrets());
        let lost = after.open(&sealed, URL).unwrap_err();
        assert!(lost.contains("secrets_key"), "{lost}");
    }

    #[test]
    fn a_key_file_is_private_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("push.key");
        let key = SecretsKey::read_or_create(&path).unwrap();
        assert!(SecretsKey::read_or_create(&path).unwrap() == key);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(&path, "damaged").unwrap();
        let error = SecretsKey::read_or_create(&path).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert_eq!(fs::read(&path).unwrap(), b"damaged");
        assert!(SecretsKey::parse(&STANDARD.encode([0; 31])).is_err());
    }
}
