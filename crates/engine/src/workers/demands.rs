//! Demands of a task on its worker, from the metadata of its first message: labels and priority.

use herald_protocol::{Error, Json, Message, Metadata};

use crate::{agents::runtime::AgentRuntime, store::Demands};

/// The member of the metadata with the labels that the worker must have: an array of strings.
pub(crate) const REQUIRES_MEMBER: &str = "herald/requires";

/// The member of the metadata with the priority.
pub(crate) const PRIORITY_MEMBER: &str = "herald/priority";

/// The most labels of a worker or of a task, and the longest one.
pub(crate) const MAX_LABELS: usize = 16;
pub(crate) const MAX_LABEL_BYTES: usize = 63;

/// The highest priority; the lowest has the other sign.
const MAX_PRIORITY: i64 = 100;

/// The demands of a new task: from the metadata of the message or, if that has none, from that of the send.
/// An agent in this process has no workers, so that only the priority counts.
pub(crate) fn of(
    runtime: &AgentRuntime,
    message: &Message,
    metadata: Option<&Metadata>,
) -> Result<Demands, Error> {
    let sources = [message.metadata.as_ref(), metadata];
    let find = |name: &str| {
        sources.into_iter().flatten().find(|source| source.get::<Json>(name).is_some())
    };
    let mut demands = Demands::default();
    if let Some(source) = find(PRIORITY_MEMBER) {
        let priority: Option<i64> = source.get(PRIORITY_MEMBER);
        let priority = priority.filter(|it| (-MAX_PRIORITY..=MAX_PRIORITY).contains(it));
        let priority = priority.and_then(|it| i8::try_from(it).ok());
        demands.priority = priority.ok_or_else(|| {
            let text = format!("must be an integer from -{MAX_PRIORITY} to {MAX_PRIORITY}");
            Error::field(format!("metadata.{PRIORITY_MEMBER}"), text)
        })?;
    }
    if runtime.pool().is_none() {
        return Ok(demands);
    }
    if let Some(source) = find(REQUIRES_MEMBER) {
        let field = format!("metadata.{REQUIRES_MEMBER}");
        let labels: Option<Vec<String>> = source.get(REQUIRES_MEMBER);
        let labels = labels.ok_or_else(|| Error::field(&field, "must be an array of strings"))?;
        demands.labels = sorted_labels(&field, labels)?;
        if runtime.profile.serial && !demands.labels.is_empty() {
            let text =
                "this agent takes the messages of a conversation in order, whatever the worker";
            return Err(Error::field(field, text));
        }
    }
    Ok(demands)
}

/// Labels in order and without repetitions, if they are valid.
pub(crate) fn sorted_labels(field: &str, mut labels: Vec<String>) -> Result<Vec<String>, Error> {
    labels.sort_unstable();
    labels.dedup();
    let is_valid = |label: &String| {
        (1..=MAX_LABEL_BYTES).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_graphic())
    };
    if labels.len() > MAX_LABELS || !labels.iter().all(is_valid) {
        let text = format!(
            "must be at most {MAX_LABELS} labels of 1 to {MAX_LABEL_BYTES} visible ASCII characters"
        );
        return Err(Error::field(field, text));
    }
    Ok(labels)
}
