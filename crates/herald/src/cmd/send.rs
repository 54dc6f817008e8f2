//! `herald send`: one message, and the wait for its result.

use std::{io::Read, path::Path};

use herald_client::{Client, StreamEvent};
use herald_protocol::{
    Content, ErrorKind, Message, MessageId, Metadata, Part, Role, SendResult, Task, TaskId,
    TaskState, request::SendMessage,
};
use uuid::Uuid;

use crate::{
    args::{MessageArgs, PartArgs, PartSource, Send},
    client::{
        contact::Contact,
        error::{CliError, CliErrorKind},
        reference::looks_like_one,
    },
    output::{Show, quoted, short, warn},
};

/// The most bytes of a file or of standard input.
const LARGEST: u64 = 64 << 20;

/// Sends a message and prints the result.
pub(crate) async fn run(args: &Send) -> Result<(), CliError> {
    let (reference, parts) = content(&args.content, args.agent.agent_card.is_some())?;
    let mut contact = Contact::new(&args.agent, reference.as_deref())?;
    contact.skill.clone_from(&args.message.skill);
    contact
        .within(async {
            let client = contact.connect().await?;
            let sent = deliver(&contact, &client, args, parts).await;
            match (sent, &args.message.task_id) {
                (Err(fault), Some(id)) => Err(refused(&contact, &client, id, fault).await),
                (sent, Some(_) | None) => sent,
            }
        })
        .await
}

async fn deliver(
    contact: &Contact,
    client: &Client,
    args: &Send,
    parts: Vec<Part>,
) -> Result<(), CliError> {
    let mut send = message(parts, &args.message);
    send.configuration.task_push_notification_config = args.webhook.config();
    if args.agent.output.stream {
        return follow(contact, client, send).await.map(drop);
    }
    let result = if args.waiting.detached() {
        send.configuration.return_immediately = true;
        client.send(send).await.map_err(|error| contact.explain(client, &error))?
    } else {
        settled(contact, client, send).await?
    };
    match &result {
        SendResult::Message(_) => contact.out.show(&result),
        SendResult::Task(task) => report(contact, task, &result),
    }
}

/// The error for a refused message to a task. If the task has ended, the hint says so, whatever the agent's error is.
async fn refused(contact: &Contact, client: &Client, id: &str, fault: CliError) -> CliError {
    if !matches!(fault.kind(), CliErrorKind::Protocol(_)) {
        return fault;
    }
    match client.get(id).await {
        Ok(task) if task.status.state.is_terminal() => fault.with_hint(format!(
            "the task has ended as {}; start a new one in its context with: {}; add --debug to see \
             the agent's error",
            short(task.status.state),
            resume(contact, &task)
        )),
        Ok(_) | Err(_) => fault,
    }
}

/// The message of a turn. Its id is chosen here, so that all attempts to send it are the same message.
pub(crate) fn message(parts: Vec<Part>, args: &MessageArgs) -> SendMessage {
    let skill = args.skill.as_deref().map(|skill| {
        let mut metadata = Metadata::new();
        metadata.insert("skill", skill);
        metadata
    });
    let message = Message {
        metadata: skill,
        message_id: MessageId::new(Uuid::new_v4().to_string()),
        role: Role::User,
        parts,
        context_id: args.context_id.as_deref().map(Into::into),
        task_id: args.task_id.as_deref().map(Into::into),
        ..Message::default()
    };
    SendMessage { message, metadata: args.metadata.clone(), ..SendMessage::default() }
}

/// Prints a task in the verb's format, the command to continue with, and a warning unless it succeeded.
pub(crate) fn report(contact: &Contact, task: &Task, shape: &impl Show) -> Result<(), CliError> {
    contact.out.show_with(shape, |page| page.field("Resume", resume(contact, task)))?;
    outcome(contact, task);
    Ok(())
}

/// The command that continues the conversation.
pub(crate) fn resume(contact: &Contact, task: &Task) -> String {
    let (id, context) = (quoted(task.id.as_str()), quoted(task.context_id.as_str()));
    let state = task.status.state;
    if state.is_interrupted() {
        contact.command("send", &format!("--task-id {id} \"TEXT\""))
    } else if state.is_terminal() {
        // A new task is routed by the skill again.
        let skill = contact.skill.as_ref().map(|skill| format!("--skill {} ", quoted(skill)));
        let skill = skill.unwrap_or_default();
        contact.command("send", &format!("{skill}--context-id {context} \"TEXT\""))
    } else {
        contact.command("task get", &format!("{id} --wait"))
    }
}

/// Warns of a state that is not success, with its reason if there is one.
pub(crate) fn outcome(contact: &Contact, task: &Task) {
    let status = &task.status;
    let state = status.state;
    match state {
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => {
            let metadata = status.message.as_ref().and_then(|message| message.metadata.as_ref());
            let reason: Option<String> = metadata.and_then(|metadata| metadata.get("reason"));
            let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
            warn(&format!("the task ended as {}{reason}", short(state)));
        }
        TaskState::InputRequired => warn("the task waits for your answer (INPUT_REQUIRED)"),
        TaskState::AuthRequired => {
            warn(&format!(
                "the agent needs you to sign in before it continues (AUTH_REQUIRED); its message says where. \
                 Then run: {}",
                resume(contact, task)
            ));
        }
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed => {}
    }
}

