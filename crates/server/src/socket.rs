//! One connection's socket, and what goes on there: whether a request is under way, and since when
//! the peer lets us wait.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep},
};

use crate::{config::Timeouts, tls::Stream};

/// How long, and for how many bytes, a peer may go on sending what nobody reads after the last
/// response. Hanging up on it at once would reset the connection, and it might never see why.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 8 << 20;

/// What a socket that gathers holds back at most.
const GATHERED: usize = 1 << 10;

/// Has the system send at once what is written, and drop a peer that is not there any more: one
/// that vanished without a word acknowledges neither what is sent to it nor, when nothing is, the
/// question whether it is there.
pub(crate) fn prepare(stream: &TcpStream, patience: Duration) {
    let socket = SockRef::from(stream);
    let alive = TcpKeepalive::new().with_time(patience).with_interval(patience / 4);
    // A socket without them is served too; it may only be kept for longer.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&alive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(patience));
}

/// A socket that notes when requests begin and gives up on a peer that takes nothing.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: Stream,
    pulse: Pulse,
    limit: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    /// What goes out together with the next write, if writes are gathered.
    gathered: Option<Vec<u8>>,
    /// Nothing more will be written.
    shut: bool,
    lingering: Option<Pin<Box<Sleep>>>,
    discarded: usize,
}

/// What goes on on a connection.
#[derive(Debug, Clone)]
pub(crate) struct Pulse(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Requests under way.
    busy: usize,
    /// What is waited for while none is.
    wait: Wait,
    since: Instant,
    /// Whether the peer may still be sending a body that nobody reads.
    unread: bool,
}

/// What a connection without a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The end of the headers, on HTTP/1.
    Head,
    /// The first byte of the next request, on HTTP/1.
    Next,
    /// A request, on HTTP/2, which has traffic of its own between requests.
    Request,
}

/// A request under way, until its response is gone.
#[derive(Debug)]
pub(crate) struct Busy(Pulse);

impl Pulse {
    /// Waits for this since then.
    pub(crate) fn new(wait: Wait, since: Instant) -> Self {
        Self(Arc::new(Mutex::new(State { busy: 0, wait, since, unread: false })))
    }

    /// Notes that a request has arrived.
    pub(crate) fn begin(&self) -> Busy {
        self.lock().busy += 1;
        Busy(self.clone())
    }

    /// What has been waited for long enough then, if nothing happens.
    pub(crate) fn deadline(&self, timeouts: &Timeouts) -> Option<(Wait, Instant)> {
        let state = self.lock();
        if state.busy > 0 {
            return None;
        }
        let patience = match state.wait {
            Wait::Head => timeouts.head,
            Wait::Next | Wait::Request => timeouts.idle,
        };
        Some((state.wait, state.since + patience))
    }

    /// Notes that the body of a request was not read to its end.
    pub(crate) fn leave_unread(&self) {
        self.lock().unread = true;
    }

    fn heard(&self) {
        let mut state = self.lock();
        if state.busy == 0 && state.wait == Wait::Next {
            state.wait = Wait::Head;
            state.since = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.busy -= 1;
        if state.busy == 0 {
            if state.wait == Wait::Head {
                state.wait = Wait::Next;
            }
            state.since = Instant::now();
        }
    }
}

impl Socket {
    pub(crate) fn new(stream: Stream, pulse: Pulse, limit: Duration) -> Self {
        Self {
            stream,
            pulse,
            limit,
            stalled: None,
            gathered: None,
            shut: false,
            lingering: None,
            discarded: 0,
        }
    }

    /// Puts small writes together until they are flushed. HTTP/2 has several frames to an answer;
    /// given writes of many pieces its encoder would send off each payload of more than 256 bytes
    /// before it looks at the next frame, which is a system call for the trailers of every call.
    pub(crate) fn gathering(mut self) -> Self {
        self.gathered = Some(Vec::new());
        self
    }

    /// Writes what was gathered, and of `more` what goes along. Ready once the former is gone.
    fn poll_gathered(&mut self, cx: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        while let Some(held) = self.gathered.as_mut().filter(|held| !held.is_empty()) {
            let pieces = [IoSlice::new(held), IoSlice::new(more)];
            let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &pieces);
            let length = held.len();
            if let Poll::Ready(Ok(written)) = written {
                held.drain(..written.min(length));
            }
            match ready!(self.watch(cx, written))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written if written > length => return Poll::Ready(Ok(written - length)),
                _ => {}
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Discards what the peer is still sending.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.pulse.lock().unread {
            return Poll::Ready(());
        }
        let mut buffer = [0; 4 << 10];
        while self.discarded < LINGER_BYTES {
            let mut buffer = ReadBuf::new(&mut buffer);
            match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    self.discarded += buffer.filled().len();
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {
                    let patience = self.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
                    return patience.as_mut().poll(cx);
                }
            }
        }
        Poll::Ready(())
    }

    /// Turns waiting to write into an error once it has taken too long.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes nothing")))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.pulse.heard();
        }
        read
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(held) = &mut self.gathered {
            if held.len() + buf.len() <= GATHERED {
                held.extend_from_slice(buf);
                return Poll::Ready(Ok(buf.len()));
            }
            let written = ready!(self.poll_gathered(cx, buf))?;
            if written > 0 {
                return Poll::Ready(Ok(written));
            }
        }
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.gathered.is_none() && self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_gathered(cx, &[]))?;
        // TLS takes what it cannot send yet, and waits here.
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut {
            ready!(self.poll_gathered(cx, &[]))?;
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.shut = true;
        }
        self.poll_linger(cx).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    // No peer can vanish from loopback, so that this much has to do.
    #[tokio::test]
    async fn the_system_is_asked_to_drop_peers_that_vanish() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        prepare(&stream, Duration::from_secs(60));
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_keepalive_time().unwrap(), Duration::from_secs(60));
        #[cfg(target_os = "linux")]
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(Duration::from_secs(60)));
    }
}
