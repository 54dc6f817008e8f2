//! Codec of the log: events and snapshots as bytes.
//!
//! The body of an entry is the 1.0 JSON of its stream item, so that streams frame it without encoding
//! it again. Only an accepted message has its own format, because the protocol has no stream item for
//! it.

use std::{borrow::Cow, io, sync::Arc};

use bytes::Bytes;
use herald_protocol::{
    Artifact, ContextId, Message, Metadata, StreamEvent, Task, TaskId, TaskState, TaskStatus,
    Timestamp, TraceContext, json,
};
use serde::{Deserialize, Serialize};

use crate::{
    rules::{Chunk, Event, Extent, Received, Record, apply},
    store::{Entry, Kind, Snapshot, StoreError, Stored},
};

/// The size of JSON from which the buffer is handed out instead of copied, and from which the size
/// is measured before the JSON is written: a buffer that grows by doubling needs up to three times
/// its final size.
const LARGE: usize = 64 << 10;

/// Spare bytes of a measured buffer, for the closing brackets that the caller adds.
const FRAME: usize = 16;

/// Encoder of JSON that reuses its buffer. Its results have no spare capacity.
#[derive(Debug)]
pub(crate) struct Encoder {
    buffer: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new() -> Self {
        Self { buffer: Vec::with_capacity(1024) }
    }

    /// The kind and the stored bytes of an event of `task`.
    pub(crate) fn event(&mut self, task: &Task, event: &Event) -> (Kind, Bytes) {
        let ids = TaskIds { task_id: &task.id, context_id: &task.context_id };
        match event {
            Event::Received(received) => {
                (Kind::Received(received.state), self.json(&StoredReceived::from(received)))
            }
            Event::Status(status, metadata) => {
                let body = StatusBody { ids, status, metadata: metadata.as_ref() };
                (Kind::Status(status.state), self.json(&StreamEventRef::StatusUpdate(body)))
            }
            Event::Interim(status, metadata) => {
                let body = StatusBody { ids, status, metadata: metadata.as_ref() };
                (Kind::Interim(status.state), self.json(&StreamEventRef::StatusUpdate(body)))
            }
            Event::Artifact(chunk) => {
                let body = ArtifactBody {
                    ids,
                    artifact: &chunk.artifact,
                    append: chunk.append,
                    last_chunk: chunk.last,
                };
                (Kind::Artifact, self.json(&StreamEventRef::ArtifactUpdate(body)))
            }
            Event::Reply(message) => (Kind::Reply, self.json(&StreamEventRef::Message(message))),
        }
    }

    /// The snapshot of a task.
    pub(crate) fn snapshot(&mut self, record: &Record) -> Snapshot {
        let task = &record.task;
        Snapshot {
            seq: record.head,
            status: self.json(&task.status),
            history: self.list(task.history.as_deref()),
            metadata: task.metadata.as_ref().map_or_else(Bytes::new, |known| self.json(known)),
            artifacts: self.list(task.artifacts.as_deref()),
        }
    }

    fn list(&mut self, items: Option<&[impl Serialize]>) -> Bytes {
        let items = items.unwrap_or_default();
        if items.is_empty() { Bytes::new() } else { self.json(&items) }
    }

    fn json(&mut self, value: &impl Serialize) -> Bytes {
        self.buffer.clear();
        write_json(&mut self.buffer, value);
        match self.buffer.len() {
            ..LARGE => Bytes::copy_from_slice(&self.buffer),
            // Handed out without a copy; the encoder starts with a new buffer.
            _ => std::mem::take(&mut self.buffer).into(),
        }
    }
}

/// The event in a log entry.
pub(crate) fn decode(entry: &Entry) -> Result<Event, StoreError> {
    let corrupt = |text: &str| StoreError::Corrupt(format!("event {}: {text}", entry.seq));
    if let Kind::Received(state) = entry.kind {
        let stored: StoredReceived<'_> =
            serde_json::from_slice(&entry.body).map_err(|fault| corrupt(&fault.to_string()))?;
        return Ok(Event::Received(stored.into_received(state)));
    }
    match serde_json::from_slice(&entry.body).map_err(|fault| corrupt(&fault.to_string()))? {
        StreamEvent::StatusUpdate(update) => Ok(match entry.kind {
            Kind::Interim(_) => Event::Interim(update.status, update.metadata),
            Kind::Received(_) | Kind::Status(_) | Kind::Artifact | Kind::Reply => {
                Event::Status(update.status, update.metadata)
            }
        }),
        StreamEvent::ArtifactUpdate(update) => Ok(Event::Artifact(Chunk {
            artifact: update.artifact.into(),
            append: update.append,
            last: update.last_chunk,
        })),
        StreamEvent::Message(message) => Ok(Event::Reply(message.into())),
        StreamEvent::Task(_) => Err(corrupt("a task is not an event")),
    }
}