/// Sends and waits until the task has ended or waits for its caller.
pub(crate) async fn settled(
    contact: &Contact,
    client: &Client,
    send: SendMessage,
) -> Result<SendResult, CliError> {
    let sent = client.send_and_wait(send, |id| contact.remember(id)).await;
    match (sent, contact.seen()) {
        (Err(error), Some(id)) if is_gone(&error) => {
            Ok(SendResult::Task(wait_at_root(contact, client, id, &error).await?.0))
        }
        (sent, _) => sent.map_err(|error| contact.explain(client, &error)),
    }
}

/// Polls a task until it has ended or waits for its caller.
pub(crate) async fn poll(contact: &Contact, client: &Client, id: TaskId) -> Result<Task, CliError> {
    Ok(wait(contact, client, id).await?.0)
}

/// The same, with the client of the server's root if the agent went away.
pub(crate) async fn wait(
    contact: &Contact,
    client: &Client,
    id: TaskId,
) -> Result<(Task, Option<Client>), CliError> {
    match client.wait(id.clone()).await {
        Ok(task) => Ok((task, None)),
        Err(error) if is_gone(&error) => {
            let (task, root) = wait_at_root(contact, client, id, &error).await?;
            Ok((task, Some(root)))
        }
        Err(error) => Err(contact.explain(client, &error)),
    }
}

/// True if there is no agent any more: a role goes with its last worker, and its tasks stay.
fn is_gone(error: &herald_client::Error) -> bool {
    error.kind() == Some(ErrorKind::MethodNotFound) || error.status() == Some(404)
}

/// Polls a task at the root of its server, with the error of the agent if there is no such root.
async fn wait_at_root(
    contact: &Contact,
    client: &Client,
    id: TaskId,
    error: &herald_client::Error,
) -> Result<(Task, Client), CliError> {
    let Some(root) = contact.at_root().transpose()? else {
        return Err(contact.explain(client, error));
    };
    let at_root = root.connect().await?;
    let task = at_root.wait(id).await.map_err(|error| root.explain(&at_root, &error))?;
    Ok((task, at_root))
}

/// Prints events when they arrive, and returns the last one, which has the task's state.
pub(crate) async fn follow(
    contact: &Contact,
    client: &Client,
    send: SendMessage,
) -> Result<StreamEvent, CliError> {
    let events = client.stream(send).await.map_err(|error| contact.explain(client, &error))?;
    watch(contact, client, events).await
}

/// A result as the only event of a stream.
pub(crate) fn event(result: SendResult) -> StreamEvent {
    match result {
        SendResult::Task(task) => StreamEvent::Task(task),
        SendResult::Message(message) => StreamEvent::Message(message),
    }
}

/// Prints the events of a stream, and returns the last one.
pub(crate) async fn watch(
    contact: &Contact,
    client: &Client,
    mut events: herald_client::Events,
) -> Result<StreamEvent, CliError> {
    let explain = |error| contact.explain(client, &error);
    let mut task = None;
    while let Some(event) = events.next().await.map_err(explain)? {
        if let Some(id) = event.task_id() {
            contact.remember(id);
            task = Some(id.clone());
        }
        let direct = task.is_none() && matches!(event, StreamEvent::Message(_));
        if direct || event.state().is_some_and(is_settled) {
            return finish(contact, &event).map(|()| event);
        }
        contact.out.show(&event)?;
    }
    // The stream ended without a settled state.
    let id = task.ok_or_else(|| CliError::internal("the stream ended without an event"))?;
    let event = StreamEvent::Task(client.get(id).await.map_err(explain)?);
    finish(contact, &event).map(|()| event)
}

/// Prints the last event of a stream.
pub(crate) fn finish(contact: &Contact, event: &StreamEvent) -> Result<(), CliError> {
    let standing = match event {
        StreamEvent::Task(task) => Some(task.clone()),
        StreamEvent::StatusUpdate(update) => Some(Task {
            id: update.task_id.clone(),
            context_id: update.context_id.clone(),
            status: update.status.clone(),
            ..Task::default()
        }),
        StreamEvent::Message(_) | StreamEvent::ArtifactUpdate(_) => None,
    };
    contact.out.show_with(event, |page| {
        if let Some(task) = &standing {
            page.field("Resume", resume(contact, task));
        }
    })?;
    if let Some(task) = &standing {
        outcome(contact, task);
    }
    Ok(())
}

/// True if the task has ended or waits for its caller.
pub(crate) fn is_settled(state: TaskState) -> bool {
    state.is_terminal() || state.is_interrupted()
}

