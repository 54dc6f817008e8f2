//! `herald chat`.

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
        fault::{Fault, Kind},
    },
    output::{Output, inline, note, quoted, warn},
};

/// The longest line that is taken.
const LONGEST: u64 = 1 << 20;

/// What a line asks for.
enum Line<'a> {
    Nothing,
    Say(&'a str),
    Help,
    Quit,
    /// A command that there is not.
    Unknown(&'a str),
}

/// Sends every line and prints every answer, until the input ends.
pub(crate) async fn run(args: &Chat) -> Result<(), Fault> {
    let contact = Contact::new(&args.agent, args.reference.as_deref())?;
    let typed = io::stdin().is_terminal();
    if typed && !io::stdout().is_terminal() {
        return Err(Fault::usage("somebody types and nobody sees the answers")
            .hint("use `herald send`, or let the lines come from a pipe too"));
    }
    let client = contact.within(contact.connect()).await?;
    if typed {
        let name = &client.card().name;
        note(
            "Chat",
            &inline(&format!("with {name}; /quit ends it, /help says what else there is")),
        );
    }
    // One for the whole time, as none must be lost between a turn and the next line.
    let interrupts = signal(SignalKind::interrupt());
    let mut interrupts = interrupts.map_err(|error| Fault::internal(error.to_string()))?;
    let mut place = args.message.clone();
    let mut lines = BufReader::new(tokio::io::stdin());
    loop {
        if typed {
            // Nothing can be done about a standard error that is gone.
            let _ = write!(io::stderr(), "> ");
        }
        let mut line = String::new();
        let length = tokio::select! {
            read = async { (&mut lines).take(LONGEST).read_line(&mut line).await } => {
                read.map_err(|error| Fault::internal(format!("cannot read: {error}")))?
            }
            _ = interrupts.recv() => {
                return Err(left(&contact, &place, Fault::new(Kind::Interrupted, "interrupted")));
            }
        };
        if length as u64 == LONGEST {
            return Err(Fault::usage("a line is longer than 1 MiB"));
        }
        match read(&line) {
            Line::Nothing if length == 0 => return Ok(()),
            Line::Nothing => {}
            Line::Quit => return Ok(()),
            Line::Help => {
                note(
                    "Help",
                    "every line is a message; a task that waits for you gets the next one",
                );
                note(
                    "Help",
                    "/quit or the end of the input ends it; // sends a line that begins with /",
                );
            }
            Line::Unknown(command) => {
                let text = format!("not sent, there is no {command}; begin it with // to send it");
                warn(&inline(&text));
            }
            Line::Say(text) => {
                let said = contact.within(turn(&contact, &client, &mut place, text)).await;
                said.map_err(|fault| left(&contact, &place, fault))?;
            }
        }
    }
}

fn read(line: &str) -> Line<'_> {
    match line.trim() {
        "" => Line::Nothing,
        "/quit" => Line::Quit,
        "/help" => Line::Help,
        text if text.starts_with("//") => Line::Say(&text[1..]),
        text if text.starts_with('/') => {
            Line::Unknown(text.split_whitespace().next().unwrap_or(text))
        }
        text => Line::Say(text),
    }
}

/// Says how to go on with a conversation that was broken off.
fn left(contact: &Contact, place: &MessageArgs, fault: Fault) -> Fault {
    let broken_off = matches!(fault.kind(), Kind::Interrupted | Kind::Timeout | Kind::Unreachable);
    let Some(context) = place.context_id.as_ref().filter(|_| broken_off) else { return fault };
    let task = place.task_id.as_ref().map(|id| format!(" --task-id {}", quoted(id)));
    let rest = format!("--context-id {}{}", quoted(context), task.unwrap_or_default());
    let again = format!("talk on with: {}", contact.command("chat", &rest));
    let advice = fault.advice().map(|advice| format!("{advice}; {again}"));
    fault.advising(advice.unwrap_or(again))
}

/// One message and what came of it. The next one goes into the same context, and into the same task
/// while it waits.
async fn turn(
    contact: &Contact,
    client: &Client,
    place: &mut MessageArgs,
    text: &str,
) -> Result<(), Fault> {
    let send = message(vec![Part::text(text)], place);
    let last = if contact.out.stream {
        follow(contact, client, send).await?
    } else {
        let result = settled(contact, client, send).await?;
        // Every answer is one line of JSON, as there are several.
        Output { stream: true, ..contact.out }.show(&result)?;
        if let SendResult::Task(task) = &result {
            outcome(&task.status);
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
        place.context_id = Some(context.to_string());
    }
    place.task_id = task.filter(|_| state.is_interrupted()).map(ToString::to_string);
    Ok(())
}
