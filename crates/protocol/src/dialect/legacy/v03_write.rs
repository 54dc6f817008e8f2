//! Writer of objects before 1.0, in any of their JSON shapes.

use std::{borrow::Cow, sync::Arc};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{DATA_PART_COMPAT, FILENAME_COMPAT, LegacyShape, MEDIA_TYPE_COMPAT, v01::Numbered};
use crate::{
    message::{Content, Message, Part, encode_base64},
    open::{Json, Metadata},
    push::{PushAuthentication, PushConfig},
    request::{SendConfiguration, SendMessage},
    task::{Artifact, ArtifactUpdate, StatusUpdate, Task, TaskState, TaskStatus},
};

/// An object and the shape it is to be written in.
pub(in crate::dialect) struct LegacyForm<'a, T: ?Sized>(
    pub(in crate::dialect) LegacyShape,
    pub(in crate::dialect) &'a T,
);

/// A status update; `true` says that the stream ends with it.
pub(in crate::dialect) struct Closing<'a>(
    pub(in crate::dialect) LegacyShape,
    pub(in crate::dialect) &'a StatusUpdate,
    pub(in crate::dialect) bool,
);

/// Writes members that may be absent.
pub(in crate::dialect) trait FlatMembers: SerializeMap {
    fn kind(&mut self, shape: LegacyShape, kind: &'static str) -> Result<(), Self::Error> {
        match shape {
            LegacyShape::Rpc => self.serialize_entry("kind", kind),
            LegacyShape::Rest | LegacyShape::V01 => Ok(()),
        }
    }

    /// In 0.1 only parts have a tag.
    fn part_kind(&mut self, shape: LegacyShape, kind: &'static str) -> Result<(), Self::Error> {
        match shape {
            LegacyShape::Rpc | LegacyShape::Rest => self.kind(shape, kind),
            LegacyShape::V01 => self.serialize_entry("type", kind),
        }
    }

    fn some<T: Serialize>(&mut self, name: &str, value: Option<&T>) -> Result<(), Self::Error> {
        value.map_or(Ok(()), |value| self.serialize_entry(name, value))
    }

    fn filled<T: Serialize>(&mut self, name: &str, values: &[T]) -> Result<(), Self::Error> {
        if values.is_empty() { Ok(()) } else { self.serialize_entry(name, values) }
    }
}

impl<M: SerializeMap> FlatMembers for M {}

impl<'a, T> Serialize for LegacyForm<'a, [T]>
where
    LegacyForm<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.1.iter().map(|item| LegacyForm(self.0, item)))
    }
}

impl<'a, T> Serialize for LegacyForm<'a, [Arc<T>]>
where
    LegacyForm<'a, T>: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.1.iter().map(|item| LegacyForm(self.0, &**item)))
    }
}

impl Serialize for LegacyForm<'_, Task> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, task) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.kind(shape, "task")?;
        map.serialize_entry("id", &task.id)?;
        match shape {
            LegacyShape::Rpc | LegacyShape::Rest => {
                map.serialize_entry("contextId", &task.context_id)?;
            }
            LegacyShape::V01 => {
                map.some("sessionId", Some(&task.context_id).filter(|id| !id.is_empty()))?;
            }
        }
        map.serialize_entry("status", &LegacyForm(shape, &task.status))?;
        let artifacts = task.artifacts.as_deref();
        match shape {
            LegacyShape::Rpc | LegacyShape::Rest => {
                map.some("artifacts", artifacts.map(|all| LegacyForm(shape, all)).as_ref())?;
            }
            LegacyShape::V01 => map.some("artifacts", artifacts.map(Numbered::all).as_ref())?,
        }
        map.some("history", task.history.as_deref().map(|all| LegacyForm(shape, all)).as_ref())?;
        map.some("metadata", task.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for LegacyForm<'_, TaskStatus> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, status) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("state", state_name(shape, status.state))?;
        map.some(
            "message",
            status.message.as_deref().map(|message| LegacyForm(shape, message)).as_ref(),
        )?;
        map.some("timestamp", status.timestamp.as_ref())?;
        map.end()
    }
}

