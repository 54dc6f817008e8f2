//! Streams: order, resumption and end.

use std::sync::Arc;

use herald_engine::AgentError;
use herald_protocol::{ErrorKind, Part, StreamEvent, TaskState};

use crate::support::{Bench, Script, answer, artifact_text, eventually, rest, say, text};

fn chunks(count: usize) -> Script {
    Script::new(move |turn| {
        Box::pin(async move {
            for index in 0..count {
                turn.append(text("out", format!("{index} ")), index + 1 == count).await?;
            }
            Ok(())
        })
    })
}

fn seqs(items: &[(u64, StreamEvent)]) -> Vec<u64> {
    items.iter().map(|(seq, _)| *seq).collect()
}

// proves: STR-001, STR-003, STR-004, STR-026, STR-027, STR-028
#[tokio::test]
async fn a_stream_is_a_task_then_its_events_in_order_then_the_end() {
    let bench = Bench::new(chunks(10)).await;
    let items = rest(&mut bench.stream(say("go")).await.unwrap()).await;
    assert_eq!(seqs(&items), (1..=13).collect::<Vec<_>>());
    assert!(
        matches!(&items[0].1, StreamEvent::Task(task) if task.status.state == TaskState::Submitted)
    );
    let mut appended = String::new();
    let mut id = None;
    for (seq, event) in &items[1..] {
        match event {
            StreamEvent::StatusUpdate(update) => {
                assert!(!update.task_id.is_empty() && !update.context_id.is_empty());
                let expected = if *seq == 2 { TaskState::Working } else { TaskState::Completed };
                assert_eq!(update.status.state, expected);
            }
            StreamEvent::ArtifactUpdate(update) => {
                assert_eq!(update.append, *seq > 3);
                assert_eq!(update.last_chunk, *seq == 12);
                appended += update.artifact.parts[0].as_text().unwrap();
                id = Some(update.task_id.clone());
            }
            StreamEvent::Task(_) | StreamEvent::Message(_) => panic!("unexpected {event:?}"),
        }
    }
    let task = bench.get(&id.unwrap()).await.unwrap();
    assert_eq!(artifact_text(&task, "out"), appended);
}

#[tokio::test]
async fn an_interim_question_ends_no_stream_and_no_wait() {
    let bench = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            turn.report_interim(TaskState::InputRequired, vec![Part::text("a key?")]).await?;
            turn.report(TaskState::Working, Vec::new()).await?;
            turn.append(text("out", "found one"), true).await?;
            Ok(())
        })
    }))
    .await;
    let task = bench.send(say("go")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    let items = rest(&mut bench.stream(say("go")).await.unwrap()).await;
    let states: Vec<_> = items
        .iter()
        .filter_map(|(_, event)| match event {
            StreamEvent::StatusUpdate(update) => Some(update.status.state),
            StreamEvent::Task(_) | StreamEvent::ArtifactUpdate(_) | StreamEvent::Message(_) => None,
        })
        .collect();
    let (working, waits) = (TaskState::Working, TaskState::InputRequired);
    assert_eq!(states, [working, waits, working, TaskState::Completed]);
    // An agent that returns in this state leaves the question to its caller.
    let returns = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            turn.report_interim(TaskState::InputRequired, vec![Part::text("a key?")]).await?;
            Ok(())
        })
    }))
    .await;
    let asked = returns.send(say("go")).await.unwrap();
    assert_eq!(asked.status.state, waits);
    assert_eq!(asked.status.message.unwrap().text(), "a key?");
    // A reader of the stored log sees the same.
    let mut replay = bench.subscribe(&task.id, Some(1)).await.unwrap();
    let replayed = rest(&mut replay).await;
    assert_eq!(replayed.len(), items.len() - 1);
    assert!(replay.is_over());
}

// proves: STR-016, STR-018
#[tokio::test]
async fn a_finished_task_is_followed_only_with_a_cursor() {
    let bench = Bench::new(chunks(5)).await;
    let mut stream = bench.stream(say("go")).await.unwrap();
    let items = rest(&mut stream).await;
    let id = stream.task_id().clone();
    let refused = bench.subscribe(&id, None).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::UnsupportedOperation);
    for cut in 0..=items.len() as u64 {
        let resumed = rest(&mut bench.subscribe(&id, Some(cut)).await.unwrap()).await;
        let missing: Vec<u64> = (cut + 1..=items.len() as u64).collect();
        assert_eq!(seqs(&resumed), missing, "cut after {cut}");
        let skip = usize::try_from(cut).unwrap().max(1);
        if cut >= 1 {
            assert_eq!(resumed[..], items[skip..]);
        }
    }
    let refused = bench.subscribe(&id, Some(99)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidParams);
}

#[tokio::test]
async fn a_reader_that_falls_five_thousand_events_behind_gets_all_of_them() {
    let bench = Bench::new(chunks(5_000)).await;
    let mut sleeper = bench.stream(say("go")).await.unwrap();
    let id = sleeper.task_id().clone();
    let awake = bench.clone();
    eventually(|| async { awake.get(&id).await.unwrap().status.state.is_terminal() }).await;
    let items = rest(&mut sleeper).await;
    assert_eq!(seqs(&items), (1..=5_003).collect::<Vec<_>>());
}

