//! Listener: accepts connections until shutdown, then waits for them to finish.

use std::{
    convert::Infallible,
    future::{Future, pending},
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

use crate::{
    config::Limits,
    connection::Connections,
    limits::{AdmissionLimit, KeyedLimit, KeyedPermit, network},
    server::Server,
};

/// Open connections from one address that is not a loopback address, unless the configuration has a limit.
const CONNECTIONS_PER_ADDRESS: usize = 256;
/// Connections beyond the limits, for probes, and those of one address among them.
const RESERVE: usize = 64;
const RESERVE_PER_ADDRESS: usize = 8;

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
        self.shared.auth.start().await.map_err(ServeError::Engine)?;
        let open = self.shared.auth.is_open() && !self.shared.config.open_to_network;
        if open && !bound.ip().to_canonical().is_loopback() {
            return Err(ServeError::Open(bound));
        }
        let engine = self.shared.engine.clone();
        engine.start_work().await.map_err(ServeError::Engine)?;
        if let Some(remotes) = &self.shared.remotes {
            // Before the first request.
            remotes.start(&engine);
        }
        let stop_timeout = self.shared.config.timeouts.stop;
        let connections = Connections::new(self.clone(), bound.ip());
        {
            let mut stop = pin!(stop);
            let mut accept = pin!(self.accept(&listener, &connections));
            let mut remotes = pin!(self.follow_remotes());
            tokio::select! {
                () = stop.as_mut() => {}
                never = remotes.as_mut() => match never {},
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

    /// Serves the registered remote agents and checks their cards, for ever.
    async fn follow_remotes(&self) -> Infallible {
        match &self.shared.remotes {
            Some(remotes) => remotes.run(&self.shared.engine).await,
            None => pending().await,
        }
    }

    /// Accepts connections for ever. It waits for nothing else, so that a server whose places are all
    /// taken still answers probes.
    async fn accept(&self, listener: &TcpListener, connections: &Connections) -> Never {
        let places = ConnectionPlaces::new(&self.shared.config.limits);
        loop {
            let (stream, peer) = next(listener).await;
            let peer = peer.ip().to_canonical();
            places.admit(connections, stream, peer, self.shared.proxies.trusts(peer));
        }
    }
}

enum Never {}

/// The places of connections, and a reserve for probes beyond them.
#[derive(Debug)]
struct ConnectionPlaces {
    all: Arc<Semaphore>,
    of_addresses: KeyedLimit<IpAddr>,
    per_address: usize,
    /// True if the limit of an address is that of loopback addresses too.
    limits_loopback: bool,
    reserve: Arc<Semaphore>,
    reserve_of_addresses: KeyedLimit<IpAddr>,
}

impl ConnectionPlaces {
    fn new(limits: &Limits) -> Self {
        let per_address = match limits.connections_per_address {
            Some(0) => usize::MAX,
            Some(limit) => limit,
            None => CONNECTIONS_PER_ADDRESS,
        };
        Self {
            all: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            of_addresses: KeyedLimit::default(),
            per_address,
            limits_loopback: limits.connections_per_address.is_some(),
            reserve: Arc::new(Semaphore::new(RESERVE)),
            reserve_of_addresses: KeyedLimit::default(),
        }
    }

    /// Opens a connection, or closes it if neither a place nor one of the reserve is free. A trusted proxy
    /// has connections of many clients, so that it has no limit of its own.
    fn admit(&self, connections: &Connections, stream: TcpStream, peer: IpAddr, is_proxy: bool) {
        let address = network(peer);
        let is_limited = !is_proxy && (self.limits_loopback || !peer.is_loopback());
        let limit = match self.place(address, is_limited) {
            Ok(permits) => return connections.open(stream, peer, None, permits),
            Err(limit) => limit,
        };
        tracing::debug!(%peer, ?limit, "a connection is beyond a limit");
        if let Some(of_address) =
            self.reserve_of_addresses.try_acquire(address, RESERVE_PER_ADDRESS)
            && let Ok(permit) = Arc::clone(&self.reserve).try_acquire_owned()
        {
            connections.open(stream, peer, Some(limit), (permit, of_address));
        }
    }

    /// The permits of a place, or the limit that is reached.
    fn place(&self, address: IpAddr, is_limited: bool) -> Result<PlacePermits, AdmissionLimit> {
        let of_address = if is_limited {
            let permit = self.of_addresses.try_acquire(address, self.per_address);
            Some(permit.ok_or(AdmissionLimit::ConnectionsPerAddress)?)
        } else {
            None
        };
        let all =
            Arc::clone(&self.all).try_acquire_owned().map_err(|_| AdmissionLimit::Connections)?;
        Ok((all, of_address))
    }
}

/// The permits of one connection: of all, and of its address.
type PlacePermits = (OwnedSemaphorePermit, Option<KeyedPermit<IpAddr>>);

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
