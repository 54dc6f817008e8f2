//! Tests of a stop with tasks at an upstream agent, which the next start resumes.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{
    begun, draft, passing,
    raw::{self, Raw, Reaction, Received, more, result, stream, whole},
    upstream,
};
use crate::{
    support::{Herald, Options, SOON, eventually},
    tasks::{ended, task},
    wire::state,
};

/// Longer than any test waits.
const DRAIN: &str = "[server]\ndrain = \"10m\"\n";

/// An agent whose task works until it is read.
fn at_work(call: &Received) -> Reaction {
    match call.body["method"].as_str() {
        Some("SubscribeToTask") => Reaction::Close(stream(call, &[whole("COMPLETED")])),
        Some("GetTask") => result(call, &raw::task("COMPLETED")),
        _ => Reaction::Then(stream(call, &[whole("WORKING")]), Arc::new(Notify::new()), Vec::new()),
    }
}

/// The task continues, and the upstream got no other call.
async fn is_taken_up(herald: &mut Herald, raw: &Raw, id: &str) {
    assert!(herald.wait(SOON).await.success(), "{}", herald.log());
    assert_eq!(raw.calls("SubscribeToTask").len(), 0);
    herald.restart().await;
    let done = ended(herald, id).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert_eq!(raw.calls("SendStreamingMessage").len(), 1);
    assert_eq!(raw.calls("CancelTask").len(), 0);
}

#[tokio::test]
async fn a_stop_does_not_wait_for_an_upstream_task_and_the_next_start_resumes_it() {
    let raw = Raw::start(at_work).await;
    let config = format!("{DRAIN}{}", passing("up", &raw.url(), ""));
    let mut herald = Herald::start(Options::config(config)).await;
    let id = begun(&herald, "", &draft("x")).await;
    eventually(SOON, "the agent has the task", async || {
        !upstream(&task(&herald, &id).await).is_empty()
    })
    .await;
    herald.terminate().await;
    is_taken_up(&mut herald, &raw, &id).await;
}

#[tokio::test]
async fn a_stop_waits_for_an_upstream_that_has_not_named_its_task() {
    let go = Arc::new(Notify::new());
    let told = Arc::clone(&go);
    let raw = Raw::start(move |call| match call.body["method"].as_str() {
        Some("SendStreamingMessage") => {
            let named = more(call, &[whole("WORKING")]);
            Reaction::Then(stream(call, &[]), Arc::clone(&told), named)
        }
        _ => at_work(call),
    })
    .await;
    let config = format!("{DRAIN}{}", passing("up", &raw.url(), ""));
    let mut herald = Herald::start(Options::config(config)).await;
    let id = begun(&herald, "", &draft("x")).await;
    eventually(SOON, "the agent has the message", async || {
        raw.calls("SendStreamingMessage").len() == 1
    })
    .await;
    herald.terminate().await;
    eventually(SOON, "it says whom it waits for", async || {
        herald.log().contains("1 task at work: up (1)")
    })
    .await;
    go.notify_one();
    is_taken_up(&mut herald, &raw, &id).await;
}
