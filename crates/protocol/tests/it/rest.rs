//! The REST binding: paths, queries, bodies.

use herald_protocol::{
    Dialect, Error, Operation, Request, TaskState,
    push::PushConfig,
    request::{CancelTask, GetTask, ListTasks},
    rest::{self, Route, RouteError},
};

use crate::support::{fields, push_config, send_of, task, value};

const SEND: &[u8] = br#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"a"}]}}"#;

#[track_caller]
fn route(method: &str, path: &str) -> Route {
    match rest::route(method, path) {
        Ok(route) => route,
        Err(error) => panic!("{method} {path}: {error:?}"),
    }
}

fn call(method: &str, path: &str, body: &[u8]) -> Result<Request, Error> {
    let (path, query) = match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    };
    rest::request(&route(method, path), query, body)
}

fn list(query: &str) -> Result<ListTasks, Error> {
    match call("GET", &format!("/tasks?{query}"), b"")? {
        Request::ListTasks(list) => Ok(list),
        other => panic!("{other:?}"),
    }
}

const V1_ROUTES: [(&str, &str, Operation); 12] = [
    ("POST", "/message:send", Operation::SendMessage),
    ("POST", "/message:stream", Operation::SendStreamingMessage),
    ("GET", "/tasks", Operation::ListTasks),
    ("GET", "/tasks/t", Operation::GetTask),
    ("POST", "/tasks/t:cancel", Operation::CancelTask),
    ("GET", "/tasks/t:subscribe", Operation::SubscribeToTask),
    ("POST", "/tasks/t:subscribe", Operation::SubscribeToTask),
    ("POST", "/tasks/t/pushNotificationConfigs", Operation::CreateTaskPushNotificationConfig),
    ("GET", "/tasks/t/pushNotificationConfigs", Operation::ListTaskPushNotificationConfigs),
    ("GET", "/tasks/t/pushNotificationConfigs/p", Operation::GetTaskPushNotificationConfig),
    ("DELETE", "/tasks/t/pushNotificationConfigs/p", Operation::DeleteTaskPushNotificationConfig),
    ("GET", "/extendedAgentCard", Operation::GetExtendedAgentCard),
];

// part of: REST-014, TEN-003
// proves: REST-001, REST-002, REST-012, REST-013
#[test]
fn every_route_of_1_0_exists_with_and_without_a_tenant() {
    for (method, path, operation) in V1_ROUTES {
        let plain = route(method, path);
        assert_eq!((plain.dialect, plain.operation), (Dialect::V1, operation), "{path}");
        assert_eq!(plain.tenant, None);
        assert_eq!(plain.task.is_some(), path.starts_with("/tasks/"));
        let tenant = route(method, &format!("/acme{path}"));
        assert_eq!(tenant, Route { tenant: Some("acme".into()), ..plain });
    }
}

// part of: REST-021
// proves: REST-016
#[test]
fn every_route_of_0_3_exists_under_v1() {
    for (method, path, operation) in V1_ROUTES {
        let path = path.replace("/extendedAgentCard", "/card");
        if operation == Operation::ListTasks {
            assert_eq!(rest::route(method, "/v1/tasks"), Err(RouteError::NotFound));
            continue;
        }
        let found = route(method, &format!("/v1{path}"));
        assert_eq!((found.dialect, found.operation), (Dialect::V03Rest, operation), "{path}");
    }
    let slip = route("POST", "/v1/task/t/pushNotificationConfigs");
    assert_eq!(slip.operation, Operation::CreateTaskPushNotificationConfig);
    assert_eq!(slip.task.unwrap().as_str(), "t");
}

