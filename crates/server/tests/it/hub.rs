//! The server under test.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use herald_engine::{
    Engine, EngineBuilder, Profile, Scopes, Settings, agent::Extension, store::sqlite::Sqlite,
};
use herald_protocol::TenantId;
use herald_server::{
    CardInterface, Config, HttpSender, MetricsAccess, ServeError, Server, ServerBuilder, Token,
    WebhookConfig,
};
use serde_json::json;
use tokio::{net::TcpListener, sync::oneshot, task::JoinHandle};
use tokio_util::task::TaskTracker;

use crate::{
    agents::Script,
    canary,
    client::{Answer, Call, Client},
};

/// Nothing in these tests takes this long unless it is stuck.
pub(crate) const SOON: Duration = Duration::from_secs(120);

/// A server on a port of its own.
#[derive(Debug)]
pub(crate) struct Hub {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) script: Script,
    stop: Option<oneshot::Sender<()>>,
    served: JoinHandle<Result<(), ServeError>>,
}

/// A token that allows every agent and shows the caller's own tasks.
pub(crate) fn token(secret: &str, tenant: &str, principal: &str, scopes: Scopes) -> Token {
    let (secret, principal) = (secret.into(), principal.into());
    Token { secret, tenant: TenantId::from(tenant), principal, scopes, ..Token::default() }
}

/// An engine with a default agent and a few others.
pub(crate) fn engine(script: &Script) -> Engine {
    builder(script).build().unwrap()
}

fn builder(script: &Script) -> EngineBuilder {
    let store = Arc::new(Sqlite::memory().unwrap());
    let extension = |uri: &str, required| Extension {
        uri: uri.into(),
        description: "a test extension".into(),
        required,
    };
    let mut script_profile = Profile::new("script", "Does what it is told");
    script_profile.title = "Script & Co".into();
    script_profile.extensions = vec![extension("urn:known", false)];
    let mut strict = Profile::new("strict", "Insists on an extension");
    strict.extensions = vec![extension("urn:needed", true)];
    let mut silent = Profile::new("silent", "Does not stream");
    silent.streaming = false;
    let mut files = Profile::new("files", "Takes anything");
    files.input_modes = vec!["*/*".into()];
    Engine::builder(store)
        .agent(script_profile, script.clone())
        .agent(strict, script.clone())
        .agent(silent, script.clone())
        .agent(files, script.clone())
        .settings(Settings { send_wait: SOON, ..Settings::default() })
}

impl Hub {
    pub(crate) async fn start() -> Self {
        Self::with(Config::default()).await
    }

    /// With every interface in its cards.
    pub(crate) async fn listing_everything() -> Self {
        Self::with(Config { card_interfaces: CardInterface::ALL.into(), ..Config::default() }).await
    }

    pub(crate) async fn with(config: Config) -> Self {
        if !config.tokens.is_empty() || matches!(config.metrics, MetricsAccess::Token(_)) {
            canary::watch_log();
        }
        Self::built(|builder| builder.config(config)).await
    }

    /// With webhooks for receivers on these hosts.
    pub(crate) async fn pushing(config: Config, allowed_hosts: &[&str]) -> Self {
        let allowed_hosts = allowed_hosts.iter().map(|host| (*host).to_owned()).collect();
        let webhooks = WebhookConfig { allowed_hosts, ..WebhookConfig::default() };
        let sender = Arc::new(HttpSender::new(&webhooks).unwrap());
        let script = Script::new();
        let engine = builder(&script).webhooks(sender).build().unwrap();
        Self::over(engine, script, |builder| builder.config(config)).await
    }

    pub(crate) async fn built(build: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let script = Script::new();
        let engine = engine(&script);
        Self::over(engine, script, build).await
    }

    pub(crate) async fn over(
        engine: Engine,
        script: Script,
        build: impl FnOnce(ServerBuilder) -> ServerBuilder,
    ) -> Self {
        let server = build(Server::builder(engine.clone())).build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = TaskTracker::new().spawn(server.serve(listener, async {
            // A dropped sender stops the server too.
            let _ = stopped.await;
        }));
        Self { address, engine, script, stop: Some(stop), served }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// One call on a connection of its own.
    pub(crate) async fn call(&self, call: Call) -> Answer {
        self.client().await.call(call).await
    }

    /// One call from 127.0.0.`host`.
    pub(crate) async fn call_from(&self, host: u8, call: Call) -> Answer {
        Client::connect_from(host, self.address).await.call(call).await
    }

    /// Lets `wait` and `steps` go on, so many times.
    pub(crate) fn release(&self, count: usize) {
        self.script.gate.add_permits(count);
    }

    /// A call whose message is `wait …`: the gate opens once the task is at work, so that only a call that waits
    /// can return a completed task.
    pub(crate) async fn call_until_released(&self, call: Call) -> Answer {
        let working = json!({ "status": "TASK_STATE_WORKING" });
        let release = async {
            loop {
                let tasks = self.call(Call::rpc("ListTasks", &working)).await.result();
                if tasks["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty()) {
                    return self.release(1);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let both = async { tokio::join!(self.call(call), release).0 };
        tokio::time::timeout(SOON, both).await.expect("the task begins and the call returns")
    }

    pub(crate) fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) async fn stopped(&mut self) {
        tokio::time::timeout(SOON, &mut self.served).await.unwrap().unwrap().unwrap();
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            canary::check_log();
        }
    }
}
