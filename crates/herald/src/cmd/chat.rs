//! `herald chat`.

use std::io::{self, IsTerminal, Write};

use herald_client::Client;
use herald_protocol::{Part, SendResult};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::send::{message, outcome, settled};
use crate::{
    args::{Chat, MessageArgs},
    contact::Contact,
    fault::Fault,
    output::Output,
};

/// The longest line that is taken.
const LONGEST: u64 = 1 << 20;

/// Sends every line and prints every answer, until the input ends.
pub(crate) async fn run(args: &Chat) -> Result<(), Fault> {
    let contact = Contact::new(&args.agent, args.reference.as_deref())?;
    let typed = io::stdin().is_terminal();
    if typed && !io::stdout().is_terminal() {
        return Err(Fault::usage("somebody types and nobody sees the answers")
            .hint("use `herald send`, or let the lines come from a pipe too"));
    }
    let client = contact.within(contact.connect()).await?;
    // Every answer is one line of JSON, as there are several.
    let out = Output { stream: true, ..contact.out };
    let mut place = args.message.clone();
    let mut lines = BufReader::new(tokio::io::stdin());
    loop {
        if typed {
            // Nothing can be done about a standard error that is gone.
            let _ = write!(io::stderr(), "> ");
        }
        let mut line = String::new();
        let read = (&mut lines).take(LONGEST).read_line(&mut line).await;
        let length = read.map_err(|error| Fault::internal(format!("cannot read: {error}")))?;
        if length as u64 == LONGEST {
            return Err(Fault::usage("a line is longer than 1 MiB"));
        }
        match line.trim() {
            "/quit" => return Ok(()),
            "" if length == 0 => return Ok(()),
            "" => {}
            text => contact.within(turn(&contact, &client, &out, &mut place, text)).await?,
        }
    }
}

/// One message and what came of it. The next one goes into the same context, and into the same task
/// while it waits.
async fn turn(
    contact: &Contact,
    client: &Client,
    out: &Output,
    place: &mut MessageArgs,
    text: &str,
) -> Result<(), Fault> {
    let send = message(vec![Part::text(text)], place);
    let result = settled(contact, client, send).await?;
    match &result {
        SendResult::Task(task) => {
            place.context_id = Some(task.context_id.to_string());
            let waits = task.status.state.is_interrupted();
            place.task_id = waits.then(|| task.id.to_string());
        }
        SendResult::Message(message) => {
            if let Some(context) = &message.context_id {
                place.context_id = Some(context.to_string());
            }
        }
    }
    out.show(&result)?;
    if let SendResult::Task(task) = &result {
        outcome(task.status.state);
    }
    Ok(())
}
