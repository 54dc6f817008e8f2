//! A2A 0.3 in both shapes, and the spellings of those who were there before.

use herald_protocol::{
    Content, Dialect, Error, ErrorKind, Message, MissingVersion, Operation, Request, Role,
    SendResult, StreamEvent, Task, TaskState,
    dialect::{EntryPoint, resolve},
    push::PushConfigPage,
    request::{ListPushConfigs, PushConfigRef},
};

use crate::support::{
    artifact_update, decode, fields, message, message_of, push_config, refuse, reply_of, send_of,
    status_update, task, value,
};

const LEGACY: [Dialect; 2] = [Dialect::V03, Dialect::V03Rest];

fn with_part(part: &str) -> String {
    format!(r#"{{"message":{{"kind":"message","messageId":"m","role":"user","parts":[{part}]}}}}"#)
}

#[track_caller]
fn part(dialect: Dialect, part: &str) -> herald_protocol::Part {
    message_of(decode(dialect, Operation::SendMessage, &with_part(part))).parts.remove(0)
}

// part of: EQV-004
// proves: RPC-012
#[test]
fn the_ten_methods_of_0_3_and_an_old_alias() {
    let names = [
        ("message/send", Operation::SendMessage),
        ("message/stream", Operation::SendStreamingMessage),
        ("tasks/get", Operation::GetTask),
        ("tasks/cancel", Operation::CancelTask),
        ("tasks/resubscribe", Operation::SubscribeToTask),
        ("tasks/pushNotificationConfig/set", Operation::CreateTaskPushNotificationConfig),
        ("tasks/pushNotificationConfig/get", Operation::GetTaskPushNotificationConfig),
        ("tasks/pushNotificationConfig/list", Operation::ListTaskPushNotificationConfigs),
        ("tasks/pushNotificationConfig/delete", Operation::DeleteTaskPushNotificationConfig),
        ("agent/getAuthenticatedExtendedCard", Operation::GetExtendedAgentCard),
    ];
    for (name, operation) in names {
        for version in [None, Some(""), Some("0.3"), Some("0.3.0"), Some("0.2.6")] {
            let found = resolve(EntryPoint::Main, name, version, MissingVersion::Strict);
            assert_eq!(found, Ok((Dialect::V03, operation)), "{name} {version:?}");
        }
        assert_eq!(Dialect::V03.method(operation), Some(name));
    }
    assert_eq!(Dialect::V03.method(Operation::ListTasks), None);
    let alias =
        resolve(EntryPoint::Main, "message/sendStream", None, MissingVersion::Strict).unwrap();
    assert_eq!(alias, (Dialect::V03, Operation::SendStreamingMessage));
}

// part of: STR-011
// proves: FMT-016, FMT-017, RPC-015
#[test]
fn on_json_rpc_every_object_says_its_kind_and_names_are_lower_case() {
    for state in TaskState::ALL {
        let shown = value(Dialect::V03.encode_task(&task(state)));
        assert_eq!(shown["kind"], "task");
        assert_eq!(shown["status"]["state"], state.kebab_name());
        assert_eq!(shown["history"][0]["kind"], "message");
        assert_eq!(shown["history"][0]["role"], "user");
        assert_eq!(shown["status"]["message"]["role"], "agent");
        let parts = shown["history"][0]["parts"].as_array().unwrap();
        let kinds: Vec<_> = parts.iter().map(|part| part["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["text", "text", "file", "file", "data", "data"]);
    }
    let reply = value(Dialect::V03.encode_send_result(&SendResult::Message(message())));
    assert_eq!(reply["kind"], "message");
    let event = StreamEvent::ArtifactUpdate(artifact_update());
    assert_eq!(value(Dialect::V03.encode_event(&event, false))["kind"], "artifact-update");
}

// part of: STR-013
// proves: FMT-018, FMT-019
#[test]
fn on_rest_documents_are_those_of_the_protobuf() {
    let canceled = value(Dialect::V03Rest.encode_task(&task(TaskState::Canceled)));
    assert_eq!(canceled["status"]["state"], "TASK_STATE_CANCELLED");
    assert_eq!(canceled["history"][0]["role"], "ROLE_USER");
    assert!(canceled["history"][0]["content"].is_array());
    assert!(canceled["history"][0].get("parts").is_none());
    assert!(canceled["artifacts"][0]["parts"].is_array());
    assert!(!canceled.to_string().contains("\"kind\""));
    let event = StreamEvent::Task(task(TaskState::Working));
    let event = value(Dialect::V03Rest.encode_event(&event, false));
    assert_eq!(event.as_object().unwrap().keys().collect::<Vec<_>>(), ["task"]);
}

// part of: STR-012
#[test]
fn final_says_that_the_stream_ends_here() {
    for closing in [true, false] {
        let event = StreamEvent::StatusUpdate(status_update(TaskState::InputRequired));
        let rpc = value(Dialect::V03.encode_event(&event, closing));
        assert_eq!(rpc["final"], closing);
        let rest = value(Dialect::V03Rest.encode_event(&event, closing));
        assert_eq!(rest["statusUpdate"]["final"], closing);
    }
}

// proves: FMT-020
#[test]
fn both_shapes_are_read_on_rest() {
    let rpc = r#"{"message":{"kind":"message","messageId":"m","role":"user","contextId":"c",
        "parts":[{"kind":"text","text":"a"},{"kind":"file","file":{"bytes":"AAA=","name":"n"}},
        {"kind":"data","data":{"data":{"x":1}}}]},
        "configuration":{"blocking":true,"historyLength":2,
        "pushNotificationConfig":{"url":"https://x","authentication":{"schemes":["Bearer"]}}}}"#;
    let proto = r#"{"request":{"message_id":"m","role":"ROLE_USER","context_id":"c",
        "content":[{"text":"a"},{"file":{"file_with_bytes":"AAA=","name":"n"}},
        {"data":{"data":{"data":{"x":1}}}}]},
        "configuration":{"blocking":true,"history_length":2,
        "push_notification":{"url":"https://x","authentication":{"schemes":["Bearer"]}}}}"#;
    let rpc = decode(Dialect::V03Rest, Operation::SendMessage, rpc);
    let proto = decode(Dialect::V03Rest, Operation::SendMessage, proto);
    assert_eq!(rpc, proto);
    let send = send_of(rpc);
    assert_eq!(send.message.parts[2].content, Content::Data(value(r#"{"data":{"x":1}}"#).into()));
    assert!(!send.configuration.return_immediately);
}

#[test]
fn parts_are_read_in_every_spelling() {
    let cases = [
        (r#"{"kind":"text","text":"a"}"#, Content::Text("a".into())),
        (r#"{"type":"text","text":"a"}"#, Content::Text("a".into())),
        (r#"{"type":"text","content":"a"}"#, Content::Text("a".into())),
        (r#"{"text":"a"}"#, Content::Text("a".into())),
        (r#"{"kind":"file","file":{"bytes":"AQ=="}}"#, Content::Raw(vec![1])),
        (r#"{"kind":"file","file":{"fileWithBytes":"AQ"}}"#, Content::Raw(vec![1])),
        (r#"{"kind":"file","file":{"uri":"u"}}"#, Content::Url("u".into())),
        (r#"{"file":{"fileWithUri":"u","bytes":null}}"#, Content::Url("u".into())),
        (r#"{"file":{"uri":"u","bytes":""}}"#, Content::Url("u".into())),
        (r#"{"raw":"AQ=="}"#, Content::Raw(vec![1])),
        (r#"{"url":"u"}"#, Content::Url("u".into())),
        (r#"{"kind":"data","data":{"a":1}}"#, Content::Data(value(r#"{"a":1}"#).into())),
        (r#"{"type":"data","content":{"a":1}}"#, Content::Data(value(r#"{"a":1}"#).into())),
        (r#"{"kind":"data","data":[1]}"#, Content::Data(value("[1]").into())),
        (r#"{"text":"a","data":null,"file":null}"#, Content::Text("a".into())),
    ];
    for dialect in LEGACY {
        for (given, expected) in &cases {
            assert_eq!(part(dialect, given).content, *expected, "{given}");
        }
    }
    let file =
        part(Dialect::V03, r#"{"kind":"file","file":{"uri":"u","name":"n","mimeType":"m/t"}}"#);
    assert_eq!((file.filename.as_deref(), file.media_type.as_deref()), (Some("n"), Some("m/t")));
}

// proves: FMT-019
#[test]
fn files_on_rest_are_base64_text_inside_a_field_for_bytes() {
    let raw = |given: &str| part(Dialect::V03Rest, given).content;
    // "AP+A" is the base64 text of three bytes, "QVArQQ==" that of the text itself.
    let bytes = Content::Raw(vec![0, 0xff, 0x80]);
    assert_eq!(raw(r#"{"file":{"fileWithBytes":"QVArQQ=="}}"#), bytes, "as Python writes it");
    assert_eq!(raw(r#"{"file":{"fileWithBytes":"AP+A"}}"#), bytes, "as JavaScript writes it");
    assert_eq!(raw(r#"{"kind":"file","file":{"bytes":"AP+A"}}"#), bytes, "in the other shape");
    assert_eq!(raw(r#"{"file":{"fileWithBytes":""}}"#), Content::Raw(vec![]));
    let text = r#"{"kind":"file","file":{"bytes":"QVArQQ=="}}"#;
    assert_eq!(raw(text), Content::Raw(b"AP+A".to_vec()), "the other shape is encoded once");
    let on_rpc = part(Dialect::V03, r#"{"kind":"file","file":{"fileWithBytes":"QVArQQ=="}}"#);
    assert_eq!(on_rpc.content, Content::Raw(b"AP+A".to_vec()));
    let reply = Message { parts: vec![herald_protocol::Part::new(bytes)], ..message() };
    let shown = value(Dialect::V03Rest.encode_send_result(&SendResult::Message(reply)));
    assert_eq!(shown["message"]["content"][0]["file"]["fileWithBytes"], "QVArQQ==");
}

#[test]
fn parts_at_fault_are_named() {
    let cases = [
        (r#"{"kind":"file","file":{"bytes":"AQ==","uri":"u"}}"#, ".file"),
        (r#"{"kind":"file","file":{}}"#, ".file"),
        (r#"{"kind":"file","file":{"bytes":"***"}}"#, ".file.bytes"),
        (r#"{"kind":"file"}"#, ".file"),
        (r#"{"kind":"text"}"#, ".text"),
        (r#"{"kind":"video","text":"a"}"#, ".kind"),
        (r#"{"type":"video"}"#, ".type"),
        ("{}", ""),
        (r#"{"text":"a","url":"u"}"#, ""),
    ];
    for dialect in LEGACY {
        for (given, path) in cases {
            let error = refuse(dialect, Operation::SendMessage, &with_part(given));
            assert_eq!(error.kind.codes().json_rpc, -32602, "{given}");
            assert_eq!(fields(&error), [format!("message.parts[0]{path}")], "{given}");
        }
    }
    let all = r#"{"message":{"parts":[{},{"kind":"file"}]},"configuration":{"historyLength":-1}}"#;
    let error = refuse(Dialect::V03, Operation::SendMessage, all);
    let expected = ["message.parts[0]", "message.parts[1].file", "configuration.historyLength"];
    assert_eq!(fields(&error), expected, "one answer names every fault");
}

// proves: FMT-013
#[test]
fn a_message_without_parts_is_refused_in_the_words_of_its_dialect() {
    let cases = [
        (Dialect::V1, "message.parts"),
        (Dialect::V03, "message.parts"),
        (Dialect::V03Rest, "message.content"),
    ];
    for (dialect, field) in cases {
        for parts in ["", r#","parts":[]"#, r#","parts":null"#] {
            let params = format!(r#"{{"message":{{"messageId":"m","role":1{parts}}}}}"#);
            let error = refuse(dialect, Operation::SendMessage, &params);
            assert_eq!(fields(&error), [field]);
        }
    }
    for dialect in LEGACY {
        assert_eq!(fields(&refuse(dialect, Operation::SendMessage, "{}")), ["message"]);
    }
}

#[test]
fn open_data_is_taken_only_as_deep_as_every_generation_can_carry_it() {
    let message = |depth: usize| {
        let data = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        format!(
            r#"{{"message":{{"messageId":"m","role":"user","kind":"message",
            "parts":[{{"kind":"data","data":{{"x":{data}}}}}]}}}}"#
        )
    };
    let decode =
        |depth| Dialect::V03.decode(Operation::SendMessage, Some(message(depth).as_bytes()));
    let Ok(Request::SendMessage(deep)) = decode(90) else { panic!("ninety levels are taken") };
    for dialect in Dialect::ALL {
        let sent = SendResult::Message(deep.message.clone());
        let read = dialect.decode_send_result(&dialect.encode_send_result(&sent)).unwrap();
        assert_eq!(reply_of(read).parts, deep.message.parts, "{dialect:?}");
    }
    assert_eq!(decode(110).unwrap_err().kind, ErrorKind::InvalidParams);
}

#[test]
fn a_message_that_says_it_is_one_of_0_3_has_an_id_and_a_role() {
    let bodies = [
        (Dialect::V03, r#"{"message":{"kind":"message","parts":[{"kind":"text","text":"x"}]}}"#),
        (Dialect::V03Rest, r#"{"message":{"content":[{"text":"x"}]}}"#),
    ];
    for (dialect, body) in bodies {
        let error = dialect.decode(Operation::SendMessage, Some(body.as_bytes())).unwrap_err();
        let violations = error.detail.unwrap().violations;
        let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, ["message.messageId", "message.role"]);
    }
}

#[test]
fn a_message_may_be_as_short_as_the_first_clients_made_it() {
    let params = r#"{"message":{"parts":[{"type":"text","content":"Count the apples"}]}}"#;
    for dialect in LEGACY {
        let message = message_of(decode(dialect, Operation::SendStreamingMessage, params));
        assert_eq!(message.role, Role::User);
        assert!(message.message_id.is_empty() && dialect.mints_message_id());
        assert_eq!(message.text(), "Count the apples");
        let empty =
            r#"{"message":{"role":null,"contextId":"","taskId":"","parts":[{"text":"a"}]}}"#;
        let message = message_of(decode(dialect, Operation::SendMessage, empty));
        assert_eq!((message.context_id, message.task_id), (None, None));
    }
    assert!(!Dialect::V1.mints_message_id());
    let role = r#"{"message":{"role":"system","parts":[{"text":"a"}]}}"#;
    let error = refuse(Dialect::V03, Operation::SendMessage, role);
    assert_eq!(fields(&error), ["message.role"]);
}

// part of: SEND-021, SEND-022
#[test]
fn blocking_has_its_own_default_on_each_binding() {
    let returns = |dialect, configuration: &str| {
        let params = format!(
            r#"{{"message":{{"parts":[{{"text":"a"}}]}},"configuration":{configuration}}}"#
        );
        send_of(decode(dialect, Operation::SendMessage, &params)).configuration.return_immediately
    };
    for dialect in LEGACY {
        assert!(!returns(dialect, r#"{"blocking":true}"#));
        assert!(returns(dialect, r#"{"blocking":false}"#));
    }
    for dialect in [Dialect::V03, Dialect::V03Rest] {
        assert!(!returns(dialect, "null"), "without a configuration every send waits");
    }
    for unset in ["{}", r#"{"blocking":null}"#] {
        assert!(!returns(Dialect::V03, unset), "on JSON-RPC the SDKs wait");
        assert!(returns(Dialect::V03Rest, unset), "the SDKs leave out a false");
    }
}

// part of: GET-009
#[test]
fn a_history_of_zero_is_none_on_json_rpc_and_all_in_the_protobuf() {
    let length = |dialect, params: &str| match decode(dialect, Operation::GetTask, params) {
        Request::GetTask(get) => get.history_length,
        other => panic!("{other:?}"),
    };
    assert_eq!(length(Dialect::V03, r#"{"id":"t","historyLength":0}"#), Some(0));
    assert_eq!(length(Dialect::V03Rest, r#"{"id":"t","historyLength":0}"#), None);
    for dialect in LEGACY {
        assert_eq!(length(dialect, r#"{"id":"t","history_length":4}"#), Some(4));
        assert_eq!(length(dialect, r#"{"id":"t"}"#), None);
    }
}

#[test]
fn a_task_is_named_by_any_of_three_spellings_that_agree() {
    let id = |request: Request| match request {
        Request::GetTask(params) => params.id,
        Request::CancelTask(params) => params.id,
        Request::SubscribeToTask(params) => {
            assert!(params.replay_finished, "a finished task is replayed before 1.0");
            params.id
        }
        other => panic!("{other:?}"),
    };
    let operations = [Operation::GetTask, Operation::CancelTask, Operation::SubscribeToTask];
    for (dialect, operation) in LEGACY.iter().flat_map(|&one| operations.map(|two| (one, two))) {
        for params in [
            r#"{"id":"t"}"#,
            r#"{"taskId":"t"}"#,
            r#"{"task_id":"t"}"#,
            r#"{"name":"tasks/t"}"#,
            r#"{"id":"t","taskId":"t","task_id":null}"#,
        ] {
            assert_eq!(id(decode(dialect, operation, params)).as_str(), "t", "{params}");
        }
        for (params, field) in [
            (r#"{"id":"t","taskId":"u"}"#, "taskId"),
            (r#"{"task_id":"t","taskId":"u"}"#, "task_id"),
            (r#"{"id":"t","name":"tasks/u"}"#, "name"),
            (r#"{"id":"t","name":"t"}"#, "name"),
            (r#"{"id":""}"#, "id"),
            ("{}", "id"),
        ] {
            let error = refuse(dialect, operation, params);
            assert_eq!(error.kind.codes().json_rpc, -32602, "{params}");
            assert_eq!(fields(&error), [field], "{params}");
        }
    }
    assert!(matches!(
        decode(Dialect::V1, Operation::SubscribeToTask, r#"{"id":"t"}"#),
        Request::SubscribeToTask(params) if !params.replay_finished
    ));
}

#[test]
fn what_0_3_has_no_place_for_travels_in_the_metadata() {
    for dialect in LEGACY {
        let reply = SendResult::Message(message());
        let back = dialect.decode_send_result(&dialect.encode_send_result(&reply)).unwrap();
        let SendResult::Message(back) = back else { panic!() };
        assert_eq!(back.parts, message().parts, "{dialect:?}");
    }
    let shown = value(Dialect::V03.encode_send_result(&SendResult::Message(message())));
    let list = &shown["parts"][5];
    let expected =
        r#"{"kind":"data","data":{"value":[1,true,null]},"metadata":{"data_part_compat":true}}"#;
    assert_eq!(*list, value(expected));
    // The mark means nothing on an object without a value, and nobody's data is thrown away.
    let odd = part(
        Dialect::V03,
        r#"{"kind":"data","data":{"a":1},"metadata":{"data_part_compat":true}}"#,
    );
    assert_eq!(odd.content, Content::Data(value(r#"{"a":1}"#).into()));
    assert!(odd.metadata.is_some());
}

#[test]
fn references_extensions_and_metadata_are_kept() {
    let params = r#"{"message":{"parts":[{"text":"a"}],"referenceTaskIds":["r"],
        "extensions":["e"],"metadata":{"k":1}},"metadata":{"q":2}}"#;
    for dialect in LEGACY {
        let send = send_of(decode(dialect, Operation::SendMessage, params));
        assert_eq!(send.message.reference_task_ids.len(), 1);
        assert_eq!(send.message.extensions, ["e"]);
        assert_eq!(send.message.metadata.unwrap().as_str(), r#"{"k":1}"#);
        assert_eq!(send.metadata.unwrap().as_str(), r#"{"q":2}"#);
    }
    let shown = value(Dialect::V03.encode_send_result(&SendResult::Message(message())));
    assert_eq!(shown["referenceTaskIds"], value(r#"["t-0"]"#));
    let shown = value(Dialect::V03Rest.encode_send_result(&SendResult::Message(message())));
    assert!(shown["message"].get("referenceTaskIds").is_none(), "the protobuf has no such field");
}

// part of: PUSH-026, PUSH-027
#[test]
fn webhooks_are_read_in_every_shape() {
    let create = Operation::CreateTaskPushNotificationConfig;
    let inner = r#"{"id":"p-1","url":"https://example.com/hook","token":"secret",
        "authentication":{"schemes":["Bearer","Basic"],"credentials":"abc"}}"#;
    let single = inner.replace(r#""schemes":["Bearer","Basic"]"#, r#""scheme":"Bearer""#);
    let name = "tasks/t-1/pushNotificationConfigs/p-1";
    for dialect in LEGACY {
        for params in [
            format!(r#"{{"taskId":"t-1","pushNotificationConfig":{inner}}}"#),
            format!(r#"{{"id":"t-1","pushNotificationConfig":{single}}}"#),
            format!(r#"{{"name":"{name}","pushNotificationConfig":{inner}}}"#),
            format!(r#"{{"task_id":"t-1","push_notification_config":{single}}}"#),
            format!(
                r#"{{"parent":"tasks/t-1","configId":"p-1",
                "config":{{"name":"{name}","pushNotificationConfig":{inner}}}}}"#
            ),
            format!(r#"{{"parent":"tasks/t-1","config":{inner}}}"#),
        ] {
            let Request::CreateTaskPushNotificationConfig(config) =
                decode(dialect, create, &params)
            else {
                panic!()
            };
            assert_eq!(config, push_config(), "{params}");
        }
        let fault = refuse(dialect, create, r#"{"taskId":"t","pushNotificationConfig":{}}"#);
        assert_eq!(fields(&fault), ["pushNotificationConfig.url"]);
        let fault = refuse(dialect, create, r#"{"taskId":"t"}"#);
        assert_eq!(fields(&fault), ["pushNotificationConfig"]);
        assert_eq!(fields(&refuse(dialect, create, "{}")), ["pushNotificationConfig", "taskId"]);

        let get = Operation::GetTaskPushNotificationConfig;
        let expected = PushConfigRef { tenant: None, task_id: "t".into(), id: "p".into() };
        for params in [
            r#"{"id":"t","pushNotificationConfigId":"p"}"#,
            r#"{"name":"tasks/t/pushNotificationConfigs/p"}"#,
        ] {
            let request = decode(dialect, get, params);
            assert_eq!(request, Request::GetTaskPushNotificationConfig(expected.clone()));
        }
        // Without an id it asks for the only one there is; only the server knows which.
        let only = decode(dialect, get, r#"{"id":"t"}"#);
        let expected = PushConfigRef { id: "".into(), ..expected };
        assert_eq!(only, Request::GetTaskPushNotificationConfig(expected));
        let fault = refuse(dialect, Operation::DeleteTaskPushNotificationConfig, r#"{"id":"t"}"#);
        assert_eq!(fields(&fault), ["pushNotificationConfigId"]);

        let list = decode(dialect, Operation::ListTaskPushNotificationConfigs, r#"{"id":"t"}"#);
        let expected = ListPushConfigs { task_id: "t".into(), ..ListPushConfigs::default() };
        assert_eq!(list, Request::ListTaskPushNotificationConfigs(expected));
    }
}

// part of: PUSH-008
#[test]
fn a_webhook_may_ride_on_a_send() {
    for (dialect, member) in [
        (Dialect::V1, "taskPushNotificationConfig"),
        (Dialect::V03, "pushNotificationConfig"),
        (Dialect::V03Rest, "pushNotification"),
    ] {
        let params = |config: &str| {
            format!(
                r#"{{"message":{{"messageId":"m","role":1,"parts":[{{"text":"a"}}]}},
                "configuration":{{"{member}":{config}}}}}"#
            )
        };
        let config = params(r#"{"url":"https://x","token":"k"}"#);
        let send = send_of(decode(dialect, Operation::SendMessage, &config));
        let push = send.configuration.task_push_notification_config.unwrap();
        assert_eq!((push.url.as_str(), push.token.as_deref()), ("https://x", Some("k")));
        let fault = refuse(dialect, Operation::SendMessage, &params("{}"));
        assert_eq!(fields(&fault), [format!("configuration.{member}.url")]);
    }
}

// proves: RPC-019
#[test]
fn pages_of_webhooks_are_an_array_on_json_rpc_and_an_object_on_rest() {
    let page = PushConfigPage { configs: vec![push_config()], next_page_token: "n".into() };
    let rpc = Dialect::V03.encode_push_page(&page);
    assert!(value(&rpc).is_array());
    assert_eq!(Dialect::V03.decode_push_page(&rpc).unwrap().configs, page.configs);
    let rest = Dialect::V03Rest.encode_push_page(&page);
    assert_eq!(Dialect::V03Rest.decode_push_page(&rest).unwrap(), page);
    assert_eq!(value(Dialect::V03.encode_push_page(&PushConfigPage::default())), value("[]"));
}

// part of: STR-024
#[test]
fn answers_are_told_apart_without_their_kind() {
    let task = r#"{"id":"t","contextId":"c","status":{"state":"working"}}"#;
    let status = r#"{"taskId":"t","contextId":"c","status":{"state":"working"},"final":true}"#;
    let artifact = r#"{"taskId":"t","artifact":{"artifactId":"a","parts":[]}}"#;
    let message = r#"{"role":"agent","parts":[{"text":"hi"}],"messageId":"m"}"#;
    let kind = |json: &str| {
        LEGACY.map(|dialect| match dialect.decode_event(json.as_bytes()).unwrap() {
            StreamEvent::Task(_) => "task",
            StreamEvent::Message(_) => "message",
            StreamEvent::StatusUpdate(_) => "status-update",
            StreamEvent::ArtifactUpdate(_) => "artifact-update",
        })
    };
    for (json, expected, wrapper) in [
        (task, "task", "task"),
        (message, "message", "message"),
        (status, "status-update", "statusUpdate"),
        (artifact, "artifact-update", "artifactUpdate"),
    ] {
        assert_eq!(kind(json), [expected; 2]);
        assert_eq!(kind(&format!(r#"{{"{wrapper}":{json}}}"#)), [expected; 2]);
        let tagged = json.replacen('{', &format!(r#"{{"kind":"{expected}","#), 1);
        assert_eq!(kind(&tagged), [expected; 2]);
    }
    for wrong in ["{}", r#"{"kind":"surprise"}"#, "[]", "1", r#"{"task":{},"message":{}}"#] {
        for dialect in LEGACY {
            let error = dialect.decode_event(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.kind.codes().json_rpc, -32006, "{wrong}");
        }
    }
    let update = Dialect::V03.decode_send_result(status.as_bytes()).unwrap_err();
    assert_eq!(update.kind.codes().json_rpc, -32006);
}

#[test]
fn the_frames_of_the_second_seed_are_read() {
    let frame = r#"{"kind":"status-update","taskId":"t-1","contextId":"c-1","final":false,
        "status":{"state":"working","timestamp":"2026-11-16T08:05:09Z",
        "message":{"kind":"message","role":"agent","parts":[{"kind":"text","text":"x"}]}}}"#;
    let StreamEvent::StatusUpdate(update) = Dialect::V03.decode_event(frame.as_bytes()).unwrap()
    else {
        panic!()
    };
    assert_eq!(update.status.state, TaskState::Working);
    assert_eq!(update.status.message.unwrap().role, Role::Agent);
}

// proves: VER-012, RPC-007
#[test]
fn a_method_of_0_3_does_not_exist_in_1_0() {
    for &operation in Operation::ALL {
        let Some(method) = Dialect::V03.method(operation) else { continue };
        let error =
            resolve(EntryPoint::Main, method, Some("1.0"), MissingVersion::Lenient).unwrap_err();
        assert_eq!(error.kind.codes().json_rpc, -32601);
        assert!(error.message.contains(operation.name()), "{}", error.message);
        assert!(hint(&error).contains(operation.name()));
    }
}

fn hint(error: &Error) -> &str {
    &error.detail.as_ref().unwrap().metadata["hint"]
}

// proves: RPC-007
#[test]
fn an_unknown_method_is_refused_before_anything_else() {
    let cases = [
        ("Foo", "SendMessage"),
        ("tasks/foo", "message/send"),
        ("sendMessage", "SendMessage"),
        ("sendmessage", "SendMessage"),
        ("message/sned", "did you mean message/send?"),
        ("Message/Stream", "did you mean message/stream?"),
        ("GetTasks", "did you mean GetTask?"),
        ("tasks/sendsubscribe", "did you mean tasks/sendSubscribe?"),
        ("tasks/resubscribed", "did you mean tasks/resubscribe?"),
        ("tasks/list", "ListTasks"),
        ("tasks/pushNotification/list", "tasks/send"),
        ("", "SendMessage"),
    ];
    for (method, expected) in cases {
        for version in [None, Some("1.0"), Some("0.3"), Some("99.0")] {
            let error =
                resolve(EntryPoint::Main, method, version, MissingVersion::Strict).unwrap_err();
            assert_eq!(error.kind.codes().json_rpc, -32601, "{method}");
            assert!(hint(&error).contains(expected), "{}", hint(&error));
        }
    }
}

// part of: VER-002
// proves: VER-003, VER-004, VER-005
#[test]
fn the_version_must_be_the_methods_own() {
    for version in ["1.0", "1.0.0", "1.0.7", " 1.0 "] {
        let found =
            resolve(EntryPoint::Main, "GetTask", Some(version), MissingVersion::Strict).unwrap();
        assert_eq!(found, (Dialect::V1, Operation::GetTask));
    }
    for version in [None, Some(""), Some("  ")] {
        let error =
            resolve(EntryPoint::Main, "GetTask", version, MissingVersion::Strict).unwrap_err();
        assert_eq!(error.kind.codes().json_rpc, -32009);
        assert!(error.message.contains("A2A-Version: 1.0"), "{}", error.message);
        assert_eq!(error.detail.as_ref().unwrap().metadata["supportedVersions"], "1.0, 0.3");
        assert!(hint(&error).contains("A2A-Version"));
        let lenient =
            resolve(EntryPoint::Main, "GetTask", version, MissingVersion::Lenient).unwrap();
        assert_eq!(lenient, (Dialect::V1, Operation::GetTask));
    }
    for policy in [MissingVersion::Strict, MissingVersion::Lenient] {
        for version in ["0.3", "0.3.0", "0.5", "1.1", "2.0", "99.0", "garbage", "1", "1.0-rc"] {
            let error = resolve(EntryPoint::Main, "GetTask", Some(version), policy).unwrap_err();
            assert_eq!(error.kind.codes().json_rpc, -32009, "{version}");
        }
        for version in ["0.4", "99.0", "garbage"] {
            let error = resolve(EntryPoint::Main, "tasks/get", Some(version), policy).unwrap_err();
            assert_eq!(error.kind.codes().json_rpc, -32009, "{version}");
        }
    }
}

// part of: VER-002
// proves: VER-003
#[test]
fn on_rest_the_path_chooses_and_the_version_must_agree() {
    let check = |dialect: Dialect, version| {
        dialect
            .check_version(version, MissingVersion::Strict)
            .map_err(|error| error.kind.codes().http)
    };
    assert_eq!(check(Dialect::V1, Some("1.0")), Ok(()));
    assert_eq!(check(Dialect::V1, None), Err(400));
    assert_eq!(check(Dialect::V1, Some("0.3")), Err(400));
    assert_eq!(Dialect::V1.check_version(None, MissingVersion::Lenient), Ok(()));
    assert_eq!(check(Dialect::V03Rest, None), Ok(()));
    assert_eq!(check(Dialect::V03Rest, Some("0.3")), Ok(()));
    assert_eq!(check(Dialect::V03Rest, Some("1.0")), Err(400));
    assert_eq!(check(Dialect::V03Rest, Some("99.0")), Err(400));
}

// part of: FMT-025, EQV-003
#[test]
fn a_task_looks_the_same_through_every_dialect() {
    let plain = Task {
        history: Some(vec![Message { reference_task_ids: vec![], ..message() }.into()]),
        ..task(TaskState::InputRequired)
    };
    for dialect in [Dialect::V1, Dialect::V03, Dialect::V03Rest] {
        assert_eq!(dialect.decode_task(&dialect.encode_task(&plain)).unwrap(), plain);
    }
}
