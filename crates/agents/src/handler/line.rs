//! Line protocol of handlers: one JSON object per line in each direction, described in docs/handler-protocol.md.

use std::sync::Arc;

use herald_engine::Turn;
use herald_protocol::{Artifact, Error, Message, Metadata, Part, TaskState, json};
use serde::{Deserialize, Serialize};

/// The protocol version.
pub(super) const VERSION: u32 = 1;

/// A line that a handler reads. The type and the turn come first, so that handlers without a JSON parser can
/// find them.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum ToHandler<'a> {
    /// The first line.
    Hello { protocol: u32, agent: &'a str },
    /// A turn begins.
    Begin(Box<Begin<'a>>),
    /// A turn is cancelled.
    Cancel {
        turn: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    /// A liveness check, to be answered with a pong.
    Ping { id: u64 },
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Begin<'a> {
    turn: &'a str,
    task_id: &'a str,
    context_id: &'a str,
    attempt: u32,
    message: &'a Message,
    history: &'a [Arc<Message>],
    artifacts: &'a [Arc<Artifact>],
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

/// A line that a handler writes.
#[derive(Debug)]
pub(super) enum FromHandler {
    Hello(Hello),
    Status(TurnStatus),
    Artifact(ArtifactChunk),
    Answer(AnswerLine),
    Error(Failed),
    Pong(Pong),
}

/// The answer to the server's hello.
#[derive(Debug, Deserialize)]
pub(super) struct Hello {
    pub(super) protocol: u32,
    /// The requested interval of pings, in seconds.
    pub(super) ping: Option<u64>,
}

/// The state of a turn.
#[derive(Debug, Deserialize)]
pub(super) struct TurnStatus {
    pub(super) turn: String,
    pub(super) state: TaskState,
    /// False if the turn goes on although the task waits. Otherwise the state decides.
    r#final: Option<bool>,
    text: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
}

/// An artifact, or the next chunk of one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ArtifactChunk {
    pub(super) turn: String,
    artifact_id: Option<String>,
    name: Option<String>,
    description: Option<String>,
    metadata: Option<Metadata>,
    #[serde(default)]
    pub(super) append: bool,
    #[serde(default)]
    pub(super) last_chunk: bool,
    text: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
}

/// The answer, which completes the task.
#[derive(Debug, Deserialize)]
pub(super) struct AnswerLine {
    pub(super) turn: String,
    text: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
}

/// The failure of a turn.
#[derive(Debug, Deserialize)]
pub(super) struct Failed {
    pub(super) turn: String,
    pub(super) kind: String,
    pub(super) message: Option<String>,
    pub(super) detail: Option<String>,
}

/// The answer to a ping.
#[derive(Debug, Deserialize)]
pub(super) struct Pong {
    pub(super) id: u64,
}

/// The turn of a line whose other members are invalid.
#[derive(Debug, Deserialize)]
pub(super) struct TurnOnly {
    pub(super) turn: String,
}

impl<'a> ToHandler<'a> {
    /// The line that begins a turn; `name` is the turn's name at this handler.
    pub(super) fn begin(name: &'a str, turn: &'a Turn, attempt: u32) -> Self {
        let task = turn.task();
        Self::Begin(Box::new(Begin {
            turn: name,
            task_id: task.id.as_str(),
            context_id: task.context_id.as_str(),
            attempt,
            message: turn.message(),
            history: task.history.as_deref().unwrap_or_default(),
            artifacts: task.artifacts.as_deref().unwrap_or_default(),
            accepted_output_modes: turn.accepted_output_modes(),
            metadata: turn.metadata(),
            traceparent: turn.trace().map(ToString::to_string),
        }))
    }

    /// The line, with its end.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("everything in it has a JSON form");
        line.push(b'\n');
        line
    }
}

impl FromHandler {
    /// Reads a line: its type first, then the members of that type. An enum with a tag among its
    /// members would keep the whole line as a tree before it knows the type.
    pub(super) fn read(line: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        enum Type {
            Hello,
            Status,
            Artifact,
            Answer,
            Error,
            Pong,
        }
        #[derive(Deserialize)]
        struct Tag {
            r#type: Type,
        }
        let Tag { r#type } = json::read(line)?;
        match r#type {
            Type::Hello => json::read(line).map(Self::Hello),
            Type::Status => json::read(line).map(Self::Status),
            Type::Artifact => json::read(line).map(Self::Artifact),
            Type::Answer => json::read(line).map(Self::Answer),
            Type::Error => json::read(line).map(Self::Error),
            Type::Pong => json::read(line).map(Self::Pong),
        }
    }
}

impl TurnStatus {
    /// True if the turn goes on by itself, although the task waits.
    pub(super) fn is_interim(&self) -> bool {
        self.r#final == Some(false) && self.state.is_interrupted()
    }

    pub(super) fn into_parts(self) -> Vec<Part> {
        joined(self.text, self.parts)
    }
}

impl AnswerLine {
    pub(super) fn into_parts(self) -> Vec<Part> {
        joined(self.text, self.parts)
    }
}

impl ArtifactChunk {
    pub(super) fn into_artifact(self) -> Artifact {
        Artifact {
            artifact_id: self.artifact_id.unwrap_or_else(|| "output".to_owned()).into(),
            name: self.name,
            description: self.description,
            parts: joined(self.text, self.parts),
            metadata: self.metadata,
            extensions: Vec::new(),
        }
    }
}

/// The parts of a line: its text, if it has one, and its parts.
fn joined(text: Option<String>, parts: Vec<Part>) -> Vec<Part> {
    text.map(Part::text).into_iter().chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const SCHEMA: &str = include_str!("../../../../docs/handler-protocol.schema.json");

    fn types(schema: &Value, side: &str) -> BTreeSet<String> {
        let lines = schema["$defs"][side]["oneOf"].as_array().unwrap().iter();
        let types = lines.map(|line| line["properties"]["type"]["const"].as_str().unwrap());
        types.map(str::to_owned).collect()
    }

    #[test]
    fn the_schema_has_the_lines_of_the_protocol() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let sent = [
            ToHandler::Hello { protocol: VERSION, agent: "a" },
            ToHandler::Cancel { turn: "1", metadata: None },
            ToHandler::Ping { id: 1 },
        ];
        let mut examples: BTreeSet<String> = sent
            .iter()
            .map(|sent| serde_json::from_slice::<Value>(&sent.encode()).unwrap())
            .map(|line| line["type"].as_str().unwrap().to_owned())
            .collect();
        examples.insert("begin".to_owned());
        assert_eq!(examples, types(&schema, "toHandler"));
        let mut read = BTreeSet::new();
        for (name, members) in [
            ("hello", "\"protocol\":1"),
            ("status", "\"turn\":\"1\",\"state\":\"input-required\",\"text\":\"x\""),
            ("artifact", "\"turn\":\"1\",\"parts\":[{\"data\":{\"n\":1.5}}],\"lastChunk\":true"),
            ("answer", "\"turn\":\"1\",\"text\":\"done\""),
            ("error", "\"turn\":\"1\",\"kind\":\"E\""),
            ("pong", "\"id\":18446744073709551615"),
        ] {
            let line = format!("{{{members},\"type\":\"{name}\",\"later\":[]}}");
            FromHandler::read(line.as_bytes()).unwrap_or_else(|why| panic!("{line}: {why}"));
            read.insert(name.to_owned());
        }
        assert_eq!(read, types(&schema, "fromHandler"));
    }
}
