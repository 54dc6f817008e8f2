//! Every operation, over every binding and version.

use futures_util::{StreamExt, TryStreamExt};
use herald_client::{
    Binding, Client, SendMessage, SendResult, StreamEvent, TaskState,
    protocol::{
        ErrorKind, Message, Version,
        push::PushConfig,
        request::{ListPushConfigs, ListTasks},
    },
};
use herald_server::Config;

use crate::{
    agents::Script,
    hub::{EVERY_WAY, Hub, all, pieces, server, soon},
};

#[track_caller]
fn task(result: SendResult) -> herald_client::Task {
    match result {
        SendResult::Task(task) => task,
        SendResult::Message(message) => panic!("expected a task, got {message:?}"),
    }
}

/// A send that does not wait.
fn now(text: &str) -> SendMessage {
    let mut send = SendMessage::from(text);
    send.configuration.return_immediately = true;
    send
}

/// `id`, `context_id`, `state`, `text`, `error`, and everything else that came as `raw`.
#[tokio::test]
async fn a_task_has_the_fields_of_other_clients() {
    let hub = Hub::start().await;
    for version in [Version::V1_0, Version::V0_3] {
        let client = hub.client_over(Binding::JsonRpc, version).await;
        let done = task(client.send("hello").await.unwrap());
        assert!(!done.id.is_empty() && !done.context_id.is_empty());
        let said = (done.status.state, done.text(), done.error());
        assert_eq!(said, (TaskState::Completed, "hello".to_owned(), None));
        let raw = serde_json::to_value(&done).unwrap();
        assert_eq!(
            (&raw["id"], &raw["contextId"]),
            (&done.id.as_str().into(), &done.context_id.as_str().into())
        );
        assert_eq!(raw["artifacts"][0]["parts"][0]["text"], "hello");
        assert_eq!(raw["history"][0]["parts"][0]["text"], "hello");
        assert!(raw["status"]["timestamp"].is_string(), "{raw}");
        let failed = task(client.send("fail").await.unwrap());
        assert_eq!(failed.error().as_deref(), Some("it broke"));
    }
}

// proves: EQV-006
#[tokio::test]
async fn every_operation_works_over_every_binding_and_version() {
    let hub = Hub::start().await;
    for (binding, version) in EVERY_WAY {
        let client = hub.client_over(binding, version).await;
        let way = format!("{binding:?} {version}");

        let done = task(client.send("hello").await.unwrap());
        assert_eq!(done.status.state, TaskState::Completed, "{way}");
        assert_eq!((done.text(), done.error()), ("hello".to_owned(), None), "{way}");
        assert_eq!(client.get(done.id.clone()).await.unwrap().text(), "hello", "{way}");

        let failed = task(client.send("fail").await.unwrap());
        assert_eq!(failed.status.state, TaskState::Failed, "{way}");
        assert!(failed.error().is_some(), "{way}");

        let said = client.send("reply to me").await.unwrap();
        assert!(matches!(&said, SendResult::Message(_)), "{way} {said:?}");
        assert_eq!(said.text(), "to me", "{way}");

        let events = all(client.stream("chunks 3").await.unwrap()).await;
        assert!(matches!(events.first(), Some(StreamEvent::Task(_))), "{way} {events:?}");
        assert_eq!(pieces(&events), "1;2;3;", "{way}");
        let last = events.last().and_then(StreamEvent::state);
        assert_eq!(last, Some(TaskState::Completed), "{way}");

        let events = all(client.stream("reply at once").await.unwrap()).await;
        assert!(matches!(&events[..], [StreamEvent::Message(_)]), "{way} {events:?}");

        let asked = task(client.send("ask").await.unwrap());
        assert_eq!(asked.status.state, TaskState::InputRequired, "{way}");
        let mut answer = Message::user("", "this one");
        answer.task_id = Some(asked.id.clone());
        let answered = task(client.send(answer).await.unwrap());
        assert_eq!((answered.id, answered.status.state), (asked.id, TaskState::Completed), "{way}");

        let waiting = task(client.send(now("wait for me")).await.unwrap());
        assert!(!waiting.status.state.is_terminal(), "{way}");
        let mut events = client.subscribe(waiting.id.clone()).await.unwrap();
        let first = soon(events.next()).await.unwrap();
        assert_eq!(first.as_ref().and_then(StreamEvent::task_id), Some(&waiting.id), "{way}");
        hub.release(1);
        let rest = all(events).await;
        assert_eq!(pieces(&rest), "for me", "{way}");
        assert_eq!(rest.last().and_then(StreamEvent::state), Some(TaskState::Completed), "{way}");

        let doomed = task(client.send(now("wait in vain")).await.unwrap());
        let canceled = client.cancel(doomed.id).await.unwrap();
        assert_eq!(canceled.status.state, TaskState::Canceled, "{way}");
    }
}

