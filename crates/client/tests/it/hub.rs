//! A real Herald on a port of its own, and clients for it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use herald_client::{
    Binding, Client, ClientBuilder, Retry, StreamEvent, Timeouts,
    protocol::{Version, card::AgentInterface},
};
use herald_engine::{Engine, Profile, Settings, store::sqlite::Sqlite};
use herald_server::{CardInterface, Config, Server};
use tokio::{net::TcpListener, sync::oneshot};
use tokio_util::task::TaskTracker;

use crate::{agents::Script, canary};

/// Timeout of everything in these tests.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// Every binding and version that client and server have in common.
pub(crate) const EVERY_WAY: [(Binding, Version); 7] = [
    (Binding::JsonRpc, Version::V1_0),
    (Binding::Rest, Version::V1_0),
    (Binding::JsonRpc, Version::V0_3),
    (Binding::Rest, Version::V0_3),
    (Binding::Grpc, Version::V1_0),
    (Binding::Grpc, Version::V0_3),
    (Binding::WebSocket, Version::V1_0),
];

/// A server on a port of its own.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) address: SocketAddr,
    pub(crate) script: Script,
    _stop: oneshot::Sender<()>,
}

/// A server that is not on a socket. Its cards list every interface.
pub(crate) fn server(script: &Script, config: Config) -> Server {
    let mut silent = Profile::new("silent", "Does not stream");
    silent.streaming = false;
    let engine = Engine::builder(Arc::new(Sqlite::memory().unwrap()))
        .agent(Profile::new("script", "Does what it is told"), script.clone())
        .agent(silent, script.clone())
        .settings(Settings { send_wait: SOON, ..Settings::default() })
        .build()
        .unwrap();
    let config = Config { card_interfaces: CardInterface::ALL.into(), ..config };
    Server::builder(engine).config(config).build().unwrap()
}

impl Hub {
    pub(crate) async fn start() -> Self {
        Self::with(Config::default()).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        if !config.tokens.is_empty() {
            canary::watch_log();
        }
        let script = Script::new();
        let server = server(&script, config);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        TaskTracker::new().spawn(server.serve(listener, async {
            // The sender is dropped with the hub.
            let _ = stopped.await;
        }));
        Self { address, script, _stop: stop }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Lets `wait` and `steps` continue `count` times.
    pub(crate) fn release(&self, count: usize) {
        self.script.gate.add_permits(count);
    }

    pub(crate) async fn client(&self) -> Client {
        quick().connect(&self.url()).await.unwrap()
    }

    pub(crate) async fn client_over(&self, binding: Binding, version: Version) -> Client {
        let client = over(binding, version).connect(&self.url()).await.unwrap();
        assert_way(&client.interface(), binding, version);
        client
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            canary::check_log();
        }
    }
}

#[track_caller]
pub(crate) fn assert_way(interface: &AgentInterface, binding: Binding, version: Version) {
    assert_eq!(Binding::from_name(&interface.protocol_binding), Some(binding));
    assert_eq!(interface.protocol_version.parse(), Ok(version));
}

/// A client that does not wait long between attempts.
pub(crate) fn quick() -> ClientBuilder {
    let pause = Duration::from_millis(1);
    Client::builder()
        .retry(Retry { first: pause, longest: pause * 20, ..Retry::default() })
        .timeouts(Timeouts { call: SOON, poll: pause, ..Timeouts::default() })
}

pub(crate) fn over(binding: Binding, version: Version) -> ClientBuilder {
    quick().prefer([binding]).version(version)
}

/// All events of a stream.
pub(crate) async fn all(mut events: herald_client::Events) -> Vec<StreamEvent> {
    let mut seen = Vec::new();
    while let Some(event) = soon(events.next()).await.unwrap() {
        seen.push(event);
    }
    seen
}

/// The text of all artifact updates, in order.
pub(crate) fn pieces(events: &[StreamEvent]) -> String {
    let text = |event: &StreamEvent| match event {
        StreamEvent::ArtifactUpdate(update) => update.artifact.text(),
        StreamEvent::Task(_) | StreamEvent::Message(_) | StreamEvent::StatusUpdate(_) => None,
    };
    events.iter().filter_map(text).collect()
}

/// Awaits a future that must finish soon.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future).await.expect("it takes too long")
}
