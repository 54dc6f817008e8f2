//! Bodies of deliveries. A body depends on the task, the event, the start and the version of the webhook
//! alone, so that every attempt at a delivery has the same bytes.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use herald_protocol::{Dialect, Error, Seq, StreamEvent, TraceContext};
use tokio::time::timeout;

use crate::{
    budget::{Quota, Reservation, SMALL},
    codec,
    core::Core,
    fault::refuse,
    read::view::shown,
    rules::{self, Event, Record},
    store::{Entry, Kind, Webhook},
};

/// Entries taken from the log at once.
const PAGE: usize = 16;

/// Memory that a delivery takes for each of its bytes: as read, as sent, and as signed.
const BYTES_PER_DELIVERY_BYTE: u64 = 3;

/// The longest wait for memory. It is short, because the delivery keeps its place during the wait.
const MEMORY_WAIT: Duration = Duration::from_secs(2);

/// The next step of a reader.
#[derive(Debug)]
pub(crate) enum NextPayload {
    /// A delivery.
    Ready(Payload),
    /// The log has no further event for the webhook now.
    End,
    /// Other deliveries have the memory for this one.
    NoMemory,
}

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
    /// The quota that large deliveries count against.
    quota: Arc<Quota>,
    /// The memory of the delivery that was returned last, or of the record.
    reservation: Option<Reservation>,
    ready: VecDeque<Entry>,
    /// The last event that was read.
    reached: Seq,
    /// The end of the log when nothing was left to deliver.
    seen: Seq,
    /// The task as of the last event, for versions whose deliveries are whole tasks.
    record: Option<Record>,
    /// The trace of the last message at or before the delivery that was returned last; the outer
    /// `None` before it is known.
    trace: Option<Option<TraceContext>>,
}

impl<'a> PayloadReader<'a> {
    pub(crate) fn new(core: &'a Core, webhook: &'a Webhook, quota: Arc<Quota>) -> Self {
        let reached = webhook.cursor;
        Self {
            core,
            webhook,
            quota,
            reservation: None,
            ready: VecDeque::new(),
            reached,
            seen: reached,
            record: None,
            trace: None,
        }
    }

