//! The protobuf messages: round trips, what is refused, and errors.

use std::{sync::Arc, time::Duration};

use herald_protocol::{
    Artifact, Content, Dialect, Error, ErrorKind, Json, Message, Metadata, Operation, Part,
    Request, SendResult, StreamEvent, Task, TaskPage, TaskStatus, Violation, failure,
    grpc::{
        Service, ValueBytes,
        generated::{v1, v03},
        status::{BadRequest, ErrorInfo, RpcStatus},
    },
    push::{PushConfig, PushConfigPage},
    request::ListTasks,
};
use proptest::{collection::vec, prelude::*};
use prost::Message as _;
use prost_types::{ListValue, Struct, Value as Wire, value::Kind};
use serde_json::Value;

use crate::{
    card::full,
    roundtrip::{event, lossy, push_config, request, task},
    support::{fields, value},
};

/// Values as protobuf can tell them apart: numbers are doubles, and what is empty is absent.
mod plain {
    use super::{
        Arc, Artifact, Content, Json, Message, Metadata, Part, PushConfig, Request, StreamEvent,
        Task, TaskStatus, Value,
    };

    pub(super) fn value(value: &mut Value) {
        match value {
            Value::Number(number) => {
                let number = number.as_f64().unwrap();
                let whole = number.fract() == 0.0 && number.abs() <= 9_007_199_254_740_992.0;
                *value = if whole { Value::from(number as i64) } else { Value::from(number) };
            }
            Value::Array(items) => items.iter_mut().for_each(self::value),
            Value::Object(members) => members.values_mut().for_each(self::value),
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    fn metadata(metadata: &mut Option<Metadata>) {
        if let Some(object) = metadata {
            let mut members = object.clone().into_json().read().unwrap();
            value(&mut members);
            *object = Json::from(members).into_object().unwrap();
        }
    }

    fn text(text: &mut Option<String>) {
        text.take_if(|text| text.is_empty());
    }

    fn part(part: &mut Part) {
        text(&mut part.filename);
        text(&mut part.media_type);
        metadata(&mut part.metadata);
        if let Content::Data(data) = &mut part.content {
            let mut tree = data.read().unwrap();
            value(&mut tree);
            *data = tree.into();
        }
    }

    pub(super) fn message(message: &mut Message) {
        message.parts.iter_mut().for_each(part);
        metadata(&mut message.metadata);
    }

    fn status(status: &mut TaskStatus) {
        status.message.iter_mut().map(Arc::make_mut).for_each(message);
    }

    fn artifact(artifact: &mut Artifact) {
        text(&mut artifact.name);
        text(&mut artifact.description);
        artifact.parts.iter_mut().for_each(part);
        metadata(&mut artifact.metadata);
    }

    pub(super) fn task(task: &mut Task) {
        status(&mut task.status);
        task.artifacts.take_if(|artifacts| artifacts.is_empty());
        task.history.take_if(|history| history.is_empty());
        task.artifacts.iter_mut().flatten().map(Arc::make_mut).for_each(artifact);
        task.history.iter_mut().flatten().map(Arc::make_mut).for_each(message);
        metadata(&mut task.metadata);
    }

    pub(super) fn event(event: &mut StreamEvent) {
        match event {
            StreamEvent::Task(one) => task(one),
            StreamEvent::Message(one) => message(one),
            StreamEvent::StatusUpdate(update) => {
                status(&mut update.status);
                metadata(&mut update.metadata);
            }
            StreamEvent::ArtifactUpdate(update) => {
                artifact(&mut update.artifact);
                metadata(&mut update.metadata);
            }
        }
    }

    pub(super) fn push_config(config: &mut PushConfig) {
        text(&mut config.token);
        if let Some(authentication) = &mut config.authentication {
            text(&mut authentication.credentials);
        }
    }

    pub(super) fn request(request: &mut Request) {
        match request {
            Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
                message(&mut send.message);
                metadata(&mut send.metadata);
                let push = &mut send.configuration.task_push_notification_config;
                push.iter_mut().for_each(push_config);
            }
            Request::CancelTask(cancel) => metadata(&mut cancel.metadata),
            Request::CreateTaskPushNotificationConfig(config) => push_config(config),
            Request::GetTask(_)
            | Request::ListTasks(_)
            | Request::SubscribeToTask(_)
            | Request::GetTaskPushNotificationConfig(_)
            | Request::ListTaskPushNotificationConfigs(_)
            | Request::DeleteTaskPushNotificationConfig(_)
            | Request::GetExtendedAgentCard(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    // part of: FMT-025, EQV-003
    #[test]
    fn tasks(mut task in task()) {
        plain::task(&mut task);
        for service in Service::ALL {
            let mut expected = task.clone();
            lossy::task(service.dialect(), &mut expected);
            let decoded = service.decode_task(&service.encode_task(task.clone()));
            prop_assert_eq!(decoded.unwrap(), expected, "{:?}", service);
        }
        let page = TaskPage { tasks: vec![task], page_size: 1, total_size: 1, ..TaskPage::default() };
        let decoded = Service::V1.decode_page(&Service::V1.encode_page(page.clone()));
        prop_assert_eq!(decoded.unwrap(), page);
    }

    // part of: FMT-025
    #[test]
    fn events_and_answers(mut event in event(), closing in any::<bool>()) {
        plain::event(&mut event);
        for service in Service::ALL {
            let mut expected = event.clone();
            lossy::event(service.dialect(), &mut expected);
            let bytes = service.encode_event(event.clone(), closing);
            prop_assert_eq!(&service.decode_event(&bytes).unwrap(), &expected, "{:?}", service);
            let (result, expected) = match (event.clone(), expected) {
                (StreamEvent::Task(task), StreamEvent::Task(expected)) => {
                    (SendResult::Task(task), SendResult::Task(expected))
                }
                (StreamEvent::Message(message), StreamEvent::Message(expected)) => {
                    (SendResult::Message(message), SendResult::Message(expected))
                }
                _ => continue,
            };
            let bytes = service.encode_send_result(result);
            prop_assert_eq!(service.decode_send_result(&bytes).unwrap(), expected);
        }
    }

    // part of: PUSH-026
    #[test]
    fn webhooks(mut configs in vec(push_config(), 0..3)) {
        configs.iter_mut().for_each(plain::push_config);
        for service in Service::ALL {
            for config in &configs {
                let bytes = service.encode_push_config(config.clone());
                prop_assert_eq!(&service.decode_push_config(&bytes).unwrap(), config);
            }
            let page = PushConfigPage { configs: configs.clone(), next_page_token: String::new() };
            let bytes = service.encode_push_page(page.clone());
            prop_assert_eq!(service.decode_push_page(&bytes).unwrap(), page);
        }
    }

    // part of: VER-002
    #[test]
    fn requests(mut request in request()) {
        plain::request(&mut request);
        for service in Service::ALL {
            let mut expected = request.clone();
            lossy::request(service.dialect(), &mut expected);
            let bytes = service.encode_request(request.clone());
            let decoded = service.decode(request.operation(), &bytes);
            prop_assert_eq!(decoded.unwrap(), expected, "{:?}", service);
        }
    }

    #[test]
    fn lists(numbers in any::<(Option<i32>, i64)>(), state in 0u64..9, size in 1..=100) {
        let list = ListTasks {
            tenant: Some("acme".into()),
            context_id: Some("c".into()),
            status: herald_protocol::TaskState::from_number(state).unwrap(),
            page_size: Some(size),
            page_token: Some("next".to_owned()),
            history_length: numbers.0.map(i32::saturating_abs),
            status_timestamp_after: Some(herald_protocol::Timestamp::from_millis(numbers.1)),
            include_artifacts: Some(true),
        };
        let bytes = Service::V1.encode_request(Request::ListTasks(list.clone()));
        let decoded = Service::V1.decode(Operation::ListTasks, &bytes);
        prop_assert_eq!(decoded, Ok(Request::ListTasks(list)));
    }
}

#[test]
fn each_service_has_its_methods() {
    for operation in Operation::ALL {
        assert_eq!(Service::V1.method(*operation), Some(operation.name()));
        for service in Service::ALL {
            let Some(method) = service.method(*operation) else {
                assert_eq!((service, *operation), (Service::V03, Operation::ListTasks));
                continue;
            };
            assert_eq!(service.operation(method), Some(*operation));
        }
    }
    assert_eq!(Service::V03.operation("TaskSubscription"), Some(Operation::SubscribeToTask));
    assert_eq!(Service::V03.operation("SubscribeToTask"), None);
    assert_eq!(Service::V1.operation("sendMessage"), None);
}

// proves: GRPC-006, GRPC-007, GRPC-008
#[test]
fn an_error_is_a_status_with_the_details_of_rest() {
    for kind in ErrorKind::ALL {
        let codes = kind.codes();
        let status = RpcStatus::from(&Error::new(*kind, "näher: 100 %\n").with("limit", 7));
        assert_eq!(status.code, codes.grpc as i32);
        assert_eq!(status.message_header(), "n%C3%A4her: 100 %25%0A");
        let info = ErrorInfo::decode(&*status.details[0].value).unwrap();
        assert_eq!((&*info.reason, &*info.domain), (codes.reason, "a2a-protocol.org"));
        assert_eq!(info.metadata["limit"], "7");
        assert_eq!(status.details.len(), 1);
        assert!(!status.details_bin().contains('='));
    }
    let status = RpcStatus::from(&Error::field("message.parts", "must hold at least one part"));
    assert_eq!(status.details[1].type_url, "type.googleapis.com/google.rpc.BadRequest");
    let bad = BadRequest::decode(&*status.details[1].value).unwrap();
    assert_eq!(bad.field_violations[0].field, "message.parts");
}

/// A message of the crate of well-known types, in the encoded form that our messages hold.
fn as_open(message: &impl prost::Message) -> ValueBytes {
    ValueBytes::decode(&*message.encode_to_vec()).unwrap()
}

/// The same value as a tree of the crate of well-known types.
fn tree(value: &Value) -> Wire {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(truth) => Kind::BoolValue(*truth),
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap()),
        Value::String(text) => Kind::StringValue(text.clone()),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.iter().map(tree).collect() })
        }
        Value::Object(members) => {
            let fields = members.iter().map(|(name, value)| (name.clone(), tree(value))).collect();
            Kind::StructValue(Struct { fields })
        }
    };
    Wire { kind: Some(kind) }
}

