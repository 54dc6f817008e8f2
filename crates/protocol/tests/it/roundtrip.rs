//! Values of any content, through every dialect and back.

use std::sync::Arc;

use herald_protocol::{
    Artifact, ArtifactUpdate, Content, Dialect, Message, Metadata, Part, Request, Role, SendResult,
    StatusUpdate, StreamEvent, Task, TaskPage, TaskState, TaskStatus, Timestamp,
    push::{PushAuthentication, PushConfig, PushConfigPage},
    request::{
        CancelTask, GetTask, ListPushConfigs, PushConfigRef, SendConfiguration, SendMessage,
        SubscribeToTask,
    },
};
use proptest::{collection::vec, option, prelude::*};
use serde_json::Value;

/// Any text, control characters and all.
fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..6).prop_map(String::from_iter)
}

/// An id that the wire may carry.
fn id<T: From<String> + std::fmt::Debug>() -> impl Strategy<Value = T> {
    "[a-z0-9äß:./ -]{1,6}".prop_map(T::from)
}

pub(crate) fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            object(inner).prop_map(|object| object.into_json().read().unwrap()),
        ]
    })
}

/// Names include those that 0.3 gives a meaning of its own.
fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Metadata> {
    let name = prop_oneof![Just("value".to_owned()), Just("data".to_owned()), text()];
    vec((name, value), 0..3).prop_map(Metadata::from_iter)
}

fn metadata() -> impl Strategy<Value = Option<Metadata>> {
    option::weighted(0.3, object(json()))
}

fn part() -> impl Strategy<Value = Part> {
    let content = prop_oneof![
        text().prop_map(Content::Text),
        vec(any::<u8>(), 0..6).prop_map(Content::Raw),
        text().prop_map(Content::Url),
        json().prop_map(|value| Content::Data(value.into())),
    ];
    let name = || option::weighted(0.3, text());
    (content, name(), name(), metadata()).prop_map(|(content, filename, media_type, metadata)| {
        Part { content, filename, media_type, metadata }
    })
}

fn message() -> impl Strategy<Value = Message> {
    let role = prop_oneof![Just(Role::User), Just(Role::Agent)];
    let ids = (id(), option::of(id()), option::of(id()));
    let lists = (vec(part(), 1..4), vec(text(), 0..2), vec(id(), 0..2));
    (ids, role, lists, metadata()).prop_map(|(ids, role, lists, metadata)| Message {
        message_id: ids.0,
        context_id: ids.1,
        task_id: ids.2,
        role,
        parts: lists.0,
        metadata,
        extensions: lists.1,
        reference_task_ids: lists.2,
    })
}

fn status() -> impl Strategy<Value = TaskStatus> {
    let state = (0u64..9).prop_map(|number| TaskState::from_number(number).unwrap());
    let moment = any::<i64>().prop_map(Timestamp::from_millis);
    (state, option::of(message()), option::of(moment)).prop_map(|(state, message, timestamp)| {
        let message = message.map(Arc::new);
        TaskStatus { state, message, timestamp }
    })
}

fn artifact() -> impl Strategy<Value = Artifact> {
    let names = (id(), option::of(text()), option::of(text()));
    (names, vec(part(), 0..3), metadata(), vec(text(), 0..2)).prop_map(
        |(names, parts, metadata, extensions)| Artifact {
            artifact_id: names.0,
            name: names.1,
            description: names.2,
            parts,
            metadata,
            extensions,
        },
    )
}

pub(crate) fn task() -> impl Strategy<Value = Task> {
    let artifacts = option::of(vec(artifact().prop_map(Arc::new), 0..2));
    let history = option::of(vec(message().prop_map(Arc::new), 0..2));
    (id(), id(), status(), artifacts, history, metadata()).prop_map(
        |(id, context_id, status, artifacts, history, metadata)| Task {
            id,
            context_id,
            status,
            artifacts,
            history,
            metadata,
        },
    )
}

pub(crate) fn event() -> impl Strategy<Value = StreamEvent> {
    let status =
        (id(), id(), status(), metadata()).prop_map(|(task, context, status, metadata)| {
            StreamEvent::StatusUpdate(StatusUpdate {
                task_id: task,
                context_id: context,
                status,
                metadata,
            })
        });
    let artifact = (id(), id(), artifact(), any::<(bool, bool)>(), metadata()).prop_map(
        |(task_id, context_id, artifact, (append, last_chunk), metadata)| {
            StreamEvent::ArtifactUpdate(ArtifactUpdate {
                task_id,
                context_id,
                artifact,
                append,
                last_chunk,
                metadata,
            })
        },
    );
    prop_oneof![
        task().prop_map(StreamEvent::Task),
        message().prop_map(StreamEvent::Message),
        status,
        artifact,
    ]
}

