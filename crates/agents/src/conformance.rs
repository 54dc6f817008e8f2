//! Agent for the public conformance suites: the first word of a message selects its behaviour.
//!
//! The word is looked for at the start of the text and of the message id, the longest match first.
//! Words may be followed by settings: `tck-stream-chunked chunks=10 size=16 delay_ms=5`.

use std::time::Duration;

use async_trait::async_trait;
use herald_engine::{Admission, Agent, AgentError, Candidate, Profile, Recovery, Turn};
use herald_protocol::{Artifact, Content, Message, Part, Role, Task};
use serde_json::Value;

use crate::echo::input_modes;

/// Agent for the public conformance suites.
#[derive(Debug, Clone, Copy, Default)]
pub struct Conformance {
    /// The behaviour for a message without a known first word.
    pub otherwise: Otherwise,
}

/// Behaviour for a message without a known first word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Otherwise {
    /// Complete the task, as the suites for 1.0 expect.
    #[default]
    Complete,
    /// Ask for input after a moment, as the suite for 0.3 expects.
    Ask,
}

/// Behaviour selected by a message prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    CompleteTask,
    InputRequired,
    ArtifactText,
    ArtifactFile,
    ArtifactFileUrl,
    ArtifactData,
    MessageResponse,
    StreamText(&'static str),
    StreamCompleted,
    StreamChunked,
    StreamTwoChunks,
    RejectTask,
    TaskFailure,
    Cancel,
    LongRunning,
    MultiTurn,
    AuthRequired,
    StayActive,
    BrokenAgent,
    Crash,
}

use Behaviour as B;

const REJECTED: &str = "Rejected on request";
const SIGN_IN: &str = "Please sign in";

/// The words. The longest match wins.
const WORDS: &[(&str, Behaviour)] = &[
    ("tck-complete-task", B::CompleteTask),
    ("tck-input-required", B::InputRequired),
    ("tck-artifact-text", B::ArtifactText),
    ("tck-artifact-file", B::ArtifactFile),
    ("tck-artifact-file-url", B::ArtifactFileUrl),
    ("tck-artifact-data", B::ArtifactData),
    ("tck-message-response", B::MessageResponse),
    ("tck-stream-001", B::StreamText("Stream hello from TCK")),
    ("tck-stream-002", B::StreamCompleted),
    ("tck-stream-003", B::StreamText("Stream task lifecycle")),
    ("tck-stream-ordering-001", B::StreamText("Ordered output")),
    ("tck-stream-basic", B::StreamText("Stream hello from TCK")),
    ("tck-stream-artifact-text", B::StreamText("Streamed text content")),
    ("tck-stream-artifact-file", B::ArtifactFile),
    ("tck-stream-artifact-chunked", B::StreamTwoChunks),
    ("tck-stream-chunked", B::StreamChunked),
    ("tck-reject-task", B::RejectTask),
    ("tck-task-failure", B::TaskFailure),
    ("tck-cancel", B::Cancel),
    ("tck-long-running", B::LongRunning),
    ("tck-multi-turn", B::MultiTurn),
    ("tck-auth-required", B::AuthRequired),
    ("test-resubscribe-message-id", B::StayActive),
    ("tck-broken-direct", B::BrokenAgent),
    ("tck-crash", B::Crash),
];

impl Conformance {
    /// The agent's profile: card fields, limits and recovery.
    pub fn profile(name: &str) -> Profile {
        let description = "Reacts to the messages of the public A2A conformance suites";
        let mut profile = Profile::new(name, description);
        profile.title = "Conformance".to_owned();
        profile.skills[0].tags = vec!["conformance".to_owned(), "test".to_owned()];
        profile.skills[0].examples = vec!["tck-complete-task".to_owned()];
        profile.input_modes = input_modes();
        profile.output_modes = input_modes();
        profile.recovery = Recovery::Rerun(3);
        profile.concurrency = 100_000;
        profile
    }

