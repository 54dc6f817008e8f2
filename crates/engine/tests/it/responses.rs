//! Answers in words: the artifact `response` of each message.

use herald_engine::AgentError;
use herald_protocol::{Message, Part, Task, TaskState};

use crate::support::{Bench, Script, answer, say};

/// Asks about `ask`, completes with a remark at `remark`, and answers with every other text.
fn words() -> Script {
    Script::new(|turn| {
        Box::pin(async move {
            match turn.message().text().as_str() {
                "ask" => turn.ask("which?").await?,
                "remark" => turn.complete("nothing to do").await?,
                "parts" => turn.answer_with(vec![Part::text(""), Part::text("a")]).await?,
                text => turn.answer(text.trim()).await?,
            }
            Ok::<(), AgentError>(())
        })
    })
}

/// Ids, names and texts of the artifacts.
fn artifacts(task: &Task) -> Vec<(String, Option<String>, Vec<String>)> {
    let artifacts = task.artifacts.as_deref().unwrap_or_default().iter();
    let parts = |parts: &[Part]| {
        parts.iter().map(|part| part.as_text().unwrap().to_owned()).collect::<Vec<_>>()
    };
    artifacts
        .map(|one| (one.artifact_id.to_string(), one.name.clone(), parts(&one.parts)))
        .collect()
}

fn response(id: &str, text: &str) -> (String, Option<String>, Vec<String>) {
    (id.to_owned(), Some("response".to_owned()), vec![text.to_owned()])
}

#[tokio::test]
async fn an_answer_is_one_artifact_called_response() {
    let bench = Bench::new(words()).await;
    let task = bench.send(say("hello")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(task.status.message, None, "the status repeats nothing");
    assert_eq!(artifacts(&task), [response("response", "hello")]);
    let task = bench.send(say("parts")).await.unwrap();
    assert_eq!(artifacts(&task), [response("response", "a")], "no empty part");
}

#[tokio::test]
async fn the_answer_to_a_later_message_has_an_id_of_its_own() {
    let bench = Bench::new(words()).await;
    let task = bench.send(say("ask")).await.unwrap();
    let task = bench.send(answer(&task, "blue")).await.unwrap();
    assert_eq!(artifacts(&task), [response("response-2", "blue")]);
    // Clients may use one id as a label for several messages.
    let task = bench.send(Message::user("label", "ask")).await.unwrap();
    let task_id = Some(task.id.clone());
    let second = Message { task_id, ..Message::user("label", "red") };
    let task = bench.send(second).await.unwrap();
    assert_eq!(artifacts(&task), [response("response-2", "red")]);
}

#[tokio::test]
async fn an_empty_answer_and_a_remark_leave_no_artifact() {
    let bench = Bench::new(words()).await;
    let task = bench.send(say(" ")).await.unwrap();
    assert_eq!((task.status.state, artifacts(&task).len()), (TaskState::Completed, 0));
    assert_eq!(task.status.message, None);
    let task = bench.send(say("remark")).await.unwrap();
    assert_eq!(artifacts(&task).len(), 0);
    assert_eq!(task.status.message.unwrap().text(), "nothing to do");
}
