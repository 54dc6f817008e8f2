//! Messages and their parts.

use std::fmt;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::{
    id::{ContextId, MessageId, TaskId},
    object::ObjectOnly,
    open::{Json, Metadata},
    validate::{Validate, Violations, empty_as_none, null_as_default},
};

/// The role of the sender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Role {
    /// Unspecified; never valid in a message.
    #[default]
    Unspecified,
    /// The client.
    User,
    /// The agent.
    Agent,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct Message {
    /// Chosen by the sender.
    #[serde(default, alias = "message_id", deserialize_with = "null_as_default")]
    pub message_id: MessageId,
    /// The conversation.
    #[serde(
        default,
        alias = "context_id",
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub context_id: Option<ContextId>,
    /// The task it belongs to or continues.
    #[serde(
        default,
        alias = "task_id",
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_id: Option<TaskId>,
    /// The role of the sender.
    #[serde(default, deserialize_with = "null_as_default")]
    pub role: Role,
    /// The content, at least one part.
    #[serde(default, deserialize_with = "null_as_default")]
    pub parts: Vec<Part>,
    /// Open data, keyed by extension where one defines it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Extensions that contributed to the message.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
    /// Other tasks that the message refers to.
    #[serde(
        default,
        alias = "reference_task_ids",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub reference_task_ids: Vec<TaskId>,
}

/// One piece of content.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The content itself.
    pub content: Content,
    /// A name for it, as a file would have.
    pub filename: Option<String>,
    /// Its media type.
    pub media_type: Option<String>,
    /// Open data.
    pub metadata: Option<Metadata>,
}

/// Content of a part: exactly one of these.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// Text.
    Text(String),
    /// Bytes, base64 on the wire.
    Raw(Vec<u8>),
    /// URL of the bytes.
    Url(String),
    /// Any JSON value, `null` included.
    Data(Json),
}

impl Message {
    /// A message of the agent with one text.
    pub fn agent(message_id: impl Into<MessageId>, text: impl Into<String>) -> Self {
        Self {
            message_id: message_id.into(),
            role: Role::Agent,
            parts: vec![Part::text(text)],
            ..Self::default()
        }
    }

    /// A message of the user with one text.
    pub fn user(message_id: impl Into<MessageId>, text: impl Into<String>) -> Self {
        Self { role: Role::User, ..Self::agent(message_id, text) }
    }

    /// All text parts, joined by newlines.
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.parts.iter().filter_map(Part::as_text).collect();
        texts.join("\n")
    }
}

impl Part {
    /// A part of this content and nothing else.
    pub fn new(content: Content) -> Self {
        Self { content, filename: None, media_type: None, metadata: None }
    }

    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new(Content::Text(text.into()))
    }

    fn is_deep(&self) -> bool {
        let data = matches!(&self.content, Content::Data(value) if value.is_too_deep());
        data || self.metadata.as_ref().is_some_and(Metadata::is_too_deep)
    }

    /// The text, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            Content::Raw(_) | Content::Url(_) | Content::Data(_) => None,
        }
    }
}

impl Validate for Message {
    fn validate(&self, at: &mut Violations<'_>) {
        at.required_id("messageId", self.message_id.as_str());
        at.optional_id("contextId", self.context_id.as_ref().map(ContextId::as_str));
        at.optional_id("taskId", self.task_id.as_ref().map(TaskId::as_str));
        if self.role == Role::Unspecified {
            at.add("role", "must be ROLE_USER or ROLE_AGENT");
        }
        if self.parts.is_empty() {
            at.add("parts", "must hold at least one part");
        }
        check_content(self, at);
    }
}

/// Parts of one message or of one piece of an artifact. Each takes memory of its own beside its bytes.
pub const MAX_PARTS: usize = 10_000;

/// Entries of the other lists of a message.
const MAX_NAMES: usize = 1_000;

/// Refuses lists that are too long, and open data that could not be read again once it is wrapped.
pub(crate) fn check_content(message: &Message, at: &mut Violations<'_>) {
    if message.parts.len() > MAX_PARTS {
        return at.add("parts", format!("must hold at most {MAX_PARTS} parts"));
    }
    let names = [
        ("referenceTaskIds", message.reference_task_ids.len()),
        ("extensions", message.extensions.len()),
    ];
    for (field, _) in names.into_iter().filter(|(_, count)| *count > MAX_NAMES) {
        at.add(field, format!("must hold at most {MAX_NAMES} entries"));
    }
    if message.metadata.as_ref().is_some_and(Metadata::is_too_deep) {
        at.add("metadata", "is nested too deeply");
    }
    for (index, part) in message.parts.iter().enumerate() {
        if part.is_deep() {
            at.add(&format!("parts[{index}]"), "is nested too deeply");
        }
    }
}