// proves: REST-015
#[test]
fn a_suffix_is_not_part_of_the_id() {
    let subscribe = route("GET", "/tasks/x:subscribe");
    assert_eq!(subscribe.operation, Operation::SubscribeToTask);
    assert_eq!(subscribe.task.unwrap().as_str(), "x");
    let not_get = rest::route("GET", "/tasks/x:cancel");
    assert_eq!(not_get, Err(RouteError::MethodNotAllowed("POST")));
    // Escaped, the colon belongs to the id; so does a suffix that nobody knows.
    assert_eq!(route("GET", "/tasks/x%3Acancel").task.unwrap().as_str(), "x:cancel");
    assert_eq!(route("GET", "/tasks/urn:x:1").task.unwrap().as_str(), "urn:x:1");
    let twice = route("POST", "/tasks/x:cancel:cancel");
    assert_eq!(twice.task.unwrap().as_str(), "x:cancel");
}

// part of: TEN-005
// proves: REST-007
#[test]
fn ids_in_paths_are_decoded() {
    let found = route("GET", "/a%2Fb%20c/tasks/%E4%B8%AD%2f%25/pushNotificationConfigs/1+1");
    assert_eq!(found.tenant.unwrap().as_str(), "a/b c");
    assert_eq!(found.task.unwrap().as_str(), "中/%");
    assert_eq!(found.config.unwrap().as_str(), "1+1", "a plus is a plus in a path");
    assert_eq!(route("GET", "/tasks/50%").task.unwrap().as_str(), "50%");
    for path in ["/tasks/%FF", "/%FF/tasks", "/tasks/x/pushNotificationConfigs/%C3"] {
        assert_eq!(rest::route("GET", path), Err(RouteError::NotFound), "{path}");
    }
    assert_eq!(route("POST", "/message%3Asend").operation, Operation::SendMessage);
}

#[test]
fn other_paths_and_methods_are_told_apart() {
    for path in [
        "",
        "/",
        "tasks",
        "/tasks/",
        "/tasks//pushNotificationConfigs",
        "/v1",
        "/v1/",
        "/v1/tasks",
        "/v1/tasks/",
        "/v1/extendedAgentCard",
        "/v2/x/tasks",
        "//tasks",
        "/acme",
        "/acme/v1/tasks/x",
        "/acme/v1/message:send",
        "/tasks/tasks/x/y",
        "/message",
        "/tasks/message:send/tasks",
        "/tasks/x/pushNotificationConfigs/p/q",
        "/card",
    ] {
        assert_eq!(rest::route("GET", path), Err(RouteError::NotFound), "{path}");
    }
    for (method, path, allow) in [
        ("GET", "/message:send", "POST"),
        ("POST", "/tasks", "GET"),
        ("DELETE", "/tasks/x", "GET"),
        ("PUT", "/tasks/x:subscribe", "GET, POST"),
        ("DELETE", "/tasks/x/pushNotificationConfigs", "GET, POST"),
        ("POST", "/tasks/x/pushNotificationConfigs/p", "GET, DELETE"),
        ("POST", "/acme/tasks", "GET"),
        ("GET", "/v1/message:stream", "POST"),
        ("POST", "/v1/card", "GET"),
        ("get", "/tasks", "GET"),
    ] {
        let found = rest::route(method, path);
        assert_eq!(found, Err(RouteError::MethodNotAllowed(allow)), "{method} {path}");
    }
}

#[test]
fn a_tenant_with_the_name_of_a_route_is_named_in_the_body_only() {
    for path in ["/v1/tasks", "/tasks/tasks", "/extendedAgentCard/tasks"] {
        let found = rest::route("GET", path);
        assert!(found.is_err() || found.unwrap().tenant.is_none(), "{path}");
    }
    let body = r#"{"tenant":"v1","message":{"messageId":"m","role":1,"parts":[{"text":"a"}]}}"#;
    let request = call("POST", "/message:send", body.as_bytes()).unwrap();
    assert_eq!(request.tenant().unwrap().as_str(), "v1");
}

