//! API keys and tenants.

use herald_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::TimeSchema;

/// Filters of a list of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeysQuery {
    /// The keys of this tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The number of entries on a page, 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub page_size: Option<u32>,
    /// The `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// One page of keys, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyPage {
    /// The keys.
    pub keys: Vec<KeyView>,
    /// The token of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// An API key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeyView {
    /// The id, which is not a secret.
    pub id: String,
    /// A name for people.
    pub label: String,
    /// The tenant for which the key acts.
    pub tenant: String,
    /// The principal for which the key acts.
    pub principal: String,
    /// The scopes.
    pub scopes: Vec<String>,
    /// The agents that the key may use; absent if all may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The skills that the key may use; absent if all may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// The tasks that the key sees, `owner` or `tenant`; absent if the server's setting applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    /// `active`, `expired` or `revoked`.
    pub state: String,
    /// The time of creation.
    #[schemars(with = "TimeSchema")]
    pub created: Timestamp,
    /// The principal that created it.
    pub created_by: String,
    /// The time from which it is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub expires: Option<Timestamp>,
    /// The time of its last use, at most a minute late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub last_used: Option<Timestamp>,
    /// The time at which it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub revoked: Option<Timestamp>,
}

/// A key to create.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateKey {
    /// The tenant for which the key acts; by default that of the caller.
    #[serde(default)]
    pub tenant: String,
    /// The principal for which the key acts.
    pub principal: String,
    /// The scopes; by default `send`, `read`, `cancel` and `push`, as far as the caller has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scopes: Option<Vec<String>>,
    /// The agents that the key may use; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<Vec<String>>,
    /// The skills that the key may use; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skills: Option<Vec<String>>,
    /// The tasks that the key sees, `owner` or `tenant`; by default the server's setting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visibility: Option<String>,
    /// The time from which it is refused; never by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub expires: Option<Timestamp>,
    /// A name for people.
    #[serde(default)]
    pub label: String,
}

/// A created key. The only reply that contains the secret.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedKey {
    /// The secret, to be sent as `Authorization: Bearer KEY` or `X-API-Key: KEY`. It cannot be shown
    /// again.
    pub key: String,
    /// The key without its secret.
    #[serde(flatten)]
    pub view: KeyView,
}

impl std::fmt::Debug for CreatedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedKey").field("view", &self.view).finish_non_exhaustive()
    }
}

/// The range of a list of tenants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TenantsQuery {
    /// The number of entries on a page, 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub page_size: Option<u32>,
    /// The `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// One page of tenants and their principals, by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantPage {
    /// The principals, by tenant.
    pub tenants: Vec<TenantView>,
    /// The token of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A principal of a tenant, with its usage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TenantView {
    /// The name; empty for callers without credentials.
    pub tenant: String,
    /// The principal; empty for callers without credentials.
    pub principal: String,
    /// The number of stored tasks.
    pub tasks: u64,
    /// The number of those that have not ended.
    pub active: u64,
    /// The number of those that wait for their agent.
    pub queued: u64,
    /// The bytes of their logs.
    pub bytes: u64,
}
