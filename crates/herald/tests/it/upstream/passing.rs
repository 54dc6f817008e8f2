//! Agents of kind `a2a` and their tasks: configuration, sends, and the parts of a task that tests compare.

use serde_json::Value;

use crate::{
    support::{Herald, uuid},
    tasks::settled,
    wire::{Draft, Wire, id},
};

pub(crate) fn url(herald: &Herald) -> String {
    format!("http://{}", herald.address)
}

/// An agent that passes everything on to `url`.
pub(crate) fn passing(name: &str, url: &str, settings: &str) -> String {
    format!("[[agents]]\nname = \"{name}\"\nkind = \"a2a\"\nurl = \"{url}\"\n{settings}\n")
}

pub(crate) fn draft(text: &str) -> Draft {
    Draft::new(uuid(), text)
}

pub(crate) async fn told(herald: &Herald, agent: &str, draft: &Draft) -> Value {
    let sent = Wire::Rest.sent(&herald.call(&Wire::Rest.send(agent, draft, false)).await);
    settled(herald, sent).await
}

pub(crate) async fn begun(herald: &Herald, agent: &str, draft: &Draft) -> String {
    let task = Wire::Rest.sent(&herald.call(&Wire::Rest.send(agent, draft, true)).await).unwrap();
    id(&task).to_owned()
}

/// The artifacts of a task.
pub(crate) fn made(task: &Value) -> Vec<String> {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    let parts = artifacts.flat_map(|artifact| artifact["parts"].as_array().unwrap());
    parts.map(|part| part["text"].as_str().unwrap().to_owned()).collect()
}

/// The status message of a task.
pub(crate) fn word(task: &Value) -> &str {
    task["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default()
}

/// The name of the task at the upstream agent.
pub(crate) fn upstream(task: &Value) -> &str {
    task["metadata"]["herald.upstream"]["taskId"].as_str().unwrap_or_default()
}
