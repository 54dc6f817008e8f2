//! Tools for tasks: send_to_agent, send_message, get_task, list_tasks, cancel_task.

use std::time::Duration;

use herald_engine::Reply;
use herald_protocol::{
    AgentName, Content, ContextId, Dialect, Error, Message, MessageId, Metadata, Part, Request,
    SendResult, StreamEvent, Task, TaskId, TaskState,
    request::{CancelTask, GetTask, ListTasks, SendConfiguration, SendMessage, SubscribeToTask},
    validate::check,
};
use serde::Serialize;
use tokio::time::timeout;
use uuid::Uuid;

use super::{
    arguments::{
        CancelTaskArguments, GetTaskArguments, ListTasksArguments, MessageArguments, SendArguments,
        SendToAgentArguments,
    },
    call::{McpCall, SendOutcome},
    reply::ToolReply,
    untrusted::{TextWindow, line},
};

/// The most characters of output in one reply. Clients limit the output of a tool, some to 25,000 tokens.
pub(super) const MAX_OUTPUT: usize = 30_000;
/// The most characters of an id or a name.
pub(super) const MAX_NAME: usize = 200;
/// The wait for a result without `wait_seconds`, and the longest one. Some clients give a tool 30 seconds.
const WAIT: u64 = 20;
const MAX_WAIT: u64 = 25;
/// Tasks on a page without `page_size`.
const PAGE: i32 = 20;

/// A task as the reply of a tool.
#[derive(Debug, Serialize)]
struct TaskReply {
    task_id: String,
    context_id: String,
    state: &'static str,
    /// True if the task has ended.
    done: bool,
    /// The output in its frame.
    output: String,
    output_characters: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_offset: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
}

/// A direct answer, without a task, as the reply of a tool.
#[derive(Debug, Serialize)]
struct AnswerReply {
    task_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<String>,
    state: &'static str,
    done: bool,
    output: String,
    output_characters: usize,
}

/// A send without a result yet.
#[derive(Debug, Serialize)]
struct PendingReply {
    task_id: Option<String>,
    message_id: String,
    state: &'static str,
    done: bool,
    next: String,
}

pub(super) async fn send_to_agent(
    call: &McpCall,
    arguments: SendToAgentArguments,
) -> Result<ToolReply, Error> {
    let agent = call.role(&arguments.agent_name)?;
    send(call, Some(agent), arguments.send, None).await
}

pub(super) async fn send_message(
    call: &McpCall,
    arguments: SendArguments,
) -> Result<ToolReply, Error> {
    send(call, None, arguments.send, None).await
}

/// Sends a message to an agent, or by the root endpoint; for one skill, if `skill` is given.
pub(super) async fn send(
    call: &McpCall,
    agent: Option<AgentName>,
    arguments: MessageArguments,
    skill: Option<&str>,
) -> Result<ToolReply, Error> {
    let wait = wait(arguments.wait_seconds, WAIT)?;
    let message = message(arguments, skill)?;
    let source = match (&agent, &message.task_id) {
        (Some(agent), _) => format!("agent {:?}", agent.as_str()),
        // At the root a message continues the task of any agent.
        (None, Some(task)) => format!("the agent of task {task}"),
        (None, None) => format!("agent {:?}", call.default_agent().as_str()),
    };
    let id = message.message_id.to_string();
    let request = |immediately| request(message.clone(), immediately);
    match call.send(agent, request, wait).await? {
        SendOutcome::Sent(SendResult::Task(task)) => Ok(reply(&task, 0, &source)),
        SendOutcome::Sent(SendResult::Message(message)) => Ok(answer(&message, &source)),
        SendOutcome::NotYet => {
            let next = format!(
                "The agent has not answered yet. Call again with the same arguments and message_id {id:?} to get the \
                 answer; the message is not sent twice."
            );
            let (state, done) = (TaskState::Working.kebab_name(), false);
            let pending =
                PendingReply { task_id: None, message_id: id, state, done, next: next.clone() };
            Ok(ToolReply::new(next, &pending))
        }
    }
}

/// The message of a send.
pub(super) fn message(arguments: MessageArguments, skill: Option<&str>) -> Result<Message, Error> {
    // A UUID, so that a repeated send is recognised.
    let id = match arguments.message_id.as_deref().filter(|id| !id.is_empty()) {
        Some(given) => {
            Uuid::parse_str(given).map_err(|_| Error::field("message_id", "must be a UUID"))?
        }
        None => Uuid::new_v4(),
    };
    if arguments.message.trim().is_empty() {
        return Err(Error::field("message", "must not be empty"));
    }
    let mut message = Message::user(MessageId::from(id.to_string()), arguments.message);
    message.context_id = given(arguments.context_id.as_deref()).map(ContextId::from);
    message.task_id = given(arguments.task_id.as_deref()).map(TaskId::from);
    if let Some(skill) = skill {
        let mut metadata = Metadata::new();
        metadata.insert("skill", skill);
        message.metadata = Some(metadata);
    }
    check(&message)?;
    Ok(message)
}

