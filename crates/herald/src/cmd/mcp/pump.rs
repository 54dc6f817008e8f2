//! Loop of the bridge: lines of the client to the server, replies of the server to the client.

use std::sync::Arc;

use bytes::Bytes;
use herald_protocol::lines::{BoundedLine, LineSplitter};
use http::{Response, StatusCode};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt, AsyncWriteExt, BufReader, Stdout, stdin, stdout},
    task::JoinSet,
};

use super::{
    message::{self, BRIDGE_ERROR, INVALID_REQUEST, McpMessage},
    request,
};
use crate::{
    api::Api,
    client::error::{CliError, CliErrorKind},
    output::warn,
};

/// The most bytes of a message.
const LONGEST: usize = 16 << 20;
/// The most requests at once. The client waits beyond them.
const AT_ONCE: usize = 32;

/// The answer to one message.
struct Forwarded {
    /// The line for the client, if there is one.
    line: Option<Vec<u8>>,
    /// The version of the protocol, if the message negotiated it.
    version: Option<String>,
}

/// Forwards messages until the input has ended and every request has its reply.
pub(super) async fn run(api: Api) -> Result<(), CliError> {
    let (api, mut input, mut output) = (Arc::new(api), BufReader::new(stdin()), stdout());
    let (mut lines, mut version, mut is_open) = (LineSplitter::new(LONGEST), None, true);
    let mut running = JoinSet::new();
    while is_open || !running.is_empty() {
        tokio::select! {
            line = next(&mut input, &mut lines), if is_open && running.len() < AT_ONCE => match line? {
                Some(line) => {
                    let (api, version) = (Arc::clone(&api), version.clone());
                    running.spawn(async move { forward(&api, line, version).await });
                }
                None => is_open = false,
            },
            Some(done) = running.join_next(), if !running.is_empty() => {
                let done = done.map_err(|error| CliError::internal(error.to_string()))?;
                version = done.version.or(version);
                if let Some(line) = done.line {
                    write(&mut output, line).await?;
                }
            }
        }
    }
    Ok(())
}

/// The next line that is not empty; `None` at the end of the input. Nothing is lost if it is dropped.
async fn next(
    input: &mut (impl AsyncBufRead + Unpin),
    lines: &mut LineSplitter,
) -> Result<Option<BoundedLine>, CliError> {
    loop {
        let read = input.fill_buf().await;
        let bytes =
            read.map_err(|error| CliError::internal(format!("cannot read the input: {error}")))?;
        let is_last = bytes.is_empty();
        let line = if is_last {
            lines.finish()
        } else {
            let (taken, line) = lines.push(bytes);
            input.consume(taken);
            line
        };
        match line {
            Some(BoundedLine::Whole(text)) if text.trim_ascii().is_empty() => {}
            Some(line) => return Ok(Some(line)),
            None if is_last => return Ok(None),
            None => {}
        }
    }
}

async fn forward(api: &Api, line: BoundedLine, version: Option<String>) -> Forwarded {
    let text = match line {
        BoundedLine::Whole(text) => text,
        BoundedLine::Truncated(_) => {
            let text = format!("the message is larger than {LONGEST} bytes");
            warn(&text);
            return Forwarded::line(message::failure(None, INVALID_REQUEST, &text));
        }
    };
    // Batches were part of one version of the protocol only.
    let is_object = text.trim_ascii_start().starts_with(b"{");
    let message = serde_json::from_slice::<McpMessage>(&text).ok().filter(|_| is_object);
    let Some(message) = message else {
        let text = "the line is not a message of MCP: one JSON object per line";
        warn(text);
        return Forwarded::line(message::failure(None, INVALID_REQUEST, text));
    };
    let replied = api.forward(request(text.into(), Some((&message, version.as_deref())))).await;
    let text = match replied {
        Ok(response) if response.status().is_success() => return accepted(&message, response),
        Ok(response) => {
            let status = response.status();
            match message::error_text(response.body()) {
                Some(text) if has_id(response.body()) => {
                    warn(&text);
                    return Forwarded::line(response.into_body().into());
                }
                Some(text) => text,
                None => format!("{} answered {status}", api.place()),
            }
        }
        Err(fault) => match fault.advice() {
            Some(hint) => format!("{}; {hint}", fault.message()),
            None => fault.message().to_owned(),
        },
    };
    warn(&text);
    // A notification has no reply, whatever became of it.
    if message.is_request() {
        Forwarded::line(message.failure(BRIDGE_ERROR, &text))
    } else {
        Forwarded { line: None, version: None }
    }
}

/// The reply of the server.
fn accepted(message: &McpMessage, response: Response<Bytes>) -> Forwarded {
    let version = message.is_initialize().then(|| message::negotiated(response.body())).flatten();
    let has_line = response.status() != StatusCode::ACCEPTED && !response.body().is_empty();
    Forwarded { line: has_line.then(|| response.into_body().into()), version }
}

/// True if an error names the request that it answers.
fn has_id(body: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct ReplyId {
        id: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<ReplyId>(body).is_ok_and(|reply| reply.id.is_some())
}

impl Forwarded {
    fn line(line: Vec<u8>) -> Self {
        Self { line: Some(line), version: None }
    }
}

/// Writes one line. A line end within JSON is only space between values.
async fn write(output: &mut Stdout, mut line: Vec<u8>) -> Result<(), CliError> {
    for byte in line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    line.push(b'\n');
    let written = async {
        output.write_all(&line).await?;
        output.flush().await
    };
    written
        .await
        .map_err(|_| CliError::new(CliErrorKind::OutputClosed, "the client closed standard output"))
}