proptest! {
    #[test]
    fn open_values_are_the_bytes_that_other_implementations_read_and_write(
        value in crate::roundtrip::json()
    ) {
        let mut value = value;
        if let Value::Array(items) = &mut value {
            // A length of more than one byte.
            items.push(Value::from("x".repeat(200)));
        }
        plain::value(&mut value);
        let part = Part::new(Content::Data(Json::from(&value)));
        let message = Message { message_id: "m".into(), parts: vec![part], ..Message::default() };
        let bytes = Service::V1.encode_send_result(SendResult::Message(message));
        let sent = v1::SendMessageResponse::decode(&*bytes).unwrap();
        let Some(v1::send_message_response::Payload::Message(mut sent)) = sent.payload else {
            panic!("no message")
        };
        let Some(v1::part::Content::Data(data)) = sent.parts.remove(0).content else {
            panic!("no data")
        };
        prop_assert_eq!(Wire::decode(&*data.encode_to_vec()).unwrap(), tree(&value));
        let part = v1::Part {
            content: Some(v1::part::Content::Data(as_open(&tree(&value)))),
            ..v1::Part::default()
        };
        let message = v1::Message { parts: vec![part], ..v1::Message::default() };
        let payload = Some(v1::send_message_response::Payload::Message(message));
        let response = v1::SendMessageResponse { payload };
        let read = Service::V1.decode_send_result(&response.encode_to_vec()).unwrap();
        let SendResult::Message(read) = read else { panic!("no message") };
        prop_assert_eq!(&read.parts[0].content, &Content::Data(Json::from(&value)));
    }
}

