//! Audit log: records and their verification.

use herald_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::schema::{ProtocolObject, TimeSchema};

/// Filters of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditFilter {
    /// The records of actors of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The records of this principal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The records whose act begins so, such as `key.` or `key.create`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// The records of this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub since: Option<Timestamp>,
    /// The number of entries on a page, 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub page_size: Option<u32>,
    /// The `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// One page of the audit log, the newest record first.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AuditLogPage {
    /// The records.
    pub records: Vec<AuditView>,
    /// The token of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A record of the audit log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AuditView {
    /// The number. Numbers have no gaps.
    pub number: u64,
    /// The time.
    #[schemars(with = "TimeSchema")]
    pub at: Timestamp,
    /// The tenant of the actor.
    pub tenant: String,
    /// The principal of the actor.
    pub principal: String,
    /// The kind of the actor's credential.
    pub credential: String,
    /// The id of that credential, if its kind has ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_id: Option<String>,
    /// The network address of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The act, such as `key.create`.
    pub action: String,
    /// The object of the act.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<AuditSubjectView>,
    /// The reason of a refusal; absent if the act was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Further facts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProtocolObject>")]
    pub detail: Option<Box<RawValue>>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The hash of the record before it, in hexadecimal.
    pub previous: String,
    /// The hash of this record, in hexadecimal.
    pub hash: String,
}

/// The object of an act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditSubjectView {
    /// The kind, such as `task` or `key`.
    pub kind: String,
    /// The id.
    pub id: String,
    /// The tenant of the object's owner, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The principal of the object's owner, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// A record that was kept outside of the server, to compare the log with.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuditVerifyQuery {
    /// Its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// Its hash, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
}

/// The result of a verification of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditVerification {
    /// True if no fault was found.
    pub ok: bool,
    /// The number of records that were verified.
    pub records: u64,
    /// The last record that retention removed, or zero.
    pub removed: u64,
    /// The number of the last verified record.
    pub last: u64,
    /// The hash of that record, in hexadecimal. Kept outside of the server, it reveals a log that was
    /// written anew.
    pub hash: String,
    /// The first fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<AuditFault>,
}

/// A fault of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditFault {
    /// The number of the record.
    pub number: u64,
    /// A sentence.
    pub message: String,
}
