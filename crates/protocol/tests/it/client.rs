//! The callers' half: what they write and what they read, in the words of every SDK.

use herald_protocol::{
    Dialect, ErrorKind, Operation, Reply, Request, TaskState, failure,
    request::{
        CancelTask, GetExtendedAgentCard, GetTask, ListPushConfigs, ListTasks, PushConfigRef,
        SendMessage, SubscribeToTask,
    },
    rest,
};

use crate::support::{message, push_config};

fn config_ref() -> PushConfigRef {
    PushConfigRef { tenant: None, task_id: "t/1:x".into(), id: "p ?&1".into() }
}

/// One request of each operation, with ids that have to be escaped.
fn requests() -> Vec<Request> {
    let send = SendMessage { message: message(), ..SendMessage::default() };
    vec![
        Request::SendMessage(Box::new(send.clone())),
        Request::SendStreamingMessage(Box::new(send)),
        Request::GetTask(GetTask {
            id: "t/1:cancel".into(),
            history_length: Some(3),
            ..GetTask::default()
        }),
        Request::ListTasks(ListTasks {
            context_id: Some("c&=1".into()),
            status: TaskState::InputRequired,
            page_size: Some(7),
            page_token: Some("a+b/=".into()),
            history_length: Some(0),
            status_timestamp_after: Some("2026-01-31T12:00:00.250Z".parse().unwrap()),
            include_artifacts: Some(true),
            ..ListTasks::default()
        }),
        Request::CancelTask(CancelTask { id: "t/1:x".into(), ..CancelTask::default() }),
        Request::SubscribeToTask(SubscribeToTask {
            id: "täsk".into(),
            ..SubscribeToTask::default()
        }),
        Request::CreateTaskPushNotificationConfig(push_config()),
        Request::GetTaskPushNotificationConfig(config_ref()),
        Request::ListTaskPushNotificationConfigs(ListPushConfigs {
            task_id: "t%31".into(),
            page_size: Some(2),
            page_token: Some("x".into()),
            ..ListPushConfigs::default()
        }),
        Request::DeleteTaskPushNotificationConfig(config_ref()),
        Request::GetExtendedAgentCard(GetExtendedAgentCard::default()),
    ]
}

#[test]
fn what_a_caller_writes_on_rest_a_server_reads() {
    let requests = requests();
    assert_eq!(requests.len(), Operation::ALL.len());
    for (request, tenant) in requests.iter().flat_map(|one| [(one, None), (one, Some("a/b"))]) {
        let mut sent = request.clone();
        if let Some(tenant) = tenant {
            sent.set_tenant(tenant.into());
        }
        let call = rest::call(Dialect::V1, sent.clone()).unwrap();
        let (path, query) = match call.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (call.path.as_str(), None),
        };
        let route = rest::route(call.method, path).unwrap();
        assert_eq!(route.dialect, Dialect::V1);
        let read = rest::request(&route, query, call.body.as_deref().unwrap_or_default());
        assert_eq!(read, Ok(sent), "{call:?}");
    }
}

#[test]
fn what_a_caller_of_0_3_writes_on_rest_a_server_reads() {
    for request in requests() {
        let operation = request.operation();
        let Some(call) = rest::call(Dialect::V03Rest, request.clone()) else {
            assert_eq!(operation, Operation::ListTasks, "0.3 has everything else");
            continue;
        };
        let path = call.path.split('?').next().unwrap();
        let route = rest::route(call.method, path).unwrap();
        assert_eq!((route.dialect, route.operation), (Dialect::V03Rest, operation), "{call:?}");
        let query = call.path.split_once('?').map(|(_, query)| query);
        rest::request(&route, query, call.body.as_deref().unwrap_or_default()).unwrap();
    }
    assert_eq!(rest::call(Dialect::V03, requests().remove(0)), None);
}

#[test]
fn a_send_of_0_3_always_holds_the_accepted_output_modes() {
    for (dialect, modes) in [Dialect::V03, Dialect::V03Rest]
        .into_iter()
        .flat_map(|dialect| [(dialect, vec![]), (dialect, vec!["text/plain".to_owned()])])
    {
        let mut send = SendMessage::default();
        send.configuration.accepted_output_modes.clone_from(&modes);
        let bytes = dialect.encode_request(&Request::SendMessage(Box::new(send)));
        let written: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let found = &written["configuration"]["acceptedOutputModes"];
        assert_eq!(*found, serde_json::Value::from(modes), "{dialect:?}: {written}");
    }
}

