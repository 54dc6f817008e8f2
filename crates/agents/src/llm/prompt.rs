//! Prompt of a model: the system prompt, the conversation so far, and the new message.

use herald_engine::{Turn, answer_id};
use herald_protocol::{Artifact, Content, Message, Part, Role, Task};

use super::{
    chat::{ChatContent, ChatMessage, ContentPart},
    file,
};

/// All messages of the prompt, in order.
pub(super) fn messages(turn: &Turn, system: Option<&str>, images: bool) -> Vec<ChatMessage> {
    let mut messages: Vec<ChatMessage> = system.map(ChatMessage::system).into_iter().collect();
    for task in turn.earlier() {
        messages.extend(exchanges(task, usize::MAX, images));
    }
    messages.extend(exchanges(turn.task(), turn.earlier_messages(), images));
    messages.push(ChatMessage::user(content_of(turn.message(), images)));
    messages
}

/// The first `most` user messages of a task with their answers. A message without an answer is left out,
/// because some models require alternating roles.
fn exchanges(task: &Task, most: usize, images: bool) -> Vec<ChatMessage> {
    let asked = task.history.as_deref().unwrap_or_default().iter();
    let asked = asked.filter(|message| message.role == Role::User).take(most);
    let mut exchanges = Vec::new();
    for (number, message) in asked.enumerate() {
        let answer = answer(task, number);
        if !answer.is_empty() {
            exchanges.push(ChatMessage::user(content_of(message, images)));
            exchanges.push(ChatMessage::assistant(answer));
        }
    }
    exchanges
}

/// The answer to a message. Tasks of earlier releases have it in the artifacts `answer`, `answer-2` and so on.
fn answer(task: &Task, number: usize) -> String {
    let artifacts = task.artifacts.as_deref().unwrap_or_default();
    let (id, older) = (answer_id(number), older_id(number));
    let of = |id: &str| artifacts.iter().find(|artifact| artifact.artifact_id.as_str() == id);
    let answer = of(id.as_str()).or_else(|| of(&older));
    answer.and_then(|artifact| Artifact::text(artifact)).unwrap_or_default()
}

fn older_id(number: usize) -> String {
    match number {
        0 => "answer".to_owned(),
        more => format!("answer-{}", more + 1),
    }
}

/// The content of a message: a single text if it has no images.
fn content_of(message: &Message, images: bool) -> ChatContent {
    let pieces: Vec<ContentPart> =
        message.parts.iter().filter_map(|part| piece(part, images)).collect();
    let texts: Option<Vec<&str>> = pieces.iter().map(ContentPart::as_text).collect();
    match texts {
        Some(texts) => ChatContent::Text(texts.join("\n")),
        None => ChatContent::Pieces(pieces),
    }
}

fn piece(part: &Part, images: bool) -> Option<ContentPart> {
    match &part.content {
        Content::Text(text) => Some(ContentPart::text(text)),
        Content::Data(value) => Some(ContentPart::text(value.to_string())),
        Content::Raw(_) | Content::Url(_) => file::part(part, images),
    }
}
