//! Headers and parameters of calls, and retries.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_client::{
    Binding, Error, Outgoing, Retry, SendMessage, TaskState, TraceContext,
    protocol::{ErrorKind, Version},
};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Reaction, Received, answer, card, response, result, rpc_card, task},
    hub::{over, quick},
};

/// A fake with both bindings and versions, and with a tenant in those that have tenants.
async fn agent() -> Fake {
    Fake::start(move |url, _, request| {
        if request.is_card() {
            let mut card = card(&[
                (url, "JSONRPC", "1.0"),
                (url, "HTTP+JSON", "1.0"),
                (url, "JSONRPC", "0.3"),
            ]);
            for interface in card["supportedInterfaces"].as_array_mut().unwrap() {
                if interface["protocolVersion"] == "1.0" {
                    interface["tenant"] = "acme/x".into();
                }
            }
            return answer(200, &card);
        }
        let task = task("t", "COMPLETED");
        match request.method.as_str() {
            "GET" => answer(200, &task),
            _ if request.path.contains("message:send") => answer(200, &json!({ "task": task })),
            _ => match request.json()["method"].as_str() {
                Some("GetTask" | "tasks/get") => result(request, &task),
                Some("message/send") => result(request, &task),
                _ => result(request, &json!({ "task": task })),
            },
        }
    })
    .await
}

// proves: VER-001, EXT-001, EXT-002, TEN-001
#[tokio::test]
async fn every_request_names_its_version_extensions_tenant_and_trace() {
    let fake = agent().await;
    for (binding, version) in [
        (Binding::JsonRpc, Version::V1_0),
        (Binding::Rest, Version::V1_0),
        (Binding::JsonRpc, Version::V0_3),
    ] {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let client = over(binding, version)
            .extension("urn:a")
            .extension("urn:b")
            .trace_context(move || TraceContext::read(parent, None))
            .connect(&fake.url())
            .await
            .unwrap();
        let mut send = SendMessage::from("hello");
        send.idempotency_key = Some("once".into());
        client.send(send).await.unwrap();
        let sent = fake.calls().pop().unwrap();
        client.get("t").await.unwrap();
        let got = fake.calls().pop().unwrap();
        assert_eq!(sent.header("idempotency-key"), Some("once"));
        for request in [&sent, &got] {
            assert_eq!(request.header("traceparent"), Some(parent));
            assert_eq!(request.header("tracestate"), None);
            let (modern, legacy) =
                (request.header("a2a-extensions"), request.header("x-a2a-extensions"));
            let named = Some("urn:a, urn:b");
            match version {
                Version::V1_0 => {
                    assert_eq!(request.header("a2a-version"), Some("1.0"));
                    assert_eq!((modern, legacy), (named, None));
                }
                _ => {
                    assert_eq!(request.header("a2a-version"), None);
                    assert_eq!((modern, legacy), (None, named));
                }
            }
        }
        match (binding, version) {
            (Binding::Rest, _) => {
                assert_eq!(sent.path, "/acme%2Fx/message:send");
                assert_eq!(got.path, "/acme%2Fx/tasks/t");
                assert_eq!(sent.json()["tenant"], Value::Null);
            }
            (_, Version::V1_0) => {
                assert_eq!(sent.json()["params"]["tenant"], "acme/x");
                assert_eq!(got.json()["params"]["tenant"], "acme/x");
            }
            _ => assert_eq!(sent.json()["params"]["tenant"], Value::Null),
        }
        let fetched = fake.cards().pop().unwrap();
        assert_eq!(fetched.header("a2a-version"), Some(version.to_string().as_str()));
    }
}

/// A fake with one REST 1.0 interface, which answers every call in this way.
async fn rest(react: impl Fn(&Received) -> Reaction + Send + Sync + 'static) -> Fake {
    Fake::start(move |url, _, request| {
        if request.is_card() {
            answer(200, &card(&[(url, "HTTP+JSON", "1.0")]))
        } else {
            react(request)
        }
    })
    .await
}

// proves: TEN-002
#[tokio::test]
async fn without_a_tenant_of_the_interface_none_is_sent() {
    let silent = rest(|_| answer(200, &json!({ "task": task("t", "COMPLETED") }))).await;
    quick().connect(&silent.url()).await.unwrap().send("hello").await.unwrap();
    let sent = silent.calls().pop().unwrap();
    assert_eq!(sent.path, "/message:send");
    assert_eq!(sent.json().get("tenant"), None);

    let rpc = Fake::start(|url, _, request| {
        if request.is_card() {
            rpc_card(url)
        } else {
            result(request, &json!({ "task": task("t", "COMPLETED") }))
        }
    })
    .await;
    quick().connect(&rpc.url()).await.unwrap().send("hello").await.unwrap();
    assert_eq!(rpc.calls()[0].json()["params"].get("tenant"), None);
}

// proves: REST-022
#[tokio::test]
async fn every_success_status_counts_as_success() {
    for status in [200, 201, 202, 299] {
        let fake = rest(move |request| match request.method.as_str() {
            "DELETE" => response(204, &[], ""),
            _ => answer(status, &json!({ "task": task("t", "COMPLETED") })),
        })
        .await;
        let client = quick().connect(&fake.url()).await.unwrap();
        client.send("hello").await.unwrap();
        client.delete_push_config("t", "one").await.unwrap();
    }
}

