//! Signatures of cards: a detached JWS (RFC 7515) over the card's canonical JSON (RFC 8785).
//!
//! Here is what is signed and what a signature means. Keys and arithmetic belong to whoever signs or
//! checks.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentCard, AgentCardSignature};
use crate::{
    error::{Error, ErrorKind},
    json,
};

/// More signatures than this are not looked at.
pub const MAX_SIGNATURES: usize = 16;

/// The payload of a signature: the specification can be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedForm {
    /// Required members stay although they are empty, and so does what was given explicitly.
    Specified,
    /// Nothing that is empty stays, as the official SDKs have it. Such a signature says nothing about
    /// what is empty, and a security requirement without scopes is.
    WithoutEmpty,
}

/// The header that is signed along with the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedHeader {
    /// The algorithm, such as `ES256`.
    pub alg: String,
    /// Which key has signed.
    pub kid: String,
    /// `JOSE`, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typ: Option<String>,
    /// URL of the keys, as the signer claims it. Trusting it means trusting the signer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jku: Option<String>,
    /// Extensions that a reader must support. This one supports none.
    #[serde(default, skip_serializing)]
    crit: Option<Value>,
}

/// Verdict on the signatures of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// A key that is trusted has signed this card.
    Verified {
        /// The key.
        key: String,
        /// The payload form that was signed.
        form: SignedForm,
    },
    /// The card has no signature.
    Unsigned,
    /// Those who signed it are not trusted: their keys are not known, or no longer valid.
    UnknownKey {
        /// The keys they name.
        keys: Vec<String>,
    },
    /// A signature is not over this card, or is none. Somebody may have changed the card.
    Invalid {
        /// The fault of the first one.
        reason: String,
    },
}

/// Result of checking one signature with the known keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// It is over these bytes.
    Good,
    /// It is not.
    Bad,
    /// There is no key to tell by.
    NoKey,
}

/// The bytes that a signature of `card` is over, before they are encoded.
pub fn payload(card: &AgentCard, form: SignedForm) -> Vec<u8> {
    let unsigned = AgentCard { signatures: Vec::new(), ..card.clone() };
    // The canonicalizer takes no text that is JSON already, as open objects are.
    let value = serde_json::from_slice(&json::write(&unsigned));
    let value: Value = value.expect("a card that was written can be read");
    let value = match form {
        SignedForm::Specified => value,
        SignedForm::WithoutEmpty => without_empty(value).unwrap_or_default(),
    };
    serde_json_canonicalizer::to_vec(&value).expect("a card has string keys and finite numbers")
}

/// The signing input: the encoded header, a full stop, and the encoded payload.
pub fn signing_input(protected: &str, payload: &[u8]) -> String {
    format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload))
}

/// Judges the signatures of `card`. `check` is asked whether a signature (its header, the input, and
/// the signature as it stands in the card) is good; one that is decides.
pub fn verdict(
    card: &AgentCard,
    mut check: impl FnMut(&ProtectedHeader, &str, &str) -> Check,
) -> Verdict {
    if card.signatures.is_empty() {
        return Verdict::Unsigned;
    }
    let payloads =
        [SignedForm::Specified, SignedForm::WithoutEmpty].map(|form| (form, payload(card, form)));
    let (mut unknown, mut wrong) = (Vec::new(), None);
    for signature in card.signatures.iter().take(MAX_SIGNATURES) {
        let header = match signature.protected_header() {
            Ok(header) => header,
            Err(error) => {
                wrong.get_or_insert(error.message);
                continue;
            }
        };
        for (form, payload) in &payloads {
            let input = signing_input(&signature.protected, payload);
            match check(&header, &input, &signature.signature) {
                Check::Good => return Verdict::Verified { key: header.kid, form: *form },
                Check::Bad if *form == SignedForm::WithoutEmpty => {
                    let reason = format!("the signature of key {:?} is not over it", header.kid);
                    wrong.get_or_insert(reason);
                }
                Check::Bad => {}
                Check::NoKey => {
                    unknown.push(header.kid);
                    break;
                }
            }
        }
    }
    match wrong {
        Some(reason) => Verdict::Invalid { reason },
        None => Verdict::UnknownKey { keys: unknown },
    }
}

impl AgentCardSignature {
    /// Reads the header that was signed.
    pub fn protected_header(&self) -> Result<ProtectedHeader, Error> {
        let wrong = |text: &str| Error::new(ErrorKind::InvalidParams, text);
        let bytes = URL_SAFE_NO_PAD.decode(&self.protected);
        let bytes = bytes.map_err(|_| wrong("a protected header is not base64url"))?;
        let header: ProtectedHeader = serde_json::from_slice(&bytes)
            .map_err(|_| wrong("a protected header does not name its algorithm and its key"))?;
        match header.crit {
            None => Ok(header),
            Some(_) => Err(wrong("a protected header demands what this reader does not know")),
        }
    }
}

impl ProtectedHeader {
    /// The header of a signature by this key.
    pub fn new(alg: impl Into<String>, kid: impl Into<String>) -> Self {
        let typ = Some("JOSE".to_owned());
        Self { alg: alg.into(), kid: kid.into(), typ, jku: None, crit: None }
    }

    /// The header as it stands in a card.
    pub fn encode(&self) -> String {
        URL_SAFE_NO_PAD.encode(json::write(self))
    }
}

impl Verdict {
    /// True if a trusted key has signed the card.
    pub fn is_verified(&self) -> bool {
        matches!(self, Self::Verified { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verified { key, .. } => write!(f, "verified by {key:?}"),
            Self::Unsigned => f.write_str("unsigned"),
            Self::UnknownKey { keys } => write!(f, "signed by unknown keys: {keys:?}"),
            Self::Invalid { reason } => write!(f, "invalid: {reason}"),
        }
    }
}

/// A value without empty texts, lists and objects.
fn without_empty(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::String(text) => (!text.is_empty()).then_some(Value::String(text)),
        Value::Array(items) => {
            let left: Vec<_> = items.into_iter().filter_map(without_empty).collect();
            (!left.is_empty()).then_some(Value::Array(left))
        }
        Value::Object(members) => {
            let left = members.into_iter().filter_map(|(k, v)| Some((k, without_empty(v)?)));
            let left: serde_json::Map<_, _> = left.collect();
            (!left.is_empty()).then_some(Value::Object(left))
        }
        Value::Bool(_) | Value::Number(_) => Some(value),
    }
}
