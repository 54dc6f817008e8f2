//! LLM agent: a language model behind an endpoint for OpenAI's chat completions.

mod chat;
mod endpoint;
mod error_body;
mod file;
mod prompt;

use std::time::Duration;

use async_trait::async_trait;
use herald_engine::{ANSWER_NAME, Agent, AgentError, Profile, Recovery, Turn};
use herald_protocol::{AgentName, Metadata};
use serde_json::{Map, Value};

use crate::{
    ErrorDetail, artifact_writer::ArtifactWriter, ended::Ended, failure::Failure, text::camel_case,
};

pub use chat::Parameters;
pub use endpoint::{Endpoint, EndpointError, EndpointTimeouts};

use chat::{AnswerEvent, Finish};
use endpoint::{AnswerStream, RequestFailure};

/// Default limit of an answer, in bytes.
const MAX_OUTPUT: u64 = 4 << 20;

/// Earlier tasks of a conversation that go into the prompt.
const MEMORY: usize = 20;

/// Bytes of a refusal that are kept.
const REFUSAL: usize = 2 << 10;

/// Members of `usage` that are kept per object, and levels of nesting.
const COUNTS: usize = 64;
const COUNTS_DEPTH: usize = 2;

/// Agent that answers with a language model, which gets the whole conversation.
#[derive(Debug, Clone)]
pub struct Llm {
    /// The agent's name, for messages about its failures.
    pub name: AgentName,
    /// The model's endpoint.
    pub endpoint: Endpoint,
    /// Members of every request beside the messages.
    pub parameters: Parameters,
    /// The system prompt. It appears in no card and in no task.
    pub system: Option<String>,
    /// True if the model accepts images.
    pub images: bool,
    /// Limit of an answer in bytes.
    pub max_output: u64,
    /// The part of a failure that callers see.
    pub error_detail: ErrorDetail,
}

impl Llm {
    /// A model at an endpoint, with the default limits.
    pub fn new(name: &str, endpoint: Endpoint, parameters: Parameters) -> Self {
        Self {
            name: AgentName::new(name),
            endpoint,
            parameters,
            system: None,
            images: false,
            max_output: MAX_OUTPUT,
            error_detail: ErrorDetail::default(),
        }
    }

    /// The agent's profile: card fields, limits and recovery, without the system prompt.
    pub fn profile(&self) -> Profile {
        let description = "Answers with a language model that knows the conversation";
        let mut profile = Profile::new(self.name.clone(), description);
        profile.skills[0].tags = vec!["llm".to_owned(), "chat".to_owned()];
        profile.input_modes =
            ["text/plain", "text/*", "application/json"].map(str::to_owned).to_vec();
        if self.images {
            profile.input_modes.push("image/*".to_owned());
        }
        // The model cannot read other files, but it is told their names.
        profile.further_input_modes = vec!["*/*".to_owned()];
        profile.memory = MEMORY;
        // A request has no side effects, and the second answer replaces the unfinished first one.
        profile.recovery = Recovery::Rerun(2);
        profile.concurrency = 64;
        profile.timeout = Some(Duration::from_secs(600));
        profile
    }

    /// A failure without secrets and system prompt, safe for callers and the log.
    fn redact(&self, failure: Failure) -> Failure {
        let (secrets, system) = (self.endpoint.secrets(), self.system.as_deref());
        let redact = |text: String| error_body::redact(&text, secrets, system);
        Failure { message: failure.message.and_then(redact), ..failure }
    }