fn state_name(shape: LegacyShape, state: TaskState) -> &'static str {
    match (shape, state) {
        (LegacyShape::Rpc, state) => state.kebab_name(),
        // States that 0.1 does not have are replaced by the nearest one for the caller.
        (LegacyShape::V01, TaskState::Rejected) => TaskState::Failed.kebab_name(),
        (LegacyShape::V01, TaskState::AuthRequired) => TaskState::InputRequired.kebab_name(),
        (LegacyShape::V01, state) => state.kebab_name(),
        // The 0.3 protobuf spells this one, and only this one, in the British way.
        (LegacyShape::Rest, TaskState::Canceled) => "TASK_STATE_CANCELLED",
        (LegacyShape::Rest, state) => state.proto_name(),
    }
}

impl Serialize for LegacyForm<'_, Message> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, message) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.kind(shape, "message")?;
        // Messages have no ids in 0.1.
        if shape != LegacyShape::V01 {
            map.serialize_entry("messageId", &message.message_id)?;
            map.some("contextId", message.context_id.as_ref())?;
            map.some("taskId", message.task_id.as_ref())?;
        }
        let role = match shape {
            LegacyShape::Rpc | LegacyShape::V01 => message.role.kebab_name(),
            LegacyShape::Rest => message.role.proto_name(),
        };
        map.serialize_entry("role", role)?;
        map.serialize_entry(shape.parts(), &LegacyForm(shape, message.parts.as_slice()))?;
        map.some("metadata", message.metadata.as_ref())?;
        if shape != LegacyShape::V01 {
            map.filled("extensions", &message.extensions)?;
        }
        // The 0.3 protobuf has no such field, and its readers refuse fields they do not know.
        if shape == LegacyShape::Rpc {
            map.filled("referenceTaskIds", &message.reference_task_ids)?;
        }
        map.end()
    }
}

impl Serialize for LegacyForm<'_, Artifact> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, artifact) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("artifactId", &artifact.artifact_id)?;
        map.some("name", artifact.name.as_ref())?;
        map.some("description", artifact.description.as_ref())?;
        map.serialize_entry("parts", &LegacyForm(shape, artifact.parts.as_slice()))?;
        map.some("metadata", artifact.metadata.as_ref())?;
        map.filled("extensions", &artifact.extensions)?;
        map.end()
    }
}

impl Serialize for Closing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, update, closing) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.kind(shape, "status-update")?;
        map.serialize_entry("taskId", &update.task_id)?;
        map.serialize_entry("contextId", &update.context_id)?;
        map.serialize_entry("status", &LegacyForm(shape, &update.status))?;
        map.serialize_entry("final", &closing)?;
        map.some("metadata", update.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for LegacyForm<'_, ArtifactUpdate> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, update) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.kind(shape, "artifact-update")?;
        map.serialize_entry("taskId", &update.task_id)?;
        map.serialize_entry("contextId", &update.context_id)?;
        map.serialize_entry("artifact", &LegacyForm(shape, &update.artifact))?;
        map.some("append", Some(&true).filter(|_| update.append))?;
        map.some("lastChunk", Some(&true).filter(|_| update.last_chunk))?;
        map.some("metadata", update.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for LegacyForm<'_, Part> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, part) = *self;
        let mut map = serializer.serialize_map(None)?;
        match &part.content {
            Content::Text(text) => {
                map.part_kind(shape, "text")?;
                map.serialize_entry("text", text)?;
            }
            Content::Raw(bytes) => {
                map.part_kind(shape, "file")?;
                let content = (shape.bytes(), Cow::Owned(file_bytes(shape, bytes)));
                map.serialize_entry("file", &FileForm { part, content })?;
            }
            Content::Url(url) => {
                map.part_kind(shape, "file")?;
                let content = (shape.uri(), Cow::Borrowed(url.as_str()));
                map.serialize_entry("file", &FileForm { part, content })?;
            }
            Content::Data(value) => {
                map.part_kind(shape, "data")?;
                match shape {
                    LegacyShape::Rpc | LegacyShape::V01 => {
                        map.serialize_entry("data", &Struct(value))?;
                    }
                    LegacyShape::Rest => {
                        map.serialize_entry("data", &DataPartForm { data: Struct(value) })?;
                    }
                }
            }
        }
        map.some("metadata", part_metadata(part).as_deref())?;
        map.end()
    }
}

