//! Errors on gRPC: `google.rpc.Status` with the same details as on REST.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::Any;

use crate::{
    error::{Error, Violation},
    message::{decode_base64, encode_base64},
    status::DOMAIN,
};

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
pub struct RpcStatus {
    /// The gRPC status.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The sentence.
    #[prost(string, tag = "2")]
    pub message: String,
    /// More for programs.
    #[prost(message, repeated, tag = "3")]
    pub details: Vec<Any>,
}

/// `google.rpc.ErrorInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct ErrorInfo {
    /// The key to branch on.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The domain that defines the reason.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// Facts.
    #[prost(btree_map = "string, string", tag = "3")]
    pub metadata: BTreeMap<String, String>,
}

/// `google.rpc.BadRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct BadRequest {
    /// The fields at fault.
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<FieldViolation>,
}

/// One field at fault.
#[derive(Clone, PartialEq, Eq, Message)]
pub struct FieldViolation {
    /// Its path, in the names of the JSON form.
    #[prost(string, tag = "1")]
    pub field: String,
    /// One sentence.
    #[prost(string, tag = "2")]
    pub description: String,
}

/// `google.rpc.RetryInfo`.
#[derive(Clone, PartialEq, Message)]
pub struct RetryInfo {
    /// The time after which the same call may succeed.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<prost_types::Duration>,
}

impl prost::Name for RetryInfo {
    const NAME: &'static str = "RetryInfo";
    const PACKAGE: &'static str = "google.rpc";

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}

impl prost::Name for ErrorInfo {
    const NAME: &'static str = "ErrorInfo";
    const PACKAGE: &'static str = "google.rpc";

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}

impl prost::Name for BadRequest {
    const NAME: &'static str = "BadRequest";
    const PACKAGE: &'static str = "google.rpc";

    fn type_url() -> String {
        format!("type.googleapis.com/{}", Self::full_name())
    }
}

impl From<&Error> for RpcStatus {
    fn from(error: &Error) -> Self {
        let codes = error.kind.codes();
        let detail = error.detail.as_deref();
        let facts = detail.into_iter().flat_map(|detail| &detail.metadata);
        let info = ErrorInfo {
            reason: codes.reason.to_owned(),
            domain: DOMAIN.to_owned(),
            metadata: facts.map(|(name, fact)| (name.to_string(), fact.clone())).collect(),
        };
        let mut details = vec![any(&info)];
        let violations = detail.into_iter().flat_map(|detail| &detail.violations);
        let field_violations: Vec<_> = violations
            .map(|Violation { field, description }| FieldViolation {
                field: field.clone(),
                description: description.clone(),
            })
            .collect();
        if !field_violations.is_empty() {
            details.push(any(&BadRequest { field_violations }));
        }
        if let Some(delay) = error.retry_delay() {
            details.push(any(&RetryInfo { retry_delay: delay.try_into().ok() }));
        }
        Self { code: codes.grpc as i32, message: error.message.clone(), details }
    }
}

fn any<M: Message + prost::Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

impl RpcStatus {
    /// Reads the value of the `grpc-status-details-bin` trailer.
    pub fn from_details_bin(text: &str) -> Option<Self> {
        Self::decode(&*decode_base64(text.trim()).ok()?).ok()
    }

    /// The value of the `grpc-status-details-bin` trailer.
    pub fn details_bin(&self) -> String {
        let mut text = encode_base64(&self.encode_to_vec());
        // Writers leave the padding out; readers take both.
        text.truncate(text.trim_end_matches('=').len());
        text
    }

    /// The value of the `grpc-message` trailer: anything but printable ASCII is percent-encoded.
    pub fn message_header(&self) -> String {
        let mut text = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            match byte {
                b' '..=b'$' | b'&'..=b'~' => text.push(char::from(byte)),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        text
    }
}
