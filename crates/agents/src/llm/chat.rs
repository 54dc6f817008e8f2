//! Chat completions as JSON: the request, and the chunks of a response.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Members of every request beside the messages: the model, and further ones from the configuration.
#[derive(Debug, Clone)]
pub struct Parameters(Map<String, Value>);

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ChatMessage {
    role: &'static str,
    content: ChatContent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(super) enum ChatContent {
    Text(String),
    Pieces(Vec<ContentPart>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ContentPart {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ImageUrl {
    url: String,
}

/// One event of an answer.
#[derive(Debug)]
pub(super) enum AnswerEvent {
    /// More text of the answer.
    Text(String),
    /// More text of a refusal.
    Refusal(String),
    /// The end of the answer.
    End(Finish),
}

/// The end of an answer.
#[derive(Debug, Default)]
pub(super) struct Finish {
    /// The finish reason.
    pub(super) reason: Option<String>,
    /// The tokens used.
    pub(super) usage: Option<Map<String, Value>>,
}

/// One event of the stream or, from endpoints that do not stream, all of them at once.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CompletionChunk {
    #[serde(default)]
    pub(super) choices: Vec<CompletionChoice>,
    pub(super) usage: Option<Map<String, Value>>,
    pub(super) error: Option<Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CompletionChoice {
    #[serde(default)]
    pub(super) index: u32,
    #[serde(alias = "message")]
    pub(super) delta: Option<CompletionDelta>,
    pub(super) finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CompletionDelta {
    pub(super) content: Option<String>,
    pub(super) refusal: Option<String>,
}

#[derive(Serialize)]
struct CompletionRequest<'a> {
    #[serde(flatten)]
    parameters: &'a Map<String, Value>,
    messages: &'a [ChatMessage],
}

impl Parameters {
    /// Members that the configuration may not set.
    pub const OWN: [&'static str; 4] = ["model", "messages", "stream", "n"];

    /// A model, and further members of the body such as `temperature`.
    pub fn new(model: &str, further: Map<String, Value>) -> Self {
        let mut members = Map::new();
        // Without this a stream has no usage. The configuration can override it in `further`.
        let usage = Map::from_iter([("include_usage".to_owned(), Value::Bool(true))]);
        members.insert("stream_options".to_owned(), Value::Object(usage));
        members.extend(further);
        members.insert("model".to_owned(), Value::String(model.to_owned()));
        members.insert("stream".to_owned(), Value::Bool(true));
        Self(members)
    }

    /// The body of a request.
    pub(super) fn request(&self, messages: &[ChatMessage]) -> Vec<u8> {
        serde_json::to_vec(&CompletionRequest { parameters: &self.0, messages })
            .expect("its keys are strings")
    }
}

impl ChatMessage {
    pub(super) fn system(text: &str) -> Self {
        Self { role: "system", content: ChatContent::Text(text.to_owned()) }
    }

    pub(super) fn user(content: ChatContent) -> Self {
        Self { role: "user", content }
    }

    pub(super) fn assistant(text: String) -> Self {
        Self { role: "assistant", content: ChatContent::Text(text) }
    }
}

impl ContentPart {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    pub(super) fn image(url: String) -> Self {
        Self::ImageUrl { image_url: ImageUrl { url } }
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text } => Some(text),
            Self::ImageUrl { .. } => None,
        }
    }
}
