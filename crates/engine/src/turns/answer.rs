//! Answer of a turn: the artifact `response`, which clients of all versions read as the result.

use std::sync::Arc;

use herald_protocol::{Artifact, ArtifactId, Content, Message, Part, Role, TaskState};

use crate::turns::turn::{Stop, Turn};

/// The name of the artifact with the answer.
pub const ANSWER_NAME: &str = "response";

/// Id of the artifact with the answer to the user's message after `before` earlier ones of the task:
/// `response`, `response-2` and so on.
pub fn answer_id(before: usize) -> ArtifactId {
    match before {
        0 => ArtifactId::from(ANSWER_NAME),
        more => ArtifactId::from(format!("{ANSWER_NAME}-{}", more + 1)),
    }
}

impl Turn {
    /// Completes the task with an answer in words: one artifact called `response`. Clients look for
    /// results in artifacts and take the message of a status for a remark or an error, so that
    /// [`Turn::complete`] is for remarks.
    pub async fn answer(&self, text: impl Into<String> + Send) -> Result<(), Stop> {
        self.answer_with(vec![Part::text(text)]).await
    }

    /// As [`Turn::answer`], with any parts. Without content the task is completed without an
    /// artifact, because an artifact cannot be empty.
    pub async fn answer_with(&self, mut parts: Vec<Part>) -> Result<(), Stop> {
        parts.retain(|part| !matches!(&part.content, Content::Text(text) if text.is_empty()));
        if parts.is_empty() {
            return self.report(TaskState::Completed, parts).await;
        }
        let (artifact_id, name) = (self.answer_id(), Some(ANSWER_NAME.to_owned()));
        self.complete_with(Artifact { artifact_id, name, parts, ..Artifact::default() }).await
    }

    /// Id of the artifact with the answer to this message.
    pub fn answer_id(&self) -> ArtifactId {
        answer_id(self.earlier_messages())
    }

    /// Number of the user's messages in the task before this one.
    pub fn earlier_messages(&self) -> usize {
        let history = self.task().history.as_deref().unwrap_or_default();
        let asked = || history.iter().filter(|message| message.role == Role::User);
        // The last one of this id, because some clients use one id for several messages.
        let this = |message: &&Arc<Message>| message.message_id == self.message().message_id;
        let after = asked().rev().take_while(|message| !this(message)).count();
        asked().count().saturating_sub(after + 1)
    }
}