/// True if open data nests so deeply that it could not be read again once it is wrapped.
pub fn is_too_deep(parts: &[Part], metadata: Option<&Metadata>) -> bool {
    metadata.is_some_and(Metadata::is_too_deep) || parts.iter().any(Part::is_deep)
}

impl Role {
    /// The 0.2 and 0.3 JSON name. They have none for an unspecified role.
    pub const fn kebab_name(self) -> &'static str {
        match self {
            Self::Unspecified | Self::User => "user",
            Self::Agent => "agent",
        }
    }

    /// The 1.0 and ProtoJSON name.
    pub const fn proto_name(self) -> &'static str {
        match self {
            Self::Unspecified => "ROLE_UNSPECIFIED",
            Self::User => "ROLE_USER",
            Self::Agent => "ROLE_AGENT",
        }
    }
}

impl Serialize for Role {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.proto_name())
    }
}

impl<'de> Deserialize<'de> for Role {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct RoleVisitor;
        impl de::Visitor<'_> for RoleVisitor {
            type Value = Role;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ROLE_USER or ROLE_AGENT")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Role, E> {
                match name {
                    "ROLE_USER" => Ok(Role::User),
                    "ROLE_AGENT" => Ok(Role::Agent),
                    "ROLE_UNSPECIFIED" => Ok(Role::Unspecified),
                    _ => Err(E::invalid_value(de::Unexpected::Str(name), &self)),
                }
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Role, E> {
                match number {
                    0 => Ok(Role::Unspecified),
                    1 => Ok(Role::User),
                    2 => Ok(Role::Agent),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(RoleVisitor)
    }
}

impl Serialize for Part {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match &self.content {
            Content::Text(text) => map.serialize_entry("text", text)?,
            Content::Raw(bytes) => map.serialize_entry("raw", &encode_base64(bytes))?,
            Content::Url(url) => map.serialize_entry("url", url)?,
            Content::Data(value) => map.serialize_entry("data", value)?,
        }
        if let Some(filename) = &self.filename {
            map.serialize_entry("filename", filename)?;
        }
        if let Some(media_type) = &self.media_type {
            map.serialize_entry("mediaType", media_type)?;
        }
        if let Some(metadata) = &self.metadata {
            map.serialize_entry("metadata", metadata)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct PartMembers {
            text: Option<String>,
            raw: Option<String>,
            url: Option<String>,
            #[serde(default, deserialize_with = "present")]
            data: Option<Json>,
            filename: Option<String>,
            #[serde(alias = "media_type")]
            media_type: Option<String>,
            metadata: Option<Metadata>,
        }
        let wire = PartMembers::deserialize(ObjectOnly(deserializer))?;
        let content = match (wire.text, wire.raw, wire.url, wire.data) {
            (Some(text), None, None, None) => Content::Text(text),
            (None, Some(raw), None, None) => {
                Content::Raw(decode_base64(&raw).map_err(de::Error::custom)?)
            }
            (None, None, Some(url), None) => Content::Url(url),
            (None, None, None, Some(value)) => Content::Data(value),
            _ => {
                return Err(de::Error::custom(
                    "a part must have exactly one of text, raw, url and data",
                ));
            }
        };
        Ok(Self {
            content,
            filename: wire.filename,
            media_type: wire.media_type,
            metadata: wire.metadata,
        })
    }
}

/// Distinguishes `null` from absent.
pub(crate) fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Json>, D::Error> {
    Json::deserialize(deserializer).map(Some)
}

/// Standard alphabet, padded.
pub(crate) fn encode_base64(bytes: &[u8]) -> String {
    general_purpose::STANDARD.encode(bytes)
}

/// Either alphabet, padded or not, as ProtoJSON readers must.
pub(crate) fn decode_base64(text: &str) -> Result<Vec<u8>, &'static str> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
    const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);
    let engine = if text.contains(['-', '_']) { &URL_SAFE } else { &STANDARD };
    engine.decode(text).map_err(|_| "expected base64")
}

/// Decodes bytes that are base64 text. The writer of 0.3 has the reason.
pub(crate) fn decode_base64_text(bytes: &[u8]) -> Option<Vec<u8>> {
    general_purpose::STANDARD.decode(bytes).ok()
}

crate::object::objects_only!(both Message);