#[test]
fn open_values_that_nest_too_deeply_are_refused() {
    // Lists in lists, written from the inside: 1 is the field of an item, 6 that of a list.
    let nested = |field: u32, inner: &Vec<u8>| {
        let mut outer = Vec::new();
        prost::encoding::bytes::encode(field, inner, &mut outer);
        outer
    };
    let bytes = (0..5_000).fold(Vec::new(), |inner, _| nested(6, &nested(1, &inner)));
    let data = ValueBytes::decode(&*bytes).unwrap();
    let part = v1::Part { content: Some(v1::part::Content::Data(data)), ..v1::Part::default() };
    let message = v1::Message {
        message_id: "m".to_owned(),
        role: 1,
        parts: vec![part],
        ..v1::Message::default()
    };
    let send = v1::SendMessageRequest { message: Some(message), ..Default::default() };
    assert_eq!(refuse(Service::V1, Operation::SendMessage, &send), ["message.parts[0].data"]);
}

#[track_caller]
fn refuse(service: Service, operation: Operation, message: &impl prost::Message) -> Vec<String> {
    let error = service.decode(operation, &message.encode_to_vec()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidParams);
    fields(&error).into_iter().map(str::to_owned).collect()
}

#[test]
fn what_json_refuses_is_refused_here_under_the_same_name() {
    let endless = Struct {
        fields: [("n".to_owned(), Wire { kind: Some(Kind::NumberValue(f64::NAN)) })].into(),
    };
    let moment = |seconds, nanos| Some(prost_types::Timestamp { seconds, nanos });
    let list = |at| v1::ListTasksRequest { status_timestamp_after: at, ..Default::default() };
    for at in [moment(0, -1), moment(0, 1_000_000_000), moment(i64::MAX, 0), moment(i64::MIN, 0)] {
        assert_eq!(refuse(Service::V1, Operation::ListTasks, &list(at)), ["statusTimestampAfter"]);
    }
    let cancel = v1::CancelTaskRequest {
        id: "\n".to_owned(),
        metadata: Some(as_open(&endless)),
        ..Default::default()
    };
    assert_eq!(refuse(Service::V1, Operation::CancelTask, &cancel), ["metadata", "id"]);
    let config = v1::TaskPushNotificationConfig::default();
    let faults = refuse(Service::V1, Operation::CreateTaskPushNotificationConfig, &config);
    assert_eq!(faults, ["taskId", "url"]);
    let part = v03::Part {
        part: Some(v03::part::Part::File(v03::FilePart::default())),
        metadata: Some(as_open(&endless)),
    };
    let message = v03::Message {
        message_id: "m".to_owned(),
        role: 1,
        content: vec![part, v03::Part::default()],
        ..Default::default()
    };
    let send = v03::SendMessageRequest { request: Some(message), ..Default::default() };
    assert_eq!(
        refuse(Service::V03, Operation::SendMessage, &send),
        ["message.content[0].metadata", "message.content[0].file", "message.content[1]"]
    );
    let create = v03::CreateTaskPushNotificationConfigRequest {
        parent: "tasks/a".to_owned(),
        config: Some(v03::TaskPushNotificationConfig {
            name: "tasks/b/pushNotificationConfigs/c".to_owned(),
            ..Default::default()
        }),
        ..Default::default()
    };
    let faults = refuse(Service::V03, Operation::CreateTaskPushNotificationConfig, &create);
    assert_eq!(faults, ["config.name", "config.pushNotificationConfig"]);
}

