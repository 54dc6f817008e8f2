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

/// How long to wait after a failed accept, at first and at most: a server without file descriptors
/// must not spin until one is free.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(640);

/// Why a server did not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The listener has no address.
    #[error("the listener has no address: {0}")]
    Listener(#[source] io::Error),
    /// Anybody on the network could use the agents.
    #[error(
        "{0} is reachable from the network and no credentials are required: configure tokens, \
         bind to loopback, or set open_to_network"
    )]
    Open(SocketAddr),
    /// What an earlier run left behind could not be taken up.
    #[error("the engine could not take up its work: {0}")]
    Engine(herald_protocol::Error),
}

impl Server {
    /// Serves `listener` until `stop` resolves.
    ///
    /// It has the engine take up its work first. On `stop` the server is no longer ready, accepts
    /// nothing more, has the engine end every stream so that it can be resumed, and lets requests
    /// finish; what is left after the stop timeout is cut off. It returns once nothing is left.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServeError> {
        let bound = listener.local_addr().map_err(ServeError::Listener)?;
        let open = self.shared.auth.schemes().is_empty() && !self.shared.config.open_to_network;
        if open && !bound.ip().to_canonical().is_loopback() {
            return Err(ServeError::Open(bound));
        }
        let engine = self.shared.engine.clone();
        engine.start_work().await.map_err(ServeError::Engine)?;
        let patience = self.shared.config.timeouts.stop;
        let connections = Connections::new(self.clone(), bound.ip());
        {
            let mut stop = pin!(stop);
            let mut accept = pin!(self.accept(&listener, &connections));
            tokio::select! {
                () = stop.as_mut() => {}
                never = accept.as_mut() => match never {},
            }
        }
        let deadline = Instant::now() + patience;
        drop(listener);
        tracing::info!(connections = connections.count(), "stopping");
        connections.finish();
        // Ending the streams is the engine's part: no connection with one finishes before.
        let ((), ()) = tokio::join!(engine.drain(patience), async {
            if timeout_at(deadline, connections.finished()).await.is_err() {
                tracing::warn!(left = connections.count(), "cutting off what did not finish");
                connections.cut();
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
        Some(own) => connections.open(stream, (permit, own)),
        None => tracing::debug!(%peer, "too many connections from one address"),
    }
}

/// The next connection.
async fn next(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) => error,
        };
        // The peer is already gone; the next one may be fine.
        if matches!(
            error.kind(),
            io::ErrorKind::ConnectionAborted
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionRefused
        ) {
            continue;
        }
        if pause == FIRST_PAUSE {
            tracing::warn!(%error, "no connection can be accepted now");
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