// proves: EQV-006
#[tokio::test]
async fn refusals_are_errors_of_their_kind_over_every_binding_and_version() {
    let hub = Hub::start().await;
    for (binding, version) in EVERY_WAY {
        let client = hub.client_over(binding, version).await;
        let way = format!("{binding:?} {version}");
        let kind =
            |error: herald_client::Error| error.kind().unwrap_or_else(|| panic!("{error:?}"));

        assert_eq!(
            kind(client.get("nowhere").await.unwrap_err()),
            ErrorKind::TaskNotFound,
            "{way}"
        );
        let done = task(client.send("hello").await.unwrap());
        let refused = client.cancel(done.id.clone()).await.unwrap_err();
        assert_eq!(kind(refused), ErrorKind::TaskNotCancelable, "{way}");
        let config = PushConfig {
            task_id: Some(done.id.clone()),
            url: "http://127.0.0.1:9/".into(),
            ..PushConfig::default()
        };
        let unsupported = ErrorKind::PushNotificationNotSupported;
        let error = client.create_push_config(config).await.unwrap_err();
        assert_eq!(kind(error), unsupported, "{way}");
        let error = client.push_config_of(done.id.clone(), "one").await.unwrap_err();
        assert_eq!(kind(error), unsupported, "{way}");
        let list = ListPushConfigs { task_id: done.id.clone(), ..ListPushConfigs::default() };
        assert_eq!(kind(client.push_configs(list).await.unwrap_err()), unsupported, "{way}");
        let error = client.delete_push_config(done.id.clone(), "one").await.unwrap_err();
        assert_eq!(kind(error), unsupported, "{way}");
        let error = kind(client.extended_card().await.unwrap_err());
        let expected = match version {
            Version::V1_0 => ErrorKind::UnsupportedOperation,
            _ => ErrorKind::ExtendedAgentCardNotConfigured,
        };
        assert_eq!(error, expected, "{way}");
        let empty = Message { parts: Vec::new(), ..Message::user("m", "") };
        let error = client.send(empty).await.unwrap_err();
        let violations = &error.protocol().unwrap().detail.as_ref().unwrap().violations;
        assert!(violations[0].field.starts_with("message."), "{way} {violations:?}");
    }
}

#[tokio::test]
async fn lists_are_paginated_and_0_3_has_none() {
    let hub = Hub::start().await;
    for (binding, version) in EVERY_WAY {
        let client = hub.client_over(binding, version).await;
        let mut send = SendMessage::from("hello");
        send.message.context_id = Some(format!("{binding:?}{version}").into());
        for _ in 0..5 {
            client.send(send.clone()).await.unwrap();
        }
        let query = ListTasks {
            context_id: send.message.context_id.clone(),
            page_size: Some(2),
            ..ListTasks::default()
        };
        let mut pages = client.list(query);
        if version != Version::V1_0 {
            let error = pages.next().await.unwrap_err();
            assert_eq!(error.kind(), Some(ErrorKind::UnsupportedOperation));
            continue;
        }
        let mut sizes = Vec::new();
        while let Some(page) = pages.next().await.unwrap() {
            assert_eq!(page.total_size, 5);
            sizes.push(page.tasks.len());
        }
        assert_eq!(sizes, [2, 2, 1], "{binding:?}");
    }
}

#[tokio::test]
async fn an_agent_in_this_process_needs_no_socket() {
    let server = server(&Script::new(), Config::default());
    let plain = Client::in_process(server.clone()).await.unwrap();
    let grpc = Client::builder().service(server).prefer([Binding::Grpc]);
    let grpc = grpc.connect("http://localhost").await.unwrap();
    assert_eq!(grpc.interface().protocol_binding, "GRPC");
    for client in [plain, grpc] {
        assert_eq!(client.card().name, "script");
        assert_eq!(client.send("hello").await.unwrap().text(), "hello");
        assert_eq!(pieces(&all(client.stream("chunks 3").await.unwrap()).await), "1;2;3;");
    }
}

#[tokio::test]
async fn events_and_pages_are_streams_too() {
    let hub = Hub::start().await;
    let client = hub.client().await;
    let events: Vec<_> =
        client.stream("chunks 3").await.unwrap().into_stream().try_collect().await.unwrap();
    assert_eq!(pieces(&events), "1;2;3;");
    client.send("hello").await.unwrap();
    let query = ListTasks { page_size: Some(1), ..ListTasks::default() };
    let pages: Vec<_> = client.list(query).into_stream().try_collect().await.unwrap();
    assert_eq!(pages.iter().map(|page| page.tasks.len()).collect::<Vec<_>>(), [1, 1]);
    let mut lost = client.resume("nowhere", "nowhere:1").into_stream();
    assert!(lost.next().await.unwrap().is_err());
    assert!(lost.next().await.is_none(), "nothing follows an error");
}

#[test]
fn a_program_without_a_runtime_has_the_blocking_client() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let hub = runtime.block_on(Hub::start());
    let client = herald_client::blocking::Client::connect(&hub.url()).unwrap();
    assert_eq!(client.card().name, "script");
    assert_eq!(client.send("hello").unwrap().text(), "hello");
    let events: Vec<_> = client.stream("chunks 3").unwrap().map(Result::unwrap).collect();
    assert_eq!(pieces(&events), "1;2;3;");
    assert_eq!(client.get("nowhere").unwrap_err().kind(), Some(ErrorKind::TaskNotFound));
    let query = ListTasks { page_size: Some(1), ..ListTasks::default() };
    let sizes: Vec<_> = client.list(query).map(|page| page.unwrap().tasks.len()).collect();
    assert_eq!(sizes, [1, 1]);
}
