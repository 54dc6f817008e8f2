//! Drives a running server with the official Rust client: `official-rust-client URL [--transport
//! jsonrpc|rest]`. Prints one line per step and fails if any step did.

use std::{env, future::Future, pin::pin, process::ExitCode};

use a2a::{
    A2AError, CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Part, PartContent,
    Role, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, StreamResponse,
    SubscribeToTaskRequest, Task, TaskState,
};
use a2a_client::{A2AClient, A2AClientFactory, Transport, agent_card::AgentCardResolver};
use anyhow::{Context, bail, ensure};
use futures::{Stream, StreamExt};

type Client = A2AClient<Box<dyn Transport>>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("FAIL start: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs every step; returns how many failed.
async fn run() -> anyhow::Result<u32> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let url = arguments.first().context("usage: official-rust-client URL [--transport T]")?;
    let binding = match arguments.get(2).map(String::as_str) {
        None | Some("jsonrpc") => "JSONRPC",
        Some("rest") => "HTTP+JSON",
        Some(other) => bail!("unknown transport {other}"),
    };
    let card = AgentCardResolver::new(None).resolve(url).await?;
    let factory =
        A2AClientFactory::builder().preferred_bindings(vec![binding.to_owned()]).build();
    let client = factory.create_from_card(&card).await?;
    let mut score = Score::default();
    score.step("send", send(&client)).await;
    score.step("stream and get", stream_and_get(&client)).await;
    score.step("list", list(&client)).await;
    score.step("cancel", cancel(&client)).await;
    score.step("subscribe after a disconnect", subscribe(&client)).await;
    score.step("multi-turn", multi_turn(&client)).await;
    score.step("errors", errors(&client)).await;
    score.step("parts", parts(&client)).await;
    println!("{} passed, {} failed", score.passed, score.failed);
    Ok(score.failed)
}

#[derive(Default)]
struct Score {
    passed: u32,
    failed: u32,
}

impl Score {
    async fn step(&mut self, name: &str, step: impl Future<Output = anyhow::Result<()>>) {
        match step.await {
            Ok(()) => {
                self.passed += 1;
                println!("ok {name}");
            }
            Err(error) => {
                self.failed += 1;
                println!("FAIL {name}: {error:#}");
            }
        }
    }
}

fn request(message: Message) -> SendMessageRequest {
    SendMessageRequest { message, configuration: None, metadata: None, tenant: None }
}

fn says(text: &str) -> Message {
    Message::new(Role::User, vec![Part::text(text)])
}

async fn sent(client: &Client, message: Message) -> Result<Task, A2AError> {
    match client.send_message(&request(message)).await? {
        SendMessageResponse::Task(task) => Ok(task),
        SendMessageResponse::Message(_) => Err(A2AError::internal("expected a task")),
    }
}

async fn get(client: &Client, id: &str) -> Result<Task, A2AError> {
    let request = GetTaskRequest { id: id.to_owned(), history_length: None, tenant: None };
    client.get_task(&request).await
}

fn texts(task: &Task) -> String {
    let artifacts = task.artifacts.iter().flatten();
    artifacts.flat_map(|artifact| &artifact.parts).filter_map(Part::as_text).collect()
}

/// What a stream told until it ended: the task id, the chunks and the last state.
async fn follow(
    stream: impl Stream<Item = Result<StreamResponse, A2AError>>,
    at_most: usize,
) -> anyhow::Result<(String, Vec<String>, Option<TaskState>)> {
    let mut stream = pin!(stream);
    let (mut id, mut chunks, mut state) = (String::new(), Vec::new(), None);
    while let Some(event) = stream.next().await {
        match event? {
            StreamResponse::Task(task) => id = task.id,
            StreamResponse::Message(_) => bail!("unexpected message"),
            StreamResponse::StatusUpdate(update) => state = Some(update.status.state),
            StreamResponse::ArtifactUpdate(update) => {
                chunks.push(update.artifact.parts.iter().filter_map(Part::as_text).collect());
                if chunks.len() == at_most {
                    break;
                }
            }
        }
    }
    Ok((id, chunks, state))
}

async fn send(client: &Client) -> anyhow::Result<()> {
    let task = sent(client, says("tck-complete-task hello")).await?;
    ensure!(task.status.state == TaskState::Completed, "{:?}", task.status);
    Ok(())
}

async fn stream_and_get(client: &Client) -> anyhow::Result<()> {
    let message = says("tck-stream-chunked chunks=10 size=16 delay_ms=5");
    let stream = client.send_streaming_message(&request(message)).await?;
    let (id, chunks, state) = follow(stream, usize::MAX).await?;
    ensure!(chunks.len() == 10 && state == Some(TaskState::Completed), "{chunks:?} {state:?}");
    let task = get(client, &id).await?;
    ensure!(texts(&task) == chunks.concat(), "the artifact is what was streamed");
    ensure!(task.history.is_some_and(|history| history.len() == 1), "the message is in the history");
    Ok(())
}

