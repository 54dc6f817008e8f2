//! Frames of a stream: logged events in the format of their reader, and the one loop that writes them.

use std::collections::HashMap;

use bytes::Bytes;
use herald_engine::{Feed, Subscription, budget::Reservation};
use herald_protocol::{
    ArtifactId, Dialect, Error, TaskId,
    dialect::{StreamItem, StreamWriter},
    grpc::Service,
};
use uuid::Uuid;

use crate::bind::cursor;

/// Tasks of a feed whose stream writers are kept.
const MAX_WRITERS: usize = 256;

/// One frame on the wire.
#[derive(Debug)]
pub(crate) struct StreamFrame<'a> {
    /// The id from which a reader resumes. Of the frames of one event only the last has it, so that a
    /// reader with the id has the whole event.
    pub(crate) id: Option<&'a str>,
    /// The name of the frame, in versions that name their events.
    pub(crate) name: Option<&'static str>,
    pub(crate) body: &'a [u8],
    /// The reservation of the event, on its last frame. Keep it until the frame is sent.
    pub(crate) reservation: Option<Reservation>,
}

/// Writes frames in the framing of a binding.
pub(crate) trait FrameWriter {
    /// Writes one frame and waits until there is space for the next event.
    fn write(&mut self, frame: StreamFrame<'_>) -> impl Future<Output = ()> + Send;
}

/// A stream of events as frames.
#[derive(Debug)]
pub(crate) struct FrameStream {
    source: EventSource,
    format: FrameFormat,
    /// The id of the last event. The ids of a stream differ in their number, behind the prefix.
    id: String,
    prefix: usize,
    /// The id of the request, for the log and for the error that the reader gets.
    request: Uuid,
}

/// The log that a stream reads.
#[derive(Debug)]
enum EventSource {
    /// The events of one task.
    Task(Subscription),
    /// The events of all tasks of a caller.
    Feed(Feed),
}

/// The format of the frames.
#[derive(Debug)]
enum FrameFormat {
    /// The JSON of 1.0, which is stored and copied.
    Stored,
    /// The JSON of an older version. In 0.1 each task has its own writer, because artifacts are numbered
    /// there.
    Legacy(Dialect, HashMap<TaskId, StreamWriter>),
    /// Protobuf.
    Grpc(Service),
}

/// An event of either source.
struct LoggedEvent {
    /// Its number in the task or, in a feed, its position.
    number: u64,
    /// Its task, in a feed.
    task: Option<TaskId>,
    body: Bytes,
    closing: bool,
    reservation: Option<Reservation>,
}

impl FrameStream {
    /// The events of one task.
    pub(crate) fn of_task(events: Subscription, dialect: Dialect, request: Uuid) -> Self {
        let id = cursor::prefix(events.task_id());
        Self::new(EventSource::Task(events), FrameFormat::of(dialect), id, request)
    }

    /// The events of one task, for gRPC.
    pub(crate) fn of_grpc(events: Subscription, service: Service, request: Uuid) -> Self {
        Self::new(EventSource::Task(events), FrameFormat::Grpc(service), String::new(), request)
    }

    /// The events of all tasks of a caller.
    pub(crate) fn of_feed(feed: Feed, dialect: Dialect, request: Uuid) -> Self {
        Self::new(EventSource::Feed(feed), FrameFormat::of(dialect), String::new(), request)
    }

    fn new(source: EventSource, format: FrameFormat, id: String, request: Uuid) -> Self {
        Self { source, format, prefix: id.len(), id, request }
    }

    /// True if no event can follow. A stream that ended with the server is not over: it can be resumed.
    pub(crate) fn is_over(&self) -> bool {
        match &self.source {
            EventSource::Task(events) => events.is_over(),
            EventSource::Feed(_) => false,
        }
    }

    /// Writes the events until there are no more. The error is for the reader.
    pub(crate) async fn copy(&mut self, writer: &mut impl FrameWriter) -> Result<(), Error> {
        let copied = self.copy_events(writer).await;
        copied.map_err(|error| {
            match &self.source {
                EventSource::Task(events) => {
                    tracing::warn!(task = %events.task_id(), %error, "a stream broke off");
                }
                EventSource::Feed(_) => tracing::warn!(%error, "a feed broke off"),
            }
            error.with("requestId", self.request)
        })
    }

    async fn copy_events(&mut self, writer: &mut impl FrameWriter) -> Result<(), Error> {
        while let Some(event) = self.source.next().await? {
            self.id.truncate(self.prefix);
            self.id.push_str(&event.number.to_string());
            let (id, name, reservation) = (Some(self.id.as_str()), None, event.reservation);
            match &mut self.format {
                FrameFormat::Stored => {
                    writer.write(StreamFrame { id, name, body: &event.body, reservation }).await;
                }
                FrameFormat::Grpc(service) => {
                    let decoded = Dialect::V1.decode_event(&event.body)?;
                    let body = &service.encode_event(decoded, event.closing);
                    writer.write(StreamFrame { id, name, body, reservation }).await;
                }
                FrameFormat::Legacy(dialect, writers) => {
                    let decoded = Dialect::V1.decode_event(&event.body)?;
                    let legacy = legacy_writer(*dialect, writers, event.task, &self.source).await?;
                    let mut items = legacy.write(&decoded, event.closing);
                    let last = items.pop();
                    for StreamItem { name, body } in &items {
                        let (id, reservation) = (None, None);
                        writer.write(StreamFrame { id, name: *name, body, reservation }).await;
                    }
                    if let Some(StreamItem { name, body }) = &last {
                        writer.write(StreamFrame { id, name: *name, body, reservation }).await;
                    }
                }
            }
        }
        Ok(())
    }
}

/// The stream writer for events of a task. In 0.1 it has to know the artifacts that the task has.
async fn legacy_writer<'a>(
    dialect: Dialect,
    writers: &'a mut HashMap<TaskId, StreamWriter>,
    task: Option<TaskId>,
    source: &EventSource,
) -> Result<&'a mut StreamWriter, Error> {
    let numbered = match dialect {
        Dialect::V1 | Dialect::V03 | Dialect::V03Rest => false,
        Dialect::V01 => true,
    };
    let task = task.filter(|_| numbered).unwrap_or_default();
    if !writers.contains_key(&task) {
        let artifacts = if numbered { source.artifacts().await? } else { Vec::new() };
        if writers.len() >= MAX_WRITERS {
            writers.clear();
        }
        writers.insert(task.clone(), StreamWriter::new(dialect, artifacts));
    }
    Ok(writers.get_mut(&task).expect("it was inserted if it was missing"))
}

impl FrameFormat {
    fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::V1 => Self::Stored,
            Dialect::V03 | Dialect::V03Rest | Dialect::V01 => Self::Legacy(dialect, HashMap::new()),
        }
    }
}

impl EventSource {
    async fn next(&mut self) -> Result<Option<LoggedEvent>, Error> {
        Ok(match self {
            Self::Task(events) => events.next().await?.map(|item| LoggedEvent {
                number: item.seq,
                task: None,
                body: item.body,
                closing: item.closing,
                reservation: item.reservation,
            }),
            Self::Feed(feed) => feed.next().await?.map(|item| LoggedEvent {
                number: item.position,
                task: Some(item.task),
                body: item.body,
                closing: item.closing,
                reservation: item.reservation,
            }),
        })
    }

    /// The artifacts that the task of the last event has so far. The order of artifacts never changes.
    async fn artifacts(&self) -> Result<Vec<ArtifactId>, Error> {
        match self {
            Self::Task(events) => events.artifacts().await,
            Self::Feed(feed) => feed.artifacts().await,
        }
    }
}
