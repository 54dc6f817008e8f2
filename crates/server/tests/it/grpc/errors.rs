//! gRPC errors and their details.

use std::collections::BTreeMap;

use herald_engine::Scopes;
use herald_protocol::{
    MissingVersion, TenantId,
    grpc::{
        generated::{v1, v03},
        status::{BadRequest, ErrorInfo, RetryInfo, RpcStatus as Rich},
    },
};
use herald_server::{Config, Limits, Token, UsageLimits};
use prost::Message;
use tonic::{Code, Status};

use super::{Client, V1, V03, old_send, reason, send};
use crate::hub::Hub;

fn facts(status: &Status) -> BTreeMap<String, String> {
    let rich = Rich::decode(status.details()).unwrap();
    ErrorInfo::decode(&*rich.details[0].value).unwrap().metadata
}

fn fields(status: &Status) -> Vec<String> {
    let rich = Rich::decode(status.details()).unwrap();
    assert_eq!(rich.details[1].type_url, "type.googleapis.com/google.rpc.BadRequest");
    let bad = BadRequest::decode(&*rich.details[1].value).unwrap();
    bad.field_violations.into_iter().map(|violation| violation.field).collect()
}

// proves: GRPC-006, GRPC-007, ERR-044, ERR-045, ERR-046, ERR-048
#[tokio::test]
async fn each_error_has_its_code_and_its_reason() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    let check = async |tenant: &str, method: &str, mut request: v1::SendMessageRequest| {
        request.tenant = tenant.to_owned();
        match method {
            "SendMessage" => {
                client.call::<_, v1::SendMessageResponse>(V1, method, request).await.unwrap_err()
            }
            _ => client.stream::<_, v1::StreamResponse>(V1, method, request).await.unwrap_err(),
        }
    };
    let status = check("agents/silent", "SendStreamingMessage", send("hello")).await;
    assert_eq!(reason(&status), (Code::FailedPrecondition, "UNSUPPORTED_OPERATION".to_owned()));
    let mut strange = send("hello");
    strange.message.as_mut().unwrap().parts[0].media_type = "application/x-unknown".to_owned();
    let status = check("", "SendMessage", strange).await;
    assert_eq!(reason(&status), (Code::InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED".to_owned()));
    let status = check("", "SendMessage", send("babble x")).await;
    assert_eq!(reason(&status), (Code::Internal, "INVALID_AGENT_RESPONSE".to_owned()));
    let status = check("agents/strict", "SendMessage", send("hello")).await;
    assert_eq!(
        reason(&status),
        (Code::FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED".to_owned())
    );
    assert_eq!(facts(&status)["uri"], "urn:needed");
}

/// An agent behind which nobody answers.
#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_unavailable_and_leaves_its_failed_task() {
    let hub = Hub::start().await;
    let (new, old) = (Client::v1(&hub).await, Client::plain(&hub).await);
    let in_1_0 = new.send("absent").await.unwrap_err();
    let in_0_3 = old.call::<_, v03::SendMessageResponse>(V03, "SendMessage", old_send("absent"));
    for status in [in_1_0, in_0_3.await.unwrap_err()] {
        assert_eq!(reason(&status), (Code::Unavailable, "AGENT_UNAVAILABLE".to_owned()));
        assert!(status.message().ends_with("it is not there"), "{status:?}");
        let task = new.get(&facts(&status)["taskId"]).await.unwrap();
        let state = task.status.unwrap().state;
        assert_eq!(state, i32::from(v1::TaskState::Failed));
    }
}

// proves: ERR-064
#[tokio::test]
async fn every_field_at_fault_is_named_as_in_json() {
    let hub = Hub::start().await;
    let (new, old) = (Client::v1(&hub).await, Client::plain(&hub).await);
    let empty = v1::SendMessageRequest::default();
    let status =
        new.call::<_, v1::SendMessageResponse>(V1, "SendMessage", empty).await.unwrap_err();
    assert_eq!(reason(&status), (Code::InvalidArgument, "INVALID_PARAMS".to_owned()));
    assert_eq!(fields(&status), ["message"]);
    let mut hollow = send("x");
    let message = hollow.message.as_mut().unwrap();
    (message.message_id, message.role, message.parts) = (String::new(), 0, Vec::new());
    message.context_id = "c".to_owned();
    let status =
        new.call::<_, v1::SendMessageResponse>(V1, "SendMessage", hollow).await.unwrap_err();
    assert_eq!(fields(&status), ["message.messageId", "message.role", "message.parts"]);
    let mut hollow = send("x");
    hollow.message.as_mut().unwrap().parts[0].content = None;
    let status =
        new.call::<_, v1::SendMessageResponse>(V1, "SendMessage", hollow).await.unwrap_err();
    assert_eq!(fields(&status), ["message.parts[0]"]);
    let list = v1::ListTasksRequest {
        page_size: Some(101),
        status: 77,
        history_length: Some(-1),
        ..Default::default()
    };
    let status = new.call::<_, v1::ListTasksResponse>(V1, "ListTasks", list).await.unwrap_err();
    assert_eq!(fields(&status), ["status", "pageSize", "historyLength"]);
    let mut empty = old_send("x");
    empty.request = Some(v03::Message::default());
    let status =
        old.call::<_, v03::SendMessageResponse>(V03, "SendMessage", empty).await.unwrap_err();
    assert_eq!(fields(&status), ["message.role", "message.messageId", "message.content"]);
}

// proves: GRPC-004, GRPC-005, ERR-049
#[tokio::test]
async fn the_version_must_be_that_of_the_service() {
    let hub = Hub::start().await;
    let plain = Client::plain(&hub).await;
    let refused = (Code::FailedPrecondition, "VERSION_NOT_SUPPORTED".to_owned());
    for version in [None, Some(""), Some("0.3"), Some("99.0")] {
        let client = match version {
            Some(version) => plain.clone().with("a2a-version", version),
            None => plain.clone(),
        };
        let status = client.send("hello").await.unwrap_err();
        assert_eq!(reason(&status), refused, "{version:?}");
        assert!(facts(&status)["supportedVersions"].contains("1.0"));
    }
    for version in ["1.0", "1.0.1", " 1.0"] {
        plain.clone().with("a2a-version", version.trim()).send("hello").await.unwrap();
    }
    for (version, fine) in
        [(None, true), (Some("0.3"), true), (Some("0.3.0"), true), (Some("1.0"), false)]
    {
        let client = match version {
            Some(version) => plain.clone().with("a2a-version", version),
            None => plain.clone(),
        };
        let sent =
            client.call::<_, v03::SendMessageResponse>(V03, "SendMessage", old_send("hello")).await;
        assert_eq!(sent.is_ok(), fine, "{version:?} {sent:?}");
    }
    let lenient = Config { missing_version: MissingVersion::Lenient, ..Config::default() };
    let hub = Hub::with(lenient).await;
    Client::plain(&hub).await.send("hello").await.unwrap();
}

#[tokio::test]
async fn extensions_in_use_are_named_in_the_answer() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await.with("a2a-extensions", "urn:known, urn:unknown");
    let answer =
        client.answer::<_, v1::SendMessageResponse>(V1, "SendMessage", send("hello")).await;
    let answer = answer.unwrap();
    assert_eq!(answer.metadata().get("a2a-extensions").unwrap(), "urn:known");
    let request = v1::SendMessageRequest { tenant: "agents/strict".to_owned(), ..send("hello") };
    let client = Client::v1(&hub).await.with("a2a-extensions", "urn:needed");
    client.call::<_, v1::SendMessageResponse>(V1, "SendMessage", request).await.unwrap();
}

