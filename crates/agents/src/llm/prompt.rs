//! Prompt of a model: the system prompt, the conversation so far, and the new message.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use herald_engine::Turn;
use herald_protocol::{ArtifactId, Content, Message, Part, Role, Task};

use super::chat::{ChatContent, ChatMessage, ContentPart};

/// Id of the artifact with the answer to the user's message after `before` earlier ones.
pub(super) fn answer_id(before: usize) -> ArtifactId {
    match before {
        0 => ArtifactId::from("answer"),
        more => ArtifactId::from(format!("answer-{}", more + 1)),
    }
}

/// All messages of the prompt, in order.
pub(super) fn messages(turn: &Turn, system: Option<&str>, images: bool) -> Vec<ChatMessage> {
    let mut messages: Vec<ChatMessage> = system.map(ChatMessage::system).into_iter().collect();
    for task in turn.earlier() {
        messages.extend(exchanges(task, None, images));
    }
    messages.extend(exchanges(turn.task(), Some(turn.message()), images));
    messages.push(ChatMessage::user(content_of(turn.message(), images)));
    messages
}

/// The user messages of a task up to `until` with their answers. A message without an answer is left out,
/// because some models require alternating roles.
fn exchanges(task: &Task, until: Option<&Message>, images: bool) -> Vec<ChatMessage> {
    let asked = task.history.as_deref().unwrap_or_default().iter();
    let asked = asked
        .take_while(|message| until.is_none_or(|until| until.message_id != message.message_id))
        .filter(|message| message.role == Role::User);
    let mut exchanges = Vec::new();
    for (number, message) in asked.enumerate() {
        let answer = answer(task, &answer_id(number));
        if !answer.is_empty() {
            exchanges.push(ChatMessage::user(content_of(message, images)));
            exchanges.push(ChatMessage::assistant(answer));
        }
    }
    exchanges
}

fn answer(task: &Task, id: &ArtifactId) -> String {
    let artifacts = task.artifacts.as_deref().unwrap_or_default().iter();
    let mut answers = artifacts.filter(|artifact| artifact.artifact_id == *id);
    let parts = answers.next().map(|artifact| artifact.parts.as_slice()).unwrap_or_default();
    parts.iter().filter_map(Part::as_text).collect()
}

/// The content of a message: a single text if it has text parts only.
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
    let media_type = part.media_type.as_deref().unwrap_or_default();
    let is_image = media_type.get(..6).is_some_and(|kind| kind.eq_ignore_ascii_case("image/"));
    match &part.content {
        Content::Text(text) => Some(ContentPart::text(text)),
        Content::Data(value) => Some(ContentPart::text(value.to_string())),
        // The message may be older than the setting.
        Content::Raw(_) | Content::Url(_) if is_image && !images => None,
        Content::Raw(bytes) if is_image => {
            Some(ContentPart::image(format!("data:{media_type};base64,{}", STANDARD.encode(bytes))))
        }
        Content::Url(url) if is_image => Some(ContentPart::image(url.clone())),
        Content::Raw(bytes) => Some(ContentPart::text(String::from_utf8_lossy(bytes))),
        Content::Url(url) => Some(ContentPart::text(url)),
    }
}
