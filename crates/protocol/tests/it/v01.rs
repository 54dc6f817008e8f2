//! A2A 0.1, in the words of its schema and of the servers of its time.

use herald_protocol::{
    Artifact, ArtifactUpdate, Content, Dialect, ErrorKind, Message, MissingVersion, Operation,
    Part, Request, Role, SendResult, StreamEvent, Task, TaskState,
    dialect::{EntryPoint, StreamItem, StreamWriter, resolve},
};
use serde_json::Value;

use crate::support::{
    artifact_update, decode, fields, push_config, refuse, send_of, status_update, task, value,
};

const V01: Dialect = Dialect::V01;

fn find(entry: EntryPoint, method: &str) -> (Dialect, Operation) {
    resolve(entry, method, None, MissingVersion::Strict).unwrap()
}

fn bodies(items: &[StreamItem]) -> Vec<Value> {
    items.iter().map(|item| value(&item.body)).collect()
}

fn artifact(id: &str, text: &str) -> Artifact {
    Artifact { artifact_id: id.into(), parts: vec![Part::text(text)], ..Artifact::default() }
}

// part of: RPC-013
#[test]
fn the_seven_methods_of_0_1() {
    let names = [
        ("tasks/send", Operation::SendMessage),
        ("tasks/sendSubscribe", Operation::SendStreamingMessage),
        ("tasks/get", Operation::GetTask),
        ("tasks/cancel", Operation::CancelTask),
        ("tasks/resubscribe", Operation::SubscribeToTask),
        ("tasks/pushNotification/set", Operation::CreateTaskPushNotificationConfig),
        ("tasks/pushNotification/get", Operation::GetTaskPushNotificationConfig),
    ];
    for (name, operation) in names {
        assert_eq!(find(EntryPoint::V01, name), (V01, operation));
        assert_eq!(V01.method(operation), Some(name));
        for version in ["0.1", "0.2", "0.3", ""] {
            let found = resolve(EntryPoint::V01, name, Some(version), MissingVersion::Strict);
            assert_eq!(found, Ok((V01, operation)), "{name} {version}");
        }
        let error =
            resolve(EntryPoint::V01, name, Some("1.0"), MissingVersion::Lenient).unwrap_err();
        assert_eq!(error.kind, ErrorKind::MethodNotFound);
        assert!(error.message.contains(operation.name()), "{}", error.message);
    }
}

#[test]
fn a_name_that_two_generations_share_belongs_to_the_place_it_is_called_at() {
    for name in ["tasks/get", "tasks/cancel", "tasks/resubscribe"] {
        assert_eq!(find(EntryPoint::Main, name).0, Dialect::V03);
        assert_eq!(find(EntryPoint::V01, name).0, V01);
    }
    for name in ["tasks/send", "tasks/sendSubscribe", "tasks/pushNotification/get"] {
        assert_eq!(find(EntryPoint::Main, name).0, V01);
    }
    for name in ["message/send", "message/stream", "message/sendStream"] {
        assert_eq!(find(EntryPoint::V01, name).0, Dialect::V03);
    }
    assert_eq!(find(EntryPoint::V01, "tasks/pushNotificationConfig/set").0, Dialect::V03);
    let modern = resolve(EntryPoint::V01, "GetTask", Some("1.0"), MissingVersion::Strict);
    assert_eq!(modern, Ok((Dialect::V1, Operation::GetTask)));
    let mixed = resolve(EntryPoint::V01, "GetTask", None, MissingVersion::Strict).unwrap_err();
    assert_eq!(mixed.kind, ErrorKind::VersionNotSupported);
}

#[test]
fn a_send_returns_at_once_only_where_servers_of_0_1_are() {
    let text = r#"{"message":{"role":"user","parts":[{"type":"text","text":"x"}]}}"#;
    for (entry, at_once) in [(EntryPoint::V01, true), (EntryPoint::Main, false)] {
        let mut request = decode(V01, Operation::SendMessage, text);
        entry.complete(V01, V01, &mut request);
        assert_eq!(send_of(request).configuration.return_immediately, at_once);
        let mut request = decode(Dialect::V03, Operation::SendMessage, text);
        entry.complete(Dialect::V03, Dialect::V03, &mut request);
        assert!(!send_of(request).configuration.return_immediately);
    }
}

