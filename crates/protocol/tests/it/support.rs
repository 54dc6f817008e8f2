//! Values with every member set, and the small doors through which the tests look.

use std::{fs, path::PathBuf, sync::Arc};

use herald_protocol::{
    Artifact, ArtifactUpdate, Content, Dialect, Error, Message, Metadata, Operation, Part, Request,
    Role, SendResult, StatusUpdate, Task, TaskState, TaskStatus,
    push::{PushAuthentication, PushConfig},
};
use serde_json::Value;

/// JSON for comparison; the order of members does not count.
#[track_caller]
pub(crate) fn value(bytes: impl AsRef<[u8]>) -> Value {
    serde_json::from_slice(bytes.as_ref()).unwrap()
}

pub(crate) fn metadata(json: &str) -> Option<Metadata> {
    Some(serde_json::from_str(json).unwrap())
}

/// The path of a file in `tests/golden`.
pub(crate) fn golden_file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Compares with a file in `tests/golden`. `UPDATE_GOLDEN=1` writes it instead.
#[track_caller]
pub(crate) fn golden(name: &str, bytes: &[u8]) {
    let path = golden_file(name);
    let shown = serde_json::to_string_pretty(&value(bytes)).unwrap() + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &shown).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    assert_eq!(shown, expected, "{name} differs; UPDATE_GOLDEN=1 accepts what is written now");
}

#[track_caller]
pub(crate) fn decode(dialect: Dialect, operation: Operation, params: &str) -> Request {
    match dialect.decode(operation, Some(params.as_bytes())) {
        Ok(request) => request,
        Err(error) => panic!("{dialect:?} {operation:?} refuses {params}: {error:?}"),
    }
}

#[track_caller]
pub(crate) fn refuse(dialect: Dialect, operation: Operation, params: &str) -> Error {
    match dialect.decode(operation, Some(params.as_bytes())) {
        Ok(request) => panic!("{dialect:?} {operation:?} accepts {params}: {request:?}"),
        Err(error) => error,
    }
}

/// The fields that an error names.
pub(crate) fn fields(error: &Error) -> Vec<&str> {
    let violations = error.detail.iter().flat_map(|detail| &detail.violations);
    violations.map(|violation| violation.field.as_str()).collect()
}

/// The message of a send.
#[track_caller]
pub(crate) fn message_of(request: Request) -> Message {
    send_of(request).message
}

#[track_caller]
pub(crate) fn send_of(request: Request) -> herald_protocol::request::SendMessage {
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => *send,
        other => panic!("no send: {other:?}"),
    }
}

/// The message of a direct answer, which 0.1 puts into a task.
#[track_caller]
pub(crate) fn reply_of(result: SendResult) -> Message {
    match result {
        SendResult::Message(message) => message,
        SendResult::Task(task) => Arc::unwrap_or_clone(task.status.message.unwrap()),
    }
}

/// One part of each kind, and those that 0.3 can only carry with our help.
pub(crate) fn parts() -> Vec<Part> {
    vec![
        Part::text("hello"),
        Part {
            content: Content::Text("# Titel".into()),
            filename: Some("notes.md".into()),
            media_type: Some("text/markdown".into()),
            metadata: metadata(r#"{"lang":"de"}"#),
        },
        Part {
            content: Content::Raw(vec![0, 159, 255]),
            filename: Some("a.bin".into()),
            media_type: Some("application/octet-stream".into()),
            metadata: None,
        },
        Part {
            content: Content::Url("https://example.com/a.png".into()),
            filename: None,
            media_type: Some("image/png".into()),
            metadata: None,
        },
        Part::new(Content::Data(value(r#"{"n":1.5,"data":null}"#).into())),
        Part::new(Content::Data(value("[1,true,null]").into())),
    ]
}

pub(crate) fn message() -> Message {
    Message {
        message_id: "m-1".into(),
        context_id: Some("c-1".into()),
        task_id: Some("t-1".into()),
        role: Role::User,
        parts: parts(),
        metadata: metadata(r#"{"https://example.com/ext":{"a_b":1}}"#),
        extensions: vec!["https://example.com/ext".into()],
        reference_task_ids: vec!["t-0".into()],
    }
}

pub(crate) fn status(state: TaskState) -> TaskStatus {
    TaskStatus {
        state,
        message: Some(
            Message {
                context_id: Some("c-1".into()),
                task_id: Some("t-1".into()),
                ..Message::agent("m-2", "nearly there")
            }
            .into(),
        ),
        timestamp: Some("2026-01-31T12:00:00.250Z".parse().unwrap()),
    }
}

pub(crate) fn artifact() -> Artifact {
    Artifact {
        artifact_id: "a-1".into(),
        name: Some("report".into()),
        description: Some("what was found".into()),
        parts: vec![Part::text("done")],
        metadata: metadata(r#"{"pages":3}"#),
        extensions: vec!["https://example.com/ext".into()],
    }
}

pub(crate) fn task(state: TaskState) -> Task {
    Task {
        id: "t-1".into(),
        context_id: "c-1".into(),
        status: status(state),
        artifacts: Some(vec![artifact().into()]),
        history: Some(vec![message().into()]),
        metadata: metadata(r#"{"owner":"me"}"#),
    }
}

pub(crate) fn status_update(state: TaskState) -> StatusUpdate {
    StatusUpdate {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        status: status(state),
        metadata: metadata(r#"{"step":2}"#),
    }
}

pub(crate) fn artifact_update() -> ArtifactUpdate {
    ArtifactUpdate {
        task_id: "t-1".into(),
        context_id: "c-1".into(),
        artifact: artifact(),
        append: true,
        last_chunk: true,
        metadata: None,
    }
}

pub(crate) fn push_config() -> PushConfig {
    PushConfig {
        tenant: None,
        id: Some("p-1".into()),
        task_id: Some("t-1".into()),
        url: "https://example.com/hook".into(),
        token: Some("secret".into()),
        authentication: Some(PushAuthentication {
            scheme: "Bearer".into(),
            credentials: Some("abc".into()),
        }),
    }
}