/// The stream item of an accepted message: the status that followed from it.
pub(crate) fn received_as_status(task: &TaskId, entry: &Entry) -> Result<Bytes, StoreError> {
    let Event::Received(received) = decode(entry).map_err(|error| error.of(task))? else {
        return Err(StoreError::Corrupt(format!("event {} is not a message", entry.seq)));
    };
    let context_id = received.message.context_id.clone().unwrap_or_default();
    let status = TaskStatus { state: received.state, message: None, timestamp: Some(received.at) };
    let ids = TaskIds { task_id: task, context_id: &context_id };
    Ok(json(&StreamEventRef::StatusUpdate(StatusBody { ids, status: &status, metadata: None })))
}

/// An accepted message as a stream item.
pub(crate) fn received_as_message(entry: &Entry) -> Result<Bytes, StoreError> {
    let Event::Received(received) = decode(entry)? else {
        return Err(StoreError::Corrupt(format!("event {} is not a message", entry.seq)));
    };
    Ok(json(&StreamEventRef::Message(&received.message)))
}

/// The stream item of a task that is not in the log: a snapshot.
pub(crate) fn encode_task(task: &Task) -> Bytes {
    json(&StreamEventRef::Task(task))
}

/// Appends the 1.0 JSON of the result of a send that was answered directly.
pub(crate) fn write_message(out: &mut Vec<u8>, message: &Message) {
    write_json(out, &StreamEventRef::Message(message));
}

/// Appends the 1.0 JSON of a task. It joins the pieces of a snapshot without decoding them.
pub(crate) fn write_whole(
    out: &mut Vec<u8>,
    id: &TaskId,
    context: &ContextId,
    snapshot: &Snapshot,
) {
    let Snapshot { status, history, metadata, artifacts, .. } = snapshot;
    let members: [(&[u8], &Bytes); 4] = [
        (b",\"status\":", status),
        (b",\"artifacts\":", artifacts),
        (b",\"history\":", history),
        (b",\"metadata\":", metadata),
    ];
    let size: usize = members.iter().map(|(name, value)| name.len() + value.len()).sum();
    // The size without escapes. Ids rarely need any, and the buffer grows if they do.
    let ids = id.as_str().len() + context.as_str().len() + r#"{"id":"","contextId":""}"#.len();
    // Extra space for the frame that the caller adds.
    out.reserve(size + ids + 16);
    out.extend_from_slice(b"{\"id\":");
    json::write_text(out, id.as_str());
    out.extend_from_slice(b",\"contextId\":");
    json::write_text(out, context.as_str());
    for (name, value) in members {
        if !value.is_empty() {
            out.extend_from_slice(name);
            out.extend_from_slice(value);
        }
    }
    out.push(b'}');
}

/// Checks that a snapshot is text between brackets without control characters. A full JSON parse would
/// cost more than reading and sending the snapshot, and a damaged page on disk is rarely text.
pub(crate) fn check(snapshot: &Snapshot) -> Result<(), StoreError> {
    let Snapshot { status, history, metadata, artifacts, .. } = snapshot;
    for piece in [status, history, metadata, artifacts] {
        let framed = piece.is_empty()
            || matches!((piece.first(), piece.last()), (Some(b'{'), Some(b'}')))
            || matches!((piece.first(), piece.last()), (Some(b'['), Some(b']')));
        // A fold without early exit, so that the compiler checks many bytes at once.
        let printable = piece.iter().fold(true, |so_far, byte| so_far & (*byte >= b' '));
        if !framed || !printable || std::str::from_utf8(piece).is_err() {
            return Err(StoreError::Corrupt("snapshot: not JSON".to_owned()));
        }
    }
    Ok(())
}

/// The record of a stored task: its snapshot, and the events after it.
pub(crate) fn restore(id: TaskId, stored: Stored) -> Result<Record, StoreError> {
    let name = id.clone();
    rebuild(id, stored).map_err(|error| error.of(&name))
}

