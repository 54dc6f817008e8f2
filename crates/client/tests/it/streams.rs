//! Streams that resume after a lost connection.

use herald_client::{Retry, StreamEvent, TaskState};

use crate::{
    hub::{EVERY_WAY, Hub, all, over, pieces, soon},
    proxy::Proxy,
};

/// A client behind a proxy, which may retry sends.
async fn behind(
    proxy: &Proxy,
    (binding, version): (herald_client::Binding, herald_client::protocol::Version),
) -> herald_client::Client {
    let retry =
        Retry { first: std::time::Duration::from_millis(1), sends: true, ..Retry::default() };
    over(binding, version).retry(retry).connect(&proxy.url()).await.unwrap()
}

// proves: GET-011
#[tokio::test]
async fn a_stream_cut_at_any_byte_resumes_without_repetition() {
    let hub = Hub::start().await;
    let proxy = Proxy::start(hub.address).await;
    for way in EVERY_WAY {
        let client = behind(&proxy, way).await;
        let mut cuts = 0;
        for count in (0..).step_by(53) {
            proxy.cut_after(count);
            let events = all(client.stream("chunks 4").await.unwrap()).await;
            assert_eq!(pieces(&events), "1;2;3;4;", "{way:?} cut after {count}: {events:?}");
            let ends =
                events.iter().filter(|event| event.state().is_some_and(TaskState::is_terminal));
            assert_eq!(ends.count(), 1, "{way:?} cut after {count}: {events:?}");
            let tasks: Vec<_> = events.iter().filter_map(StreamEvent::task_id).collect();
            assert!(tasks.windows(2).all(|pair| pair[0] == pair[1]), "{events:?}");
            if !proxy.has_cut() {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 5, "{way:?}: the stream was cut only {cuts} times");
    }
}

#[tokio::test]
async fn a_stream_can_be_resumed_by_another_client() {
    let hub = Hub::start().await;
    let client = hub.client().await;
    let mut events = client.stream("steps 3").await.unwrap();
    hub.release(1);
    let mut seen = Vec::new();
    while !seen.iter().any(|event| format!("{event:?}").contains("step 1")) {
        seen.push(soon(events.next()).await.unwrap().unwrap());
    }
    let (task, cursor) = (events.task_id().unwrap().clone(), events.cursor().unwrap().to_owned());
    drop(events);
    hub.release(2);
    let rest = all(hub.client().await.resume(task, cursor)).await;
    let text = format!("{rest:?}");
    assert!(!text.contains("step 1") && text.contains("step 2") && text.contains("step 3"));
    assert_eq!(rest.last().and_then(StreamEvent::state), Some(TaskState::Completed));
}