// proves: STR-005, STR-006, STR-015, STR-019
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reader_sees_the_same_events_whenever_it_joins_and_whoever_leaves() {
    let bench = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            for index in 0..300 {
                turn.append(text("out", format!("{index} ")), false).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        })
    }))
    .await;
    let mut first = bench.stream(say("go")).await.unwrap();
    let id = first.task_id().clone();
    let mut readers = tokio::task::JoinSet::new();
    for index in 0..20_u64 {
        let (bench, id) = (bench.clone(), id.clone());
        readers.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_millis(index)).await;
            let Ok(mut stream) = bench.subscribe(&id, None).await else { return Vec::new() };
            if index % 4 == 0 {
                stream.next().await.unwrap();
                return Vec::new(); // leaves early, without effect on the others
            }
            rest(&mut stream).await
        });
    }
    let whole = rest(&mut first).await;
    for items in readers.join_all().await.into_iter().filter(|items| !items.is_empty()) {
        let StreamEvent::Task(snapshot) = &items[0].1 else { panic!("starts with the task") };
        let joined = usize::try_from(items[0].0).unwrap();
        assert_eq!(items[1..], whole[joined..], "joined at {joined}");
        let seen = artifact_text(snapshot, "out").split_whitespace().count();
        assert_eq!(
            seen,
            joined.saturating_sub(2),
            "the snapshot has all events up to its sequence number"
        );
    }
}

// proves: STR-022
#[tokio::test]
async fn a_send_stream_ends_at_a_question_and_stays_open_for_credentials() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waited = Arc::clone(&gate);
    let bench = Bench::new(Script::new(move |turn| {
        let gate = Arc::clone(&waited);
        Box::pin(async move {
            if turn.message().text() == "ask" {
                turn.ask("what?").await?;
            } else {
                turn.require_auth("sign in").await?;
                gate.acquire().await.unwrap().forget();
                turn.complete("thanks").await?;
            }
            Ok(())
        })
    }))
    .await;
    let mut asking = bench.stream(say("ask")).await.unwrap();
    let items = rest(&mut asking).await;
    assert!(
        matches!(&items.last().unwrap().1, StreamEvent::StatusUpdate(update) if update.status.state == TaskState::InputRequired)
    );
    // A subscription stays open during the question and ends with the task.
    let task = bench.get(asking.task_id()).await.unwrap();
    let mut watching = bench.subscribe(&task.id, None).await.unwrap();
    gate.add_permits(1);
    bench.send(answer(&task, "credentials")).await.unwrap();
    let rest_of_it = rest(&mut watching).await;
    assert!(
        matches!(&rest_of_it.last().unwrap().1, StreamEvent::StatusUpdate(update) if update.status.state == TaskState::Completed)
    );
    gate.add_permits(1);
    let waiting = rest(&mut bench.stream(say("auth")).await.unwrap()).await;
    let states: Vec<_> = waiting
        .iter()
        .filter_map(|(_, event)| match event {
            StreamEvent::StatusUpdate(update) => Some(update.status.state),
            StreamEvent::Task(_) | StreamEvent::Message(_) | StreamEvent::ArtifactUpdate(_) => None,
        })
        .collect();
    assert_eq!(states, [TaskState::Working, TaskState::AuthRequired, TaskState::Completed]);
}

/// Cancel and completion race; every reader sees the same result.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_races_of_cancel_and_complete_leave_no_disagreement() {
    let bench = Bench::new(Script::new(|turn| {
        Box::pin(async move {
            tokio::task::yield_now().await;
            turn.complete_with(text("out", "done")).await?;
            Ok::<(), AgentError>(())
        })
    }))
    .await;
    let mut races = tokio::task::JoinSet::new();
    for round in 0..1000_u32 {
        let bench = bench.clone();
        races.spawn(async move {
            let mut stream = bench.stream(say("race")).await.unwrap();
            let id = stream.task_id().clone();
            for _ in 0..round % 7 {
                tokio::task::yield_now().await;
            }
            let cancelled = bench.cancel(&id).await;
            let items = rest(&mut stream).await;
            let terminal: Vec<_> = items
                .iter()
                .filter_map(|(_, event)| match event {
                    StreamEvent::StatusUpdate(update) if update.status.state.is_terminal() => {
                        Some(update.status.state)
                    }
                    StreamEvent::StatusUpdate(_)
                    | StreamEvent::Task(_)
                    | StreamEvent::Message(_)
                    | StreamEvent::ArtifactUpdate(_) => None,
                })
                .collect();
            let expected = match &cancelled {
                Ok(task) => {
                    assert_eq!(task.status.state, TaskState::Canceled);
                    TaskState::Canceled
                }
                Err(error) => {
                    assert_eq!(error.kind, ErrorKind::TaskNotCancelable);
                    TaskState::Completed
                }
            };
            assert_eq!(terminal, [expected], "one end, which is the one in the response");
            assert_eq!(bench.get(&id).await.unwrap().status.state, expected);
            let replay = rest(&mut bench.subscribe(&id, Some(1)).await.unwrap()).await;
            assert_eq!(replay[..], items[1..], "the log has the events of the stream");
            expected
        });
    }
    let ends = races.join_all().await;
    assert!(ends.contains(&TaskState::Canceled) && ends.contains(&TaskState::Completed));
}
