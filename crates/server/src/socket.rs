//! Socket of one connection: TCP options, recorded activity, write stalls, and input after the end.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Sleep, sleep},
};

use crate::{
    activity::{ConnectionState, Inflow},
    tls::ServerStream,
};

/// The time for which unread input is discarded after the last response. Closing the socket with unread
/// input resets the connection, and the peer might not see the response.
const LINGER: Duration = Duration::from_secs(1);

/// Unread input that is discarded at once, and the pause after it: together 6 MiB in the time above. A
/// peer that sends without end then takes little time from others.
const LINGER_BYTES: usize = 64 << 10;
const LINGER_PAUSE: Duration = Duration::from_millis(10);

/// Excessive input that is read at once, and the pause after it; see [`Inflow::Excessive`]. Together 600 pings
/// a second, and a connection of pings alone is closed after about 13 seconds.
const EXCESSIVE_BYTES: usize = 2 << 10;
const EXCESSIVE_PAUSE: Duration = Duration::from_millis(200);

/// The most bytes that are held back to be written together.
const GATHERED: usize = 1 << 10;

/// Sets the TCP options: no delay of small writes, and keepalive with a user timeout, so that the system
/// drops a peer that vanished without closing the connection.
pub(crate) fn prepare(stream: &TcpStream, timeout: Duration) {
    let socket = SockRef::from(stream);
    let alive = TcpKeepalive::new().with_time(timeout).with_interval(timeout / 4);
    // Errors are ignored: without the options a dead peer is only noticed later.
    let _ = socket.set_tcp_nodelay(true);
    let _ = socket.set_tcp_keepalive(&alive);
    #[cfg(target_os = "linux")]
    let _ = socket.set_tcp_user_timeout(Some(timeout));
}

/// A socket that records activity and fails when the peer reads nothing.
#[derive(Debug)]
pub(crate) struct Socket {
    stream: ServerStream,
    connection: ConnectionState,
    limit: Duration,
    /// Bytes that were written.
    sent: u64,
    stalled: Option<Pin<Box<Sleep>>>,
    /// Bytes that go out with the next write, if writes are gathered.
    gathered: Option<Vec<u8>>,
    /// True once the write side is shut down.
    shut: bool,
    lingering: Option<Pin<Box<Sleep>>>,
    discarded: usize,
    /// The pause before the next read.
    pause: Option<Pin<Box<Sleep>>>,
    /// True if the peer sends much beside requests.
    is_excessive: bool,
}

impl Socket {
    pub(crate) fn new(stream: ServerStream, connection: ConnectionState, limit: Duration) -> Self {
        Self {
            stream,
            connection,
            limit,
            sent: 0,
            stalled: None,
            gathered: None,
            shut: false,
            lingering: None,
            discarded: 0,
            pause: None,
            is_excessive: false,
        }
    }

    /// Gathers small writes until they are flushed. An HTTP/2 response has several frames; with
    /// vectored writes the encoder would flush each payload of more than 256 bytes before the next
    /// frame, which costs one more system call per response for its trailers.
    pub(crate) fn gathering(mut self) -> Self {
        self.gathered = Some(Vec::new());
        self
    }

    /// Writes the gathered bytes and as much of `more` as fits. Ready once the gathered ones are
    /// written.
    fn poll_gathered(&mut self, cx: &mut Context<'_>, more: &[u8]) -> Poll<io::Result<usize>> {
        while let Some(held) = self.gathered.as_mut().filter(|held| !held.is_empty()) {
            let pieces = [IoSlice::new(held), IoSlice::new(more)];
            let written = Pin::new(&mut self.stream).poll_write_vectored(cx, &pieces);
            let length = held.len();
            if let Poll::Ready(Ok(written)) = written {
                held.drain(..written.min(length));
            }
            self.count(&written);
            match ready!(self.watch(cx, written))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written if written > length => return Poll::Ready(Ok(written - length)),
                _ => {}
            }
        }
        Poll::Ready(Ok(0))
    }

    /// Reads and discards input until the peer closes, for a limited time.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.connection.is_unread() {
            return Poll::Ready(());
        }
        let limit = self.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        if limit.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut buffer = [0; 4 << 10];
        loop {
            ready!(self.poll_pause(cx));
            let mut buffer = ReadBuf::new(&mut buffer);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    self.discarded += buffer.filled().len();
                }
                Ok(()) | Err(_) => return Poll::Ready(()),
            }
            if self.discarded >= LINGER_BYTES {
                self.discarded = 0;
                self.pause = Some(Box::pin(sleep(LINGER_PAUSE)));
            }
        }
    }

    /// Waits for the end of the pause before the next read.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(cx));
            self.pause = None;
        }
        Poll::Ready(())
    }

    fn count(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.sent += *bytes as u64;
        }
    }

    /// Turns a pending write into an error once it has been pending for too long.
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
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer reads nothing (stall timeout)",
        )))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_pause(cx));
        let most = if self.is_excessive { EXCESSIVE_BYTES } else { usize::MAX };
        let received = ready!(poll_read_most(&mut self.stream, cx, buf, most))?;
        if received == 0 {
            return Poll::Ready(Ok(()));
        }
        match self.connection.received(received, self.sent) {
            Inflow::Ordinary => self.is_excessive = false,
            Inflow::Excessive => {
                self.is_excessive = true;
                self.pause = Some(Box::pin(sleep(EXCESSIVE_PAUSE)));
            }
            Inflow::Flood => {
                let text = "the peer sends too much that is no request, or resets its requests";
                return Poll::Ready(Err(io::Error::other(text)));
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// Reads at most this many bytes. Returns their number.
fn poll_read_most(
    stream: &mut ServerStream,
    cx: &mut Context<'_>,
    buf: &mut ReadBuf<'_>,
    most: usize,
) -> Poll<io::Result<usize>> {
    let before = buf.filled().len();
    if most >= buf.remaining() {
        ready!(Pin::new(stream).poll_read(cx, buf))?;
        return Poll::Ready(Ok(buf.filled().len() - before));
    }
    let unfilled = buf.initialize_unfilled_to(most);
    let mut part = ReadBuf::new(unfilled);
    ready!(Pin::new(stream).poll_read(cx, &mut part))?;
    let received = part.filled().len();
    buf.advance(received);
    Poll::Ready(Ok(received))
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
        self.count(&written);
        self.watch(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.count(&written);
        self.watch(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.gathered.is_none() && self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_gathered(cx, &[]))?;
        // TLS buffers bytes that it cannot send yet, so a stall shows here and not in the write.
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

    // A peer cannot vanish from loopback, so the test only checks the options.
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