/// The agent, if it comes before the text, and the parts in their order.
/// `named` says that a flag or a setting names an agent; only a flag excludes an argument for it.
fn content(given: &PartArgs, named: bool) -> Result<(Option<String>, Vec<Part>), CliError> {
    let flagged = given.flagged;
    let (reference, text) = match &given.words[..] {
        [] => (None, None),
        [(_, only)] if !named && looks_like_one(only) => {
            if given.attachments.is_empty() {
                return Err(CliError::usage(format!("there is no message for {only}")).hint(
                    "add a text in quotes after it, or `-` for standard input, or --text, \
                     --file or --data",
                ));
            }
            (Some(only.clone()), None)
        }
        [only] => (None, Some(only)),
        [(_, first), text] if !flagged && looks_like_one(first) => {
            (Some(first.clone()), Some(text))
        }
        [(_, first), (_, agent)] if !flagged && looks_like_one(agent) => {
            let text = format!("{first:?} does not look like an agent");
            let message = match quoted(first) {
                plain if plain == *first => format!("\"{plain}\""),
                quoted => quoted,
            };
            let agent = quoted(agent);
            return Err(CliError::usage(text)
                .hint(format!("the agent comes first: herald send {agent} {message}")));
        }
        [(_, first), ..] => {
            let text = if flagged || looks_like_one(first) {
                "there are several texts".to_owned()
            } else {
                format!("{first:?} does not look like an agent")
            };
            return Err(CliError::usage(text).hint("put the whole text in quotes"));
        }
    };
    let mut stdin = Stdin::default();
    let mut parts = Vec::new();
    if let Some((position, text)) = text {
        let text = if text == "-" { stdin.text()? } else { text.clone() };
        parts.push((*position, Part::text(text)));
    }
    for attachment in &given.attachments {
        let mut part = part(&attachment.source, &mut stdin)?;
        part.media_type = attachment.media_type.clone().or(part.media_type);
        parts.push((attachment.position, part));
    }
    if parts.is_empty() {
        return Err(CliError::usage("there is no message to send")
            .hint("add a text in quotes, or --text, --file or --data"));
    }
    parts.sort_by_key(|(position, _)| *position);
    Ok((reference, parts.into_iter().map(|(_, part)| part).collect()))
}

fn part(source: &PartSource, stdin: &mut Stdin) -> Result<Part, CliError> {
    match source {
        PartSource::Text(text) => Ok(Part::text(text)),
        PartSource::Data(path) => {
            let bytes = if path == "-" {
                stdin.bytes()?
            } else {
                let form = "--data takes the path of a JSON file, or - for standard input";
                read(path).map_err(|fault| fault.hint(form))?
            };
            let value = serde_json::from_slice(&bytes)
                .map_err(|fault| CliError::usage(format!("{path} is not JSON: {fault}")))?;
            Ok(Part::new(Content::Data(value)))
        }
        PartSource::File(url) if url.starts_with("https://") || url.starts_with("http://") => {
            let mut part = Part::new(Content::Url(url.clone()));
            let path = url.split(['?', '#']).next().unwrap_or_default();
            part.filename = path.rsplit('/').next().filter(|name| !name.is_empty()).map(Into::into);
            part.media_type = guessed(path);
            Ok(part)
        }
        PartSource::File(path) if path == "-" => Ok(Part::new(Content::Raw(stdin.bytes()?))),
        PartSource::File(path) => {
            let mut part = Part::new(Content::Raw(read(path)?));
            let name = Path::new(path).file_name();
            part.filename = name.map(|name| name.to_string_lossy().into_owned());
            part.media_type = guessed(path);
            Ok(part)
        }
    }
}

/// Standard input, which can be read once.
#[derive(Debug, Default)]
struct Stdin {
    read: bool,
}

impl Stdin {
    fn bytes(&mut self) -> Result<Vec<u8>, CliError> {
        if std::mem::replace(&mut self.read, true) {
            return Err(CliError::usage("only one part of a message can be standard input"));
        }
        bounded(std::io::stdin().lock(), "standard input")
    }

    fn text(&mut self) -> Result<String, CliError> {
        String::from_utf8(self.bytes()?).map_err(|_| {
            CliError::usage("standard input is not text; use --file - for other content")
        })
    }
}

fn read(path: &str) -> Result<Vec<u8>, CliError> {
    let unreadable = |error| CliError::usage(format!("cannot read {path}: {error}"));
    bounded(std::fs::File::open(path).map_err(unreadable)?, path)
}

fn bounded(source: impl Read, name: &str) -> Result<Vec<u8>, CliError> {
    let mut bytes = Vec::new();
    let read = source.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| CliError::usage(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > LARGEST {
        return Err(CliError::usage(format!("{name} is larger than 64 MiB"))
            .hint("upload it where the agent can fetch it, and give its URL with --file"));
    }
    Ok(bytes)
}

/// The media type that a file's name suggests.
fn guessed(path: &str) -> Option<String> {
    let extension = path.rsplit('/').next()?.rsplit_once('.')?.1.to_ascii_lowercase();
    let known = match extension.as_str() {
        "txt" | "log" => "text/plain",
        "md" => "text/markdown",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "json" => "application/json",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" => "application/gzip",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "svg" => "image/svg+xml",
        "mp3" => "audio/mpeg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        _ => return None,
    };
    Some(known.to_owned())
}