fn rebuild(id: TaskId, stored: Stored) -> Result<Record, StoreError> {
    let Stored { header, head, snapshot, since } = stored;
    let mut record = Record::new(id, header.context, header.agent, header.hidden, header.created);
    if let Some(snapshot) = snapshot {
        let since: usize = since.iter().map(|entry| entry.body.len()).sum();
        let covers = header.bytes.saturating_sub(since as u64);
        record.snapshot = Extent { size: snapshot.size() as u64, covers };
        record.head = snapshot.seq;
        let task = Arc::make_mut(&mut record.task);
        task.status = piece(&snapshot.status)?.unwrap_or_default();
        task.history = Some(piece(&snapshot.history)?.unwrap_or_default());
        task.metadata = piece(&snapshot.metadata)?;
        task.artifacts = Some(piece(&snapshot.artifacts)?.unwrap_or_default());
    }
    for entry in &since {
        apply(&mut record, decode(entry)?, 0);
    }
    if record.head != head {
        let text = format!("the log ends at {} and not at {head}", record.head);
        return Err(StoreError::Corrupt(text));
    }
    record.bytes = header.bytes;
    record.run = header.run;
    Ok(record)
}

fn piece<T: for<'de> Deserialize<'de>>(bytes: &Bytes) -> Result<Option<T>, StoreError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(bytes)
        .map(Some)
        .map_err(|fault| StoreError::Corrupt(format!("snapshot: {fault}")))
}

fn json(value: &impl Serialize) -> Bytes {
    let mut out = Vec::new();
    write_json(&mut out, value);
    out.into()
}

/// Appends the JSON of a value.
pub(crate) fn write_json(out: &mut Vec<u8>, value: &impl Serialize) {
    const KEYS: &str = "protocol types have string keys only";
    let start = out.len();
    let mut measured = Measured { out, size: 0 };
    serde_json::to_writer(&mut measured, value).expect(KEYS);
    let size = measured.size;
    if size > LARGE {
        out.truncate(start);
        out.reserve_exact(size + FRAME);
        serde_json::to_writer(out, value).expect(KEYS);
    }
}

/// Writer that stores up to [`LARGE`] bytes and only counts the rest.
struct Measured<'a> {
    out: &'a mut Vec<u8>,
    size: usize,
}

impl io::Write for Measured<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.size += bytes.len();
        if self.size <= LARGE {
            self.out.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// [`StreamEvent`] on borrowed data.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum StreamEventRef<'a> {
    Task(&'a Task),
    Message(&'a Message),
    StatusUpdate(StatusBody<'a>),
    ArtifactUpdate(ArtifactBody<'a>),
}

#[derive(Clone, Copy)]
struct TaskIds<'a> {
    task_id: &'a TaskId,
    context_id: &'a ContextId,
}

struct StatusBody<'a> {
    ids: TaskIds<'a>,
    status: &'a TaskStatus,
    metadata: Option<&'a Metadata>,
}

struct ArtifactBody<'a> {
    ids: TaskIds<'a>,
    artifact: &'a Artifact,
    append: bool,
    last_chunk: bool,
}

impl Serialize for StatusBody<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", self.ids.task_id)?;
        map.serialize_entry("contextId", self.ids.context_id)?;
        map.serialize_entry("status", self.status)?;
        if let Some(metadata) = self.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl Serialize for ArtifactBody<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("taskId", self.ids.task_id)?;
        map.serialize_entry("contextId", self.ids.context_id)?;
        map.serialize_entry("artifact", self.artifact)?;
        if self.append {
            map.serialize_entry("append", &true)?;
        }
        if self.last_chunk {
            map.serialize_entry("lastChunk", &true)?;
        }
        map.end()
    }
}

/// The stored form of [`Received`].
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredReceived<'a> {
    message: Cow<'a, Message>,
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    accepted_output_modes: Cow<'a, [String]>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Cow<'a, Metadata>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<Cow<'a, TraceContext>>,
    at: Timestamp,
}

impl<'a> From<&'a Received> for StoredReceived<'a> {
    fn from(received: &'a Received) -> Self {
        use Cow::Borrowed;
        Self {
            message: Borrowed(&received.message),
            accepted_output_modes: Borrowed(&received.accepted_output_modes),
            metadata: received.metadata.as_ref().map(Borrowed),
            trace: received.trace.as_ref().map(Borrowed),
            at: received.at,
        }
    }
}

impl StoredReceived<'_> {
    fn into_received(self, state: TaskState) -> Received {
        Received {
            message: self.message.into_owned().into(),
            accepted_output_modes: self.accepted_output_modes.into_owned(),
            metadata: self.metadata.map(Cow::into_owned),
            trace: self.trace.map(Cow::into_owned),
            state,
            at: self.at,
        }
    }
}
