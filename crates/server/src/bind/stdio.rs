//! Standard I/O binding: a JSON-RPC session whose messages are lines.

use std::{future::Future, io, pin::pin, time::Duration};

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
    bind::{
        Binding,
        session::{Outgoing, Session},
    },
    guard::Ingress,
    serve::ServeError,
    server::Server,
};

/// How long the last answers may take to be written once the time to stop is over.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Why nothing more is read.
enum End {
    /// The input has ended.
    Input,
    /// Nobody reads the output any more.
    Output,
    /// It is told to stop.
    Stop,
}

impl Server {
    /// Serves one peer over lines of JSON, each a whole message, until its input ends or `stop`
    /// resolves.
    ///
    /// It has the engine take up its work first. When the input ends, what was asked is answered; on
    /// `stop`, streams end where they are. Either way the engine then shuts down, and what is left
    /// after the stop timeout is cut off.
    pub async fn serve_lines(
        self,
        input: impl AsyncRead + Send + Unpin,
        output: impl AsyncWrite + Send + Unpin,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let engine = self.shared.engine.clone();
        engine.start_work().await.map_err(ServeError::Engine)?;
        let patience = self.shared.config.timeouts.stop;
        let (mut input, limit) = (BufReader::new(input), self.shared.config.limits.body);
        // The endpoint that programs of this kind had from the beginning.
        let (parts, ()) = Request::post("/rpc").body(()).expect("a path is a target").into_parts();
        let (mut session, outgoing) =
            Session::new(self, parts, None, Binding::Stdio, Ingress::InProcess);
        let mut stop = pin!(stop);
        let mut writing = pin!(write(output, outgoing));
        let end = tokio::select! {
            () = read(&mut input, limit, &mut session) => End::Input,
            _ = writing.as_mut() => End::Output,
            () = stop.as_mut() => End::Stop,
        };
        let deadline = Instant::now() + patience;
        let written = match end {
            End::Output => true,
            End::Stop => false,
            End::Input => tokio::select! {
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
            if timeout_at(deadline.max(Instant::now() + LAST_WORDS), rest).await.is_err() {
                tracing::warn!("some answers could not be written in time");
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
                tracing::warn!(%error, "the input cannot be read");
                return;
            }
        };
        match line {
            Some(BoundedLine::Whole(text)) if text.trim_ascii().is_empty() => {}
            Some(BoundedLine::Whole(text)) => session.take(text.into()).await,
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

/// Writes what the session has to say until it is gone.
async fn write(output: impl AsyncWrite + Unpin, mut outgoing: Outgoing) -> io::Result<()> {
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
