//! Echo agent: returns the text of each message.

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Profile, Recovery, Turn};
use herald_protocol::{Artifact, Content, Message, Part};
use serde_json::Value;

/// Answers `Echo: <text>`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Echo;

impl Echo {
    /// The agent's profile: card fields, limits and recovery.
    pub fn profile(name: &str) -> Profile {
        let mut profile = Profile::new(name, "Returns the text of each message");
        profile.title = "Echo".to_owned();
        profile.skills[0].tags = vec!["echo".to_owned(), "test".to_owned()];
        profile.skills[0].examples = vec!["Hello".to_owned()];
        profile.input_modes = input_modes();
        profile.output_modes = vec!["text/plain".to_owned(), "application/json".to_owned()];
        // The turn has no side effects.
        profile.recovery = Recovery::Rerun(3);
        profile.concurrency = 100_000;
        profile
    }
}

/// Input modes of the built-in agents.
pub(crate) fn input_modes() -> Vec<String> {
    let modes = [
        "text/plain",
        "text/markdown",
        "application/json",
        "application/octet-stream",
        "application/pdf",
        "image/png",
        "image/jpeg",
    ];
    modes.map(str::to_owned).to_vec()
}

#[async_trait]
impl Agent for Echo {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let answer = answer(turn.message());
        let content = if wants_json(turn.accepted_output_modes()) {
            Content::Data(Value::from_iter([("echo", answer)]).into())
        } else {
            Content::Text(answer)
        };
        let artifact = Artifact {
            artifact_id: "echo".into(),
            name: Some("echo".to_owned()),
            parts: vec![Part::new(content)],
            ..Artifact::default()
        };
        turn.complete_with(artifact).await?;
        Ok(())
    }
}

/// The answer to a message, in one buffer of its size.
fn answer(message: &Message) -> String {
    const BEFORE: &str = "Echo: ";
    let texts = || message.parts.iter().filter_map(Part::as_text);
    let mut answer =
        String::with_capacity(BEFORE.len() + texts().map(|text| text.len() + 1).sum::<usize>());
    answer.push_str(BEFORE);
    for (index, text) in texts().enumerate() {
        if index > 0 {
            answer.push('\n');
        }
        answer.push_str(text);
    }
    answer
}

/// True if the caller accepts JSON and no text.
fn wants_json(modes: &[String]) -> bool {
    let has = |wanted: &[&str]| modes.iter().any(|mode| wanted.contains(&mode.as_str()));
    has(&["application/json"]) && !has(&["text/plain", "text/*", "*/*"])
}
