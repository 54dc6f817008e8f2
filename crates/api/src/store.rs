//! Store of the server.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StoreView {
    /// True if the data survives the end of the process.
    pub is_durable: bool,
    /// True if other nodes use the same store.
    pub is_shared: bool,
    /// True if a write would succeed now.
    pub is_writable: bool,
}
