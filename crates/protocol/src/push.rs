//! Push notification configuration: the webhook of a task.

use serde::{Deserialize, Serialize};

use crate::{
    id::{PushConfigId, TaskId, TenantId},
    validate::{Validate, Violations, empty_as_none, null_as_default},
};

/// One webhook of one task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct PushConfig {
    /// The namespace it was registered in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Its name within the task; the server chooses one when it is absent.
    #[serde(default, deserialize_with = "empty_as_none", skip_serializing_if = "Option::is_none")]
    pub id: Option<PushConfigId>,
    /// The task. Absent while it travels inside a send.
    #[serde(
        default,
        alias = "task_id",
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_id: Option<TaskId>,
    /// The webhook's URL.
    #[serde(default, deserialize_with = "null_as_default")]
    pub url: String,
    /// A secret the receiver can recognise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Credentials for the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<PushAuthentication>,
}

/// Credentials for a webhook's receiver: `Authorization: {scheme} {credentials}`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct PushAuthentication {
    /// The HTTP authentication scheme, such as `Bearer`.
    #[serde(default)]
    pub scheme: String,
    /// The credentials, which follow the scheme in the header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<String>,
}

/// One page of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfigPage {
    /// The webhooks.
    #[serde(default)]
    pub configs: Vec<PushConfig>,
    /// Token of the next page; empty on the last one.
    #[serde(default, alias = "next_page_token")]
    pub next_page_token: String,
}

impl Validate for PushConfig {
    fn validate(&self, at: &mut Violations<'_>) {
        if self.url.is_empty() {
            at.add("url", "is required");
        }
        at.optional_id("id", self.id.as_ref().map(PushConfigId::as_str));
        at.optional_id("taskId", self.task_id.as_ref().map(TaskId::as_str));
    }
}

crate::object::objects_only!(both PushConfig PushAuthentication);