/// The request with a message.
pub(super) fn request(message: Message, immediately: bool) -> Request {
    let configuration = SendConfiguration {
        return_immediately: immediately,
        history_length: Some(0),
        ..SendConfiguration::default()
    };
    Request::SendMessage(Box::new(SendMessage { configuration, ..message.into() }))
}

/// An optional argument. Models send an empty text for an absent one.
pub(super) fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

fn wait(given: Option<u64>, usual: u64) -> Result<Duration, Error> {
    let seconds = given.unwrap_or(usual);
    if seconds > MAX_WAIT {
        let text = format!(
            "must be 0 to {MAX_WAIT}; a longer task goes on, and get_task returns its result"
        );
        return Err(Error::field("wait_seconds", text));
    }
    Ok(Duration::from_secs(seconds))
}

pub(super) async fn get_task(
    call: &McpCall,
    arguments: GetTaskArguments,
) -> Result<ToolReply, Error> {
    let wait = wait(arguments.wait_seconds, 0)?;
    let id = TaskId::from(arguments.task_id.as_str());
    let mut task = get(call, &id).await?;
    if !wait.is_zero() && !is_settled(task.status.state) {
        // An agent without streams has nothing to wait for.
        if timeout(wait, settled(call, &id)).await.is_ok_and(|waited| waited.is_ok()) {
            task = get(call, &id).await?;
        }
    }
    let offset = arguments.offset.unwrap_or_default();
    Ok(reply(&task, offset, &format!("the agent of task {id}")))
}

/// A task without its history.
pub(super) async fn get(call: &McpCall, id: &TaskId) -> Result<Task, Error> {
    let get = GetTask { id: id.clone(), history_length: Some(0), ..GetTask::default() };
    check(&get)?;
    call.task(Request::GetTask(get)).await
}

/// Waits until a task has ended or waits for its caller.
async fn settled(call: &McpCall, id: &TaskId) -> Result<(), Error> {
    let subscribe = SubscribeToTask { id: id.clone(), ..SubscribeToTask::default() };
    let exchange = call.exchange(None);
    let request = Request::SubscribeToTask(subscribe);
    let replied = exchange.call(&call.caller, Dialect::V1, request, None).await?;
    // The permit of the stream is held until its end.
    let (Reply::Stream(mut events), _permit) = replied.into_reply() else { return Ok(()) };
    while let Some(item) = events.next().await? {
        if let Ok(event) = serde_json::from_slice::<StreamEvent>(&item.body)
            && let StreamEvent::StatusUpdate(update) = event
            && is_settled(update.status.state)
        {
            break;
        }
    }
    Ok(())
}

const fn is_settled(state: TaskState) -> bool {
    state.is_terminal() || state.is_interrupted()
}

pub(super) async fn cancel_task(
    call: &McpCall,
    arguments: CancelTaskArguments,
) -> Result<ToolReply, Error> {
    let task = cancel(call, &arguments.task_id).await?;
    Ok(reply(&task, 0, &format!("the agent of task {}", task.id)))
}

/// Cancels a task. A repeated cancel changes nothing.
pub(super) async fn cancel(call: &McpCall, id: &str) -> Result<Task, Error> {
    let cancel = CancelTask { id: TaskId::from(id), ..CancelTask::default() };
    check(&cancel)?;
    call.task(Request::CancelTask(cancel)).await
}

pub(super) async fn list_tasks(
    call: &McpCall,
    arguments: ListTasksArguments,
) -> Result<ToolReply, Error> {
    #[derive(Serialize)]
    struct ListReply {
        tasks: Vec<TaskLine>,
        total: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_page_token: Option<String>,
    }
    #[derive(Serialize)]
    struct TaskLine {
        task_id: String,
        context_id: String,
        state: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        changed: Option<String>,
    }
    let list = ListTasks {
        context_id: given(arguments.context_id.as_deref()).map(ContextId::from),
        status: arguments.state.map(TaskState::from).unwrap_or_default(),
        page_size: Some(arguments.page_size.unwrap_or(PAGE)),
        page_token: given(arguments.page_token.as_deref()).map(str::to_owned),
        history_length: Some(0),
        include_artifacts: Some(false),
        ..ListTasks::default()
    };
    check(&list)?;
    let page = call.tasks(Request::ListTasks(list)).await?;
    let tasks: Vec<_> = page
        .tasks
        .iter()
        .map(|task| TaskLine {
            task_id: line(task.id.as_str(), MAX_NAME),
            context_id: line(task.context_id.as_str(), MAX_NAME),
            state: task.status.state.kebab_name(),
            changed: task.status.timestamp.map(|time| time.to_string()),
        })
        .collect();
    let mut text = format!("{} of {} tasks.", tasks.len(), page.total_size);
    for TaskLine { task_id, context_id, state, changed } in &tasks {
        let changed = changed.as_deref().unwrap_or("-");
        text.push_str(&format!("\n{task_id}  {state}  {changed}  context {context_id}"));
    }
    let next_page_token = Some(page.next_page_token).filter(|token| !token.is_empty());
    if let Some(token) = &next_page_token {
        text.push_str(&format!("\nThe next page: page_token {token:?}."));
    }
    Ok(ToolReply::new(text, &ListReply { tasks, total: page.total_size, next_page_token }))
}