#[test]
fn files_of_0_3_are_read_as_bytes_and_as_base64_text() {
    for (sent, meant) in [(&b"aGk="[..], &b"hi"[..]), (b"\xff\x00", b"\xff\x00")] {
        let file = v03::FilePart {
            file: Some(v03::file_part::File::FileWithBytes(sent.to_vec())),
            ..Default::default()
        };
        let part = v03::Part { part: Some(v03::part::Part::File(file)), ..Default::default() };
        let message = v03::Message {
            message_id: "m".to_owned(),
            role: 1,
            content: vec![part],
            ..Default::default()
        };
        let result = v03::SendMessageResponse {
            payload: Some(v03::send_message_response::Payload::Msg(message)),
        };
        let read = Service::V03.decode_send_result(&result.encode_to_vec()).unwrap();
        let SendResult::Message(message) = read else { panic!("no message") };
        assert_eq!(message.parts[0].content, Content::Raw(meant.to_vec()));
    }
}

#[test]
fn a_fault_in_the_bytes_says_where_it_is_and_not_what() {
    let secret = v1::GetTaskRequest { id: "secret".to_owned(), ..Default::default() };
    let mut bytes = secret.encode_to_vec();
    let last = bytes.len() - 1;
    bytes[last] = 0xff;
    let error = Service::V1.decode(Operation::GetTask, &bytes).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Parse);
    assert!(error.message.contains("GetTaskRequest.id"), "{error}");
    assert!(!error.message.contains("secre"), "{error}");
}