// proves: ERR-076
#[tokio::test]
async fn the_reason_of_an_error_counts_before_its_status() {
    for (status, reason, kind) in [
        (409, "TASK_NOT_CANCELABLE", ErrorKind::TaskNotCancelable),
        (409, "UNSUPPORTED_OPERATION", ErrorKind::UnsupportedOperation),
        (415, "CONTENT_TYPE_NOT_SUPPORTED", ErrorKind::ContentTypeNotSupported),
        (400, "TASK_NOT_FOUND", ErrorKind::TaskNotFound),
        (502, "INVALID_AGENT_RESPONSE", ErrorKind::InvalidAgentResponse),
    ] {
        let fake = rest(move |_| {
            let info = json!({
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": reason, "domain": "a2a-protocol.org",
            });
            let error = json!({ "code": status, "message": "no", "details": [info] });
            answer(status, &json!({ "error": error }))
        })
        .await;
        let client = quick().connect(&fake.url()).await.unwrap();
        let error = client.cancel("t").await.unwrap_err();
        assert_eq!(error.kind(), Some(kind), "{status} {reason}");
    }
}

#[tokio::test]
async fn interceptors_see_change_and_refuse_calls() {
    let fake = agent().await;
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let client = quick()
        .intercept(move |call: &mut Outgoing| {
            seen.lock().unwrap().push(call.request.operation().name());
            call.headers.insert("x-hop", "1".parse().unwrap());
            Ok(())
        })
        .intercept(|call: &mut Outgoing| match call.request.operation().name() {
            "CancelTask" => Err(Error::intercepted("nobody cancels here")),
            _ => Ok(()),
        })
        .connect(&fake.url())
        .await
        .unwrap();
    client.send("hello").await.unwrap();
    assert_eq!(fake.calls()[0].header("x-hop"), Some("1"));
    let error = client.cancel("t").await.unwrap_err();
    assert_eq!(error.to_string(), "nobody cancels here");
    assert_eq!(fake.calls().len(), 1, "a refused call does not go out");
    assert_eq!(*log.lock().unwrap(), ["SendMessage", "CancelTask"]);
}

/// A fake that fails the first calls in this way.
async fn failing(
    count: usize,
    failure: Reaction,
    then: impl Fn(&Received) -> Reaction + Send + Sync + 'static,
) -> Fake {
    Fake::start(move |url, before, request| {
        if request.is_card() {
            rpc_card(url)
        } else if before < count {
            failure.clone()
        } else {
            then(request)
        }
    })
    .await
}

fn send_again() -> Retry {
    Retry { first: Duration::from_millis(1), sends: true, ..Retry::default() }
}

#[tokio::test]
async fn idempotent_operations_are_retried() {
    let busy = response(503, &[("Retry-After", "0")], "busy");
    let refused = json!({ "error": { "code": -31014, "message": "slow down",
        "data": [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "LIMIT_EXCEEDED" }] } });
    for failure in [Reaction::HangUp, busy, answer(429, &refused)] {
        let fake = failing(2, failure, |request| result(request, &task("t", "WORKING"))).await;
        let client = quick().connect(&fake.url()).await.unwrap();
        client.get("t").await.unwrap();
        assert_eq!(fake.calls().len(), 3);
    }
    let fake = failing(99, Reaction::HangUp, |_| Reaction::HangUp).await;
    let client = quick().connect(&fake.url()).await.unwrap();
    assert!(client.get("t").await.unwrap_err().is_broken());
    assert_eq!(fake.calls().len(), 1 + Retry::default().repeats);
}

#[tokio::test]
async fn a_send_is_retried_only_if_configured_and_with_the_same_id() {
    let done = |request: &Received| result(request, &json!({ "task": task("t", "COMPLETED") }));
    let fake = failing(1, Reaction::HangUp, done).await;
    let client = quick().connect(&fake.url()).await.unwrap();
    assert!(client.send("hello").await.unwrap_err().is_broken());
    assert_eq!(fake.calls().len(), 1);

    let fake = failing(2, Reaction::HangUp, done).await;
    let client = quick().retry(send_again()).connect(&fake.url()).await.unwrap();
    client.send("hello").await.unwrap();
    let ids: Vec<_> = fake
        .calls()
        .iter()
        .map(|call| call.json()["params"]["message"]["messageId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(ids.len(), 3);
    assert!(ids.iter().all(|id| *id == ids[0] && id.len() == 36), "{ids:?}");
}

#[tokio::test]
async fn a_retried_cancel_succeeds_if_the_first_answer_was_lost() {
    let state = |state: &'static str| {
        failing(1, Reaction::HangUp, move |request| match request.json()["method"].as_str() {
            Some("CancelTask") => {
                let error = json!({ "code": -32002, "message": "it has ended" });
                answer(
                    200,
                    &json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error }),
                )
            }
            _ => result(request, &task("t", state)),
        })
    };
    let fake = state("CANCELED").await;
    let client = quick().connect(&fake.url()).await.unwrap();
    assert_eq!(client.cancel("t").await.unwrap().status.state, TaskState::Canceled);
    let fake = state("COMPLETED").await;
    let client = quick().connect(&fake.url()).await.unwrap();
    let error = client.cancel("t").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotCancelable));
}
