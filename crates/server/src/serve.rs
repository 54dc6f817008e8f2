//! Listener: accepts connections until shutdown, then waits for them to finish.

use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, sleep, timeout_at},
};

use crate::{connection::Connections, limits::KeyedLimit, server::Server};

/// The first and the longest pause after a failed accept: a server without free file descriptors must
/// not spin.
const MIN_PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_millis(640);

/// Errors of [`Server::serve`].
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener has no address.
    #[error("the listener has no address: {0}")]
    Listener(#[source] io::Error),
    /// The listener is reachable from the network, and no credentials are required.
    #[error(
        "{0} is reachable from the network and no credentials are required: configure tokens, \
         bind to loopback, or set open_to_network"
    )]
    Open(SocketAddr),
    /// The engine could not start its work.
    #[error("the engine could not start: {0}")]
    Engine(herald_protocol::Error),
}

impl Server {
    /// Serves `listener` until `stop` resolves.
    ///
    /// The engine starts its work first. On `stop` the server is no longer ready and accepts no
    /// connections, the engine ends every stream so that it can be resumed, and requests finish.
    /// Connections that are left after the stop timeout are aborted. It returns when none is left.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let bound = listener.local_addr().map_err(ServeError::Listener)?;
        let open = self.shared.auth.is_open() && !self.shared.config.open_to_network;
        if open && !bound.ip().to_canonical().is_loopback() {
            return Err(ServeError::Open(bound));
        }
        let engine = self.shared.engine.clone();
        engine.start_work().await.map_err(ServeError::Engine)?;
        let stop_timeout = self.shared.config.timeouts.stop;
        let connections = Connections::new(self.clone(), bound.ip());
        {
            let mut stop = pin!(stop);
            let mut accept = pin!(self.accept(&listener, &connections));
            tokio::select! {
                () = stop.as_mut() => {}
                never = accept.as_mut() => match never {},
            }
        }
        let deadline = Instant::now() + stop_timeout;
        drop(listener);
        tracing::info!(connections = connections.count(), "stopping");
        connections.finish();
        // At the same time: a connection with a stream finishes when the engine ends the stream.
        let ((), ()) = tokio::join!(engine.drain(stop_timeout), async {
            if timeout_at(deadline, connections.finished()).await.is_err() {
                tracing::warn!(
                    left = connections.count(),
                    "the stop timeout is over: aborting the connections that are left"
                );
                connections.abort();
                connections.finished().await;
            }
        });
        Ok(())
    }

    /// Accepts connections, up to the limits of all and of each address.
    async fn accept(&self, listener: &TcpListener, connections: &Connections) -> Never {
        let limits = &self.shared.config.limits;
        let permits = Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS)));
        let per_address = KeyedLimit::new(limits.connections_per_address.unwrap_or(usize::MAX));
        loop {
            let permit = Arc::clone(&permits).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            let (stream, peer) = next(listener).await;
            admit(connections, &per_address, stream, peer.ip().to_canonical(), permit);
        }
    }
}

enum Never {}

fn admit(
    connections: &Connections,
    per_address: &KeyedLimit<IpAddr>,
    stream: TcpStream,
    peer: IpAddr,
    permit: OwnedSemaphorePermit,
) {
    match per_address.try_acquire(peer) {
        Some(address_permit) => connections.open(stream, (permit, address_permit)),
        None => tracing::debug!(%peer, "too many connections from one address"),
    }
}

/// The next connection.
async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut pause = MIN_PAUSE;
    loop {
        let error = match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => error,
        };
        // The peer has closed the connection already; the next one is not affected.
        if matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionRefused
        ) {
            continue;
        }
        if pause == MIN_PAUSE {
            tracing::warn!(%error, "cannot accept connections; trying again");
        }
        sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}