#[test]
fn every_error_we_write_we_read() {
    for kind in ErrorKind::ALL {
        let error = herald_protocol::Error::new(*kind, "so it is").with("fact", "1");
        for dialect in Dialect::ALL {
            let body = dialect.encode_status(&error);
            let read = failure::rest(dialect, kind.codes().http, &body);
            // Kinds that only 0.1 has numbers for share their reason with a broader one.
            let kind = match kind {
                ErrorKind::StreamingNotSupported | ErrorKind::TaskEnded => {
                    ErrorKind::UnsupportedOperation
                }
                kind => *kind,
            };
            let expected = herald_protocol::Error { kind, ..error.clone() };
            assert_eq!(read.as_ref(), Some(&expected), "{dialect:?}");
            let id = herald_protocol::jsonrpc::RequestId::null();
            let body = dialect.encode_error(&id, &error);
            let Err(herald_protocol::jsonrpc::NoResult::Refused(read)) =
                herald_protocol::jsonrpc::result_of(dialect, 1, &body)
            else {
                panic!("expected a refusal")
            };
            assert_eq!(read, expected, "{dialect:?}");
        }
    }
}

#[test]
fn the_errors_of_others_are_read_by_reason_then_by_number_then_by_status() {
    use ErrorKind as E;
    let cases = [
        // The reason counts, whatever the status of the version says.
        (
            409,
            r#"{"error":{"code":409,"message":"m","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"TASK_NOT_FOUND"}]}}"#,
            E::TaskNotFound,
        ),
        // The JavaScript SDK of 0.3.
        (400, r#"{"code":-32002,"message":"m"}"#, E::TaskNotCancelable),
        // The Python SDK of 0.3.
        (404, r#"{"message":"Task not found"}"#, E::TaskNotFound),
        (501, r#"{"message":"m"}"#, E::UnsupportedOperation),
        // Drafts of 1.0, and Go.
        (
            400,
            r#"{"type":"https://a2a-protocol.org/errors/task-not-cancelable","title":"m","status":400}"#,
            E::TaskNotCancelable,
        ),
        (503, r#"{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#, E::Unavailable),
        (418, r#"{"error":{"code":418,"message":"m"}}"#, E::InvalidRequest),
    ];
    for (status, body, kind) in cases {
        let error = failure::rest(Dialect::V03Rest, status, body.as_bytes());
        let error = error.unwrap_or_else(|| panic!("{body}"));
        assert_eq!(error.kind, kind, "{body}");
        assert!(!error.message.is_empty());
    }
    for body in ["", "<html>", "[]", "null", r#"{"detail":"Not Found"}"#, r#"{"error":"no"}"#] {
        assert_eq!(failure::rest(Dialect::V1, 404, body.as_bytes()), None, "{body}");
    }
}

#[test]
fn numbers_and_reasons_that_are_not_ours_are_kept() {
    let body = br#"{"code":-32050,"message":"quota\u0007 spent","data":[{"reason":"QUOTA","metadata":{"left":0,"who":"me"}}]}"#;
    let error = failure::rpc(Dialect::V1, body).unwrap();
    assert_eq!((error.kind, &*error.message), (ErrorKind::Internal, "quota spent"));
    let facts = error.detail.unwrap().metadata;
    let fact = |name| facts.get(name).map(String::as_str);
    assert_eq!(
        (fact("code"), fact("reason"), fact("left"), fact("who")),
        (Some("-32050"), Some("QUOTA"), Some("0"), Some("me"))
    );
    // 0.3 leaves numbers free that 1.0 has taken.
    let body = br#"{"code":-32008,"message":"m","data":{"any":"thing"}}"#;
    assert_eq!(failure::rpc(Dialect::V1, body).unwrap().kind, ErrorKind::ExtensionSupportRequired);
    assert_eq!(failure::rpc(Dialect::V03, body).unwrap().kind, ErrorKind::Unauthenticated);
}

#[test]
fn an_answer_that_is_no_task_is_none() {
    for body in ["{}", "null", "[]", r#"{"id":""}"#, r#"{"error":{}}"#] {
        for dialect in Dialect::ALL {
            let read = dialect.decode_reply(Operation::GetTask, body.as_bytes());
            let error = read.map(|reply| panic!("{body} is {reply:?}")).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidAgentResponse, "{body}");
        }
    }
    for body in ["{}", "null", ""] {
        let deleted =
            Dialect::V1.decode_reply(Operation::DeleteTaskPushNotificationConfig, body.as_bytes());
        assert_eq!(deleted, Ok(Reply::Deleted));
    }
}
