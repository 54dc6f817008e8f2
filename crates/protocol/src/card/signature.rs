//! Signatures of cards: a detached JWS (RFC 7515) over the card's canonical JSON (RFC 8785).
//!
//! This file has the payload and the meaning of a signature. Keys and cryptography are up to the signer and
//! the verifier.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AgentCard, AgentCardSignature};
use crate::{
    error::{Error, ErrorKind},
    json,
};

/// The maximum number of signatures that are checked.
pub const MAX_SIGNATURES: usize = 16;

/// Both forms, the text of the specification first.
const FORMS: [SignedForm; 2] = [SignedForm::Specified, SignedForm::WithoutEmpty];

/// The payload of a signature: the specification can be read in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignedForm {
    /// Required members and those that were given stay, even if they are empty.
    Specified,
    /// Empty members are removed, as in the official SDKs. Such a signature does not cover empty members,
    /// such as a security requirement without scopes.
    WithoutEmpty,
}

/// The header that is signed along with the card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProtectedHeader {
    /// The algorithm, such as `ES256`.
    pub alg: String,
    /// The id of the key.
    pub kid: String,
    /// `JOSE` or absent.
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
    /// The signers are not trusted: their keys are unknown or no longer valid.
    UnknownKey {
        /// The ids of the keys.
        keys: Vec<String>,
    },
    /// A signature does not match this card or is malformed. The card may have been changed.
    Invalid {
        /// The error of the first one.
        reason: String,
    },
}

/// Result of checking one signature with the known keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The signature matches.
    Good,
    /// The signature does not match.
    Bad,
    /// The key is unknown.
    NoKey,
}

/// The payload of a signature of `card`, not encoded.
pub fn payload(card: &AgentCard, form: SignedForm) -> Vec<u8> {
    let unsigned = AgentCard { signatures: Vec::new(), ..card.clone() };
    // The canonicalizer does not accept JSON text, which open objects are.
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

/// The signatures of `card` by one key: a signature of each form, if the two differ, so that readers of
/// the specification and the official SDKs find one that they can verify. `sign` returns the signature of
/// an input, base64url.
pub fn signatures(
    card: &AgentCard,
    header: &ProtectedHeader,
    sign: impl Fn(&str) -> String,
) -> Vec<AgentCardSignature> {
    let protected = header.encode();
    let mut payloads = FORMS.map(|form| payload(card, form)).to_vec();
    payloads.dedup();
    let signed = payloads.iter().map(|payload| AgentCardSignature {
        protected: protected.clone(),
        signature: sign(&signing_input(&protected, payload)),
        header: None,
    });
    signed.collect()
}

/// Verifies the signatures of `card`. `check` verifies one, given its header, the input, and the signature
/// in the card; one good signature is enough.
pub fn verdict(
    card: &AgentCard,
    mut check: impl FnMut(&ProtectedHeader, &str, &str) -> Check,
) -> Verdict {
    if card.signatures.is_empty() {
        return Verdict::Unsigned;
    }
    let payloads = FORMS.map(|form| (form, payload(card, form)));
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

    /// The header in the format of the card.
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