pub(crate) fn push_config() -> impl Strategy<Value = PushConfig> {
    let authentication = (text(), option::of(text()))
        .prop_map(|(scheme, credentials)| PushAuthentication { scheme, credentials });
    (option::of(id()), id(), "https://[a-z]{1,5}", option::of(text()), option::of(authentication))
        .prop_map(|(id, task, url, token, authentication)| PushConfig {
            tenant: None,
            id,
            task_id: Some(task),
            url,
            token,
            authentication,
        })
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    let configuration =
        (vec(text(), 0..2), option::of(push_config()), option::of(1..9), any::<bool>()).prop_map(
            |(accepted_output_modes, push, history_length, return_immediately)| SendConfiguration {
                accepted_output_modes,
                task_push_notification_config: push
                    .map(|push| PushConfig { task_id: None, ..push }),
                history_length,
                return_immediately,
            },
        );
    let send = (message(), configuration, metadata())
        .prop_map(|(message, configuration, metadata)| SendMessage {
            message,
            configuration,
            metadata,
            ..SendMessage::default()
        })
        .boxed();
    let config =
        (id(), id()).prop_map(|(task_id, id)| PushConfigRef { tenant: None, task_id, id }).boxed();
    prop_oneof![
        send.clone().prop_map(Box::new).prop_map(Request::SendMessage),
        send.prop_map(Box::new).prop_map(Request::SendStreamingMessage),
        (id(), option::of(1..9)).prop_map(|(id, history_length)| {
            Request::GetTask(GetTask { tenant: None, id, history_length })
        }),
        id().prop_map(|id| Request::CancelTask(CancelTask { id, ..CancelTask::default() })),
        id().prop_map(|id| {
            Request::SubscribeToTask(SubscribeToTask { id, ..SubscribeToTask::default() })
        }),
        push_config().prop_map(Request::CreateTaskPushNotificationConfig),
        config.clone().prop_map(Request::GetTaskPushNotificationConfig),
        config.prop_map(Request::DeleteTaskPushNotificationConfig),
        id().prop_map(|task_id| {
            Request::ListTaskPushNotificationConfigs(ListPushConfigs {
                task_id,
                ..ListPushConfigs::default()
            })
        }),
    ]
}

/// What a dialect cannot say, taken out of what went in.
pub(crate) mod lossy {
    use super::{
        Arc, Artifact, Content, Dialect, Message, Part, PushConfig, Request, SendResult,
        StatusUpdate, StreamEvent, Task, TaskState, TaskStatus,
    };

    fn part(part: &mut Part) {
        let moved = match &part.content {
            Content::Text(_) => part.filename.is_some() || part.media_type.is_some(),
            Content::Data(value) => {
                part.filename.is_some() || part.media_type.is_some() || !value.is_object()
            }
            Content::Raw(_) | Content::Url(_) => false,
        };
        if moved && part.metadata.as_ref().is_some_and(|metadata| metadata.is_empty()) {
            part.metadata = None;
        }
    }

    pub(crate) fn message(dialect: Dialect, message: &mut Message) {
        match dialect {
            Dialect::V1 => return,
            Dialect::V03 => {}
            Dialect::V03Rest => message.reference_task_ids.clear(),
            Dialect::V01 => {
                let kept = (message.role, message.parts.clone(), message.metadata.clone());
                *message = Message::default();
                (message.role, message.parts, message.metadata) = kept;
            }
        }
        message.parts.iter_mut().for_each(part);
    }

    fn status(dialect: Dialect, status: &mut TaskStatus) {
        status.message.iter_mut().for_each(|one| message(dialect, Arc::make_mut(one)));
        if dialect == Dialect::V01 {
            status.state = match status.state {
                TaskState::Rejected => TaskState::Failed,
                TaskState::AuthRequired => TaskState::InputRequired,
                state => state,
            };
        }
    }

    fn artifact(dialect: Dialect, index: usize, artifact: &mut Artifact) {
        if dialect != Dialect::V1 {
            artifact.parts.iter_mut().for_each(part);
        }
        if dialect == Dialect::V01 {
            artifact.artifact_id = index.to_string().into();
            artifact.extensions.clear();
        }
    }

    pub(crate) fn task(dialect: Dialect, task: &mut Task) {
        status(dialect, &mut task.status);
        let artifacts = task.artifacts.iter_mut().flatten().enumerate();
        artifacts.for_each(|(index, one)| artifact(dialect, index, Arc::make_mut(one)));
        let history = task.history.iter_mut().flatten();
        history.for_each(|one| message(dialect, Arc::make_mut(one)));
    }

    pub(crate) fn event(dialect: Dialect, event: &mut StreamEvent) {
        match event {
            StreamEvent::Task(one) => task(dialect, one),
            StreamEvent::Message(one) if dialect == Dialect::V01 => {
                let mut answered = answered(one);
                task(dialect, &mut answered);
                // Without a session it looks like any other status.
                *event = if answered.context_id.is_empty() {
                    StreamEvent::StatusUpdate(StatusUpdate {
                        task_id: answered.id,
                        status: answered.status,
                        ..StatusUpdate::default()
                    })
                } else {
                    StreamEvent::Task(answered)
                };
            }
            StreamEvent::Message(one) => message(dialect, one),
            StreamEvent::StatusUpdate(update) => {
                status(dialect, &mut update.status);
                if dialect == Dialect::V01 {
                    update.context_id = "".into();
                }
            }
            StreamEvent::ArtifactUpdate(update) => {
                artifact(dialect, 0, &mut update.artifact);
                if dialect == Dialect::V01 {
                    update.context_id = "".into();
                }
            }
        }
    }

