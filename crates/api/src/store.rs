//! Store of the server.

use herald_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::TimeSchema;

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreView {
    /// True if the data survives the end of the process.
    pub is_durable: bool,
    /// True if other nodes use the same store.
    pub is_shared: bool,
    /// True if a write would succeed now.
    pub is_writable: bool,
    /// The bytes of the database.
    pub bytes: u64,
    /// The bytes of the write-ahead log.
    pub log_bytes: u64,
    /// The free bytes of the disk; absent if the store is not on a disk of this machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// The version of the schema.
    pub schema: u32,
    /// The number of stored tasks.
    pub tasks: u64,
    /// The number of those that have not ended.
    pub active: u64,
    /// The number of those that wait for their agent.
    pub queued: u64,
    /// The time of the oldest event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub oldest: Option<Timestamp>,
    /// The number of the last record of the audit log.
    pub audit_records: u64,
}
