//! Streams: in order, resumable, bounded, and without a hold on the task.

use std::time::Duration;

use herald_protocol::grpc::generated::{v1, v03};
use herald_server::{Config, Limits};
use serde_json::json;
use tokio::time::timeout;
use tonic::{Code, Streaming, metadata::MetadataMap};

use super::{Client, V1, V03, all, old_send, send};
use crate::{
    client::Call,
    hub::{Hub, SOON},
};

type Events = Streaming<v1::StreamResponse>;

fn subscribe(id: &str) -> v1::SubscribeToTaskRequest {
    v1::SubscribeToTaskRequest { id: id.to_owned(), ..Default::default() }
}

async fn next(events: &mut Events) -> v1::StreamResponse {
    timeout(SOON, events.message()).await.unwrap().unwrap().unwrap()
}

fn task_of(event: v1::StreamResponse) -> v1::Task {
    match event.payload {
        Some(v1::stream_response::Payload::Task(task)) => task,
        other => panic!("no task: {other:?}"),
    }
}

/// The id of the event so many places after the first of a stream.
fn id_after(metadata: &MetadataMap, places: usize) -> String {
    let first = metadata.get("first-event-id").unwrap().to_str().unwrap();
    let (task, seq) = first.rsplit_once(':').unwrap();
    format!("{task}:{}", seq.parse::<usize>().unwrap() + places)
}

#[tokio::test]
async fn a_stream_begins_with_the_task_and_ends_with_its_state() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let sent = client.stream(V1, "SendStreamingMessage", send("chunks 3")).await.unwrap();
    let (events, end) = all::<v1::StreamResponse>(sent.into_inner()).await;
    assert!(end.is_none());
    use v1::stream_response::Payload;
    let payloads: Vec<_> = events.into_iter().map(|event| event.payload.unwrap()).collect();
    let [
        Payload::Task(task),
        Payload::StatusUpdate(working),
        Payload::ArtifactUpdate(first),
        Payload::ArtifactUpdate(second),
        Payload::ArtifactUpdate(third),
        Payload::StatusUpdate(done),
    ] = payloads.as_slice()
    else {
        panic!("{payloads:?}")
    };
    assert_eq!(working.status.as_ref().unwrap().state(), v1::TaskState::Working);
    assert_eq!(done.status.as_ref().unwrap().state(), v1::TaskState::Completed);
    assert_eq!([first, second, third].map(|one| one.append), [false, true, true]);
    assert_eq!([first, second, third].map(|one| one.last_chunk), [false, false, true]);
    assert_eq!(done.task_id, task.id);
}

// proves: STR-013, STR-021
#[tokio::test]
async fn in_0_3_the_last_status_says_so_and_a_finished_task_is_replayed() {
    let hub = Hub::start().await;
    let client = Client::plain(&hub).await;
    let sent = client.stream(V03, "SendStreamingMessage", old_send("hello")).await.unwrap();
    let (events, _) = all::<v03::StreamResponse>(sent.into_inner()).await;
    use v03::stream_response::Payload;
    let finals: Vec<_> = events
        .iter()
        .filter_map(|event| match event.payload.as_ref().unwrap() {
            Payload::StatusUpdate(update) => Some(update.r#final),
            Payload::Task(_) | Payload::Msg(_) | Payload::ArtifactUpdate(_) => None,
        })
        .collect();
    assert_eq!(finals.iter().filter(|last| **last).count(), 1, "{events:?}");
    assert_eq!(finals.last(), Some(&true));
    let Some(Payload::Task(task)) = &events[0].payload else { panic!("{events:?}") };
    let subscribe = v03::TaskSubscriptionRequest { name: format!("tasks/{}", task.id) };
    let replayed = client.stream(V03, "TaskSubscription", subscribe).await.unwrap();
    let (again, end) = all::<v03::StreamResponse>(replayed.into_inner()).await;
    assert!(end.is_none());
    assert_eq!(again.last(), events.last());
}

#[tokio::test]
async fn a_direct_answer_is_one_message() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let sent = client.stream(V1, "SendStreamingMessage", send("reply hi")).await.unwrap();
    let (events, end) = all::<v1::StreamResponse>(sent.into_inner()).await;
    assert!(end.is_none() && events.len() == 1, "{events:?}");
    assert!(matches!(events[0].payload, Some(v1::stream_response::Payload::Message(_))));
}