    pub(super) fn result(dialect: Dialect, result: &mut SendResult) {
        match result {
            SendResult::Task(one) => task(dialect, one),
            SendResult::Message(one) if dialect == Dialect::V01 => {
                let mut answered = answered(one);
                task(dialect, &mut answered);
                *result = SendResult::Task(answered);
            }
            SendResult::Message(one) => message(dialect, one),
        }
    }

    /// The task that 0.1 makes of a direct answer.
    fn answered(message: &Message) -> Task {
        let named = message.task_id.clone();
        Task {
            id: named.unwrap_or_else(|| message.message_id.as_str().into()),
            context_id: message.context_id.clone().unwrap_or_default(),
            status: TaskStatus {
                state: TaskState::Completed,
                message: Some(message.clone().into()),
                timestamp: None,
            },
            ..Task::default()
        }
    }

    /// What a webhook loses on the way to a client; `name` is what it is called on the way back.
    pub(super) fn push(dialect: Dialect, name: Option<&str>, config: &mut PushConfig) {
        if dialect == Dialect::V01 {
            config.id = name.map(Into::into);
        }
    }

    pub(crate) fn request(dialect: Dialect, request: &mut Request) {
        match request {
            Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
                if dialect == Dialect::V01 {
                    let names = (send.message.context_id.clone(), send.message.task_id.clone());
                    message(dialect, &mut send.message);
                    (send.message.context_id, send.own_task) = names;
                    send.task_only = true;
                    send.infer_task = send.own_task.is_none();
                    send.configuration.return_immediately = false;
                    let push = &mut send.configuration.task_push_notification_config;
                    push.iter_mut().for_each(|one| self::push(dialect, Some("default"), one));
                } else {
                    message(dialect, &mut send.message);
                    send.infer_task = dialect != Dialect::V1;
                }
            }
            Request::CreateTaskPushNotificationConfig(config) => {
                push(dialect, Some("default"), config);
            }
            Request::SubscribeToTask(subscribe) => {
                subscribe.replay_finished = dialect != Dialect::V1;
            }
            Request::GetTask(_)
            | Request::ListTasks(_)
            | Request::CancelTask(_)
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
    // proves: FMT-008, FMT-009
    #[test]
    fn tasks(task in task()) {
        for dialect in Dialect::ALL {
            let mut expected = task.clone();
            lossy::task(dialect, &mut expected);
            prop_assert_eq!(dialect.decode_task(&dialect.encode_task(&task)).unwrap(), expected);
        }
        let page = TaskPage { tasks: vec![task], page_size: 1, total_size: 1, ..TaskPage::default() };
        prop_assert_eq!(Dialect::V1.decode_page(&Dialect::V1.encode_page(&page)).unwrap(), page);
    }

    // part of: FMT-025
    #[test]
    fn events_and_answers(event in event(), closing in any::<bool>()) {
        for dialect in Dialect::ALL {
            let mut expected = event.clone();
            lossy::event(dialect, &mut expected);
            let bytes = dialect.encode_event(&event, closing);
            prop_assert!(!bytes.contains(&b'\n'), "one line, as SSE needs it");
            prop_assert_eq!(&dialect.decode_event(&bytes).unwrap(), &expected);
            let result = match event.clone() {
                StreamEvent::Task(task) => SendResult::Task(task),
                StreamEvent::Message(message) => SendResult::Message(message),
                StreamEvent::StatusUpdate(_) | StreamEvent::ArtifactUpdate(_) => continue,
            };
            let mut expected = result.clone();
            lossy::result(dialect, &mut expected);
            let bytes = dialect.encode_send_result(&result);
            prop_assert_eq!(dialect.decode_send_result(&bytes).unwrap(), expected);
        }
    }

    // part of: PUSH-026
    #[test]
    fn webhooks(configs in vec(push_config(), 0..3)) {
        for dialect in Dialect::ALL {
            for config in &configs {
                let bytes = dialect.encode_push_config(config);
                let mut expected = config.clone();
                lossy::push(dialect, None, &mut expected);
                prop_assert_eq!(dialect.decode_push_config(&bytes).unwrap(), expected);
            }
            let page = PushConfigPage { configs: configs.clone(), next_page_token: String::new() };
            let bytes = dialect.encode_push_page(&page);
            let mut page = page;
            page.configs.iter_mut().for_each(|config| lossy::push(dialect, None, config));
            prop_assert_eq!(dialect.decode_push_page(&bytes).unwrap(), page);
        }
    }

    // part of: VER-002
    #[test]
    fn requests(request in request()) {
        for dialect in Dialect::ALL {
            let mut expected = request.clone();
            lossy::request(dialect, &mut expected);
            let bytes = dialect.encode_request(&request);
            let decoded = dialect.decode(request.operation(), Some(&bytes));
            prop_assert_eq!(decoded.unwrap(), expected, "{:?}", dialect);
        }
    }
}