// proves: REST-006, REST-008
#[test]
fn queries_speak_camel_case_and_understand_snake_case() {
    let camel = "contextId=c&status=TASK_STATE_WORKING&pageSize=10&pageToken=n&historyLength=3\
        &statusTimestampAfter=2026-01-31T12%3A00%3A00Z&includeArtifacts=true&A2A-Version=1.0&x=%FF";
    let snake = "context_id=c&status=2&page_size=10&page_token=n&history_length=3\
        &status_timestamp_after=2026-01-31T12:00:00Z&include_artifacts=true";
    let expected = ListTasks {
        tenant: None,
        context_id: Some("c".into()),
        status: TaskState::Working,
        page_size: Some(10),
        page_token: Some("n".into()),
        history_length: Some(3),
        status_timestamp_after: Some("2026-01-31T12:00:00Z".parse().unwrap()),
        include_artifacts: Some(true),
    };
    assert_eq!(list(camel).unwrap(), expected);
    assert_eq!(list(snake).unwrap(), expected);
    assert_eq!(list("").unwrap(), ListTasks::default());
    assert_eq!(list("contextId=&pageToken=&status=&&=").unwrap(), ListTasks::default());
}

// proves: REST-007
#[test]
fn query_values_are_decoded() {
    let token = |query: &str| list(query).unwrap().page_token.unwrap();
    assert_eq!(token("pageToken=a%2Bb%26c%3Dd%25"), "a+b&c=d%");
    assert_eq!(token("pageToken=a+b"), "a b");
    assert_eq!(token("pageToken=%C3%A4=1"), "ä=1");
    let utc = list("statusTimestampAfter=2025-04-02T16:59:25.331Z").unwrap();
    for offset in ["2025-04-02T18%3A59%3A25.331%2B02%3A00", "2025-04-02T18:59:25.331+02:00"] {
        assert_eq!(list(&format!("statusTimestampAfter={offset}")).unwrap(), utc, "{offset}");
    }
}

// part of: LIST-008, LIST-010
// proves: REST-008, ERR-064
#[test]
fn every_parameter_at_fault_is_named_at_once() {
    let query = "status=RUNNING&pageSize=x&historyLength=-1&includeArtifacts=yes\
        &statusTimestampAfter=yesterday&contextId=%FF&pageToken=a&page_token=b";
    let error = list(query).unwrap_err();
    assert_eq!(error.kind.codes().http, 400);
    let mut found = fields(&error);
    found.sort_unstable();
    let expected = [
        "contextId",
        "historyLength",
        "includeArtifacts",
        "pageSize",
        "pageToken",
        "status",
        "statusTimestampAfter",
    ];
    assert_eq!(found, expected);
    assert_eq!(fields(&list("pageSize=101").unwrap_err()), ["pageSize"]);
    assert_eq!(fields(&list("pageSize=0").unwrap_err()), ["pageSize"]);
}

// proves: REST-005
#[test]
fn a_get_reads_its_path_and_query_and_never_a_body() {
    let garbage = b"{not json";
    let get = call("GET", "/tasks/t?historyLength=2", garbage).unwrap();
    let expected = GetTask { tenant: None, id: "t".into(), history_length: Some(2) };
    assert_eq!(get, Request::GetTask(expected));
    call("GET", "/tasks", garbage).unwrap();
    call("GET", "/tasks/t:subscribe", garbage).unwrap();
    call("GET", "/extendedAgentCard", garbage).unwrap();
    call("DELETE", "/tasks/t/pushNotificationConfigs/p", garbage).unwrap();
    let named = call("GET", "/tasks/t?tenant=acme", b"").unwrap();
    assert_eq!(named.tenant().unwrap().as_str(), "acme");
}

// part of: GET-009
#[test]
fn zero_history_in_a_query_means_what_it_means_in_the_dialect() {
    let length = |path: &str| match call("GET", path, b"").unwrap() {
        Request::GetTask(get) => get.history_length,
        other => panic!("{other:?}"),
    };
    assert_eq!(length("/tasks/t?historyLength=0"), Some(0));
    assert_eq!(length("/v1/tasks/t?historyLength=0"), None);
    assert_eq!(length("/v1/tasks/t?history_length=5"), Some(5));
}

