//! Every document that a server sends, in every dialect, as files to be read.

use herald_protocol::{
    Dialect, Message, SendResult, StreamEvent, TaskPage, TaskState, push::PushConfigPage,
};

use crate::support::{artifact_update, golden, message, push_config, status_update, task, value};

fn name(what: &str, dialect: Dialect) -> String {
    let dialect = match dialect {
        Dialect::V1 => "v1",
        Dialect::V03 => "v03",
        Dialect::V03Rest => "v03rest",
        Dialect::V01 => "v01",
    };
    format!("{what}.{dialect}.json")
}

// proves: FMT-001, FMT-002, FMT-003, FMT-004, FMT-005, FMT-016, FMT-017, FMT-018, FMT-019
#[test]
fn tasks() {
    for dialect in Dialect::ALL {
        golden(&name("task", dialect), &dialect.encode_task(&task(TaskState::Canceled)));
    }
}

// part of: REST-009
// proves: RPC-014, RPC-015
#[test]
fn answers_to_a_send() {
    for dialect in Dialect::ALL {
        let reply =
            SendResult::Message(Message { role: herald_protocol::Role::Agent, ..message() });
        golden(&name("reply", dialect), &dialect.encode_send_result(&reply));
        let accepted = SendResult::Task(task(TaskState::Submitted));
        let bytes = dialect.encode_send_result(&accepted);
        let whole = value(dialect.encode_task(&task(TaskState::Submitted)));
        match dialect {
            Dialect::V03 | Dialect::V01 => assert_eq!(value(bytes), whole),
            Dialect::V1 | Dialect::V03Rest => assert_eq!(value(bytes)["task"], whole),
        }
    }
}

// part of: STR-009, STR-010, STR-011, STR-012, STR-013, STR-027, PUSH-009
// proves: STR-028, STR-031
#[test]
fn stream_items() {
    for dialect in Dialect::ALL {
        let status = StreamEvent::StatusUpdate(status_update(TaskState::InputRequired));
        golden(&name("status-update", dialect), &dialect.encode_event(&status, true));
        let artifact = StreamEvent::ArtifactUpdate(artifact_update());
        golden(&name("artifact-update", dialect), &dialect.encode_event(&artifact, false));
    }
}

// part of: PUSH-026
// proves: RPC-018, RPC-019
#[test]
fn webhooks() {
    for dialect in Dialect::ALL {
        golden(&name("push-config", dialect), &dialect.encode_push_config(&push_config()));
        let page = PushConfigPage { configs: vec![push_config()], next_page_token: String::new() };
        golden(&name("push-page", dialect), &dialect.encode_push_page(&page));
    }
    assert_eq!(Dialect::V1.encode_deleted(), b"{}");
    assert_eq!(Dialect::V03.encode_deleted(), b"null");
    assert_eq!(Dialect::V03Rest.encode_deleted(), b"null");
}

// part of: LIST-006, LIST-007
// proves: FMT-011, LIST-004, LIST-005
#[test]
fn a_page_of_tasks_shows_every_required_member() {
    let page = TaskPage { page_size: 50, ..TaskPage::default() };
    let empty = value(Dialect::V1.encode_page(&page));
    let expected = value(r#"{"tasks":[],"nextPageToken":"","pageSize":50,"totalSize":0}"#);
    assert_eq!(empty, expected);

    let without = herald_protocol::Task { artifacts: None, ..task(TaskState::Working) };
    let emptied = herald_protocol::Task { artifacts: Some(vec![]), ..without.clone() };
    let page = TaskPage { tasks: vec![without, emptied], ..page };
    let shown = value(Dialect::V1.encode_page(&page));
    assert!(shown["tasks"][0].get("artifacts").is_none());
    assert_eq!(shown["tasks"][1]["artifacts"], value("[]"));
}
