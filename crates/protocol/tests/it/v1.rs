//! A2A 1.0: what is read, what is refused, what is written.

use herald_protocol::{
    Content, Dialect, Message, MissingVersion, Operation, Part, Request, Role, SendResult,
    StreamEvent, Task, TaskState, TaskStatus,
    dialect::{EntryPoint, resolve},
    request::GetExtendedAgentCard,
};
use serde_json::Value;

use crate::support::{
    artifact_update, decode, fields, message, message_of, refuse, reply_of, status_update, task,
    value,
};

const V1: Dialect = Dialect::V1;

fn with_part(part: &str) -> String {
    format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":[{part}]}}}}"#)
}

#[track_caller]
fn content(part: &str) -> Content {
    message_of(decode(V1, Operation::SendMessage, &with_part(part))).parts.remove(0).content
}

/// Every member name outside of the objects that the protocol leaves open.
fn members(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (name, value) in object {
                found.push(name.clone());
                if !["metadata", "data", "params", "header"].contains(&name.as_str()) {
                    members(value, found);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| members(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// proves: FMT-001, FMT-006, STR-031
#[test]
fn emitted_names_are_camel_case_without_kind_or_final() {
    let mut found = Vec::new();
    for state in TaskState::ALL {
        members(&value(V1.encode_task(&task(state))), &mut found);
        let update = StreamEvent::StatusUpdate(status_update(state));
        members(&value(V1.encode_event(&update, true)), &mut found);
    }
    let update = StreamEvent::ArtifactUpdate(artifact_update());
    members(&value(V1.encode_event(&update, true)), &mut found);
    for name in found {
        assert!(!name.contains('_') && name != "kind" && name != "final", "{name}");
    }
}

// proves: FMT-002, FMT-003
#[test]
fn states_and_roles_have_their_proto_names() {
    for state in TaskState::ALL {
        let shown = value(V1.encode_task(&task(state)));
        let name = shown["status"]["state"].as_str().unwrap();
        assert!(name.starts_with("TASK_STATE_"), "{name}");
        assert_eq!(TaskState::from_name(name), Some(state));
        assert_eq!(shown["history"][0]["role"], "ROLE_USER");
        assert_eq!(shown["status"]["message"]["role"], "ROLE_AGENT");
    }
}

// proves: FMT-004, FMT-005, FMT-023
#[test]
fn moments_are_written_in_utc_with_milliseconds_whatever_was_read() {
    for given in ["2025-04-02T18:59:25.331+02:00", "2025-04-02T16:59:25.331844"] {
        let status = format!(r#"{{"id":"t","status":{{"timestamp":"{given}"}}}}"#);
        for dialect in Dialect::ALL {
            let task = dialect.decode_task(status.as_bytes()).unwrap();
            let shown = value(dialect.encode_task(&task));
            assert_eq!(shown["status"]["timestamp"], "2025-04-02T16:59:25.331Z");
        }
    }
}

// proves: FMT-007, FMT-012
#[test]
fn a_part_holds_exactly_one_content() {
    for part in ["{}", r#"{"text":"a","url":"b"}"#, r#"{"raw":"","data":1}"#, r#"{"kind":"text"}"#]
    {
        let error = refuse(V1, Operation::SendMessage, &with_part(part));
        assert_eq!(error.kind.codes().json_rpc, -32602, "{part}");
        assert_eq!(fields(&error), ["message.parts[0]"], "{part}");
    }
}

#[test]
fn who_writes_as_0_3_does_is_told_so() {
    let old = r#"{"message":{"kind":"message","messageId":"m","role":"user",
        "parts":[{"kind":"text","text":"x"}]}}"#;
    let error = refuse(V1, Operation::SendMessage, old);
    assert!(error.detail.unwrap().metadata["hint"].contains("0.3"));
    let plain = refuse(V1, Operation::SendMessage, r#"{"message":{"role":"ROLE_USER"}}"#);
    assert!(!plain.detail.unwrap().metadata.contains_key("hint"));
}

// proves: FMT-008
#[test]
fn bytes_are_read_in_either_alphabet_and_written_in_one() {
    for given in ["-_8A", "+/8A", "+/8"] {
        let Content::Raw(bytes) = content(&format!(r#"{{"raw":"{given}"}}"#)) else { panic!() };
        assert_eq!(bytes[..2], [0xfb, 0xff]);
    }
    let task = Task {
        history: Some(vec![
            Message { parts: vec![Part::new(Content::Raw(vec![0xfb, 0xff]))], ..message() }.into(),
        ]),
        ..task(TaskState::Working)
    };
    assert_eq!(value(V1.encode_task(&task))["history"][0]["parts"][0]["raw"], "+/8=");
    let error = refuse(V1, Operation::SendMessage, &with_part(r#"{"raw":"not base64!"}"#));
    assert_eq!(error.kind.codes().json_rpc, -32602);
}

// proves: FMT-009
#[test]
fn data_is_any_json() {
    for json in [r#"{"a":[1]}"#, "[1,2]", "0.1", "123456789012345678", "\"x\"", "true", "null"] {
        assert_eq!(content(&format!(r#"{{"data":{json}}}"#)), Content::Data(value(json).into()));
        let part = Part::new(Content::Data(value(json).into()));
        let reply = SendResult::Message(Message { parts: vec![part], ..message() });
        for dialect in Dialect::ALL {
            let back = dialect.decode_send_result(&dialect.encode_send_result(&reply)).unwrap();
            let back = reply_of(back);
            assert_eq!(back.parts[0].content, Content::Data(value(json).into()), "{dialect:?}");
        }
    }
}

// proves: FMT-010
#[test]
fn unknown_members_are_ignored_at_every_level() {
    let request = r#"{"x":1,"message":{"x":1,"messageId":"m","role":"ROLE_USER",
        "parts":[{"x":[{}],"text":"hi"}]},"configuration":{"x":null},"tenant":"acme"}"#;
    assert_eq!(decode(V1, Operation::SendMessage, request).tenant().unwrap().as_str(), "acme");
    let task = r#"{"x":1,"id":"t","contextId":"c","status":{"x":1,"state":"TASK_STATE_WORKING"}}"#;
    V1.decode_task(task.as_bytes()).unwrap();
    V1.decode_event(format!(r#"{{"task":{task},"x":{{}}}}"#).as_bytes()).unwrap();
    V1.decode_send_result(format!(r#"{{"x":0,"task":{task}}}"#).as_bytes()).unwrap();
}

// proves: FMT-011
#[test]
fn required_members_are_written_even_when_they_are_empty() {
    let shown = value(V1.encode_task(&Task::default()));
    let expected = r#"{"id":"","contextId":"","status":{"state":"TASK_STATE_UNSPECIFIED"}}"#;
    assert_eq!(shown, value(expected));
    let reply = SendResult::Message(Message::default());
    let shown = value(V1.encode_send_result(&reply));
    let expected = r#"{"message":{"messageId":"","role":"ROLE_UNSPECIFIED","parts":[]}}"#;
    assert_eq!(shown, value(expected));
}

// proves: FMT-012, FMT-013, ERR-064, RPC-008
#[test]
fn what_is_required_is_named_when_it_is_missing() {
    let check = |operation, params: &str, expected: &[&str]| {
        let error = refuse(V1, operation, params);
        assert_eq!(error.kind.codes().json_rpc, -32602, "{params}");
        assert_eq!(fields(&error), expected, "{params}");
    };
    let send = Operation::SendMessage;
    check(send, "{}", &["message"]);
    check(send, r#"{"message":null}"#, &["message"]);
    let text = refuse(V1, send, "{}").message;
    assert_eq!(text, "message: is required");
    let only_a_part = r#"{"message":{"parts":[{"text":"a"}]}}"#;
    check(send, only_a_part, &["message.messageId", "message.role"]);
    let no_id = r#"{"message":{"role":"ROLE_USER","parts":[{"text":"a"}]}}"#;
    check(send, no_id, &["message.messageId"]);
    let no_role = r#"{"message":{"messageId":"m","parts":[{"text":"a"}]}}"#;
    check(send, no_role, &["message.role"]);
    for parts in ["", r#","parts":[]"#, r#","parts":null"#] {
        let params = format!(r#"{{"message":{{"messageId":"m","role":"ROLE_AGENT"{parts}}}}}"#);
        check(send, &params, &["message.parts"]);
    }
    check(Operation::GetTask, "{}", &["id"]);
    check(Operation::CancelTask, "{}", &["id"]);
    check(Operation::SubscribeToTask, r#"{"id":""}"#, &["id"]);
    let create = Operation::CreateTaskPushNotificationConfig;
    check(create, r#"{"url":"https://x"}"#, &["taskId"]);
    check(create, r#"{"taskId":"t"}"#, &["url"]);
    check(Operation::GetTaskPushNotificationConfig, "{}", &["taskId", "id"]);
    check(Operation::DeleteTaskPushNotificationConfig, r#"{"taskId":"t"}"#, &["id"]);
    check(Operation::ListTaskPushNotificationConfigs, "{}", &["taskId"]);
}

// proves: RPC-008
#[test]
fn parameters_of_another_type_are_refused_in_every_dialect() {
    for dialect in Dialect::ALL {
        for &operation in Operation::ALL {
            for params in ["[]", r#"["t"]"#, "\"x\"", "1", "true"] {
                let error = refuse(dialect, operation, params);
                assert_eq!(error.kind.codes().json_rpc, -32602, "{operation:?} {params}");
            }
        }
        let error = refuse(dialect, Operation::GetTask, r#"{"id":7}"#);
        assert_eq!(fields(&error), ["id"]);
        let error = refuse(dialect, Operation::GetTask, r#"{"id":"t","historyLength":"many"}"#);
        assert_eq!(fields(&error), ["historyLength"]);
    }
}

// proves: FMT-014
#[test]
fn what_is_unset_is_absent_and_never_empty() {
    for dialect in Dialect::ALL {
        let reply = SendResult::Message(Message::agent("m", "hi"));
        let text = String::from_utf8(dialect.encode_send_result(&reply)).unwrap();
        assert!(!text.contains("\"\"") && !text.contains("null"), "{text}");
        assert!(!text.contains("taskId") && !text.contains("contextId"), "{text}");
    }
}

// proves: FMT-015
#[test]
fn snake_case_and_enum_numbers_are_read() {
    let params = r#"{"message":{"message_id":"m","context_id":"c","role":1,
        "parts":[{"text":"a","media_type":"text/plain"}],"reference_task_ids":["r"]},
        "configuration":{"history_length":3,"return_immediately":true,
        "task_push_notification_config":{"url":"https://x","task_id":"t"}}}"#;
    let message = message_of(decode(V1, Operation::SendMessage, params));
    assert_eq!(message.role, Role::User);
    assert_eq!(message.context_id.unwrap().as_str(), "c");
    assert_eq!(message.reference_task_ids.len(), 1);
    let list = decode(V1, Operation::ListTasks, r#"{"status":3,"page_size":7}"#);
    let Request::ListTasks(list) = list else { panic!() };
    assert_eq!((list.status, list.page_size), (TaskState::Completed, Some(7)));
}

// proves: FMT-015
#[test]
fn an_optional_name_that_is_empty_is_not_there() {
    for (context, task) in [("contextId", "taskId"), ("context_id", "task_id")] {
        let params = format!(
            r#"{{"message":{{"messageId":"m","role":1,"{context}":"","{task}":"","parts":[{{"text":"a"}}]}}}}"#
        );
        let message = message_of(decode(V1, Operation::SendMessage, &params));
        assert_eq!((message.context_id, message.task_id), (None, None));
        let list = decode(V1, Operation::ListTasks, &format!(r#"{{"{context}":""}}"#));
        assert!(matches!(list, Request::ListTasks(list) if list.context_id.is_none()));
    }
    let hook = r#"{"id":"","taskId":"t","url":"https://a.example"}"#;
    let hook = decode(V1, Operation::CreateTaskPushNotificationConfig, hook);
    assert!(
        matches!(hook, Request::CreateTaskPushNotificationConfig(hook) if hook.id.is_none()),
        "the server chooses one"
    );
    let nameless = with_part(r#"{"text":"a"}"#).replace(r#""messageId":"m""#, r#""messageId":"""#);
    assert_eq!(fields(&refuse(V1, Operation::SendMessage, &nameless)), ["message.messageId"]);
}

// proves: RPC-011
#[test]
fn the_eleven_methods_of_1_0_are_those_of_grpc() {
    let names = [
        "SendMessage",
        "SendStreamingMessage",
        "GetTask",
        "ListTasks",
        "CancelTask",
        "SubscribeToTask",
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
        "GetExtendedAgentCard",
    ];
    assert_eq!(Operation::ALL.len(), names.len());
    for name in names {
        let (dialect, operation) =
            resolve(EntryPoint::Main, name, Some("1.0"), MissingVersion::Strict).unwrap();
        assert_eq!((dialect, operation.name()), (V1, name));
        assert_eq!(V1.method(operation), Some(name));
    }
}

// proves: RPC-014, SEND-001
#[test]
fn an_answer_to_a_send_is_a_task_or_a_message_and_never_both() {
    let task = value(V1.encode_send_result(&SendResult::Task(task(TaskState::Working))));
    assert_eq!(task.as_object().unwrap().keys().collect::<Vec<_>>(), ["task"]);
    let reply = value(V1.encode_send_result(&SendResult::Message(message())));
    assert_eq!(reply.as_object().unwrap().keys().collect::<Vec<_>>(), ["message"]);
    for both in [r#"{"task":{},"message":{}}"#, "{}", r#"{"kind":"task","id":"t"}"#] {
        let error = V1.decode_send_result(both.as_bytes()).unwrap_err();
        assert_eq!(error.kind.codes().json_rpc, -32006, "{both}");
    }
}

// proves: RPC-017
#[test]
fn the_extended_card_needs_no_parameters() {
    for dialect in Dialect::ALL {
        let request = dialect.decode(Operation::GetExtendedAgentCard, None).unwrap();
        assert_eq!(request, Request::GetExtendedAgentCard(GetExtendedAgentCard::default()));
    }
    assert!(V1.decode(Operation::GetTask, None).is_err());
}

// part of: GET-003, GET-004, GET-005, GET-006, GET-007
#[test]
fn a_limit_keeps_the_most_recent_messages_in_their_order() {
    let history: Vec<_> = (0..5).map(|n| Message::agent(format!("m{n}"), "x").into()).collect();
    let ids = |limit| {
        let mut task = Task { history: Some(history.clone()), ..Task::default() };
        task.limit_history(limit);
        let kept = task.history?;
        Some(kept.iter().map(|message| message.message_id.to_string()).collect::<Vec<_>>())
    };
    assert_eq!(ids(Some(2)).unwrap(), ["m3", "m4"]);
    assert_eq!(ids(Some(9)).unwrap().len(), 5);
    assert_eq!(ids(None).unwrap().len(), 5);
    assert_eq!(ids(Some(0)), None);
    let mut task = Task { history: Some(history.clone()), ..Task::default() };
    task.limit_history(Some(0));
    assert!(value(V1.encode_task(&task)).get("history").is_none());
}

// part of: GET-010, LIST-015
// proves: GET-008
#[test]
fn a_negative_limit_is_refused_wherever_one_may_stand() {
    for dialect in Dialect::ALL {
        let get = refuse(dialect, Operation::GetTask, r#"{"id":"t","historyLength":-1}"#);
        assert_eq!(fields(&get), ["historyLength"]);
        let send = r#"{"message":{"messageId":"m","role":1,"parts":[{"text":"a"}]},
            "configuration":{"historyLength":-1}}"#;
        let send = refuse(dialect, Operation::SendMessage, send);
        assert_eq!(fields(&send), ["configuration.historyLength"]);
    }
    let list = refuse(V1, Operation::ListTasks, r#"{"historyLength":-1}"#);
    assert_eq!(fields(&list), ["historyLength"]);
}

// part of: LIST-008, LIST-010
#[test]
fn page_sizes_are_1_to_100_and_states_are_known_ones() {
    for size in [1, 100] {
        decode(V1, Operation::ListTasks, &format!(r#"{{"pageSize":{size}}}"#));
    }
    for size in [0, 101, -1] {
        let error = refuse(V1, Operation::ListTasks, &format!(r#"{{"pageSize":{size}}}"#));
        assert_eq!(fields(&error), ["pageSize"]);
    }
    let error = refuse(V1, Operation::ListTasks, r#"{"status":"TASK_STATE_RUNNING"}"#);
    assert_eq!(fields(&error), ["status"]);
    decode(V1, Operation::ListTasks, r#"{"status":"TASK_STATE_UNSPECIFIED"}"#);
}

// part of: TEN-004, TEN-005
#[test]
fn the_tenant_is_any_text_in_any_request() {
    for tenant in ["acme", "a/b", "äöü 中", "v1"] {
        for &operation in Operation::ALL {
            let params = format!(
                r#"{{"tenant":"{tenant}","id":"t","taskId":"t","url":"https://x",
                "message":{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"a"}}]}}}}"#
            );
            let request = decode(V1, operation, &params);
            assert_eq!(request.tenant().unwrap().as_str(), tenant, "{operation:?}");
        }
    }
}

#[test]
fn a_status_without_a_message_has_no_member_for_it() {
    let status = TaskStatus { message: None, ..Task::default().status };
    let task = Task { status, ..Task::default() };
    assert!(value(V1.encode_task(&task))["status"].get("message").is_none());
}