#[test]
fn a_card_says_the_same_as_its_json() {
    use v1::{o_auth_flows::Flow, security_scheme::Scheme};
    let card = v1::AgentCard::decode(&*Service::V1.encode_card(full())).unwrap();
    let urls: Vec<_> = card.supported_interfaces.iter().map(|one| one.url.as_str()).collect();
    let expected = full().supported_interfaces;
    assert_eq!(urls, expected.iter().map(|one| one.url.as_str()).collect::<Vec<_>>());
    assert_eq!((card.name, card.version), (full().name, full().version));
    assert_eq!(card.capabilities.as_ref().unwrap().streaming, Some(true));
    let params = card.capabilities.unwrap().extensions.remove(0).params.unwrap();
    let params = Struct::decode(&*params.encode_to_vec()).unwrap();
    assert_eq!(params.fields["depth"].kind, Some(Kind::NumberValue(2.0)));
    let scheme = |name: &str| card.security_schemes[name].scheme.clone().unwrap();
    let Scheme::Oauth2SecurityScheme(code) = scheme("code") else { panic!("no OAuth 2.0") };
    let Some(Flow::AuthorizationCode(code)) = code.flows.unwrap().flow else { panic!("no code") };
    assert!(code.pkce_required && code.scopes["read"] == "to read");
    assert!(matches!(scheme("key"), Scheme::ApiKeySecurityScheme(key) if key.name == "X-Key"));
    assert!(matches!(scheme("tls"), Scheme::MtlsSecurityScheme(_)));
    assert_eq!(card.security_requirements[1].schemes["code"].list, ["read"]);
    assert_eq!(card.skills[0].security_requirements.len(), 1);
    assert_eq!((card.signatures.len(), card.icon_url), (1, full().icon_url));

    let old = v03::AgentCard::decode(&*Service::V03.encode_card(full())).unwrap();
    let json = value(Dialect::V03.encode_card(&full()));
    assert_eq!(old.url, json["url"]);
    assert_eq!(old.preferred_transport, json["preferredTransport"]);
    assert_eq!(old.protocol_version, json["protocolVersion"]);
    let others: Vec<_> = old.additional_interfaces.iter().map(|one| &*one.url).collect();
    let listed = json["additionalInterfaces"].as_array().unwrap();
    assert_eq!(others, listed.iter().map(|one| one["url"].as_str().unwrap()).collect::<Vec<_>>());
    assert!(old.supports_authenticated_extended_card && old.signatures.is_empty());
    assert_eq!(old.security_schemes.len(), full().security_schemes.len());
}

#[test]
fn a_card_is_read_as_it_was_written() {
    assert_eq!(Service::V1.decode_card(&Service::V1.encode_card(full())).unwrap(), full());
    // What 0.3 cannot say is lost in JSON too.
    let read = Service::V03.decode_card(&Service::V03.encode_card(full())).unwrap();
    let json = Dialect::V03.decode_card(&Dialect::V03.encode_card(&full())).unwrap();
    assert_eq!(read, json);
    let error = Service::V1.decode_card(b"\xff").unwrap_err();
    assert_eq!(error.kind, ErrorKind::InvalidAgentResponse);
}

#[test]
fn an_error_is_read_as_it_was_written() {
    let written = Error::violations(vec![Violation {
        field: "message.parts".to_owned(),
        description: "is required, 100 %".to_owned(),
    }])
    .with("hint", "ä")
    .retry_after(Duration::from_millis(1500));
    let (status, get) = (RpcStatus::from(&written), Operation::GetTask);
    let (message, details) = (status.message_header(), status.details_bin());
    assert_eq!(failure::grpc(get, status.code, Some(&message), Some(&details)), written);
    assert_eq!(failure::grpc(get, status.code, None, Some(&details)), written);
    for nonsense in ["", "%", "AAAA", "ä"] {
        let error = failure::grpc(get, 5, Some(nonsense), Some(nonsense));
        assert_eq!(error.kind, ErrorKind::TaskNotFound, "{error:?}");
    }
}
