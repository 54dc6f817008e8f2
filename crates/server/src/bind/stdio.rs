//! Standard I/O binding: a JSON-RPC session whose messages are lines.

use std::{future::Future, io, pin::pin, time::Duration};

use bytes::Bytes;
use herald_protocol::{Error, ErrorKind};
use http::Request;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter},
    time::{Instant, timeout_at},
};

use crate::{
    bind::{
        Binding,
        session::{Session, SessionOutput},
    },
    guard::Ingress,
    serve::ServeError,
    server::Server,
};

/// The time to write the last responses after the stop timeout.
const FINAL_WRITE: Duration = Duration::from_secs(1);

/// The reason why no more input is read.
enum InputEnd {
    /// The input has ended.
    Input,
    /// The output is closed.
    Output,
    /// The signal to stop.
    Stop,
}

/// One line of the input.
#[derive(Debug, PartialEq, Eq)]
enum InputLine {
    Whole(Bytes),
    TooLong,
}

struct InputLines<R> {
    input: BufReader<R>,
    limit: usize,
}

impl Server {
    /// Serves one peer over lines of JSON, each a whole message, until its input ends or `stop`
    /// resolves.
    ///
    /// The engine starts its work first. When the input ends, all calls get their responses; on `stop`,
    /// streams end where they are. Then the engine shuts down, and calls that are left after the stop
    /// timeout are aborted.
    pub async fn serve_lines(
        self,
        input: impl AsyncRead + Send + Unpin,
        output: impl AsyncWrite + Send + Unpin,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let engine = self.shared.engine.clone();
        engine.start_work().await.map_err(ServeError::Engine)?;
        let stop_timeout = self.shared.config.timeouts.stop;
        let mut lines =
            InputLines { input: BufReader::new(input), limit: self.shared.config.limits.body };
        // The endpoint of JSON-RPC in 0.1, from which this binding comes.
        let (parts, ()) = Request::post("/rpc").body(()).expect("a path is a target").into_parts();
        let (mut session, outgoing) =
            Session::new(self, parts, None, Binding::Stdio, Ingress::InProcess);
        let mut stop = pin!(stop);
        let mut writing = pin!(write(output, outgoing));
        let end = tokio::select! {
            () = read(&mut lines, &mut session) => InputEnd::Input,
            _ = writing.as_mut() => InputEnd::Output,
            () = stop.as_mut() => InputEnd::Stop,
        };
        let deadline = Instant::now() + stop_timeout;
        let written = match end {
            InputEnd::Output => true,
            InputEnd::Stop => false,
            InputEnd::Input => tokio::select! {
                _ = timeout_at(deadline, session.finish()) => false,
                _ = writing.as_mut() => true,
                () = stop => false,
            },
        };
        let left = deadline.saturating_duration_since(Instant::now());
        let rest = async {
            if written {
                return drop(session);
            }
            let answered = async {
                session.finish().await;
                drop(session);
            };
            let rest = async { tokio::join!(answered, writing) };
            if timeout_at(deadline.max(Instant::now() + FINAL_WRITE), rest).await.is_err() {
                tracing::warn!("some responses could not be written in time");
            }
        };
        tokio::join!(engine.drain(left), rest);
        Ok(())
    }
}

/// Passes each line to the session.
async fn read(lines: &mut InputLines<impl AsyncRead + Unpin>, session: &mut Session) {
    loop {
        match lines.next().await {
            Ok(Some(InputLine::Whole(text))) => session.receive(text).await,
            Ok(Some(InputLine::TooLong)) => {
                let text = format!("the line is larger than {} bytes", lines.limit);
                let error = Error::new(ErrorKind::TooLarge, text).with("limit", lines.limit);
                session.refuse(error).await;
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "cannot read the input");
                return;
            }
        }
    }
}

/// Writes the output of the session.
async fn write(output: impl AsyncWrite + Unpin, mut outgoing: SessionOutput) -> io::Result<()> {
    let mut output = BufWriter::new(output);
    while let Some(first) = outgoing.next().await {
        let mut next = Some(first);
        while let Some(waiting) = next {
            output.write_all(&waiting.text).await?;
            output.write_all(b"\n").await?;
            next = outgoing.next_now();
        }
        output.flush().await?;
    }
    Ok(())
}

impl<R: AsyncRead + Unpin> InputLines<R> {
    /// The next line that is not blank. A line over the limit is skipped without being buffered.
    async fn next(&mut self) -> io::Result<Option<InputLine>> {
        let (mut line, mut skipping) = (Vec::new(), false);
        loop {
            let available = self.input.fill_buf().await?;
            let over = available.is_empty();
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if line.len() + part.len() > self.limit {
                (line, skipping) = (Vec::new(), true);
            }
            if !skipping {
                line.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if !over && end.is_none() {
                continue;
            }
            if std::mem::take(&mut skipping) {
                return Ok(Some(InputLine::TooLong));
            }
            if !line.trim_ascii().is_empty() {
                return Ok(Some(InputLine::Whole(line.into())));
            }
            if over {
                return Ok(None);
            }
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8], buffer: usize) -> Vec<Option<String>> {
        let input = BufReader::with_capacity(buffer, input);
        let (mut lines, mut found) = (InputLines { input, limit: 5 }, Vec::new());
        while let Some(line) = lines.next().await.unwrap() {
            found.push(match line {
                InputLine::Whole(text) => Some(String::from_utf8(text.to_vec()).unwrap()),
                InputLine::TooLong => None,
            });
        }
        found
    }

    #[tokio::test]
    async fn lines_come_in_any_pieces_and_none_is_larger_than_the_limit() {
        let input = b"a\n\n \r\n12345\n123456\nb\r\n1234567890123\nlast";
        let whole = |text: &str| Some(text.to_owned());
        let expected = [whole("a"), whole("12345"), None, whole("b\r"), None, whole("last")];
        for buffer in 1..input.len() + 1 {
            assert_eq!(lines(input, buffer).await, expected, "{buffer} bytes at a time");
        }
        assert_eq!(lines(b"123456", 2).await, [None]);
        assert_eq!(lines(b"", 2).await, []);
    }
}
