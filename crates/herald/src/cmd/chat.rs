//! `herald chat`: a conversation, one message per line.

use std::io::{self, IsTerminal, Write};

use herald_client::{Client, StreamEvent};
use herald_protocol::{Part, SendResult, TaskState};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    signal::unix::{SignalKind, signal},
};

use super::send::{event, follow, message, outcome, settled};
use crate::{
    args::{Chat, MessageArgs},
    client::{
        contact::Contact,
        error::{CliError, CliErrorKind},
    },
    output::{Output, inline, note, quoted, warn},
};

/// The longest line that is accepted.
const LONGEST: u64 = 1 << 20;

/// The meaning of an input line.
enum ChatLine<'a> {
    Empty,
    Message(&'a str),
    Help,
    Quit,
    /// An unknown command.
    Unknown(&'a str),
}

/// Sends every line and prints every answer, until the input ends.
pub(crate) async fn run(args: &Chat) -> Result<(), CliError> {
    let contact = Contact::new(&args.agent, args.reference.as_deref())?;
    let typed = io::stdin().is_terminal();
    if typed && !io::stdout().is_terminal() {
        return Err(CliError::usage("the input is a terminal and the output is not")
            .hint("use `herald send`, or read the lines from a pipe too"));
    }
    let client = contact.within(contact.connect()).await?;
    if typed {
        let name = &client.card().name;
        note("Chat", &inline(&format!("with {name}; /quit ends it, /help lists the commands")));
    }
    // One listener for the whole chat, so that no Ctrl-C is lost between a turn and the next line.
    let interrupts = signal(SignalKind::interrupt());
    let mut interrupts = interrupts.map_err(|error| CliError::internal(error.to_string()))?;
    let mut conversation = args.message.clone();
    let mut lines = BufReader::new(tokio::io::stdin());
    loop {
        if typed {
            // A closed standard error cannot be reported.
            let _ = write!(io::stderr(), "> ");
        }
        let mut line = String::new();
        let length = tokio::select! {
            read = async { (&mut lines).take(LONGEST).read_line(&mut line).await } => {
                read.map_err(|error| CliError::internal(format!("cannot read: {error}")))?
            }
            _ = interrupts.recv() => {
                return Err(left(&contact, &conversation, CliError::new(CliErrorKind::Interrupted, "interrupted")));
            }
        };
        if length as u64 == LONGEST {
            return Err(CliError::usage("a line is longer than 1 MiB"));
        }
        match read(&line) {
            ChatLine::Empty if length == 0 => return Ok(()),
            ChatLine::Empty => {}
            ChatLine::Quit => return Ok(()),
            ChatLine::Help => {
                note(
                    "Help",
                    "every line is a message; a task that waits for you gets the next one",
                );
                note(
                    "Help",
                    "/quit or the end of the input ends it; // sends a line that begins with /",
                );
            }
            ChatLine::Unknown(command) => {
                let text = format!(
                    "not sent: unknown command {command}; begin the line with // to send it"
                );
                warn(&inline(&text));
            }
            ChatLine::Message(text) => {
                let done = contact.within(turn(&contact, &client, &mut conversation, text)).await;
                done.map_err(|fault| left(&contact, &conversation, fault))?;
            }
        }
    }
}

fn read(line: &str) -> ChatLine<'_> {
    match line.trim() {
        "" => ChatLine::Empty,
        "/quit" => ChatLine::Quit,
        "/help" => ChatLine::Help,
        text if text.starts_with("//") => ChatLine::Message(&text[1..]),
        text if text.starts_with('/') => {
            ChatLine::Unknown(text.split_whitespace().next().unwrap_or(text))
        }
        text => ChatLine::Message(text),
    }
}

/// Adds the command that continues an interrupted conversation.
fn left(contact: &Contact, conversation: &MessageArgs, fault: CliError) -> CliError {
    let broken_off = matches!(
        fault.kind(),
        CliErrorKind::Interrupted | CliErrorKind::Timeout | CliErrorKind::Unreachable
    );
    let context = conversation.context_id.as_ref().filter(|_| broken_off);
    let Some(context) = context else { return fault };
    let task = conversation.task_id.as_ref().map(|id| format!(" --task-id {}", quoted(id)));
    let rest = format!("--context-id {}{}", quoted(context), task.unwrap_or_default());
    let again = format!("continue the chat with: {}", contact.command("chat", &rest));
    let advice = fault.advice().map(|advice| format!("{advice}; {again}"));
    fault.with_hint(advice.unwrap_or(again))
}

/// Sends one message and prints the result. The next message goes to the same context, and to the same task
/// if that waits for input.
async fn turn(
    contact: &Contact,
    client: &Client,
    conversation: &mut MessageArgs,
    text: &str,
) -> Result<(), CliError> {
    let send = message(vec![Part::text(text)], conversation);
    let last = if contact.out.stream {
        follow(contact, client, send).await?
    } else {
        let result = settled(contact, client, send).await?;
        // A chat has several results, so each is one line of JSON.
        Output { stream: true, ..contact.out }.show(&result)?;
        if let SendResult::Task(task) = &result {
            outcome(contact, task);
        }
        event(result)
    };
    let (context, task, state) = match &last {
        StreamEvent::Task(task) => (Some(&task.context_id), Some(&task.id), task.status.state),
        StreamEvent::StatusUpdate(update) => {
            (Some(&update.context_id), Some(&update.task_id), update.status.state)
        }
        StreamEvent::Message(message) => {
            (message.context_id.as_ref(), None, TaskState::Unspecified)
        }
        StreamEvent::ArtifactUpdate(update) => {
            (Some(&update.context_id), None, TaskState::Unspecified)
        }
    };
    if let Some(context) = context {
        conversation.context_id = Some(context.to_string());
    }
    conversation.task_id = task.filter(|_| state.is_interrupted()).map(ToString::to_string);
    Ok(())
}
