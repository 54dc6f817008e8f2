//! Lists: pages, filters, tokens.

use herald_engine::{Caller, Reply};
use herald_protocol::{Error, ErrorKind, Request, TaskId, TaskPage, TaskState, request::ListTasks};

use crate::support::{Bench, Script, say, text};

async fn bench() -> Bench {
    Bench::new(Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() == "ask" {
                turn.ask("what?").await?;
            } else {
                turn.artifact(text("out", "x")).await?;
            }
            Ok(())
        })
    }))
    .await
}

async fn list(bench: &Bench, list: ListTasks) -> Result<TaskPage, Error> {
    match bench.call(Request::ListTasks(list)).await? {
        Reply::Tasks(page) => Ok(page),
        other => panic!("expected a list, not {other:?}"),
    }
}

// proves: LIST-002, LIST-003, LIST-008, LIST-012, LIST-016
#[tokio::test]
async fn pages_cover_every_task_once_newest_first() {
    let bench = bench().await;
    let mut ids: Vec<TaskId> = Vec::new();
    for _ in 0..120 {
        ids.push(bench.send(say("go")).await.unwrap().id);
    }
    ids.reverse();
    for size in [1, 7, 50, 100] {
        let mut walked = Vec::new();
        let mut token = None;
        loop {
            let query =
                ListTasks { page_size: Some(size), page_token: token, ..ListTasks::default() };
            let page = list(&bench, query).await.unwrap();
            assert_eq!(page.total_size, 120);
            assert_eq!(page.page_size, u32::try_from(size).unwrap());
            assert!(page.tasks.len() <= page.page_size as usize);
            walked.extend(page.tasks.into_iter().map(|task| task.id));
            if page.next_page_token.is_empty() {
                break;
            }
            token = Some(page.next_page_token);
        }
        assert_eq!(walked.len(), 120, "in pages of {size}");
        assert_eq!(walked, ids);
    }
    let page = list(&bench, ListTasks::default()).await.unwrap();
    assert_eq!(page.page_size, 50);
    assert_eq!(page.tasks.len(), 50);
}

// proves: LIST-006, LIST-007, LIST-009, LIST-010, LIST-011, LIST-015
#[tokio::test]
async fn filters_and_the_requested_fields_apply() {
    let bench = bench().await;
    let done = bench.send(say("go")).await.unwrap();
    let waiting = bench.send(say("ask")).await.unwrap();
    let by = |change: fn(&mut ListTasks, &herald_protocol::Task), task: &herald_protocol::Task| {
        let mut query = ListTasks::default();
        change(&mut query, task);
        list(&bench, query)
    };
    let in_context = by(|q, t| q.context_id = Some(t.context_id.clone()), &done).await.unwrap();
    assert_eq!((in_context.total_size, &in_context.tasks[0].id), (1, &done.id));
    assert_eq!(in_context.tasks[0].artifacts, None);
    let in_state = by(|q, _| q.status = TaskState::InputRequired, &done).await.unwrap();
    assert_eq!((in_state.total_size, &in_state.tasks[0].id), (1, &waiting.id));
    let since = by(|q, t| q.status_timestamp_after = t.status.timestamp, &waiting).await.unwrap();
    assert!(since.tasks.iter().any(|task| task.id == waiting.id), "inclusive");
    let whole = by(
        |q, _| {
            q.include_artifacts = Some(true);
            q.history_length = Some(0);
        },
        &done,
    )
    .await
    .unwrap();
    for task in &whole.tasks {
        let expected = usize::from(task.id == done.id);
        assert_eq!(task.artifacts.as_ref().map(Vec::len), Some(expected));
        assert_eq!(task.history, None);
    }
}

// proves: LIST-013
#[tokio::test]
async fn a_page_token_is_valid_for_its_own_list_only() {
    let bench = bench().await;
    for _ in 0..3 {
        bench.send(say("go")).await.unwrap();
    }
    let first = ListTasks { page_size: Some(1), ..ListTasks::default() };
    let token = list(&bench, first.clone()).await.unwrap().next_page_token;
    let mut forged = token.clone().into_bytes();
    forged[3] = if forged[3] == b'A' { b'B' } else { b'A' };
    let mut other_filter = ListTasks { page_token: Some(token.clone()), ..first.clone() };
    other_filter.status = TaskState::Completed;
    let attempts = [
        ListTasks { page_token: Some("!!!".to_owned()), ..first.clone() },
        ListTasks { page_token: Some(String::from_utf8(forged).unwrap()), ..first.clone() },
        other_filter,
    ];
    for attempt in attempts {
        assert_eq!(list(&bench, attempt).await.unwrap_err().kind, ErrorKind::InvalidParams);
    }
    let mut other = bench.clone();
    other.caller = Caller::anonymous("elsewhere".into());
    let stolen = ListTasks { page_token: Some(token), ..first };
    assert_eq!(list(&other, stolen).await.unwrap_err().kind, ErrorKind::InvalidParams);
}

// proves: LIST-001, LIST-004, LIST-005, LIST-014, TEN-004
#[tokio::test]
async fn a_list_has_only_the_tasks_of_its_caller() {
    let bench = bench().await;
    bench.send(say("go")).await.unwrap();
    let mut other = bench.clone();
    other.caller = Caller::anonymous("elsewhere".into());
    let page = list(&other, ListTasks::default()).await.unwrap();
    assert_eq!(page, TaskPage { page_size: 50, ..TaskPage::default() });
}

#[tokio::test]
async fn a_page_of_large_tasks_ends_early_and_further_pages_follow() {
    let bench = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            turn.artifact(text("out", "x".repeat(3 << 20))).await?;
            Ok(())
        })
    }))
    .await;
    for _ in 0..8 {
        bench.send(say("go")).await.unwrap();
    }
    let (mut walked, mut pages, mut token) = (std::collections::HashSet::new(), 0, None);
    loop {
        let query =
            ListTasks { include_artifacts: Some(true), page_token: token, ..ListTasks::default() };
        let page = list(&bench, query).await.unwrap();
        assert!(page.tasks.len() <= 4, "about eight megabytes a page");
        assert_eq!(page.total_size, 8);
        pages += 1;
        walked.extend(page.tasks.into_iter().map(|task| task.id));
        if page.next_page_token.is_empty() {
            break;
        }
        token = Some(page.next_page_token);
    }
    assert_eq!((walked.len(), pages), (8, 3));
}
