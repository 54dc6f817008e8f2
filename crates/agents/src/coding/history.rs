//! Earlier messages and answers of a conversation as text, for an agent that has lost its own session.

use std::sync::Arc;

use herald_protocol::{Message, Part, Role, Task};

use super::relay::ANSWER;

/// Bytes of the earlier conversation that are passed on: the newest.
const MAX_HISTORY: usize = 64 << 10;

/// The message after the earlier conversation, as one text. The messages of the task before the last one
/// belong to the earlier conversation.
pub(super) fn with_earlier(earlier: &[Arc<Task>], task: &Task, text: &str) -> String {
    let mut lines: Vec<String> = earlier.iter().flat_map(|task| lines(task, usize::MAX)).collect();
    let asked = task.history.iter().flatten().filter(|message| is_user(message)).count();
    lines.extend(self::lines(task, asked.saturating_sub(1)));
    let mut left = MAX_HISTORY;
    let mut kept = Vec::new();
    for line in lines.iter().rev() {
        let end = line.floor_char_boundary(left.min(line.len()));
        kept.push(&line[..end]);
        left -= end;
        if left == 0 || end < line.len() {
            break;
        }
    }
    kept.reverse();
    if kept.is_empty() {
        return text.to_owned();
    }
    let before = kept.join("\n\n");
    format!(
        "Our conversation so far, from the records of the server:\n\n{before}\n\nMy next message is:\n{text}"
    )
}

/// The first messages of the user in a task, and the answer.
fn lines(task: &Task, most: usize) -> Vec<String> {
    let asked = task.history.iter().flatten().filter(|message| is_user(message)).take(most);
    let mut lines: Vec<String> = asked.map(|message| format!("User: {}", message.text())).collect();
    let answers = task.artifacts.iter().flatten();
    let answers = answers.filter(|artifact| artifact.artifact_id.as_str().starts_with(ANSWER));
    for artifact in answers {
        let text: String = artifact.parts.iter().filter_map(Part::as_text).collect();
        lines.push(format!("You: {text}"));
    }
    lines
}

fn is_user(message: &Message) -> bool {
    message.role == Role::User
}
