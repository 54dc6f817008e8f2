//! Sends and streams to a working task: each gets the outcome of its own message.

use std::sync::Arc;

use herald_engine::{AgentError, Subscription};
use herald_protocol::{Message, Part, StreamEvent, Task, TaskState};
use tokio::sync::Semaphore;

use crate::support::{Bench, Script, answer, eventually, rest, say};

/// Works on `work …` until the gate opens, then follows the message; asks about every other
/// message.
fn gated(gate: &Arc<Semaphore>) -> Script {
    let gate = Arc::clone(gate);
    Script::new(move |turn| {
        let gate = Arc::clone(&gate);
        Box::pin(async move {
            let said = turn.message().text();
            let Some(then) = said.strip_prefix("work ") else {
                turn.ask(format!("about {said}?")).await?;
                return Ok::<(), AgentError>(());
            };
            turn.progress("begun").await?;
            gate.acquire().await.unwrap().forget();
            match then {
                "ask" => turn.ask("about work?").await?,
                "sign-in" => turn.require_auth("about work?").await?,
                "waver" => {
                    turn.ask("about work?").await?;
                    turn.progress("goes on all the same").await?;
                }
                _ => {
                    turn.ask_within_turn(vec![Part::text("about work?")]).await?;
                    assert!(turn.answered().await);
                    turn.take_answer().await?;
                }
            }
            Ok(())
        })
    })
}

async fn at_work(bench: &Bench, text: &str) -> Task {
    let task = bench.post(say(text)).await.unwrap();
    eventually(|| async { bench.get(&task.id).await.unwrap().status.message.is_some() }).await;
    task
}

/// Opens the gate once the task has received this message.
async fn open(gate: &Semaphore, bench: &Bench, task: &Task, text: &str) {
    eventually(|| async {
        let history = bench.get(&task.id).await.unwrap().history.unwrap_or_default();
        history.iter().any(|message| message.text() == text)
    })
    .await;
    gate.add_permits(1);
}

fn words(task: &Task) -> (TaskState, String) {
    (task.status.state, task.status.message.as_deref().map(Message::text).unwrap_or_default())
}

/// The last event of a stream.
async fn last(mut stream: Subscription) -> (u64, TaskState, String) {
    match rest(&mut stream).await.pop() {
        Some((seq, StreamEvent::StatusUpdate(update))) => {
            let text = update.status.message.map(|message| message.text()).unwrap_or_default();
            (seq, update.status.state, text)
        }
        other => panic!("expected a status, not {other:?}"),
    }
}

#[tokio::test]
async fn a_send_to_a_task_at_work_gets_the_outcome_of_its_own_message() {
    for first in ["work ask", "work sign-in", "work waver"] {
        let gate = Arc::new(Semaphore::new(0));
        let bench = Bench::new(gated(&gate)).await;
        let task = at_work(&bench, first).await;
        let streamed = answer(&task, "streamed");
        let stream = bench.stream(streamed.clone()).await.unwrap();
        let (sent, ()) =
            tokio::join!(bench.send(answer(&task, "sent")), open(&gate, &bench, &task, "sent"));
        // The earlier message is answered by its own turn, and that pauses no reader of the later
        // one.
        let sent = sent.unwrap();
        let own = (TaskState::InputRequired, "about sent?".to_owned());
        assert_eq!(words(&sent), own, "{first}");
        let (seq, state, text) = last(stream).await;
        assert_eq!((state, text), own, "{first}");
        let said: Vec<_> = sent.history.unwrap().iter().map(|message| message.text()).collect();
        for question in ["about streamed?", "streamed", "sent"] {
            assert!(said.iter().any(|said| said == question), "{first}: {said:?}");
        }
        // A stream that is read later ends with the same event.
        bench.send(answer(&task, "third")).await.unwrap();
        let again = last(bench.stream(streamed).await.unwrap()).await;
        assert_eq!(again, (seq, own.0, own.1), "{first}");
    }
}

#[tokio::test]
async fn a_question_within_a_turn_reaches_all_readers() {
    let gate = Arc::new(Semaphore::new(0));
    let bench = Bench::new(gated(&gate)).await;
    let task = at_work(&bench, "work hold").await;
    let stream = bench.stream(answer(&task, "early")).await.unwrap();
    let (sent, ()) = tokio::join!(
        bench.send(answer(&task, "also early")),
        open(&gate, &bench, &task, "also early")
    );
    let question = (TaskState::InputRequired, "about work?".to_owned());
    assert_eq!(words(&sent.unwrap()), question);
    let (_, state, text) = last(stream).await;
    assert_eq!((state, text), question, "nothing else is read before the answer");
    // The answer is read first; then each earlier message gets its turn.
    let task = bench.send(answer(&task, "yes")).await.unwrap();
    assert_eq!(words(&task), (TaskState::InputRequired, "about also early?".to_owned()));
}
