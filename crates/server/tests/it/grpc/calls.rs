//! Every operation of both services, and one task seen through all bindings.

use herald_protocol::grpc::generated::{v1, v03};
use herald_server::{CardInterface, Config};
use serde_json::json;
use tonic::Code;

use super::{Client, V1, V03, all, old_send, reason, send, text_of};
use crate::{
    client::{Call, message},
    hub::Hub,
};

// proves: GRPC-001, ERR-041, ERR-042, ERR-043
#[tokio::test]
async fn the_1_0_service_has_all_eleven_methods() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let task = client.send("hello").await.unwrap();
    assert_eq!(task.status.as_ref().unwrap().state(), v1::TaskState::Completed);
    assert_eq!(text_of(&task), "hello");
    assert_eq!(client.get(&task.id).await.unwrap(), task);

    let list = v1::ListTasksRequest { page_size: Some(1), ..Default::default() };
    let page: v1::ListTasksResponse = client.call(V1, "ListTasks", list).await.unwrap();
    assert_eq!((page.total_size, page.page_size, &*page.tasks[0].id), (1, 1, &*task.id));

    let cancel = v1::CancelTaskRequest { id: task.id.clone(), ..Default::default() };
    let cancelled: Result<v1::Task, _> = client.call(V1, "CancelTask", cancel).await;
    let refused = reason(&cancelled.unwrap_err());
    assert_eq!(refused, (Code::FailedPrecondition, "TASK_NOT_CANCELABLE".to_owned()));
    let missing = reason(&client.get("nowhere").await.unwrap_err());
    assert_eq!(missing, (Code::NotFound, "TASK_NOT_FOUND".to_owned()));

    let sent = client.stream(V1, "SendStreamingMessage", send("chunks 2")).await.unwrap();
    let (events, end) = all::<v1::StreamResponse>(sent.into_inner()).await;
    assert!(end.is_none() && events.len() == 5, "{end:?} {events:?}");
    let subscribe = v1::SubscribeToTaskRequest { id: task.id.clone(), ..Default::default() };
    let subscribed =
        client.stream::<_, v1::StreamResponse>(V1, "SubscribeToTask", subscribe).await.unwrap_err();
    assert_eq!(reason(&subscribed), (Code::FailedPrecondition, "UNSUPPORTED_OPERATION".to_owned()));

    let no_push = (Code::FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED".to_owned());
    let config = v1::TaskPushNotificationConfig {
        task_id: task.id.clone(),
        url: "https://example.com".to_owned(),
        ..Default::default()
    };
    let created: Result<v1::TaskPushNotificationConfig, _> =
        client.call(V1, "CreateTaskPushNotificationConfig", config).await;
    assert_eq!(reason(&created.unwrap_err()), no_push);
    let get = v1::GetTaskPushNotificationConfigRequest {
        task_id: task.id.clone(),
        id: "c".to_owned(),
        ..Default::default()
    };
    for method in ["GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"] {
        let got: Result<v1::TaskPushNotificationConfig, _> =
            client.call(V1, method, get.clone()).await;
        assert_eq!(reason(&got.unwrap_err()), no_push, "{method}");
    }
    let list = v1::ListTaskPushNotificationConfigsRequest {
        task_id: task.id.clone(),
        ..Default::default()
    };
    let listed: Result<v1::ListTaskPushNotificationConfigsResponse, _> =
        client.call(V1, "ListTaskPushNotificationConfigs", list).await;
    assert_eq!(reason(&listed.unwrap_err()), no_push);
    let card = v1::GetExtendedAgentCardRequest::default();
    let card: Result<v1::AgentCard, _> = client.call(V1, "GetExtendedAgentCard", card).await;
    assert_eq!(reason(&card.unwrap_err()).1, "UNSUPPORTED_OPERATION");
}

