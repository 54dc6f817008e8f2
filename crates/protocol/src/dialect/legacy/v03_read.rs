//! Reader of objects before 1.0, in any of their JSON shapes.
//!
//! The member names of the shapes hardly overlap, so one tolerant reader is enough. Errors that serde does
//! not detect are reported under the path in the JSON of the caller.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

use super::{DATA_PART_COMPAT, FILENAME_COMPAT, LegacyShape, MEDIA_TYPE_COMPAT};
use crate::{
    id::{ArtifactId, ContextId, MessageId, TaskId},
    message::{self, Content, decode_base64, decode_base64_text, present},
    open::{Json, Metadata},
    task::{self, SendResult, StreamEvent, TaskState},
    time::Timestamp,
    validate::{Violations, null_as_default},
};

/// A role in any spelling.
#[derive(Clone, Copy, Default)]
pub(in crate::dialect) struct LegacyRole(message::Role);

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub(in crate::dialect) struct LegacyMessage {
    kind: Option<String>,
    #[serde(default, alias = "message_id", deserialize_with = "null_as_default")]
    message_id: MessageId,
    #[serde(alias = "context_id")]
    context_id: Option<ContextId>,
    #[serde(alias = "task_id")]
    task_id: Option<TaskId>,
    #[serde(default, deserialize_with = "null_as_default")]
    role: LegacyRole,
    parts: Option<Vec<LegacyPart>>,
    content: Option<Vec<LegacyPart>>,
    metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "null_as_default")]
    extensions: Vec<String>,
    #[serde(default, alias = "reference_task_ids", deserialize_with = "null_as_default")]
    reference_task_ids: Vec<TaskId>,
}

impl LegacyMessage {
    /// Checks the fields that 0.3 requires of a message with its `kind` or with the name that its protobuf has
    /// for parts. Other messages are older and may leave both to the server.
    pub(in crate::dialect) fn require(&self, at: &mut Violations<'_>) {
        if self.kind.is_none() && self.content.is_none() {
            return;
        }
        if self.message_id.is_empty() {
            at.add("messageId", "is required");
        }
        if self.role.0 == message::Role::Unspecified {
            at.add("role", "is required");
        }
    }
}

