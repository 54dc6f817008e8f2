//! Deliveries: the webhooks of tasks, and the attempts to deliver events to them.

use herald_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::TimeSchema;

/// Filters of a list of webhooks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DeliveriesQuery {
    /// `*` for the webhooks of all owners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The tenant of the owners of the tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The principal of the owner of the tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// `idle`, `ready`, `waiting`, `parked` or `disabled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The number of entries on a page, 50 by default. A page before the last may have fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub page_size: Option<u32>,
    /// The `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// One page of webhooks, the newest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryPage {
    /// The webhooks.
    pub deliveries: Vec<DeliveryView>,
    /// The token of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// A webhook of a task, and the state of its deliveries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryView {
    /// The id, which is also in the `webhook-id` of each delivery.
    pub id: String,
    /// The task.
    pub task: String,
    /// The tenant of the owner of the task.
    pub tenant: String,
    /// The principal of the owner of the task.
    pub principal: String,
    /// The id of the push notification config.
    pub config: String,
    /// The URL.
    pub url: String,
    /// `idle`: every event is delivered. `ready`: an event is being delivered. `waiting`: the next attempt
    /// comes later. `parked`: all attempts failed. `disabled`: the receiver answered 410.
    pub state: String,
    /// The number of the last event that was delivered.
    pub cursor: u64,
    /// The failed attempts at the next event.
    pub failures: u32,
    /// The number of all attempts.
    pub attempts: u64,
    /// The time of the registration.
    #[schemars(with = "TimeSchema")]
    pub created: Timestamp,
    /// The time of the next attempt, while it is `waiting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub next_attempt: Option<Timestamp>,
}

/// A webhook with its latest attempts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryDetail {
    /// The webhook.
    pub delivery: DeliveryView,
    /// The latest attempts, the newest first.
    pub attempts: Vec<AttemptView>,
}

/// An attempt to deliver an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptView {
    /// The number of the event.
    pub event: u64,
    /// The time of its end.
    #[schemars(with = "TimeSchema")]
    pub at: Timestamp,
    /// `delivered`; `refused`, if the receiver answered with another status than 2xx; `unreachable`, if it
    /// did not answer.
    pub outcome: String,
    /// The HTTP status, if the receiver answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The milliseconds that it took, for administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub millis: Option<u64>,
    /// The cause of a failure, for administrators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The time of the next attempt, if one follows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub next: Option<Timestamp>,
}

/// The events to deliver again. Exactly one member is present.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReplayDeliveries {
    /// This event alone, now and once. The reply has the attempt as its newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<u64>,
    /// All events from this one on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// All events from this time on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub since: Option<Timestamp>,
}