async fn list(client: &Client) -> anyhow::Result<()> {
    let first = sent(client, says("tck-complete-task one")).await?;
    let mut second = says("tck-complete-task two");
    second.context_id = Some(first.context_id.clone());
    let second = sent(client, second).await?;
    let (mut seen, mut token) = (Vec::new(), None);
    loop {
        let request = ListTasksRequest {
            context_id: Some(first.context_id.clone()),
            status: None,
            page_size: Some(1),
            page_token: token,
            history_length: None,
            status_timestamp_after: None,
            include_artifacts: None,
            tenant: None,
        };
        let page = client.list_tasks(&request).await?;
        ensure!(page.total_size == 2, "{}", page.total_size);
        seen.extend(page.tasks.into_iter().map(|task| task.id));
        if page.next_page_token.is_empty() {
            break;
        }
        token = Some(page.next_page_token);
    }
    ensure!(seen == [second.id, first.id], "{seen:?}");
    Ok(())
}

async fn cancel(client: &Client) -> anyhow::Result<()> {
    let mut request = request(says("tck-cancel"));
    request.configuration = Some(SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
        return_immediately: Some(true),
    });
    let SendMessageResponse::Task(task) = client.send_message(&request).await? else {
        bail!("expected a task");
    };
    let cancel = CancelTaskRequest { id: task.id.clone(), metadata: None, tenant: None };
    ensure!(client.cancel_task(&cancel).await?.status.state == TaskState::Canceled);
    ensure!(get(client, &task.id).await?.status.state == TaskState::Canceled);
    let done = sent(client, says("tck-complete-task")).await?;
    let cancel = CancelTaskRequest { id: done.id, metadata: None, tenant: None };
    let error = client.cancel_task(&cancel).await.err().context("expected an error")?;
    ensure!(error.code == -32002, "{error:?}");
    Ok(())
}

async fn subscribe(client: &Client) -> anyhow::Result<()> {
    let message = says("tck-stream-chunked chunks=20 size=12 delay_ms=50");
    let stream = client.send_streaming_message(&request(message)).await?;
    let (id, _, _) = follow(stream, 3).await?;
    let request = SubscribeToTaskRequest { id: id.clone(), tenant: None };
    let (_, _, state) = follow(client.subscribe_to_task(&request).await?, usize::MAX).await?;
    ensure!(state == Some(TaskState::Completed), "{state:?}");
    let text = texts(&get(client, &id).await?);
    ensure!((0..20).all(|index| text.contains(&format!("chunk {index} "))), "{text}");
    Ok(())
}

async fn multi_turn(client: &Client) -> anyhow::Result<()> {
    let task = sent(client, says("tck-multi-turn")).await?;
    for (text, state) in [("more", TaskState::InputRequired), ("done", TaskState::Completed)] {
        let mut answer = says(text);
        answer.task_id = Some(task.id.clone());
        let next = sent(client, answer).await?;
        ensure!(next.status.state == state, "{:?}", next.status);
        ensure!(next.context_id == task.context_id, "the context changed");
    }
    let history = get(client, &task.id).await?.history.unwrap_or_default();
    let own = history.iter().filter(|message| message.role == Role::User).count();
    ensure!(own == 3, "{own} messages of ours in the history");
    Ok(())
}

async fn errors(client: &Client) -> anyhow::Result<()> {
    let unknown = get(client, "no-such-task").await.err().context("expected an error")?;
    ensure!(unknown.code == -32001, "{unknown:?}");
    let done = sent(client, says("tck-complete-task")).await?;
    let mut late = says("more");
    late.task_id = Some(done.id.clone());
    let refused = sent(client, late).await.err().context("expected an error")?;
    ensure!(refused.code == -32004, "{refused:?}");
    let request = SubscribeToTaskRequest { id: done.id, tenant: None };
    let refused = match client.subscribe_to_task(&request).await {
        Err(error) => error,
        Ok(stream) => match pin!(stream).next().await {
            Some(Err(error)) => error,
            other => bail!("expected an error, not {other:?}"),
        },
    };
    ensure!(refused.code == -32004, "{refused:?}");
    Ok(())
}

async fn parts(client: &Client) -> anyhow::Result<()> {
    let contents = [
        PartContent::Text("tck-complete-task e\u{301} 漢字 🦀".to_owned()),
        PartContent::Data(serde_json::json!({ "list": [1.5, null, "x"] })),
        PartContent::Raw(vec![0, 255, 10, 13]),
    ];
    let wanted = contents.map(|content| Part {
        content,
        filename: None,
        media_type: None,
        metadata: None,
    });
    let task = sent(client, Message::new(Role::User, wanted.to_vec())).await?;
    let history = get(client, &task.id).await?.history.unwrap_or_default();
    let first = history.first().context("the history is empty")?;
    ensure!(first.parts == wanted, "{:?}", first.parts);
    Ok(())
}
