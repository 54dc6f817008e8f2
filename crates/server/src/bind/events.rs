//! `GET /events`: the feed of all events of the caller's tasks, as server-sent events.
//!
//! Each event is a JSON-RPC notification. Its `id:` is its position among all events, so that the feed
//! resumes across tasks.

use std::borrow::Cow;

use herald_engine::{AgentRoute, Feed, store::Position};
use herald_protocol::{Dialect, Error, Operation, TaskId, TenantId, Version, percent};
use http::{Response, request::Parts};

use crate::{
    bind::{
        Exchange,
        cursor::LAST_EVENT_ID,
        frames::FrameStream,
        query, rest,
        sse::{self, FrameEnvelope},
    },
    body::Body,
    caller_limits::StreamPermit,
};

/// The dialect for a caller without a version: that of the servers that introduced this path.
const DEFAULT_DIALECT: Dialect = Dialect::V01;

/// The method of every notification.
const METHOD: &str = "tasks/event";

/// The maximum number of tasks in one request.
const MAX_TASKS: usize = 100;

/// Opens the feed of the caller's events.
pub(crate) async fn answer(exchange: &Exchange<'_>) -> Response<Body> {
    let dialect = match dialect(exchange) {
        Ok(dialect) => dialect,
        Err(error) => return rest::refuse(exchange, DEFAULT_DIALECT, error),
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
    let Some(version) = version else { return Ok(DEFAULT_DIALECT) };
    Ok(if Version::negotiate(Some(version))? == Version::V1_0 { Dialect::V1 } else { Dialect::V03 })
}

async fn open(exchange: &Exchange<'_>) -> Result<(Feed, StreamPermit), Error> {
    let tenant = query(exchange.parts, "tenant").filter(|tenant| !tenant.is_empty());
    let tenant =
        tenant.map(|text| percent_decoded("tenant", text)).transpose()?.map(TenantId::from);
    let caller = exchange.caller().await?;
    let caller = match &tenant {
        Some(tenant) => caller.in_tenant(tenant)?,
        None => caller,
    };
    let (tasks, after) = (tasks(exchange.parts)?, position(exchange.parts)?);
    let permit = exchange.stream_permit(&caller)?;
    let route = AgentRoute {
        agent: exchange.agent.clone(),
        extensions: exchange.extensions(),
        ..AgentRoute::default()
    };
    let feed = exchange.shared.engine.follow(&caller, &route, tasks, after).await?;
    Ok((feed.within(exchange.response_quota(&caller)), permit))
}

/// The tasks of the query, as `task_ids=a,b` or `task_ids=a&task_ids=b`.
fn tasks(parts: &Parts) -> Result<Vec<TaskId>, Error> {
    const FIELD: &str = "task_ids";
    let pairs = parts.uri.query().unwrap_or_default().split('&');
    let values = pairs.filter_map(|pair| pair.split_once('=')).filter(|(name, _)| *name == FIELD);
    let names = values.flat_map(|(_, value)| value.split(',')).filter(|name| !name.is_empty());
    let tasks = names.map(|name| percent_decoded(FIELD, name).map(TaskId::from));
    let tasks = tasks.collect::<Result<Vec<_>, _>>()?;
    if tasks.len() > MAX_TASKS {
        Err(Error::field(FIELD, format!("at most {MAX_TASKS} tasks are allowed")))
    } else {
        Ok(tasks)
    }
}

/// The position of the last event that the caller has.
fn position(parts: &Parts) -> Result<Option<Position>, Error> {
    let text = match parts.headers.get(&LAST_EVENT_ID) {
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

fn percent_decoded(field: &str, text: &str) -> Result<String, Error> {
    let percent_decoded = percent::decode(text).map(Cow::into_owned);
    percent_decoded.ok_or_else(|| Error::field(field, "is not percent-encoded UTF-8"))
}
