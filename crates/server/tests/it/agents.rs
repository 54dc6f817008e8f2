//! Agents that do what the message says.

use std::sync::Arc;

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Turn};
use herald_protocol::{Artifact, Message, Part};
use tokio::sync::Semaphore;

/// Does what the first word of a message says; anything else it echoes.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// `wait` takes one permit before it goes on.
    pub(crate) gate: Arc<Semaphore>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self { gate: Arc::new(Semaphore::new(0)) }
    }

    async fn pass(&self, turn: &Turn) -> Result<(), AgentError> {
        tokio::select! {
            permit = self.gate.acquire() => {
                permit.expect("the gate is never closed").forget();
                Ok(())
            }
            () = turn.cancelled().cancelled() => Err(AgentError::Stopped),
        }
    }
}

#[async_trait]
impl Agent for Script {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let text = turn.message().text();
        let (verb, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match verb {
            "ask" => turn.ask("which one?").await?,
            "offer" => {
                turn.append(artifact("echo", rest), true).await?;
                turn.ask("which one?").await?;
            }
            "auth" => {
                turn.require_auth("log in first").await?;
                self.pass(turn).await?;
                turn.complete_with(artifact("echo", "authorised")).await?;
            }
            "wait" => {
                self.pass(turn).await?;
                turn.complete_with(artifact("echo", rest)).await?;
            }
            "chunks" => {
                let count: usize = rest.parse().map_err(AgentError::failed)?;
                for index in 1..=count {
                    let piece = artifact("chunks", &format!("{index};"));
                    turn.append(piece, index == count).await?;
                }
            }
            "bulk" => {
                let (count, size) = rest.split_once(' ').unwrap_or_default();
                let count: usize = count.parse().map_err(AgentError::failed)?;
                let filler = "x".repeat(size.parse().map_err(AgentError::failed)?);
                for index in 1..=count {
                    let piece = artifact("bulk", &format!("{index};{filler}"));
                    turn.append(piece, index == count).await?;
                }
            }
            "big" => {
                let megabytes: usize = rest.parse().map_err(AgentError::failed)?;
                for index in 1..=megabytes {
                    let text = "x".repeat(1 << 20);
                    turn.append(artifact("big", &text), index == megabytes).await?;
                }
            }
            "steps" => {
                let count: usize = rest.parse().map_err(AgentError::failed)?;
                for index in 1..=count {
                    self.pass(turn).await?;
                    turn.progress(format!("step {index}")).await?;
                }
            }
            "trace" => {
                let trace = turn.trace();
                let parent = trace.map(ToString::to_string).unwrap_or_default();
                let state = trace.and_then(|trace| trace.state.as_deref()).unwrap_or_default();
                turn.complete_with(artifact("echo", format!("{parent} {state}").trim())).await?;
            }
            "fail" => return Err(AgentError::Failed("it broke".to_owned())),
            "raise" => return Err(AgentError::failed(format!("RuntimeError: {rest}"))),
            "absent" => return Err(AgentError::Unavailable("it is not there".to_owned())),
            "lost" => {
                turn.append(artifact("echo", rest), false).await?;
                return Err(AgentError::Unavailable("it went away".to_owned()));
            }
            "panic" => panic!("secret internals"),
            "reject" => turn.reject("not this").await?,
            "reply" => turn.reply(vec![Part::text(rest)]).await?,
            "babble" => {
                turn.reply(vec![Part::text(rest)]).await?;
                turn.progress("and another thing").await?;
            }
            _ => turn.complete_with(artifact("echo", &text)).await?,
        }
        Ok(())
    }

    fn answers_directly(&self, message: &Message) -> bool {
        message.text().starts_with("reply")
    }
}

fn artifact(id: &str, text: &str) -> Artifact {
    Artifact { artifact_id: id.into(), parts: vec![Part::text(text)], ..Artifact::default() }
}