// proves: GRPC-002, GRPC-011, GET-009
#[tokio::test]
async fn the_0_3_service_has_all_ten_methods() {
    let hub = Hub::start().await;
    let client = Client::plain(&hub).await;
    let sent: v03::SendMessageResponse =
        client.call(V03, "SendMessage", old_send("hello")).await.unwrap();
    let Some(v03::send_message_response::Payload::Task(task)) = sent.payload else {
        panic!("no task")
    };
    assert_eq!(task.status.as_ref().unwrap().state(), v03::TaskState::Completed);
    let name = format!("tasks/{}", task.id);

    // Zero sets no limit.
    let get = v03::GetTaskRequest { name: name.clone(), history_length: 0 };
    let got: v03::Task = client.call(V03, "GetTask", get).await.unwrap();
    assert_eq!(got, task);
    assert!(!got.history.is_empty());

    let cancel = v03::CancelTaskRequest { name: name.clone() };
    let cancelled: Result<v03::Task, _> = client.call(V03, "CancelTask", cancel).await;
    assert_eq!(cancelled.unwrap_err().code(), Code::FailedPrecondition);
    let get = v03::GetTaskRequest { name: "tasks/nowhere".to_owned(), history_length: 0 };
    let missing: Result<v03::Task, _> = client.call(V03, "GetTask", get).await;
    assert_eq!(missing.unwrap_err().code(), Code::NotFound);

    let sent = client.stream(V03, "SendStreamingMessage", old_send("chunks 2")).await.unwrap();
    let (events, end) = all::<v03::StreamResponse>(sent.into_inner()).await;
    assert!(end.is_none() && events.len() == 5, "{end:?} {events:?}");
    let subscribe = v03::TaskSubscriptionRequest { name: name.clone() };
    let replayed = client.stream(V03, "TaskSubscription", subscribe).await.unwrap();
    let (events, end) = all::<v03::StreamResponse>(replayed.into_inner()).await;
    assert!(end.is_none() && !events.is_empty(), "{end:?} {events:?}");

    let config = format!("{name}/pushNotificationConfigs/c");
    let create = v03::CreateTaskPushNotificationConfigRequest {
        parent: name.clone(),
        config_id: "c".to_owned(),
        config: Some(v03::TaskPushNotificationConfig {
            name: config.clone(),
            push_notification_config: Some(v03::PushNotificationConfig {
                url: "https://example.com".to_owned(),
                ..Default::default()
            }),
        }),
    };
    let no_push = (Code::FailedPrecondition, "PUSH_NOTIFICATION_NOT_SUPPORTED".to_owned());
    let created: Result<v03::TaskPushNotificationConfig, _> =
        client.call(V03, "CreateTaskPushNotificationConfig", create).await;
    assert_eq!(reason(&created.unwrap_err()), no_push);
    let get = v03::GetTaskPushNotificationConfigRequest { name: config };
    for method in ["GetTaskPushNotificationConfig", "DeleteTaskPushNotificationConfig"] {
        let got: Result<v03::TaskPushNotificationConfig, _> =
            client.call(V03, method, get.clone()).await;
        assert_eq!(reason(&got.unwrap_err()), no_push, "{method}");
    }
    let list = v03::ListTaskPushNotificationConfigRequest { parent: name, ..Default::default() };
    let listed: Result<v03::ListTaskPushNotificationConfigResponse, _> =
        client.call(V03, "ListTaskPushNotificationConfig", list).await;
    assert_eq!(reason(&listed.unwrap_err()), no_push);
    let card = v03::GetAgentCardRequest::default();
    let card: Result<v03::AgentCard, _> = client.call(V03, "GetAgentCard", card).await;
    assert_eq!(reason(&card.unwrap_err()).1, "EXTENDED_AGENT_CARD_NOT_CONFIGURED");
}

// proves: GRPC-010
#[tokio::test]
async fn in_0_3_a_task_is_named_as_a_resource() {
    let hub = Hub::start().await;
    let client = Client::plain(&hub).await;
    let sent: v03::SendMessageResponse =
        client.call(V03, "SendMessage", old_send("hello")).await.unwrap();
    let Some(v03::send_message_response::Payload::Task(task)) = sent.payload else {
        panic!("no task")
    };
    for name in [task.id.as_str(), "tasks/", "", &format!("task/{}", task.id)] {
        let get = v03::GetTaskRequest { name: name.to_owned(), history_length: 0 };
        let got: Result<v03::Task, _> = client.call(V03, "GetTask", get).await;
        assert_eq!(got.unwrap_err().code(), Code::InvalidArgument, "{name:?}");
    }
    let name = format!("tasks/{}/pushNotificationConfigs/", task.id);
    let delete = v03::DeleteTaskPushNotificationConfigRequest { name };
    let deleted: Result<(), _> = client.call(V03, "DeleteTaskPushNotificationConfig", delete).await;
    assert_eq!(deleted.unwrap_err().code(), Code::InvalidArgument);
}

// proves: GRPC-013, FMT-018
#[tokio::test]
async fn one_task_is_seen_through_every_binding() {
    let hub = Hub::start().await;
    let (new, old) = (Client::v1(&hub).await, Client::plain(&hub).await);
    let now = v1::SendMessageConfiguration { return_immediately: true, ..Default::default() };
    let request = v1::SendMessageRequest { configuration: Some(now), ..send("wait x") };
    let sent: v1::SendMessageResponse = new.call(V1, "SendMessage", request).await.unwrap();
    let Some(v1::send_message_response::Payload::Task(task)) = sent.payload else {
        panic!("no task")
    };
    let name = format!("tasks/{}", task.id);
    let get = v03::GetTaskRequest { name: name.clone(), history_length: 0 };
    let seen: v03::Task = old.call(V03, "GetTask", get).await.unwrap();
    assert_eq!(seen.context_id, task.context_id);
    let cancelled: v03::Task =
        old.call(V03, "CancelTask", v03::CancelTaskRequest { name }).await.unwrap();
    let state = cancelled.status.unwrap().state();
    assert_eq!(state.as_str_name(), "TASK_STATE_CANCELLED");
    let rpc = hub.call(Call::rpc("GetTask", &json!({ "id": task.id }))).await.result();
    assert_eq!(rpc["status"]["state"], "TASK_STATE_CANCELED");
    let there = new.get(&task.id).await.unwrap();
    assert_eq!(there.status.unwrap().state().as_str_name(), "TASK_STATE_CANCELED");
    assert_eq!(there.history.len(), 1);
}

