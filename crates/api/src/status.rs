//! Status of the server, and the identity of the caller.

use herald_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::TimeSchema;

/// The caller, as the server sees it, and the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServerStatus {
    /// The identity that the credentials of this request prove.
    pub identity: CallerIdentity,
    /// The version of the server.
    pub version: String,
    /// The time of its start.
    #[schemars(with = "TimeSchema")]
    pub started: Timestamp,
    /// The optional parts of the server that are switched on, such as `grpc-reflection`.
    pub features: Vec<String>,
    /// The versions of A2A that are served, the newest first.
    pub protocol_versions: Vec<String>,
    /// The limits that a caller can meet.
    pub limits: StatusLimits,
    /// The ways to authenticate; any one is enough. Empty if no credentials are needed.
    pub schemes: Vec<SchemeView>,
}

/// The identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CallerIdentity {
    /// The tenant; empty without credentials.
    pub tenant: String,
    /// The principal; empty without credentials.
    pub principal: String,
    /// The scopes.
    pub scopes: Vec<String>,
    /// The agents that may be used; absent if all may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The skills that may be used; absent if all may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// The tasks that the caller sees: `owner` for its own, `tenant` for those of its tenant.
    pub visibility: String,
    /// The kind of the credential, such as `anonymous`, `token` or `key`.
    pub credential: String,
    /// The id of the credential, if its kind has ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<String>,
}

/// Limits that a caller can meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusLimits {
    /// The bytes of a request body.
    pub body_bytes: u64,
    /// The open streams of one caller.
    pub streams_per_caller: u64,
    /// The entries of one page of a list.
    pub page_size: u32,
}

/// A way to authenticate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchemeView {
    /// The name in the card.
    pub name: String,
    /// The header to send.
    pub usage: String,
}