    /// The trace of the message that caused the delivery that was returned last.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        self.trace.clone().flatten()
    }

    /// The last event that was read. Events up to here that were not returned need no delivery.
    pub(crate) fn reached(&self) -> Seq {
        self.reached
    }

    /// The end of the log as far as this reader knows it: only a later event can be a delivery.
    pub(crate) fn seen(&self) -> Seq {
        self.seen.max(self.reached)
    }

    /// The next delivery. Its memory is reserved until the next call.
    pub(crate) async fn next(&mut self) -> Result<NextPayload, Error> {
        let (key, start) = (&self.webhook.key, self.webhook.start);
        if self.reached < start {
            let Some(record) = self.core.find_any(key).await? else { return Ok(NextPayload::End) };
            self.trace = Some(match self.trace_at(start).await {
                Some(trace) => trace,
                None => self.trace_before(&record, start).await,
            });
            // A direct answer has no task to show: its delivery is the answer.
            if !record.hidden {
                let bytes = record.bytes;
                drop(record);
                if !self.reserve(bytes).await {
                    return Ok(NextPayload::NoMemory);
                }
                let task = self.core.task_after(key, start, None).await?;
                self.reached = start;
                let body = match self.dialect() {
                    Dialect::V1 => codec::encode_task(&task),
                    legacy @ (Dialect::V03 | Dialect::V03Rest | Dialect::V01) => {
                        legacy.encode_task(&task).into()
                    }
                };
                return Ok(NextPayload::Ready(self.payload(start, body)));
            }
            if !record.is_closed() {
                self.seen = record.head;
                return Ok(NextPayload::End);
            }
            self.reached = start;
        }
        if self.trace.is_none() {
            self.trace = Some(match self.core.find_any(key).await? {
                Some(record) => self.trace_before(&record, self.reached).await,
                None => None,
            });
        }
        loop {
            self.fill().await?;
            let Some(size) = self.ready.front().map(|entry| entry.body.len()) else {
                return Ok(NextPayload::End);
            };
            if !self.reserve_for_event(size).await? {
                return Ok(NextPayload::NoMemory);
            }
            // The wait for memory dropped the entries.
            self.fill().await?;
            let Some(entry) = self.ready.pop_front() else { return Ok(NextPayload::End) };
            self.reached = entry.seq;
            if let Some(body) = self.body(&entry).await? {
                return Ok(NextPayload::Ready(self.payload(entry.seq, body)));
            }
        }
    }

    /// Reserves memory for the delivery of an event: for the event, or before 1.0 for the whole task, once
    /// for all deliveries of this reader. Returns false if there is none.
    async fn reserve_for_event(&mut self, size: usize) -> Result<bool, Error> {
        if self.webhook.target.dialect == Dialect::V1 {
            return Ok(self.reserve(size as u64).await);
        }
        if self.record.is_some() && self.reservation.is_some() {
            return Ok(true);
        }
        let record = self.core.find_any(&self.webhook.key).await?;
        let bytes = record.map_or(0, |record| record.bytes);
        Ok(self.reserve(bytes).await)
    }

    /// Reserves memory for a delivery of this many bytes, in place of the one before. A small one needs
    /// none: there are not more of them than places.
    async fn reserve(&mut self, bytes: u64) -> bool {
        self.reservation = None;
        if bytes <= SMALL as u64 {
            return true;
        }
        let bytes = bytes.saturating_mul(BYTES_PER_DELIVERY_BYTE);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        if let Some(reservation) = self.quota.try_reserve(bytes) {
            self.reservation = Some(reservation);
            return true;
        }
        // Nothing is held during the wait; it is read again after it.
        self.ready.clear();
        self.record = None;
        self.reservation = timeout(MEMORY_WAIT, self.quota.reserve(bytes)).await.ok();
        self.reservation.is_some()
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

    /// Reads the next entries, unless some are left.
    async fn fill(&mut self) -> Result<(), Error> {
        if self.ready.is_empty() {
            self.ready =
                self.core.read(&self.webhook.key, self.reached, PAGE).await?.entries.into();
        }
        Ok(())
    }

    /// The body of an event; `None` if the version has no delivery for it.
    async fn body(&mut self, entry: &Entry) -> Result<Option<Bytes>, Error> {
        if let Kind::Received(_) = entry.kind
            && let Event::Received(received) = codec::decode(entry).map_err(refuse)?
        {
            self.trace = Some(received.trace);
        }
        if self.webhook.target.dialect == Dialect::V1 {
            let task = &self.webhook.key.task;
            return Ok(Some(match entry.kind {
                Kind::Received(_) => codec::received_as_status(task, entry).map_err(refuse)?,
                Kind::Status(_) | Kind::Interim(_) | Kind::Artifact | Kind::Reply => {
                    entry.body.clone()
                }
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
        let before = self.record.take().filter(|record| record.head + 1 == entry.seq);
        if matches!(&event, Event::Artifact(chunk) if !chunk.last) {
            // A task without the last piece is built with the next delivery, and not for each piece.
            self.record = before.map(|mut record| {
                rules::apply(&mut record, event, 0);
                record
            });
            return Ok(None);
        }
        let record = match before {
            Some(mut record) => {
                rules::apply(&mut record, event, 0);
                record
            }
            None => self.core.record_at(&self.webhook.key, entry.seq).await?,
        };
        let task = shown(Arc::clone(&record.task), None);
        self.record = Some(record);
        Ok(Some(dialect.encode_task(&task).into()))
    }

    /// The trace of the last message before an event. If the task has gone on to another turn since, it is
    /// that of the first message.
    async fn trace_before(&self, record: &Record, seq: Seq) -> Option<TraceContext> {
        let turn = record.run.turn;
        self.trace_at(if turn <= seq { turn.max(1) } else { 1 }).await.flatten()
    }

    /// The trace of a message; `None` if the event is not a message.
    async fn trace_at(&self, seq: Seq) -> Option<Option<TraceContext>> {
        let page = self.core.read(&self.webhook.key, seq.saturating_sub(1), 1).await.ok()?;
        let entry = page.entries.first().filter(|entry| matches!(entry.kind, Kind::Received(_)))?;
        match codec::decode(entry) {
            Ok(Event::Received(received)) => Some(received.trace),
            Ok(Event::Status(..) | Event::Interim(..) | Event::Artifact(_) | Event::Reply(_))
            | Err(_) => None,
        }
    }
}
