//! `GET /events`: the feed of all events of the caller's tasks, as server-sent events.
//!
//! Each event is a JSON-RPC notification. Its `id:` is its position among all events, so that the feed
//! resumes across tasks.

use std::borrow::Cow;

use herald_engine::{
    AgentRoute, Feed,
    store::{Owner, Position},
};
use herald_protocol::{Dialect, Error, Operation, TaskId, TenantId, Version, percent};
use http::{Response, request::Parts};

use crate::{
    bind::{
        Exchange,
        frames::FrameStream,
        query, rest,
        sse::{self, FrameEnvelope},
        too_many,
    },
    body::Body,
    limits::KeyedPermit,
};

/// The shape of events for a caller who names no version: that of the servers that had this path.
const UNNAMED: Dialect = Dialect::V01;

/// The method of every notification.
const METHOD: &str = "tasks/event";

/// Tasks that one request may name.
const MOST_TASKS: usize = 100;

/// Answers a request for the caller's events.
pub(crate) async fn answer(exchange: &Exchange<'_>) -> Response<Body> {
    let dialect = match dialect(exchange) {
        Ok(dialect) => dialect,
        Err(error) => return rest::refuse(exchange, UNNAMED, error),
    };
    let opened = match exchange.serves(dialect, Operation::SubscribeToTask) {
        Ok(()) => open(exchange).await,
        Err(error) => Err(error),
    };
    match opened {
        Ok((feed, permit)) => {
            let start = Some(feed.position().to_string());
            let frames = FrameStream::of_feed(feed, dialect, exchange.id);
            let keep_alive = exchange.shared.config.timeouts.keep_alive;
            let envelope = FrameEnvelope::Notification(METHOD);
            sse::response(frames, dialect, envelope, start, keep_alive, Some(permit))
        }
        Err(error) => rest::refuse(exchange, dialect, error),
    }
}

fn dialect(exchange: &Exchange<'_>) -> Result<Dialect, Error> {
    let version = exchange.version();
    let version = version.as_deref().map(str::trim).filter(|version| !version.is_empty());
    let Some(version) = version else { return Ok(UNNAMED) };
    Ok(if Version::negotiate(Some(version))? == Version::V1_0 { Dialect::V1 } else { Dialect::V03 })
}

async fn open(exchange: &Exchange<'_>) -> Result<(Feed, KeyedPermit<Owner>), Error> {
    let tenant = query(exchange.parts, "tenant").filter(|tenant| !tenant.is_empty());
    let tenant = tenant.map(|text| decoded("tenant", text)).transpose()?.map(TenantId::from);
    let caller = exchange.caller(tenant.as_ref()).await?;
    let (tasks, after) = (tasks(exchange.parts)?, position(exchange.parts)?);
    let permit =
        exchange.shared.streams.try_acquire(caller.owner().clone()).ok_or_else(too_many)?;
    let route = AgentRoute { agent: exchange.agent.clone(), extensions: exchange.extensions() };
    let feed = exchange.shared.engine.follow(&caller, &route, tasks, after).await?;
    Ok((feed.within(exchange.response_quota(&caller)), permit))
}

/// The tasks that are named, as `task_ids=a,b` or `task_ids=a&task_ids=b`.
fn tasks(parts: &Parts) -> Result<Vec<TaskId>, Error> {
    const FIELD: &str = "task_ids";
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    let values = pairs.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| *name == FIELD);
    let names = values.flat_map(|(_, value)| value.split(',')).filter(|name| !name.is_empty());
    let tasks = names.map(|name| decoded(FIELD, name).map(TaskId::from));
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    if tasks.len() > MOST_TASKS {
        Err(Error::field(FIELD, format!("at most {MOST_TASKS} tasks can be named")))
    } else {
        Ok(tasks)
    }
}

/// The last event that the caller has seen.
fn position(parts: &Parts) -> Result<Option<Position>, Error> {
    let text = match parts.headers.get("last-event-id") {
        Some(value) => value.to_str().unwrap_or("?"),
        None => query(parts, "lastEventId").unwrap_or_default(),
    };
    if text.is_empty() {
        return Ok(None);
    }
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let position = text.parse().ok().filter(|_| digits);
    let malformed = || Error::field("Last-Event-ID", "must be the id of an event of this stream");
    position.map(Some).ok_or_else(malformed)
}

fn decoded(field: &str, text: &str) -> Result<String, Error> {
    let decoded = percent::decode(text).map(Cow::into_owned);
    decoded.ok_or_else(|| Error::field(field, "is not percent-encoded UTF-8"))
}