/// A part of any version: tagged by `kind` or `type`, or recognised by its only member.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
struct LegacyPart {
    kind: Option<String>,
    r#type: Option<String>,
    text: Option<String>,
    content: Option<Json>,
    file: Option<LegacyFile>,
    #[serde(default, deserialize_with = "present")]
    data: Option<Json>,
    raw: Option<String>,
    url: Option<String>,
    filename: Option<String>,
    #[serde(alias = "media_type")]
    media_type: Option<String>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
struct LegacyFile {
    #[serde(alias = "filename")]
    name: Option<String>,
    #[serde(alias = "mime_type", alias = "mediaType", alias = "media_type")]
    mime_type: Option<String>,
    bytes: Option<String>,
    #[serde(alias = "file_with_bytes")]
    file_with_bytes: Option<String>,
    #[serde(alias = "fileWithUri", alias = "file_with_uri")]
    uri: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub(in crate::dialect) struct LegacyTaskStatus {
    #[serde(default, deserialize_with = "null_as_default")]
    state: TaskState,
    #[serde(alias = "update")]
    message: Option<LegacyMessage>,
    timestamp: Option<Timestamp>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub(in crate::dialect) struct LegacyArtifact {
    #[serde(default, alias = "artifact_id", deserialize_with = "null_as_default")]
    artifact_id: ArtifactId,
    /// Its number in 0.1, where pieces of it also say here how they fit together.
    #[serde(default, deserialize_with = "null_as_default")]
    index: u64,
    #[serde(default, deserialize_with = "null_as_default")]
    append: bool,
    #[serde(default, alias = "last_chunk", deserialize_with = "null_as_default")]
    last_chunk: bool,
    name: Option<String>,
    description: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    parts: Vec<LegacyPart>,
    metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "null_as_default")]
    extensions: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub(in crate::dialect) struct LegacyTask {
    #[serde(default, deserialize_with = "null_as_default")]
    id: TaskId,
    #[serde(default, alias = "context_id", deserialize_with = "null_as_default")]
    context_id: ContextId,
    #[serde(alias = "session_id")]
    session_id: Option<ContextId>,
    #[serde(default, deserialize_with = "null_as_default")]
    status: LegacyTaskStatus,
    artifacts: Option<Vec<LegacyArtifact>>,
    history: Option<Vec<LegacyMessage>>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
struct LegacyStatusUpdate {
    #[serde(default, alias = "task_id", deserialize_with = "null_as_default")]
    task_id: TaskId,
    #[serde(default, alias = "context_id", deserialize_with = "null_as_default")]
    context_id: ContextId,
    #[serde(default, deserialize_with = "null_as_default")]
    status: LegacyTaskStatus,
    metadata: Option<Metadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
struct LegacyArtifactUpdate {
    #[serde(default, alias = "task_id", deserialize_with = "null_as_default")]
    task_id: TaskId,
    #[serde(default, alias = "context_id", deserialize_with = "null_as_default")]
    context_id: ContextId,
    #[serde(default, deserialize_with = "null_as_default")]
    artifact: LegacyArtifact,
    #[serde(default, deserialize_with = "null_as_default")]
    append: bool,
    #[serde(default, alias = "last_chunk", deserialize_with = "null_as_default")]
    last_chunk: bool,
    metadata: Option<Metadata>,
}

/// Any reply to a send or item of a stream: a wrapper, or the members of any bare object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::dialect) struct LegacyItem {
    kind: Option<String>,
    task: Option<LegacyTask>,
    #[serde(alias = "msg")]
    message: Option<LegacyMessage>,
    #[serde(alias = "status_update")]
    status_update: Option<LegacyStatusUpdate>,
    #[serde(alias = "artifact_update")]
    artifact_update: Option<LegacyArtifactUpdate>,

    id: Option<TaskId>,
    #[serde(alias = "task_id")]
    task_id: Option<TaskId>,
    #[serde(alias = "context_id")]
    context_id: Option<ContextId>,
    #[serde(alias = "session_id")]
    session_id: Option<ContextId>,
    status: Option<LegacyTaskStatus>,
    artifacts: Option<Vec<LegacyArtifact>>,
    history: Option<Vec<LegacyMessage>>,
    artifact: Option<LegacyArtifact>,
    #[serde(default, deserialize_with = "null_as_default")]
    append: bool,
    #[serde(default, alias = "last_chunk", deserialize_with = "null_as_default")]
    last_chunk: bool,
    #[serde(default, alias = "message_id", deserialize_with = "null_as_default")]
    message_id: MessageId,
    #[serde(default, deserialize_with = "null_as_default")]
    role: LegacyRole,
    parts: Option<Vec<LegacyPart>>,
    content: Option<Vec<LegacyPart>>,
    #[serde(default, deserialize_with = "null_as_default")]
    extensions: Vec<String>,
    #[serde(default, alias = "reference_task_ids", deserialize_with = "null_as_default")]
    reference_task_ids: Vec<TaskId>,
    metadata: Option<Metadata>,
}

impl<'de> Deserialize<'de> for LegacyRole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RoleName;
        impl de::Visitor<'_> for RoleName {
            type Value = LegacyRole;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("user or agent")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<LegacyRole, E> {
                match name {
                    "user" | "ROLE_USER" => Ok(LegacyRole(message::Role::User)),
                    "agent" | "ROLE_AGENT" => Ok(LegacyRole(message::Role::Agent)),
                    "" | "ROLE_UNSPECIFIED" => Ok(LegacyRole::default()),
                    _ => Err(E::invalid_value(de::Unexpected::Str(name), &self)),
                }
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<LegacyRole, E> {
                match number {
                    0 => Ok(LegacyRole::default()),
                    1 => Ok(LegacyRole(message::Role::User)),
                    2 => Ok(LegacyRole(message::Role::Agent)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(RoleName)
    }
}

impl LegacyMessage {
    pub(in crate::dialect) fn read(
        self,
        shape: LegacyShape,
        at: &mut Violations<'_>,
    ) -> message::Message {
        let (member, parts) = match (self.parts, self.content) {
            (Some(parts), _) => ("parts", parts),
            (None, Some(content)) => ("content", content),
            (None, None) => (shape.parts(), Vec::new()),
        };
        message::Message {
            message_id: self.message_id,
            context_id: self.context_id.filter(|id| !id.is_empty()),
            task_id: self.task_id.filter(|id| !id.is_empty()),
            role: match self.role.0 {
                message::Role::Unspecified | message::Role::User => message::Role::User,
                message::Role::Agent => message::Role::Agent,
            },
            parts: read_parts(parts, member, shape, at),
            metadata: self.metadata,
            extensions: self.extensions,
            reference_task_ids: self.reference_task_ids,
        }
    }
}

fn read_parts(
    parts: Vec<LegacyPart>,
    member: &str,
    shape: LegacyShape,
    at: &mut Violations<'_>,
) -> Vec<message::Part> {
    let read = |(index, part): (usize, LegacyPart)| {
        at.within(&format!("{member}[{index}]"), |at| part.read(shape, at))
    };
    parts.into_iter().enumerate().map(read).collect()
}

/// A part without its tag.
enum PartContent {
    Text(String),
    File(LegacyFile),
    Data(Json),
    Raw(String),
    Url(String),
}

impl LegacyPart {
    fn read(mut self, shape: LegacyShape, at: &mut Violations<'_>) -> message::Part {
        let metadata = self.metadata.take();
        let (filename, media_type) = (self.filename.take(), self.media_type.take());
        // An invalid part becomes an empty text; the violation keeps the message from being used.
        let Some(found) = self.find(shape, at) else { return message::Part::text("") };
        let mut part = message::Part::new(Content::Text(String::new()));
        part.metadata = metadata;
        part.filename = filename;
        part.media_type = media_type;
        match found {
            PartContent::Text(text) => {
                part.content = Content::Text(text);
                lift_names(&mut part);
            }
            PartContent::Data(value) => {
                part.content = Content::Data(lift_value(value, &mut part.metadata));
                lift_names(&mut part);
            }
            PartContent::Raw(base64) => part.content = Content::Raw(read_bytes(&base64, "raw", at)),
            PartContent::Url(url) => part.content = Content::Url(url),
            PartContent::File(file) => {
                part.filename = file.name.clone().or(part.filename);
                part.media_type = file.mime_type.clone().or(part.media_type);
                part.content = at.within("file", |at| file.read(shape, at));
            }
        }
        part
    }

    fn find(mut self, shape: LegacyShape, at: &mut Violations<'_>) -> Option<PartContent> {
        let (tag, kind) = match (self.kind.take(), self.r#type.take()) {
            (Some(kind), _) => ("kind", kind),
            (None, Some(kind)) => ("type", kind),
            (None, None) => return self.untagged(shape, at),
        };
        let (member, found) = match kind.as_str() {
            "text" => {
                let content = self.content.and_then(|content| content.read().ok());
                ("text", self.text.or(content).map(PartContent::Text))
            }
            "file" => {
                let file = self.file.map(PartContent::File);
                ("file", file.or(self.raw.map(PartContent::Raw)).or(self.url.map(PartContent::Url)))
            }
            "data" => ("data", self.data.or(self.content).map(PartContent::Data)),
            _ => {
                at.add(tag, "must be text, file or data");
                return None;
            }
        };
        if found.is_none() {
            at.add(member, "is required");
        }
        found
    }

    fn untagged(self, shape: LegacyShape, at: &mut Violations<'_>) -> Option<PartContent> {
        let null = self.data.clone().filter(Json::is_null);
        let data = self.data.filter(|data| !data.is_null()).map(|data| match shape {
            LegacyShape::Rpc | LegacyShape::V01 => data,
            LegacyShape::Rest => unwrap_data_part(data),
        });
        let mut found = [
            self.text.map(PartContent::Text),
            self.file.map(PartContent::File),
            data.map(PartContent::Data),
            self.raw.map(PartContent::Raw),
            self.url.map(PartContent::Url),
        ]
        .into_iter()
        .flatten();
        match (found.next(), found.next()) {
            (Some(only), None) => Some(only),
            (None, None) if null.is_some() => null.map(PartContent::Data),
            (None, _) | (Some(_), Some(_)) => {
                at.add("", "must hold exactly one of text, file and data");
                None
            }
        }
    }
}

/// The 0.3 protobuf keeps the data of a part in a message of its own.
fn unwrap_data_part(value: Json) -> Json {
    value.into_object().map_or_else(
        |value| value,
        |object| object.only("data").unwrap_or_else(|| object.into_json()),
    )
}

impl LegacyFile {
    fn read(self, shape: LegacyShape, at: &mut Violations<'_>) -> Content {
        let bytes = match (self.bytes, self.file_with_bytes) {
            (Some(text), _) => Some(("bytes", text)),
            (None, Some(text)) => Some(("fileWithBytes", text)),
            (None, None) => None,
        };
        match (bytes, self.uri) {
            // Writers that cannot omit a member send it empty.
            (Some((_, text)), Some(uri)) if text.is_empty() => Content::Url(uri),
            (Some(_), Some(uri)) if !uri.is_empty() => one_of_two(at),
            (Some(("fileWithBytes", text)), _) if shape == LegacyShape::Rest => {
                let bytes = read_bytes(&text, "fileWithBytes", at);
                Content::Raw(decode_base64_text(&bytes).unwrap_or(bytes))
            }
            (Some((member, text)), _) => Content::Raw(read_bytes(&text, member, at)),
            (None, Some(uri)) => Content::Url(uri),
            (None, None) => one_of_two(at),
        }
    }
}

fn one_of_two(at: &mut Violations<'_>) -> Content {
    at.add("", "must have either bytes or a uri");
    Content::Text(String::new())
}

fn read_bytes(base64: &str, member: &str, at: &mut Violations<'_>) -> Vec<u8> {
    decode_base64(base64).unwrap_or_else(|fault| {
        at.add(member, fault);
        Vec::new()
    })
}

/// Text and data have no name or media type in 0.3, so the metadata carries them. The keys are our own,
/// and all values under them are removed.
pub(crate) fn lift_names(part: &mut message::Part) {
    for (key, member) in
        [(FILENAME_COMPAT, &mut part.filename), (MEDIA_TYPE_COMPAT, &mut part.media_type)]
    {
        if let Some(text) = take(&mut part.metadata, key).and_then(|name| name.read().ok()) {
            member.get_or_insert(text);
        }
    }
}

/// Data that is not an object is wrapped in one, with a mark in the metadata.
pub(crate) fn lift_value(data: Json, metadata: &mut Option<Metadata>) -> Json {
    let object = match data.into_object() {
        Ok(object) => object,
        Err(data) => {
            take(metadata, DATA_PART_COMPAT);
            return data;
        }
    };
    let marked = metadata.as_ref().and_then(|metadata| metadata.get(DATA_PART_COMPAT));
    match object.get("value").filter(|_: &Json| marked == Some(true)) {
        Some(value) => {
            take(metadata, DATA_PART_COMPAT);
            value
        }
        None => object.into_json(),
    }
}

/// Removes a member, and the metadata with it when it was the only one.
fn take(metadata: &mut Option<Metadata>, key: &str) -> Option<Json> {
    let value = metadata.as_mut()?.remove(key)?;
    if metadata.as_ref().is_some_and(Metadata::is_empty) {
        *metadata = None;
    }
    Some(value)
}

impl LegacyTaskStatus {
    fn read(self, shape: LegacyShape, at: &mut Violations<'_>) -> task::TaskStatus {
        let message =
            self.message.map(|message| at.within("message", |at| message.read(shape, at).into()));
        task::TaskStatus { state: self.state, message, timestamp: self.timestamp }
    }
}

impl LegacyArtifact {
    fn read(self, shape: LegacyShape, at: &mut Violations<'_>) -> task::Artifact {
        let artifact_id = match shape {
            LegacyShape::V01 if self.artifact_id.is_empty() => self.index.to_string().into(),
            LegacyShape::Rpc | LegacyShape::Rest | LegacyShape::V01 => self.artifact_id,
        };
        task::Artifact {
            artifact_id,
            name: self.name,
            description: self.description,
            parts: read_parts(self.parts, "parts", shape, at),
            metadata: self.metadata,
            extensions: self.extensions,
        }
    }
}

impl LegacyTask {
    pub(in crate::dialect) fn read(
        self,
        shape: LegacyShape,
        at: &mut Violations<'_>,
    ) -> task::Task {
        let status = at.within("status", |at| self.status.read(shape, at));
        let mut artifact = |(index, artifact): (usize, LegacyArtifact)| {
            at.within(&format!("artifacts[{index}]"), |at| artifact.read(shape, at).into())
        };
        let artifacts =
            self.artifacts.map(|all| all.into_iter().enumerate().map(&mut artifact).collect());
        let mut message = |(index, message): (usize, LegacyMessage)| {
            at.within(&format!("history[{index}]"), |at| message.read(shape, at).into())
        };
        let history =
            self.history.map(|all| all.into_iter().enumerate().map(&mut message).collect());
        task::Task {
            id: self.id,
            context_id: match self.session_id {
                Some(session) if self.context_id.is_empty() => session,
                Some(_) | None => self.context_id,
            },
            status,
            artifacts,
            history,
            metadata: self.metadata,
        }
    }
}

impl LegacyStatusUpdate {
    fn read(self, shape: LegacyShape, at: &mut Violations<'_>) -> task::StatusUpdate {
        task::StatusUpdate {
            task_id: self.task_id,
            context_id: self.context_id,
            status: at.within("status", |at| self.status.read(shape, at)),
            metadata: self.metadata,
        }
    }
}

impl LegacyArtifactUpdate {
    fn read(self, shape: LegacyShape, at: &mut Violations<'_>) -> task::ArtifactUpdate {
        task::ArtifactUpdate {
            task_id: self.task_id,
            context_id: self.context_id,
            append: self.append || (shape == LegacyShape::V01 && self.artifact.append),
            last_chunk: self.last_chunk || (shape == LegacyShape::V01 && self.artifact.last_chunk),
            artifact: at.within("artifact", |at| self.artifact.read(shape, at)),
            metadata: self.metadata,
        }
    }
}

impl LegacyItem {
    pub(in crate::dialect) fn send_result(
        self,
        shape: LegacyShape,
        at: &mut Violations<'_>,
    ) -> Option<SendResult> {
        // In 0.1 the reply is a task, even if it has few members.
        if shape == LegacyShape::V01 && self.status.is_some() {
            return Some(SendResult::Task(self.into_task().read(shape, at)));
        }
        match self.event(shape, at)? {
            StreamEvent::Task(task) => Some(SendResult::Task(task)),
            StreamEvent::Message(message) => Some(SendResult::Message(message)),
            StreamEvent::StatusUpdate(_) | StreamEvent::ArtifactUpdate(_) => {
                at.add("", "expected a task or a message");
                None
            }
        }
    }

    pub(in crate::dialect) fn event(
        self,
        shape: LegacyShape,
        at: &mut Violations<'_>,
    ) -> Option<StreamEvent> {
        let Some(kind) = self.kind.as_deref().or_else(|| self.guess(shape)) else {
            return self.wrapped(shape, at);
        };
        match kind {
            "task" => Some(StreamEvent::Task(self.into_task().read(shape, at))),
            "message" => Some(StreamEvent::Message(self.into_message().read(shape, at))),
            "status-update" => {
                let update = LegacyStatusUpdate {
                    task_id: self.task_id.or(self.id).unwrap_or_default(),
                    context_id: self.context_id.unwrap_or_default(),
                    status: self.status.unwrap_or_default(),
                    metadata: self.metadata,
                };
                Some(StreamEvent::StatusUpdate(update.read(shape, at)))
            }
            "artifact-update" => {
                let update = LegacyArtifactUpdate {
                    task_id: self.task_id.or(self.id).unwrap_or_default(),
                    context_id: self.context_id.unwrap_or_default(),
                    artifact: self.artifact.unwrap_or_default(),
                    append: self.append,
                    last_chunk: self.last_chunk,
                    metadata: self.metadata,
                };
                Some(StreamEvent::ArtifactUpdate(update.read(shape, at)))
            }
            _ => {
                at.add("kind", "must be task, message, status-update or artifact-update");
                None
            }
        }
    }

    /// The kind of a bare object without a `kind`.
    fn guess(&self, shape: LegacyShape) -> Option<&'static str> {
        if self.artifact.is_some() {
            Some("artifact-update")
        } else if self.parts.is_some() || self.content.is_some() {
            Some("message")
        } else if self.status.is_some() {
            let task = match shape {
                LegacyShape::Rpc | LegacyShape::Rest => self.id.is_some(),
                // Both have an id in 0.1, and only a task has any of these.
                LegacyShape::V01 => {
                    let more = self.artifacts.is_some() || self.history.is_some();
                    more || self.session_id.is_some()
                }
            };
            Some(if task { "task" } else { "status-update" })
        } else {
            None
        }
    }

    fn wrapped(self, shape: LegacyShape, at: &mut Violations<'_>) -> Option<StreamEvent> {
        let Self { task, message, status_update, artifact_update, .. } = self;
        match (task, message, status_update, artifact_update) {
            (Some(task), None, None, None) => {
                Some(StreamEvent::Task(at.within("task", |at| task.read(shape, at))))
            }
            (None, Some(message), None, None) => {
                Some(StreamEvent::Message(at.within("message", |at| message.read(shape, at))))
            }
            (None, None, Some(update), None) => Some(StreamEvent::StatusUpdate(
                at.within("statusUpdate", |at| update.read(shape, at)),
            )),
            (None, None, None, Some(update)) => Some(StreamEvent::ArtifactUpdate(
                at.within("artifactUpdate", |at| update.read(shape, at)),
            )),
            _ => {
                at.add("", "expected a task, a message, a status update or an artifact update");
                None
            }
        }
    }

    fn into_task(self) -> LegacyTask {
        LegacyTask {
            id: self.id.unwrap_or_default(),
            context_id: self.context_id.unwrap_or_default(),
            session_id: self.session_id,
            status: self.status.unwrap_or_default(),
            artifacts: self.artifacts,
            history: self.history,
            metadata: self.metadata,
        }
    }

    fn into_message(self) -> LegacyMessage {
        LegacyMessage {
            kind: None,
            message_id: self.message_id,
            context_id: self.context_id,
            task_id: self.task_id,
            role: self.role,
            parts: self.parts,
            content: self.content,
            metadata: self.metadata,
            extensions: self.extensions,
            reference_task_ids: self.reference_task_ids,
        }
    }
}

crate::object::objects_only!(LegacyMessage LegacyPart LegacyFile LegacyTaskStatus LegacyArtifact LegacyTask LegacyStatusUpdate LegacyArtifactUpdate);