/// A task as a reply, with its output from this character on.
fn reply(task: &Task, offset: usize, source: &str) -> ToolReply {
    let mut window = TextWindow::new(offset, MAX_OUTPUT);
    write_task(&mut window, task);
    let id = line(task.id.as_str(), MAX_NAME);
    let rest = offset.saturating_add(MAX_OUTPUT);
    let rest = format!("Call get_task with task_id {id:?} and offset {rest} for the next part.");
    let framed = window.framed(source, &rest);
    let (state, context) = (task.status.state, line(task.context_id.as_str(), MAX_NAME));
    let next = next_step(state, &id);
    let mut text = format!("Task {id} is {}. Context: {context}.", state.kebab_name());
    if let Some(next) = &next {
        text.push(' ');
        text.push_str(next);
    }
    if framed.total > 0 {
        text.push('\n');
        text.push_str(&framed.text);
    }
    let reply = TaskReply {
        task_id: id,
        context_id: context,
        state: state.kebab_name(),
        done: state.is_terminal(),
        output: framed.text,
        output_characters: framed.total,
        next_offset: framed.next,
        next,
    };
    ToolReply::new(text, &reply)
}

/// A direct answer as a reply.
fn answer(message: &Message, source: &str) -> ToolReply {
    let mut window = TextWindow::new(0, MAX_OUTPUT);
    write_parts(&mut window, &message.parts, "\n");
    let framed = window.framed(source, "Ask the agent for a shorter answer, or for a part of it.");
    let text = format!("The agent answered directly, without a task.\n{}", framed.text);
    let reply = AnswerReply {
        task_id: None,
        context_id: message.context_id.as_ref().map(|id| line(id.as_str(), MAX_NAME)),
        state: TaskState::Completed.kebab_name(),
        done: true,
        output: framed.text,
        output_characters: framed.total,
    };
    ToolReply::new(text, &reply)
}

/// The next step of the caller of a task in this state.
fn next_step(state: TaskState, id: &str) -> Option<String> {
    match state {
        TaskState::Submitted | TaskState::Working => Some(format!(
            "It goes on: call get_task with task_id {id:?} and wait_seconds {MAX_WAIT} for its result."
        )),
        TaskState::InputRequired => Some(format!(
            "The agent waits for an answer: send it with send_to_agent or send_message and task_id {id:?}."
        )),
        TaskState::AuthRequired => {
            Some("The agent waits for credentials, which a person has to provide.".to_owned())
        }
        TaskState::Unspecified
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Canceled
        | TaskState::Rejected => None,
    }
}

/// Adds the output of a task: its artifacts, and the message of its status.
pub(super) fn write_task(window: &mut TextWindow, task: &Task) {
    let artifacts = task.artifacts.as_deref().unwrap_or_default();
    for artifact in artifacts {
        if artifacts.len() > 1 {
            let name = artifact.name.as_deref().unwrap_or(artifact.artifact_id.as_str());
            window.push(&format!("[artifact {}]\n", line(name, MAX_NAME)));
        }
        // An artifact that was written in pieces has a part for each.
        write_parts(window, &artifact.parts, "");
    }
    if let Some(message) = &task.status.message {
        if !artifacts.is_empty() {
            window.push("[status]\n");
        }
        write_parts(window, &message.parts, "\n");
    }
}

/// Adds parts and a line end: texts and data as they are, with `gap` between texts, and files by name.
pub(super) fn write_parts(window: &mut TextWindow, parts: &[Part], gap: &str) {
    for (index, part) in parts.iter().enumerate() {
        let is_text = part.as_text().is_some();
        let after_text = index > 0 && parts[index - 1].as_text().is_some();
        match (index, is_text && after_text) {
            (0, _) => {}
            (_, true) => window.push(gap),
            (_, false) => window.push("\n"),
        }
        let name = line(part.filename.as_deref().unwrap_or("without a name"), MAX_NAME);
        match &part.content {
            Content::Text(text) => window.push(text),
            // Canonical JSON escapes control characters, and they stay escaped.
            Content::Data(data) => window.push(data.as_str()),
            Content::Url(url) => window.push(&format!("[file {name} at {}]", line(url, 2000))),
            Content::Raw(bytes) => {
                let kind = line(part.media_type.as_deref().unwrap_or("unknown type"), MAX_NAME);
                let size = bytes.len();
                window.push(&format!(
                    "[file {name}, {kind}, {size} bytes; `herald task download` saves it]"
                ));
            }
        }
    }
    window.push("\n");
}
