//! The examples, each started as it is and called as anybody would.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use herald_client::{Client, Message, SendResult, StreamEvent, Task, TaskState};

/// A program that dies with this value.
#[derive(Debug)]
struct Example {
    child: Child,
    url: String,
}

impl Example {
    /// Starts it on a free port.
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(path(name));
        command.arg("127.0.0.1:0").args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        Self { child, url: url.trim().to_owned() }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // It may have ended by itself, and then its test says why.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The path of an example, which cargo puts beside the directory of the tests.
fn path(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().with_file_name("examples").join(name)
}

async fn send(client: &Client, message: Message) -> Task {
    match client.send(message).await.unwrap() {
        SendResult::Task(task) => task,
        SendResult::Message(message) => panic!("no task: {message:?}"),
    }
}

#[tokio::test]
async fn the_echo_answers() {
    let example = Example::start("echo", &[]);
    let client = Client::connect(&example.url).await.unwrap();
    let task = send(&client, Message::user("m", "Hello")).await;
    assert_eq!(task.text(), "Hello");
    let artifact = &task.artifacts.as_ref().unwrap()[0];
    assert_eq!(
        (artifact.artifact_id.as_str(), artifact.name.as_deref()),
        ("response", Some("response"))
    );
    assert_eq!(task.status.message, None, "the answer is not repeated in the status");
    let card = client.card();
    assert_eq!(card.description, "Says back what it is told");
    assert_eq!(card.skills[0].description, "Says back what it is told");
}

#[test]
fn the_offline_round_trip_runs() {
    let run = Command::new(path("offline")).arg("good morning").output().unwrap();
    assert!(run.status.success(), "{run:?}");
    let said = String::from_utf8(run.stdout).unwrap();
    assert_eq!(said, "shouter: Says it louder\nGOOD MORNING\n");
}

#[tokio::test]
async fn the_countdown_streams() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("countdown.db");
    let example = Example::start("streaming", &[data.to_str().unwrap()]);
    let client = Client::connect(&example.url).await.unwrap();
    let mut events = client.stream("3").await.unwrap();
    let mut pieces = Vec::new();
    while let Some(event) = events.next().await.unwrap() {
        if let StreamEvent::ArtifactUpdate(update) = event {
            pieces.push((update.artifact.text().unwrap_or_default(), update.last_chunk));
        }
    }
    let expected = ["3 ", "2 ", "1 ", "0 "].map(|text| (text.to_owned(), text == "0 "));
    assert_eq!(pieces, expected);
    assert!(data.exists());
    let refused = client.send("many").await.unwrap().text();
    assert_eq!(refused, "that is no number");
}

#[tokio::test]
async fn the_one_that_asks_goes_on_with_the_answer() {
    let example = Example::start("approval", &[]);
    let client = Client::connect(&example.url).await.unwrap();
    let asks = async |text: &str, task: Option<&Task>| {
        let id = uuid::Uuid::new_v4().to_string();
        let task_id = task.map(|task| task.id.clone());
        send(&client, Message { task_id, ..Message::user(id, text) }).await
    };
    let asked = asks("feed the cat", None).await;
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let question = asked.status.message.as_ref().unwrap().text();
    assert_eq!(question, "Shall I feed the cat? Say yes or no.");
    let unclear = asks("perhaps", Some(&asked)).await;
    assert_eq!(unclear.status.state, TaskState::InputRequired);
    let done = asks("yes", Some(&asked)).await;
    assert_eq!(done.status.state, TaskState::Completed);
    assert_eq!(done.text(), "I did it: feed the cat");
    let asked = asks("sell the house", None).await;
    assert_eq!(asks("no", Some(&asked)).await.status.state, TaskState::Rejected);
}

#[tokio::test]
async fn the_application_has_its_own_pages_and_agents_below_them() {
    let example = Example::start("mounted", &[]);
    let base = format!("{}/assistant", example.url);
    let client = Client::connect(&base).await.unwrap();
    assert_eq!(client.send("Hello").await.unwrap().text(), "You said: Hello");
    for interface in client.card().supported_interfaces {
        if interface.protocol_binding != "GRPC" {
            assert!(interface.url.contains("/assistant"), "{interface:?}");
        }
    }
    let mut events = client.stream("again").await.unwrap();
    let mut last = None;
    while let Some(event) = events.next().await.unwrap() {
        last = Some(event);
    }
    assert!(matches!(last, Some(StreamEvent::StatusUpdate(_))), "{last:?}");
    let missing = Client::connect(&example.url).await.unwrap_err();
    assert!(missing.to_string().contains("card"), "the application answers there: {missing}");
}