#[tokio::test]
async fn a_stream_is_taken_up_again_after_the_last_event_that_was_seen() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let sent = client.stream(V1, "SendStreamingMessage", send("steps 3")).await.unwrap();
    let metadata = sent.metadata().clone();
    let mut events: Events = sent.into_inner();
    let task = task_of(next(&mut events).await);
    let mut seen = vec![next(&mut events).await];
    hub.release(1);
    seen.push(next(&mut events).await);
    // It hangs up; two more events come meanwhile.
    drop(events);
    hub.release(2);
    let resumed = client.clone().with("last-event-id", &id_after(&metadata, seen.len()));
    let resumed = resumed.stream(V1, "SubscribeToTask", subscribe(&task.id)).await.unwrap();
    assert_eq!(id_after(resumed.metadata(), 0), id_after(&metadata, seen.len() + 1));
    let (rest, end) = all::<v1::StreamResponse>(resumed.into_inner()).await;
    assert!(end.is_none());
    seen.extend(rest);
    // The whole log, from the cursor of the first event, is the same.
    let whole = client.clone().with("last-event-id", &id_after(&metadata, 0));
    let whole = whole.stream(V1, "SubscribeToTask", subscribe(&task.id)).await.unwrap();
    assert_eq!(all::<v1::StreamResponse>(whole.into_inner()).await.0, seen);
    // So it is over server-sent events, whose ids are the same.
    let call = Call::rpc("SubscribeToTask", &json!({ "id": task.id }));
    let replayed = hub.call(call.header("Last-Event-ID", &id_after(&metadata, 0))).await;
    let replayed = replayed.text();
    let ids: Vec<_> = replayed.lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    let expected: Vec<_> = (1..=seen.len()).map(|place| id_after(&metadata, place)).collect();
    assert_eq!(ids, expected, "{replayed}");
    let foreign = client.with("last-event-id", "elsewhere:1");
    let foreign =
        foreign.stream::<_, v1::StreamResponse>(V1, "SubscribeToTask", subscribe(&task.id)).await;
    assert_eq!(foreign.unwrap_err().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_client_that_goes_away_frees_its_place() {
    let limits = Limits { streams_per_caller: 1, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let client = Client::v1(&hub).await;
    let first = client.stream::<_, v1::StreamResponse>(V1, "SendStreamingMessage", send("wait x"));
    let mut first = first.await.unwrap().into_inner();
    next(&mut first).await;
    let second = async || {
        client.stream::<_, v1::StreamResponse>(V1, "SendStreamingMessage", send("hello")).await
    };
    assert_eq!(second().await.unwrap_err().code(), Code::ResourceExhausted);
    drop(first);
    let freed = async {
        while second().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, freed).await.unwrap();
}

#[tokio::test]
async fn a_stop_tells_streams_to_come_back() {
    let mut hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let sent = client.stream(V1, "SendStreamingMessage", send("wait x")).await.unwrap();
    let mut events: Events = sent.into_inner();
    next(&mut events).await;
    hub.stop();
    let (_, end) = all(events).await;
    assert_eq!(end.unwrap().code(), Code::Unavailable);
    hub.release(1);
    hub.stopped().await;
}

#[tokio::test]
async fn a_slow_reader_loses_nothing() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let request = v1::SendMessageRequest { tenant: "agents/files".to_owned(), ..send("big 4") };
    let sent = client.stream(V1, "SendStreamingMessage", request).await.unwrap();
    // Nothing is read until the task is long over.
    let mut other = None;
    while other.as_ref().is_none_or(|state| *state != v1::TaskState::Completed) {
        let list = v1::ListTasksRequest::default();
        let page: v1::ListTasksResponse = client.call(V1, "ListTasks", list).await.unwrap();
        other = page.tasks.first().and_then(|task| task.status.as_ref()).map(|one| one.state());
    }
    let (events, end) = all::<v1::StreamResponse>(sent.into_inner()).await;
    assert!(end.is_none());
    let sizes = events.iter().map(prost::Message::encoded_len).filter(|size| *size > 1 << 20);
    assert_eq!(sizes.count(), 4);
}