/// The bytes of a file. On REST they are base64 twice: most official SDKs (Python, Java, Go) keep
/// base64 text in the protobuf's field for bytes, which its JSON form then encodes once more, and
/// Python's cannot read a task at all in which the field holds anything but text.
fn file_bytes(shape: LegacyShape, bytes: &[u8]) -> String {
    let text = encode_base64(bytes);
    match shape {
        LegacyShape::Rpc | LegacyShape::V01 => text,
        LegacyShape::Rest => encode_base64(text.as_bytes()),
    }
}

struct FileForm<'a> {
    part: &'a Part,
    content: (&'static str, Cow<'a, str>),
}

impl Serialize for FileForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.some("name", self.part.filename.as_ref())?;
        map.some("mimeType", self.part.media_type.as_ref())?;
        map.serialize_entry(self.content.0, &self.content.1)?;
        map.end()
    }
}

#[derive(Serialize)]
struct DataPartForm<'a> {
    data: Struct<'a>,
}

/// A value as an object, the only form that 0.3 accepts.
struct Struct<'a>(&'a Json);

impl Serialize for Struct<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_object() {
            self.0.serialize(serializer)
        } else {
            serializer.collect_map([("value", self.0)])
        }
    }
}

/// The metadata of the part, with the values that have no field in 0.3.
pub(crate) fn part_metadata(part: &Part) -> Option<Cow<'_, Metadata>> {
    let names = match &part.content {
        Content::Text(_) | Content::Data(_) => [
            part.filename.as_ref().map(|name| (FILENAME_COMPAT, name)),
            part.media_type.as_ref().map(|media_type| (MEDIA_TYPE_COMPAT, media_type)),
        ],
        Content::Raw(_) | Content::Url(_) => [None, None],
    };
    let wrapped = matches!(&part.content, Content::Data(value) if !value.is_object());
    if names == [None, None] && !wrapped {
        return part.metadata.as_ref().map(Cow::Borrowed);
    }
    let mut metadata = part.metadata.clone().unwrap_or_default();
    for (key, name) in names.into_iter().flatten() {
        metadata.insert(key, name.as_str());
    }
    if wrapped {
        metadata.insert(DATA_PART_COMPAT, true);
    }
    Some(Cow::Owned(metadata))
}

/// A webhook without its task, the same in both shapes of 0.3.
pub(in crate::dialect) struct PushForm<'a>(pub(in crate::dialect) &'a PushConfig);

pub(in crate::dialect) struct AuthenticationForm<'a>(pub(in crate::dialect) &'a PushAuthentication);

impl Serialize for PushForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.some("id", self.0.id.as_ref())?;
        map.serialize_entry("url", &self.0.url)?;
        map.some("token", self.0.token.as_ref())?;
        let authentication = self.0.authentication.as_ref().map(AuthenticationForm);
        map.some("authentication", authentication.as_ref())?;
        map.end()
    }
}

impl Serialize for AuthenticationForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let scheme = Some(self.0.scheme.as_str()).filter(|scheme| !scheme.is_empty());
        map.serialize_entry("schemes", scheme.as_slice())?;
        map.some("credentials", self.0.credentials.as_ref())?;
        map.end()
    }
}

/// The parameters of a send.
pub(in crate::dialect) struct SendForm<'a>(
    pub(in crate::dialect) LegacyShape,
    pub(in crate::dialect) &'a SendMessage,
);

struct ConfigurationForm<'a>(LegacyShape, &'a SendConfiguration);

impl Serialize for SendForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, send) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message", &LegacyForm(shape, &send.message))?;
        map.serialize_entry("configuration", &ConfigurationForm(shape, &send.configuration))?;
        map.some("metadata", send.metadata.as_ref())?;
        map.end()
    }
}

impl Serialize for ConfigurationForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(shape, configuration) = *self;
        let mut map = serializer.serialize_map(None)?;
        // Even if it is empty, which means any: servers of 0.2 refuse a configuration without it.
        map.serialize_entry("acceptedOutputModes", &configuration.accepted_output_modes)?;
        let push = configuration.task_push_notification_config.as_ref().map(PushForm);
        map.some(shape.push(), push.as_ref())?;
        map.some("historyLength", configuration.history_length.as_ref())?;
        map.serialize_entry("blocking", &!configuration.return_immediately)?;
        map.end()
    }
}