    async fn otherwise(self, turn: &Turn) -> Result<(), AgentError> {
        match self.otherwise {
            Otherwise::Complete => {
                turn.answer(turn.message().text()).await?;
            }
            Otherwise::Ask => {
                pause(turn, 500).await?;
                turn.ask("What else?").await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Agent for Conformance {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let Some(behaviour) = wanted(turn) else { return self.otherwise(turn).await };
        match behaviour {
            B::CompleteTask => turn.complete("Hello from TCK").await?,
            B::InputRequired => turn.ask("Please go on").await?,
            B::AuthRequired if is_first(turn.task()) => turn.require_auth(SIGN_IN).await?,
            B::AuthRequired => turn.complete("Signed in").await?,
            B::ArtifactText => {
                turn.complete_with(text("text", "Generated text content")).await?;
            }
            B::ArtifactFile => {
                let file = Content::Raw(b"Generated file content".to_vec());
                turn.complete_with(file_artifact(file)).await?;
            }
            B::ArtifactFileUrl => {
                let file = Content::Url("https://example.com/output.txt".to_owned());
                turn.complete_with(file_artifact(file)).await?;
            }
            B::ArtifactData => {
                let members = [("key", Value::from("value")), ("count", Value::from(42))];
                let data = Content::Data(Value::from_iter(members).into());
                turn.complete_with(artifact("data", Part::new(data))).await?;
            }
            B::MessageResponse => turn.reply(vec![Part::text("Direct message response")]).await?,
            B::StreamText(words) => turn.complete_with(text("stream", words)).await?,
            B::StreamCompleted => {}
            B::StreamChunked => chunked(turn).await?,
            B::StreamTwoChunks => {
                turn.append(text("stream", "chunk-1 "), false).await?;
                turn.append(text("stream", "chunk-2"), true).await?;
            }
            // An admission has rejected it, except on a worker, which has none.
            B::RejectTask => turn.reject(REJECTED).await?,
            B::TaskFailure => return Err(AgentError::Failed("Failed on request".to_owned())),
            B::Cancel => turn.cancelled().cancelled().await,
            B::LongRunning => {
                pause(turn, setting(turn, "delay_ms", 2000)).await?;
                turn.complete_with(text("result", "Long-running work is done")).await?;
            }
            B::MultiTurn if turn.message().text().trim() == "done" => {
                turn.complete("Done").await?;
            }
            B::MultiTurn => turn.ask("Anything else? Say done to finish").await?,
            B::StayActive => {
                for step in 0..10 {
                    pause(turn, 450).await?;
                    turn.progress(format!("Step {step}")).await?;
                }
            }
            B::BrokenAgent => turn.complete_with(text("wrong", "Not a message")).await?,
            B::Crash => panic!("crashed on request"),
        }
        Ok(())
    }

    fn admits(&self) -> bool {
        true
    }

    async fn admit(&self, candidate: Candidate<'_>) -> Result<Admission, AgentError> {
        Ok(match word(candidate.message) {
            Some(B::RejectTask) => Admission::reject(REJECTED),
            Some(B::AuthRequired) if is_first(candidate.task) => Admission::require_auth(SIGN_IN),
            Some(_) | None => Admission::Accept,
        })
    }

    fn answers_directly(&self, message: &Message) -> bool {
        let word = word(message);
        matches!(word, Some(B::MessageResponse | B::BrokenAgent))
    }
}

/// The behaviour that the message selects, or else that of the task's first message.
fn wanted(turn: &Turn) -> Option<Behaviour> {
    let first = turn.task().history.as_ref().and_then(|history| history.first());
    let remembered = || {
        let goes_on = |behaviour: &Behaviour| matches!(behaviour, B::MultiTurn | B::AuthRequired);
        first.filter(|_| !is_first(turn.task())).and_then(|first| word(first)).filter(goes_on)
    };
    word(turn.message()).or_else(remembered)
}

fn is_first(task: &Task) -> bool {
    let history = task.history.as_deref().unwrap_or_default();
    history.iter().filter(|message| message.role == Role::User).count() <= 1
}

fn word(message: &Message) -> Option<Behaviour> {
    let text = message.text();
    let starts =
        |word: &str| text.starts_with(word) || message.message_id.as_str().starts_with(word);
    let matches = WORDS.iter().filter(|(word, _)| starts(word));
    matches.max_by_key(|(word, _)| word.len()).map(|(_, behaviour)| *behaviour)
}

async fn chunked(turn: &Turn) -> Result<(), AgentError> {
    let chunks = setting(turn, "chunks", 3);
    let size = usize::try_from(setting(turn, "size", 0)).unwrap_or(0);
    let delay = setting(turn, "delay_ms", 0);
    for index in 0..chunks {
        if delay > 0 {
            pause(turn, delay).await?;
        }
        let mut words = format!("chunk {index} ");
        if size > 0 {
            let filler = "abcdefghijklmnopqrstuvwxyz".chars().cycle();
            words.extend(filler.take(size.saturating_sub(words.len())));
            words.truncate(size);
        }
        turn.append(text("stream", words), index + 1 == chunks).await?;
    }
    Ok(())
}

/// Waits, unless the turn must stop.
async fn pause(turn: &Turn, millis: u64) -> Result<(), AgentError> {
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(millis)) => Ok(()),
        () = turn.cancelled().cancelled() => Err(AgentError::Stopped),
    }
}

/// The value of `name=…` in the text.
fn setting(turn: &Turn, name: &str, otherwise: u64) -> u64 {
    let text = turn.message().text();
    let mut words = text.split_whitespace().filter_map(|word| word.split_once('='));
    let value = words.find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok());
    value.unwrap_or(otherwise).min(10_000_000)
}

fn artifact(id: &str, part: Part) -> Artifact {
    let name = Some(id.to_owned());
    Artifact { artifact_id: id.into(), name, parts: vec![part], ..Artifact::default() }
}

fn text(id: &str, words: impl Into<String>) -> Artifact {
    artifact(id, Part::text(words))
}

fn file_artifact(content: Content) -> Artifact {
    let mut part = Part::new(content);
    part.filename = Some("output.txt".to_owned());
    part.media_type = Some("text/plain".to_owned());
    artifact("file", part)
}