// proves: REST-011
#[test]
fn a_cancel_needs_no_body_and_takes_metadata() {
    for prefix in ["", "/v1"] {
        for body in ["", "{}", "null", "  \n"] {
            let cancel =
                call("POST", &format!("{prefix}/tasks/t:cancel"), body.as_bytes()).unwrap();
            let expected = CancelTask { id: "t".into(), ..CancelTask::default() };
            assert_eq!(cancel, Request::CancelTask(expected), "{prefix} {body:?}");
        }
        let body = br#"{"metadata":{"why":"late"}}"#;
        let cancel = call("POST", &format!("{prefix}/tasks/t:cancel"), body).unwrap();
        assert!(matches!(cancel, Request::CancelTask(CancelTask { metadata: Some(_), .. })));
    }
    call("POST", "/v1/tasks/t:cancel", br#"{"name":"tasks/t"}"#).unwrap();
    for (path, body, field) in [
        ("/tasks/t:cancel", r#"{"id":"u"}"#, "id"),
        ("/v1/tasks/t:cancel", r#"{"id":"u"}"#, "id"),
        ("/v1/tasks/t:cancel", r#"{"name":"tasks/u"}"#, "name"),
    ] {
        assert_eq!(fields(&call("POST", path, body.as_bytes()).unwrap_err()), [field]);
    }
    let list = call("POST", "/tasks/t:cancel", b"[]").unwrap_err();
    assert_eq!(list.kind.codes().json_rpc, -32602);
    let broken = call("POST", "/tasks/t:cancel", b"{").unwrap_err();
    assert_eq!(broken.kind.codes().reason, "PARSE_ERROR");
}

// proves: REST-012
#[test]
fn a_subscription_is_the_same_by_get_and_by_post() {
    for prefix in ["", "/v1", "/acme"] {
        let path = format!("{prefix}/tasks/t:subscribe");
        let get = call("GET", &path, b"").unwrap();
        for body in ["", "{}", "null", "ignored"] {
            assert_eq!(call("POST", &path, body.as_bytes()).unwrap(), get);
        }
        let Request::SubscribeToTask(params) = get else { panic!() };
        assert_eq!(params.replay_finished, prefix == "/v1");
    }
}

// part of: ERR-072
#[test]
fn a_send_needs_a_body_that_is_json_and_a_message() {
    for path in ["/message:send", "/v1/message:send", "/acme/message:stream"] {
        assert_eq!(send_of(call("POST", path, SEND).unwrap()).message.text(), "a");
        for (body, reason) in [
            ("", "INVALID_PARAMS"),
            ("null", "INVALID_PARAMS"),
            ("[]", "INVALID_PARAMS"),
            ("{}", "INVALID_PARAMS"),
            ("{", "PARSE_ERROR"),
            ("{}x", "PARSE_ERROR"),
            ("nonsense", "PARSE_ERROR"),
        ] {
            let error = call("POST", path, body.as_bytes()).unwrap_err();
            assert_eq!(error.kind.codes().reason, reason, "{path} {body:?}");
            assert_eq!(error.kind.codes().http, 400);
        }
    }
}

// part of: TEN-003, TEN-004
#[test]
fn the_tenant_of_the_path_wins() {
    let body = r#"{"tenant":"b","message":{"messageId":"m","role":1,"parts":[{"text":"a"}]}}"#;
    let tenant = |path: &str| {
        let request = call("POST", path, body.as_bytes()).unwrap();
        request.tenant().unwrap().to_string()
    };
    assert_eq!(tenant("/message:send"), "b");
    assert_eq!(tenant("/a/message:send"), "a");
    assert_eq!(tenant("/message:send?tenant=c"), "b");
}

// proves: REST-024, REST-013
#[test]
fn the_task_of_the_path_is_the_webhooks_task() {
    let path = "/tasks/t-1/pushNotificationConfigs";
    let same = value(Dialect::V1.encode_push_config(&push_config())).to_string();
    let bare = same.replace(r#""taskId":"t-1","#, "");
    for body in [&same, &bare] {
        let request = call("POST", path, body.as_bytes()).unwrap();
        assert_eq!(request, Request::CreateTaskPushNotificationConfig(push_config()));
    }
    let other = same.replace("t-1", "t-2");
    let error = call("POST", path, other.as_bytes()).unwrap_err();
    assert_eq!((fields(&error), error.kind.codes().http), (vec!["taskId"], 400));
    assert_eq!(fields(&call("POST", path, b"").unwrap_err()), ["url"]);
}

// part of: PUSH-026
#[test]
fn a_webhook_of_0_3_is_created_by_any_of_three_bodies() {
    let inner = r#"{"id":"p-1","url":"https://example.com/hook","token":"secret",
        "authentication":{"schemes":["Bearer"],"credentials":"abc"}}"#;
    let name = "tasks/t-1/pushNotificationConfigs/p-1";
    for path in ["/v1/tasks/t-1/pushNotificationConfigs", "/v1/task/t-1/pushNotificationConfigs"] {
        for body in [
            format!(
                r#"{{"parent":"tasks/t-1","config_id":"p-1",
                "config":{{"name":"{name}","push_notification_config":{inner}}}}}"#
            ),
            format!(r#"{{"name":"{name}","pushNotificationConfig":{inner}}}"#),
            format!(r#"{{"config":{inner}}}"#),
            format!(r#"{{"config":{{"pushNotificationConfig":{inner}}}}}"#),
            inner.to_owned(),
        ] {
            let request = call("POST", path, body.as_bytes()).unwrap();
            assert_eq!(request, Request::CreateTaskPushNotificationConfig(push_config()), "{body}");
        }
        let other = format!(r#"{{"parent":"tasks/t-2","config":{inner}}}"#);
        assert_eq!(fields(&call("POST", path, other.as_bytes()).unwrap_err()), ["parent"]);
    }
    let Request::CreateTaskPushNotificationConfig(PushConfig { id, .. }) = call(
        "POST",
        "/v1/tasks/t/pushNotificationConfigs",
        br#"{"parent":"tasks/t","configId":"c","config":{"name":"tasks/t/pushNotificationConfigs/",
        "pushNotificationConfig":{"url":"https://x"}}}"#,
    )
    .unwrap() else {
        panic!()
    };
    assert_eq!(id.unwrap().as_str(), "c");
}

// proves: REST-013
#[test]
fn webhooks_are_found_by_path_and_paged_by_query() {
    let get = call("GET", "/tasks/t/pushNotificationConfigs/p", b"").unwrap();
    let Request::GetTaskPushNotificationConfig(config) = get else { panic!() };
    assert_eq!((config.task_id.as_str(), config.id.as_str()), ("t", "p"));
    let list = call("GET", "/tasks/t/pushNotificationConfigs?pageSize=5&pageToken=n", b"").unwrap();
    let Request::ListTaskPushNotificationConfigs(list) = list else { panic!() };
    assert_eq!((list.task_id.as_str(), list.page_size), ("t", Some(5)));
    assert_eq!(list.page_token.as_deref(), Some("n"));
}

// part of: REST-010
// proves: REST-011
#[test]
fn a_task_stands_bare_in_its_answer() {
    for dialect in [Dialect::V1, Dialect::V03Rest] {
        let shown = value(dialect.encode_task(&task(TaskState::Working)));
        assert_eq!(shown["id"], "t-1");
    }
}

#[test]
fn a_mount_may_speak_0_3_without_its_prefix() {
    let route = Route { dialect: Dialect::V03Rest, ..route("POST", "/message:send") };
    let body = br#"{"message":{"parts":[{"type":"text","content":"Count the apples"}]}}"#;
    let send = send_of(rest::request(&route, None, body).unwrap());
    assert_eq!(send.message.text(), "Count the apples");
}