#[test]
fn a_send_with_kinds_is_answered_as_0_3_does_where_0_3_is() {
    for (parts, reply) in [
        (r#"[{"kind":"text","text":"x"}]"#, Dialect::V03),
        (r#"[{"kind":"text","text":"x"},{"kind":"data","data":{}}]"#, Dialect::V03),
        (r#"[{"type":"text","text":"x"}]"#, V01),
        (r#"[{"kind":"text","type":"text","text":"x"}]"#, V01),
        (r#"[{"text":"x"}]"#, V01),
        ("[]", V01),
        ("1", V01),
    ] {
        let params = format!(r#"{{"message":{{"role":"user","parts":{parts}}}}}"#);
        let (send, params) = (Operation::SendMessage, params.as_bytes());
        assert_eq!(EntryPoint::Main.reply_dialect(V01, send, params), reply, "{parts}");
        assert_eq!(EntryPoint::V01.reply_dialect(V01, send, params), V01, "{parts}");
        let get = EntryPoint::Main.reply_dialect(V01, Operation::GetTask, params);
        assert_eq!(get, V01, "{parts}");
    }
}

// part of: RPC-016
#[test]
fn the_example_of_the_specification_is_read() {
    let send = send_of(decode(
        V01,
        Operation::SendMessage,
        r#"{"id":"task-abc-123","sessionId":"session-xyz-789","historyLength":2,
            "acceptedOutputModes":["text"],"metadata":{"a":1},
            "pushNotification":{"url":"https://example.com/hook","token":"t",
                "authentication":{"schemes":["Bearer"]}},
            "message":{"role":"user","parts":[
                {"type":"text","text":"What is the capital of France?"},
                {"type":"file","file":{"name":"a.png","mimeType":"image/png","bytes":"AJ//"}},
                {"type":"data","data":{"x":1}}]}}"#,
    ));
    assert_eq!(send.own_task.unwrap().as_str(), "task-abc-123");
    assert_eq!(send.message.context_id.unwrap().as_str(), "session-xyz-789");
    assert_eq!(send.message.task_id, None);
    assert_eq!(send.message.message_id.as_str(), "");
    assert_eq!(send.message.role, Role::User);
    assert_eq!(send.message.parts[1].content, Content::Raw(vec![0, 159, 255]));
    assert_eq!(send.configuration.history_length, Some(2));
    assert_eq!(send.configuration.accepted_output_modes, ["text"]);
    let push = send.configuration.task_push_notification_config.unwrap();
    assert_eq!(push.authentication.unwrap().scheme, "Bearer");
    assert!(send.task_only && !send.infer_task);
}

#[test]
fn what_servers_of_its_time_took_is_taken() {
    for params in [
        r#"{"message":{"parts":[{"type":"text","content":"x"}]},"session_id":"s","handler":"echo"}"#,
        r#"{"message":{"parts":[{"text":"x"}]},"sessionId":"s","handler":"echo","id":null}"#,
        r#"{"message":{"kind":"message","parts":[{"kind":"text","text":"x"}],"contextId":"s"},
            "handler":"echo"}"#,
        r#"{"message":{"parts":[{"kind":"text","text":"x"}]},"contextId":"s","handler":"echo",
            "configuration":{"blocking":true}}"#,
    ] {
        let send = send_of(decode(V01, Operation::SendStreamingMessage, params));
        assert_eq!(send.message.parts, [Part::text("x")], "{params}");
        assert_eq!(send.message.context_id.unwrap().as_str(), "s", "{params}");
        assert_eq!(send.agent.unwrap().as_str(), "echo", "{params}");
        assert_eq!(send.own_task, None, "{params}");
        assert!(send.infer_task, "{params}");
    }
    let parts = r#""message":{"parts":[{"text":"x"}]}"#;
    for id in [r#""id":"t""#, r#""taskId":"t""#, r#""task_id":"t""#, r#""id":"t","task_id":"t""#] {
        let send = send_of(decode(V01, Operation::SendMessage, &format!("{{{id},{parts}}}")));
        assert_eq!(send.own_task.unwrap().as_str(), "t", "{id}");
    }
}

// proves: FMT-022
#[test]
fn what_contradicts_itself_is_refused_and_said_where() {
    let message = r#"{"parts":[{"text":"x"}],"contextId":"c","taskId":"u"}"#;
    let error = refuse(
        V01,
        Operation::SendMessage,
        &format!(r#"{{"id":"t","sessionId":"s","message":{message}}}"#),
    );
    assert_eq!(fields(&error), ["message.taskId", "sessionId"]);
    for (params, field) in [
        (r#"{"id":"t"}"#, "message"),
        (r#"{"message":{"role":"user"}}"#, "message.parts"),
        (r#"{"message":{"role":"user","parts":[]}}"#, "message.parts"),
        (r#"{"message":{"parts":[{"type":"video","text":"x"}]}}"#, "message.parts[0].type"),
        (
            r#"{"message":{"parts":[{"type":"file","file":{"bytes":"AAAA","uri":"x"}}]}}"#,
            "message.parts[0].file",
        ),
        (r#"{"message":{"parts":[{"text":"x"}]},"historyLength":-1}"#, "historyLength"),
        (r#"{"message":{"parts":[{"text":"x"}]},"id":"a\u0000b"}"#, "id"),
    ] {
        assert_eq!(fields(&refuse(V01, Operation::SendMessage, params)), [field], "{params}");
    }
    for operation in [Operation::GetTask, Operation::CancelTask, Operation::SubscribeToTask] {
        let error = refuse(V01, operation, r#"{"id":"a","task_id":"b"}"#);
        assert_eq!((error.kind, fields(&error)), (ErrorKind::InvalidParams, vec!["task_id"]));
        assert_eq!(fields(&refuse(V01, operation, "{}")), ["id"]);
    }
}

#[test]
fn a_cancel_that_says_task_id_in_camel_case_takes_an_ended_task_for_done() {
    for dialect in [V01, Dialect::V03] {
        for (spelling, expected) in [("id", false), ("taskId", true), ("task_id", false)] {
            let params = format!(r#"{{"{spelling}":"t"}}"#);
            let Request::CancelTask(cancel) = decode(dialect, Operation::CancelTask, &params)
            else {
                panic!()
            };
            assert_eq!((cancel.id.as_str(), cancel.return_ended), ("t", expected), "{spelling}");
        }
    }
}

// proves: FMT-021
#[test]
fn parts_say_their_type_and_nothing_says_its_kind() {
    let text = String::from_utf8(V01.encode_task(&task(TaskState::Completed))).unwrap();
    for absent in ["\"kind\"", "contextId", "messageId", "taskId", "artifactId"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    let shown = value(&text);
    assert_eq!(shown["sessionId"], "c-1");
    assert_eq!(shown["artifacts"][0]["index"], 0);
    let parts = shown["history"][0]["parts"].as_array().unwrap();
    let types: Vec<_> = parts.iter().map(|part| part["type"].as_str().unwrap()).collect();
    assert_eq!(types, ["text", "text", "file", "file", "data", "data"]);
}

#[test]
fn states_that_0_1_lacks_are_told_by_what_they_mean() {
    for (state, name) in [
        (TaskState::Submitted, "submitted"),
        (TaskState::Working, "working"),
        (TaskState::InputRequired, "input-required"),
        (TaskState::AuthRequired, "input-required"),
        (TaskState::Completed, "completed"),
        (TaskState::Canceled, "canceled"),
        (TaskState::Failed, "failed"),
        (TaskState::Rejected, "failed"),
        (TaskState::Unspecified, "unknown"),
    ] {
        assert_eq!(value(V01.encode_task(&task(state)))["status"]["state"], name);
    }
    for name in ["cancelled", "canceled"] {
        let task = format!(r#"{{"id":"t","status":{{"state":"{name}"}}}}"#);
        let task = V01.decode_task(task.as_bytes()).unwrap();
        assert_eq!(task.status.state, TaskState::Canceled);
    }
}

// proves: STR-014
#[test]
fn a_stream_holds_only_status_and_artifact_events_under_the_tasks_id() {
    let mut writer = StreamWriter::new(V01, Vec::new());
    let whole = Task {
        artifacts: Some(vec![artifact("a", "one").into(), artifact("b", "two").into()]),
        ..task(TaskState::Working)
    };
    let shown = bodies(&writer.write(&StreamEvent::Task(whole), false));
    assert_eq!(shown.len(), 3, "{shown:?}");
    for (index, event) in shown[..2].iter().enumerate() {
        assert_eq!((&event["id"], &event["artifact"]["index"]), (&"t-1".into(), &index.into()));
    }
    assert_eq!(shown[2]["status"]["state"], "working");
    assert_eq!(shown[2]["final"], false);
    assert!(shown[2].get("sessionId").is_none() && shown[2].get("history").is_none());

    let piece = |id: &str| {
        StreamEvent::ArtifactUpdate(ArtifactUpdate {
            artifact: artifact(id, "x"),
            ..artifact_update()
        })
    };
    for (id, index) in [("b", 1), ("c", 2), ("a", 0), ("c", 2)] {
        let shown = bodies(&writer.write(&piece(id), false)).remove(0);
        let shown = &shown["artifact"];
        assert_eq!((&shown["index"], &shown["append"]), (&index.into(), &true.into()), "{id}");
    }
    let end = StreamEvent::StatusUpdate(status_update(TaskState::Completed));
    let end = bodies(&writer.write(&end, true)).remove(0);
    assert_eq!((&end["id"], &end["final"]), (&"t-1".into(), &true.into()));

    let reply =
        StreamEvent::Message(Message { task_id: Some("t".into()), ..Message::agent("m", "hi") });
    let reply = bodies(&writer.write(&reply, true)).remove(0);
    assert_eq!((&reply["id"], &reply["status"]["state"]), (&"t".into(), &"completed".into()));
    assert_eq!(reply["status"]["message"]["parts"][0]["text"], "hi");
}

#[test]
fn a_stream_that_is_taken_up_counts_on_from_the_artifacts_that_were_there() {
    let mut writer = StreamWriter::new(V01, vec!["a".into(), "b".into()]);
    let update = ArtifactUpdate { artifact: artifact("b", "x"), ..artifact_update() };
    let shown = bodies(&writer.write(&StreamEvent::ArtifactUpdate(update), false));
    assert_eq!(shown[0]["artifact"]["index"], 1);
}

#[test]
fn events_have_names_in_0_3_and_in_no_other_generation() {
    let events = [
        ("task", StreamEvent::Task(task(TaskState::Working))),
        ("message", StreamEvent::Message(Message::agent("m", "hi"))),
        ("status-update", StreamEvent::StatusUpdate(status_update(TaskState::Working))),
        ("artifact-update", StreamEvent::ArtifactUpdate(artifact_update())),
    ];
    for (name, event) in events {
        for dialect in Dialect::ALL {
            let expected = match dialect {
                Dialect::V03 | Dialect::V03Rest => Some(name),
                Dialect::V1 | Dialect::V01 => None,
            };
            for item in StreamWriter::new(dialect, Vec::new()).write(&event, false) {
                assert_eq!(item.name, expected, "{dialect:?}");
            }
        }
    }
}

#[test]
fn answers_of_0_1_servers_are_read() {
    let task = r#"{"id":"t","sessionId":"s","status":{"state":"completed",
        "message":{"role":"agent","parts":[{"type":"text","text":"Paris"}]},
        "timestamp":"2024-03-15T10:00:05"},
        "artifacts":[{"name":"Answer","index":1,"parts":[{"type":"text","text":"Paris"}]}]}"#;
    let SendResult::Task(task) = V01.decode_send_result(task.as_bytes()).unwrap() else { panic!() };
    assert_eq!(task.context_id.as_str(), "s");
    assert_eq!(task.artifacts.unwrap()[0].artifact_id.as_str(), "1");
    let status = r#"{"id":"t","status":{"state":"working"},"final":false}"#;
    let StreamEvent::StatusUpdate(status) = V01.decode_event(status.as_bytes()).unwrap() else {
        panic!()
    };
    assert_eq!((status.task_id.as_str(), status.status.state), ("t", TaskState::Working));
    let piece = r#"{"id":"t","artifact":{"index":0,"append":true,"lastChunk":true,
        "parts":[{"type":"text","text":"x"}]}}"#;
    let StreamEvent::ArtifactUpdate(piece) = V01.decode_event(piece.as_bytes()).unwrap() else {
        panic!()
    };
    assert_eq!((piece.task_id.as_str(), piece.append, piece.last_chunk), ("t", true, true));
    let bare = V01.decode_send_result(br#"{"id":"t","status":{"state":"submitted"}}"#).unwrap();
    assert!(matches!(bare, SendResult::Task(task) if task.id.as_str() == "t"));
}

// part of: PUSH-028
#[test]
fn a_task_has_one_webhook_without_a_name() {
    let shown = value(V01.encode_push_config(&push_config()));
    assert_eq!(shown["id"], "t-1");
    assert!(shown["pushNotificationConfig"].get("id").is_none());
    let set = V01.encode_request(&Request::CreateTaskPushNotificationConfig(push_config()));
    let twice: Vec<_> = [&set, &set]
        .map(|bytes| V01.decode(Operation::CreateTaskPushNotificationConfig, Some(bytes)).unwrap())
        .into_iter()
        .map(|request| match request {
            Request::CreateTaskPushNotificationConfig(config) => config.id.unwrap(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(twice[0], twice[1], "setting it again replaces it");
    let get = decode(V01, Operation::GetTaskPushNotificationConfig, r#"{"id":"t"}"#);
    let Request::GetTaskPushNotificationConfig(get) = get else { panic!() };
    assert_eq!((get.task_id.as_str(), get.id.as_str()), ("t", ""));
}

// part of: ERR-075
#[test]
fn the_numbers_of_0_1_have_its_own_meanings() {
    for (kind, code) in [
        (ErrorKind::TaskNotFound, -32001),
        (ErrorKind::TaskNotCancelable, -32002),
        (ErrorKind::PushNotificationNotSupported, -32003),
        (ErrorKind::UnsupportedOperation, -32004),
        (ErrorKind::ContentTypeNotSupported, -32005),
        (ErrorKind::StreamingNotSupported, -32006),
        (ErrorKind::Unauthenticated, -32007),
        (ErrorKind::Forbidden, -32008),
        (ErrorKind::TaskEnded, -32009),
        (ErrorKind::LimitExceeded, -32010),
        (ErrorKind::AgentUnavailable, -32011),
    ] {
        assert_eq!(kind.codes().json_rpc_v01, code, "{kind:?}");
    }
}