#[tokio::test]
async fn nothing_happens_without_credentials() {
    let token = Token {
        secret: "canary-7c5e-alice".into(),
        tenant: TenantId::from("acme"),
        principal: "alice".into(),
        scopes: Scopes::READ,
        ..Token::default()
    };
    let hub = Hub::with(Config { tokens: vec![token], ..Config::default() }).await;
    let unknown = (Code::Unauthenticated, "AUTHENTICATION_REQUIRED".to_owned());
    let client = Client::v1(&hub).await;
    let status = client.send("hello").await.unwrap_err();
    assert_eq!(reason(&status), unknown);
    assert!(status.metadata().get("www-authenticate").is_some());
    let wrong = client.clone().with("authorization", "Bearer wrong");
    assert_eq!(reason(&wrong.get("x").await.unwrap_err()), unknown);
    let alice = client.with("authorization", "Bearer canary-7c5e-alice");
    assert_eq!(alice.get("x").await.unwrap_err().code(), Code::NotFound);
    let forbidden = reason(&alice.send("hello").await.unwrap_err());
    assert_eq!(forbidden, (Code::PermissionDenied, "AUTHORIZATION_FAILED".to_owned()));
    let elsewhere =
        v1::GetTaskRequest { tenant: "other".to_owned(), id: "x".to_owned(), ..Default::default() };
    let status = alice.call::<_, v1::Task>(V1, "GetTask", elsewhere).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn what_is_not_there_is_not_implemented() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await;
    for (service, method) in [
        (V1, "Nothing"),
        (V1, "TaskSubscription"),
        (V1, "sendMessage"),
        (V03, "ListTasks"),
        (V03, "SubscribeToTask"),
        ("no.such.Service", "SendMessage"),
        ("grpc.health.v1.Health", "List"),
        ("grpc.reflection.v1.ServerReflection", "ServerReflectionInfo"),
    ] {
        let status = client.call::<_, ()>(service, method, ()).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented, "{service}/{method}");
        assert!(status.message().contains(method) || status.message().contains(service));
    }
}

#[tokio::test]
async fn an_idempotency_key_counts_here_too() {
    let hub = Hub::start().await;
    let client = Client::v1(&hub).await.with("idempotency-key", "once");
    let task = client.send("hello").await.unwrap();
    assert_eq!(client.send("hello").await.unwrap(), task);
    let status = client.send("other").await.unwrap_err();
    assert_eq!(reason(&status), (Code::AlreadyExists, "IDEMPOTENCY_CONFLICT".to_owned()));
}

#[tokio::test]
async fn a_limit_tells_when_to_come_back() {
    let caller = UsageLimits { requests_per_second: Some(1), ..UsageLimits::default() };
    let limits = Limits { caller, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let client = Client::v1(&hub).await;
    let status = loop {
        let status = client.get("x").await.unwrap_err();
        if status.code() != Code::NotFound {
            break status;
        }
    };
    assert_eq!(reason(&status), (Code::ResourceExhausted, "LIMIT_EXCEEDED".to_owned()));
    assert_eq!(facts(&status)["limit"], "limits.caller.requests_per_second");
    let rich = Rich::decode(status.details()).unwrap();
    let retry: RetryInfo = rich.details[1].to_msg().unwrap();
    let delay: std::time::Duration = retry.retry_delay.unwrap().try_into().unwrap();
    assert!(!delay.is_zero() && delay.as_secs() <= 1, "{delay:?}");
}
