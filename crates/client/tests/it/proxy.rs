//! A proxy that cuts connections.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_util::task::TaskTracker;

/// TCP proxy that cuts connections on request.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    /// Bytes of answers that may still pass; `None` for no limit.
    left: Arc<Mutex<Option<usize>>>,
    /// Cuts every connection.
    scissors: Arc<Notify>,
    /// The number of connections so far.
    accepted: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn start(upstream: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Self {
            address,
            left: Arc::default(),
            scissors: Arc::default(),
            accepted: Arc::default(),
        };
        let (tasks, serving) = (TaskTracker::new(), proxy.clone());
        tasks.clone().spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                serving.accepted.fetch_add(1, Ordering::Relaxed);
                let server = TcpStream::connect(upstream).await.unwrap();
                tasks.spawn(serving.clone().pass(client, server));
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Cuts one connection after the next `count` bytes of answers; later connections pass.
    pub(crate) fn cut_after(&self, count: usize) {
        *self.left.lock().unwrap() = Some(count);
    }

    /// Cuts all current connections.
    pub(crate) fn cut_now(&self) {
        self.scissors.notify_waiters();
    }

    /// The number of connections so far.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Cancels a pending cut. Returns whether the cut has happened already.
    pub(crate) fn has_cut(&self) -> bool {
        self.left.lock().unwrap().take().is_none()
    }

    async fn pass(self, client: TcpStream, server: TcpStream) {
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let down = async {
            let mut buffer = [0; 4 << 10];
            while let Ok(read @ 1..) = from_server.read(&mut buffer).await {
                let allowed = self.allow(read);
                if to_client.write_all(&buffer[..allowed]).await.is_err() || allowed < read {
                    return;
                }
            }
        };
        tokio::select! {
            () = self.scissors.notified() => {}
            () = down => {}
            _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        }
    }

    fn allow(&self, count: usize) -> usize {
        let mut left = self.left.lock().unwrap();
        match *left {
            None => count,
            Some(rest) if rest >= count => {
                *left = Some(rest - count);
                count
            }
            Some(rest) => {
                *left = None;
                rest
            }
        }
    }
}
