//! Tasks of one agent over REST: send, wait for the end, read the result.

use serde_json::Value;

use crate::{
    support::{Herald, SOON, eventually, uuid},
    wire::{Draft, Fault, Wire, id, state},
};

/// The final answer of the agent to a text.
pub(crate) async fn told(herald: &Herald, text: &str) -> Value {
    let draft = Draft::new(uuid(), text);
    let sent = Wire::Rest.sent(&herald.call(&Wire::Rest.send("", &draft, false)).await);
    settled(herald, sent).await
}

/// The task that a waiting send led to: its result, or the failed task of an agent that could not be reached.
pub(crate) async fn settled(herald: &Herald, sent: Result<Value, Fault>) -> Value {
    match sent {
        Ok(task) => task,
        Err(fault) if fault.reason == "AGENT_UNAVAILABLE" => {
            task(herald, &fault.task.expect("the error names the task")).await
        }
        Err(fault) => panic!("{fault:?}"),
    }
}

/// The id of a running task.
pub(crate) async fn begun(herald: &Herald, text: &str) -> String {
    let draft = Draft::new(uuid(), text);
    let task = Wire::Rest.sent(&herald.call(&Wire::Rest.send("", &draft, true)).await).unwrap();
    id(&task).to_owned()
}

pub(crate) async fn task(herald: &Herald, id: &str) -> Value {
    Wire::Rest.result(&herald.call(&Wire::Rest.get(id)).await).unwrap()
}

pub(crate) async fn ended(herald: &Herald, id: &str) -> Value {
    eventually(SOON, "the task ends", async || {
        matches!(state(&task(herald, id).await).as_str(), "completed" | "failed" | "canceled")
    })
    .await;
    task(herald, id).await
}

/// The text of all artifacts.
pub(crate) fn printed(task: &Value) -> String {
    let artifacts = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    assert!(artifacts.len() <= 1, "one growing artifact: {task}");
    let parts = artifacts.iter().flat_map(|artifact| artifact["parts"].as_array().unwrap());
    parts.map(|part| part["text"].as_str().unwrap()).collect()
}

/// The message and the reason of a failure.
pub(crate) fn failure(task: &Value) -> (&str, &str) {
    assert_eq!(state(task), "failed", "{task}");
    let message = &task["status"]["message"];
    (message["parts"][0]["text"].as_str().unwrap(), message["metadata"]["reason"].as_str().unwrap())
}

/// The one artifact with this name, as the text of its parts or as its data.
pub(crate) fn artifact(task: &Value, name: &str) -> Value {
    let artifacts = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<_> = artifacts.iter().filter(|artifact| artifact["name"] == name).collect();
    let [artifact] = found[..] else { panic!("{} artifacts {name}: {task}", found.len()) };
    let parts = artifact["parts"].as_array().unwrap();
    match parts[0].get("data") {
        Some(data) => data.clone(),
        None => parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<String>().into(),
    }
}
