//! Bodies of deliveries. A body depends on the task, the event, the start and the version of the webhook
//! alone, so that every attempt at a delivery has the same bytes.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use herald_protocol::{Dialect, Error, Seq, StreamEvent, TraceContext};

use crate::{
    codec,
    core::Core,
    fault::refuse,
    read::view::shown,
    rules::{self, Event, Record},
    store::{Entry, Kind, Webhook},
};

/// Entries taken from the log at once.
const PAGE: usize = 16;

/// The next delivery of a webhook.
#[derive(Debug)]
pub(crate) struct Payload {
    pub(crate) seq: Seq,
    pub(crate) body: Bytes,
    pub(crate) content_type: &'static str,
}

/// Reader of the log of a task for one webhook.
#[derive(Debug)]
pub(crate) struct PayloadReader<'a> {
    core: &'a Core,
    webhook: &'a Webhook,
    ready: VecDeque<Entry>,
    /// The last event that was read.
    reached: Seq,
    /// The end of the log when nothing was left to deliver.
    seen: Seq,
    /// The task as of the last event, for versions whose deliveries are whole tasks.
    record: Option<Record>,
    /// The trace of the last message that was read.
    pub(crate) trace: Option<TraceContext>,
}

impl<'a> PayloadReader<'a> {
    pub(crate) fn new(core: &'a Core, webhook: &'a Webhook) -> Self {
        let reached = webhook.cursor;
        let ready = VecDeque::new();
        Self { core, webhook, ready, reached, seen: reached, record: None, trace: None }
    }

    /// The last event that was read. Events up to here that were not returned need no delivery.
    pub(crate) fn reached(&self) -> Seq {
        self.reached
    }

    /// The end of the log as far as this reader knows it: only a later event can be a delivery.
    pub(crate) fn seen(&self) -> Seq {
        self.seen.max(self.reached)
    }

    /// The next delivery; `None` if the log has no further event for the webhook now.
    pub(crate) async fn next(&mut self) -> Result<Option<Payload>, Error> {
        let (key, start) = (&self.webhook.key, self.webhook.start);
        if self.reached < start {
            let Some(record) = self.core.find_any(key).await? else { return Ok(None) };
            self.trace = self.trace_at(start).await;
            // A direct answer has no task to show: its delivery is the answer.
            if !record.hidden {
                let task = self.core.task_after(key, start, None).await?;
                self.reached = start;
                let body = match self.dialect() {
                    Dialect::V1 => codec::encode_task(&task),
                    legacy @ (Dialect::V03 | Dialect::V03Rest | Dialect::V01) => {
                        legacy.encode_task(&task).into()
                    }
                };
                return Ok(Some(self.payload(start, body)));
            }
            if !record.is_closed() {
                self.seen = record.head;
                return Ok(None);
            }
            self.reached = start;
        }
        while let Some(entry) = self.next_entry().await? {
            if let Some(body) = self.body(&entry).await? {
                return Ok(Some(self.payload(entry.seq, body)));
            }
        }
        Ok(None)
    }

    /// The version of the deliveries. Those of 0.3 have the form that names its kind, also for callers
    /// of REST.
    fn dialect(&self) -> Dialect {
        match self.webhook.target.dialect {
            Dialect::V03Rest => Dialect::V03,
            dialect @ (Dialect::V1 | Dialect::V03 | Dialect::V01) => dialect,
        }
    }

    fn payload(&self, seq: Seq, body: Bytes) -> Payload {
        let content_type = match self.webhook.target.dialect {
            Dialect::V1 => "application/a2a+json",
            Dialect::V03 | Dialect::V03Rest | Dialect::V01 => "application/json",
        };
        Payload { seq, body, content_type }
    }

    async fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        if self.ready.is_empty() {
            self.ready =
                self.core.read(&self.webhook.key, self.reached, PAGE).await?.entries.into();
        }
        let entry = self.ready.pop_front();
        if let Some(entry) = &entry {
            self.reached = entry.seq;
        }
        Ok(entry)
    }

    /// The body of an event; `None` if the version has no delivery for it.
    async fn body(&mut self, entry: &Entry) -> Result<Option<Bytes>, Error> {
        if let Kind::Received(_) = entry.kind
            && let Event::Received(received) = codec::decode(entry).map_err(refuse)?
        {
            self.trace = received.trace;
        }
        if self.webhook.target.dialect == Dialect::V1 {
            let task = &self.webhook.key.task;
            return Ok(Some(match entry.kind {
                Kind::Received(_) => codec::received_as_status(task, entry).map_err(refuse)?,
                Kind::Status(_) | Kind::Artifact | Kind::Reply => entry.body.clone(),
            }));
        }
        self.legacy_body(entry).await
    }

    /// Before 1.0 a delivery is the whole task, so that a piece of an artifact needs none: the task as of
    /// the next event has it.
    async fn legacy_body(&mut self, entry: &Entry) -> Result<Option<Bytes>, Error> {
        let dialect = self.dialect();
        let event = codec::decode(entry).map_err(refuse)?;
        if let Event::Reply(message) = event {
            let reply = StreamEvent::Message(Arc::unwrap_or_clone(message));
            return Ok(Some(dialect.encode_event(&reply, true).into()));
        }
        let is_piece = matches!(&event, Event::Artifact(chunk) if !chunk.last);
        let record = match self.record.take().filter(|record| record.head + 1 == entry.seq) {
            Some(mut record) => {
                rules::apply(&mut record, event, 0);
                record
            }
            None => self.core.record_at(&self.webhook.key, entry.seq).await?,
        };
        let task = (!is_piece).then(|| shown(Arc::clone(&record.task), None));
        self.record = Some(record);
        Ok(task.map(|task| dialect.encode_task(&task).into()))
    }

    async fn trace_at(&self, seq: Seq) -> Option<TraceContext> {
        let message = self.core.message_at(&self.webhook.key, seq).await;
        message.ok().and_then(|received| received.trace)
    }
}
