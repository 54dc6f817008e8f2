//! The line protocol: one JSON object per line, both ways. docs/handler-protocol.md describes it.

use herald_engine::Turn;
use herald_protocol::{Artifact, Message, Metadata, Part, TaskState};
use serde::{Deserialize, Serialize};

/// The version that is spoken here.
pub(super) const VERSION: u32 = 1;

/// What a handler reads. Its type, and the turn where there is one, come first in the line, so that
/// handlers without a JSON parser can find them.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Told<'a> {
    /// Comes first.
    Hello { protocol: u32, agent: &'a str },
    /// There is something to do.
    Begin(Box<Begin<'a>>),
    /// Nobody waits for the turn any more.
    Cancel {
        turn: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        metadata: Option<Metadata>,
    },
    /// Are you there?
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
    history: &'a [Message],
    artifacts: &'a [Artifact],
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

/// What a handler writes.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum Line {
    /// The answer to the server's.
    Hello {
        protocol: u32,
        /// How often it wants to be asked whether it is there, in seconds.
        #[serde(default)]
        ping: Option<u64>,
    },
    /// Where a turn stands.
    Status {
        turn: String,
        state: TaskState,
        #[serde(flatten)]
        words: Words,
    },
    /// A result, or the next piece of one.
    Artifact {
        turn: String,
        #[serde(default)]
        artifact_id: Option<String>,
        #[serde(default)]
        name: Option<String>,
        #[serde(default)]
        description: Option<String>,
        #[serde(default)]
        metadata: Option<Metadata>,
        #[serde(default)]
        append: bool,
        #[serde(default)]
        last_chunk: bool,
        #[serde(flatten)]
        words: Words,
    },
    /// The turn failed.
    Error {
        turn: String,
        kind: String,
        #[serde(default)]
        message: Option<String>,
        #[serde(default)]
        detail: Option<String>,
    },
    /// The answer to a ping.
    Pong { id: u64 },
}

/// Parts, or a text instead of them.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Words {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    parts: Vec<Part>,
}

/// The part of a line that says whose it is, whatever else is wrong with it.
#[derive(Debug, Deserialize)]
pub(super) struct Whose {
    pub(super) turn: String,
}

impl<'a> Told<'a> {
    /// What a turn is about, under the name it has among the turns of this handler.
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

impl Words {
    pub(super) fn into_parts(self) -> Vec<Part> {
        let text = self.text.map(Part::text);
        text.into_iter().chain(self.parts).collect()
    }
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
    fn the_schema_has_the_lines_that_are_spoken() {
        let schema: Value = serde_json::from_str(SCHEMA).unwrap();
        let told = [
            Told::Hello { protocol: VERSION, agent: "a" },
            Told::Cancel { turn: "1", metadata: None },
            Told::Ping { id: 1 },
        ];
        let mut spoken: BTreeSet<String> = told
            .iter()
            .map(|told| serde_json::from_slice::<Value>(&told.encode()).unwrap())
            .map(|line| line["type"].as_str().unwrap().to_owned())
            .collect();
        spoken.insert("begin".to_owned());
        assert_eq!(spoken, types(&schema, "toHandler"));
        let mut heard = BTreeSet::new();
        for (name, members) in [
            ("hello", "\"protocol\":1"),
            ("status", "\"turn\":\"1\",\"state\":\"input-required\",\"text\":\"x\""),
            ("artifact", "\"turn\":\"1\",\"parts\":[{\"data\":{\"n\":1.5}}],\"lastChunk\":true"),
            ("error", "\"turn\":\"1\",\"kind\":\"E\""),
            ("pong", "\"id\":18446744073709551615"),
        ] {
            let line = format!("{{{members},\"type\":\"{name}\",\"later\":[]}}");
            serde_json::from_str::<Line>(&line).unwrap_or_else(|why| panic!("{line}: {why}"));
            heard.insert(name.to_owned());
        }
        assert_eq!(heard, types(&schema, "fromHandler"));
    }
}
