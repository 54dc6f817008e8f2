//! Standard I/O binding: a JSON-RPC session whose messages are lines.

use std::{future::Future, io, pin::pin, time::Duration};

use herald_engine::budget::Payer;
use herald_protocol::{
    Error, ErrorKind,
    lines::{BoundedLine, LineSplitter},
};
use http::Request;
use tokio::{
    io::{
        AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter,
    },
    time::{Instant, timeout_at},
};

use crate::{
    bind::session::{Session, SessionOutput},
    binding::Binding,
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
        let (mut input, limit) = (BufReader::new(input), self.shared.config.limits.body);
        // The endpoint of JSON-RPC in 0.1, from which this binding comes.
        let (parts, ()) = Request::post("/rpc").body(()).expect("a path is a target").into_parts();
        let (mut session, outgoing) = Session::new(
            self.shared,
            parts,
            None,
            Binding::Stdio,
            Ingress::InProcess,
            Payer::Process,
        );
        let mut stop = pin!(stop);
        let mut writing = pin!(write(output, outgoing));
        let end = tokio::select! {
            () = read(&mut input, limit, &mut session) => InputEnd::Input,
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

/// Gives the session line after line until the input ends. Blank lines are skipped.
async fn read(input: &mut (impl AsyncBufRead + Unpin), limit: usize, session: &mut Session) {
    let mut lines = LineSplitter::new(limit);
    loop {
        let (line, is_last) = match input.fill_buf().await {
            Ok([]) => (lines.finish(), true),
            Ok(bytes) => {
                let (taken, line) = lines.push(bytes);
                input.consume(taken);
                (line, false)
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the input");
                return;
            }
        };
        match line {
            Some(BoundedLine::Whole(text)) if text.trim_ascii().is_empty() => {}
            Some(BoundedLine::Whole(text)) => session.receive(text.into()).await,
            Some(BoundedLine::Truncated(_)) => {
                let text = format!("the line is larger than {limit} bytes");
                session.refuse(Error::new(ErrorKind::TooLarge, text).with("limit", limit)).await;
            }
            None => {}
        }
        if is_last {
            return;
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