    async fn answer(&self, turn: &Turn) -> Result<(), Ended> {
        let messages = prompt::messages(turn, self.system.as_deref(), self.images);
        let body = self.parameters.request(&messages);
        let (first, mut answer) = self.endpoint.ask(body, turn.trace()).await?;
        let mut artifact = ArtifactWriter::new(turn, turn.answer_id(), ANSWER_NAME).holding_last();
        let outcome = self.receive(first, &mut answer, &mut artifact).await;
        let (finish, refused) = match outcome {
            Ok(outcome) => outcome,
            Err(ended) => {
                // The task keeps the text that came before the failure.
                artifact.flush().await?;
                return Err(ended);
            }
        };
        artifact.finish(about(&finish)).await?;
        if !refused.is_empty() {
            let kind = "was refused an answer by its model";
            return Err(Ended::Failed(Failure { message: Some(refused), ..Failure::new(kind) }));
        }
        match finish.reason.as_deref() {
            Some("content_filter") => {
                Err(Ended::Failed(Failure::new("was cut off by the content filter of its model")))
            }
            Some("tool_calls" | "function_call") => {
                Err(Ended::Failed(Failure::new("was asked by its model for a tool, and has none")))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Writes the answer to the artifact, and returns how it finished and the text of a refusal.
    async fn receive(
        &self,
        first: AnswerEvent,
        answer: &mut AnswerStream,
        artifact: &mut ArtifactWriter<'_>,
    ) -> Result<(Finish, String), Ended> {
        let (mut received, mut refused) = (0, String::new());
        let mut next = Some(first);
        loop {
            let event = match next.take() {
                Some(event) => event,
                None => match artifact.next_or_flush(answer.next()).await? {
                    Some(event) => event?,
                    None => continue,
                },
            };
            match event {
                AnswerEvent::Text(text) => {
                    received += text.len() as u64;
                    if received > self.max_output {
                        let most = self.max_output;
                        let kind = format!("got more than {most} bytes from its model");
                        return Err(Ended::Failed(Failure::new(kind)));
                    }
                    artifact.push(&text).await?;
                }
                AnswerEvent::Refusal(text) => {
                    refused.push_str(&text);
                    refused.truncate(refused.floor_char_boundary(REFUSAL));
                }
                AnswerEvent::End(finish) => return Ok((finish, refused)),
            }
        }
    }
}

#[async_trait]
impl Agent for Llm {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        // Dropping the future closes the connection, which stops the model.
        let answered = tokio::select! {
            answered = self.answer(turn) => answered,
            () = turn.cancelled().cancelled() => return Err(AgentError::Stopped),
        };
        answered.map_err(|ended| {
            let ended = ended.map_failure(|failure| self.redact(failure));
            ended.report(turn, &self.name, self.error_detail)
        })
    }
}

/// Metadata of the answer: usage and finish reason.
fn about(finish: &Finish) -> Option<Metadata> {
    let mut about = Metadata::new();
    if let Some(usage) = &finish.usage {
        about.insert("usage", Value::Object(counts(usage, COUNTS_DEPTH)));
    }
    if let Some(reason) = &finish.reason {
        let reason = if is_word(reason) { reason } else { "unknown" };
        about.insert("finishReason", reason);
    }
    Some(about).filter(|about| !about.is_empty())
}

/// The numbers in `usage`, under names as the protocol spells them. Callers see them, so every value of
/// another type is dropped.
fn counts(usage: &Map<String, Value>, depth: usize) -> Map<String, Value> {
    let numbers =
        usage.iter().filter(|(name, _)| is_word(name)).take(COUNTS).filter_map(|(name, value)| {
            let value = match value {
                Value::Number(number) => Value::Number(number.clone()),
                Value::Object(more) if depth > 0 => Value::Object(counts(more, depth - 1)),
                Value::Object(_)
                | Value::Null
                | Value::Bool(_)
                | Value::String(_)
                | Value::Array(_) => {
                    return None;
                }
            };
            Some((camel_case(name), value))
        });
    numbers.collect()
}

/// True for a short ASCII identifier, the only text of an endpoint that is passed on unredacted.
fn is_word(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl From<RequestFailure> for Ended {
    fn from(failed: RequestFailure) -> Self {
        match failed.again {
            Some(_) => Self::Unavailable(failed.failure),
            None => Self::Failed(failed.failure),
        }
    }
}