// proves: TEN-004
#[tokio::test]
async fn a_tenant_is_a_namespace_and_an_agent_is_not() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let under = |tenant: &str, text: &str| v1::SendMessageRequest {
        tenant: tenant.to_owned(),
        ..send(text)
    };
    let get = |tenant: &str, id: &str| v1::GetTaskRequest {
        tenant: tenant.to_owned(),
        id: id.to_owned(),
        ..Default::default()
    };
    let task = async |request| {
        let sent: v1::SendMessageResponse = client.call(V1, "SendMessage", request).await?;
        match sent.payload {
            Some(v1::send_message_response::Payload::Task(task)) => Ok(task),
            other => panic!("no task: {other:?}"),
        }
    };
    let acme = task(under("acme", "hello")).await.unwrap();
    let seen: v1::Task = client.call(V1, "GetTask", get("acme", &acme.id)).await.unwrap();
    assert_eq!(seen, acme);
    for other in ["", "umbrella"] {
        let foreign: Result<v1::Task, _> = client.call(V1, "GetTask", get(other, &acme.id)).await;
        assert_eq!(foreign.unwrap_err().code(), Code::NotFound, "{other:?}");
    }

    let files = task(under("agents/files", "hello")).await.unwrap();
    let seen: v1::Task = client.call(V1, "GetTask", get("", &files.id)).await.unwrap();
    assert_eq!(seen, files, "the root finds the tasks of every agent");
    let other: Result<v1::Task, _> =
        client.call(V1, "GetTask", get("agents/script", &files.id)).await;
    assert_eq!(other.unwrap_err().code(), Code::NotFound);
    let strict = task(under("agents/strict", "hello")).await.unwrap_err();
    assert_eq!(reason(&strict).1, "EXTENSION_SUPPORT_REQUIRED");
    let nobody = task(under("agents/nobody", "hello")).await.unwrap_err();
    assert_eq!(reason(&nobody), (Code::InvalidArgument, "INVALID_PARAMS".to_owned()));
}

// proves: CARD-014
#[tokio::test]
async fn cards_say_where_grpc_is_and_how_to_name_an_agent() {
    let hub = Hub::listing_everything().await;
    let interfaces = async |hub: &Hub, path: &str| -> Vec<(String, String, String)> {
        let card = hub.call(Call::get(format!("{path}/.well-known/agent-card.json"))).await.json();
        let all = card["supportedInterfaces"].as_array().unwrap().iter();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let grpc = all.filter(|one| one["protocolBinding"] == "GRPC");
        grpc.map(|one| (text(&one["url"]), text(&one["protocolVersion"]), text(&one["tenant"])))
            .collect()
    };
    let address = hub.address.to_string();
    let here = |version: &str, tenant: &str| (address.clone(), version.into(), tenant.into());
    assert_eq!(interfaces(&hub, "").await, [here("1.0", ""), here("0.3", "")]);
    let files = [here("1.0", "agents/files")];
    assert_eq!(interfaces(&hub, "/agents/files").await, files);

    for (url, expected) in [
        ("https://agents.example.com", Some("agents.example.com:443")),
        ("http://agents.example.com", Some("agents.example.com:80")),
        ("https://agents.example.com:8443", Some("agents.example.com:8443")),
        ("https://example.com/agents", None),
    ] {
        let public = Config {
            public_url: Some(url.to_owned()),
            card_interfaces: CardInterface::ALL.into(),
            ..Config::default()
        };
        let hub = Hub::with(public).await;
        let found = interfaces(&hub, "").await;
        assert_eq!(found.first().map(|one| one.0.as_str()), expected, "{url}");
    }
}

#[tokio::test]
async fn a_call_that_is_no_grpc_finds_nothing_at_its_paths() {
    let hub = Hub::start().await;
    for path in [format!("/{V1}/SendMessage"), format!("/{V03}/GetTask"), "/nothing/at/all".into()]
    {
        assert_eq!(hub.call(Call::post(path.clone(), &message("x"))).await.status(), 404, "{path}");
        assert_eq!(hub.call(Call::get(path.clone())).await.status(), 404, "{path}");
    }
}
