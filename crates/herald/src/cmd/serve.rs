//! `herald serve`: start, run and stop of the server.

use std::{
    future::pending,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::DirBuilderExt,
    path::Path,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, anyhow};
use herald_engine::{
    Engine, Profile,
    keys::ApiKeySecret,
    store::{
        Store,
        sqlite::{Options, Sqlite},
    },
};
use herald_server::{
    Authenticate, Certificates, HttpSender, Jwt, ServeError, Server, SigningKey, Tls, WebhookConfig,
};
use serde::Serialize;
use tokio::{
    io::{stdin, stdout},
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{ListFormat, Serve},
    output::warn,
    serve::{
        compat_log::CompatLog,
        logging,
        operator::OperatorAccess,
        otlp::Exporter,
        reload,
        remote::Upstreams,
        settings::{
            AgentRunner, Provenance, PythonHandlers, ServerSettings, StoreKind, TlsFiles, handlers,
            no_credentials, skipped, with_stored_keys,
        },
    },
};

/// The time that leftover programs have to end before they are killed.
const LEFTOVER_GRACE: Duration = Duration::from_secs(2);

/// Serves until a signal stops it.
pub(crate) async fn run(args: Serve) -> anyhow::Result<()> {
    let python = PythonHandlers::load(&args).await?;
    let (unusable, unsearched) = (python.skipped.clone(), python.unsearched.clone());
    if let Some(format) = args.basics.list_handlers {
        let handlers = handlers(&args, python)?;
        if !args.basics.no_discovery {
            skipped().iter().for_each(|sentence| warn(sentence));
        }
        unusable.iter().chain(&unsearched).for_each(|sentence| warn(sentence));
        return list_handlers(handlers, format);
    }
    let settings = ServerSettings::merge(&args, python)?;
    let spans = settings.trace.as_ref().map(Exporter::start).transpose()?;
    logging::start(settings.log_level, settings.log_format, spans.clone());
    if let Some(source) = &settings.source {
        tracing::info!(file = %source.display(), "read the configuration");
    }
    if !args.basics.no_discovery {
        skipped().iter().for_each(|sentence| tracing::warn!("{sentence}"));
    }
    unusable.iter().for_each(|sentence| tracing::warn!("{sentence}"));
    unsearched.iter().for_each(|sentence| tracing::debug!("{sentence}"));
    // Signal handlers come before anything that shows that the server runs. Without a handler, SIGHUP would end the
    // process.
    let mut signals = Signals::listen()?;
    let hangup = signal(SignalKind::hangup())?;
    // Everything that can fail because of the settings comes before the data directory is created.
    let tls = settings.tls.as_ref().map(TlsFiles::read).transpose()?;
    let webhooks = unstored_webhooks(&settings)?;
    let rehearsal = build_engine(&settings, Arc::new(Sqlite::memory()?), webhooks)?;
    build(&settings, rehearsal, None, Access::default(), None)?;
    if let StoreKind::Sqlite(path) = &settings.store {
        // Before the port, since a server that was just killed may hold both for a moment.
        Sqlite::check_unused(path)?;
    }
    let listener = if settings.stdio { None } else { Some(listen(settings.address).await?) };
    let store = open_store(&settings)?;
    // With the lock on the data directory, where it may create keys.
    let webhooks = stored_webhooks(&settings)?;
    let engine = build_engine(&settings, store, webhooks.clone())?;
    // With the lock on the data directory, programs that an earlier run left behind can be ended.
    let cleared = settings.processes.clear(LEFTOVER_GRACE).await;
    cleared.context("cannot record running programs")?;
    let at_work = engine.clone();
    if settings.auth.needs_keys && !engine.has_keys().await? {
        return Err(no_credentials(settings.address.ip()));
    }
    let access = Access::new(&settings)?;
    let operator = access.operator.clone();
    let server = build(&settings, engine, tls.clone(), access, webhooks.clone())?;
    let stopping = CancellationToken::new();
    let stop = stopping.clone().cancelled_owned();
    // Before the greeting, after which verbs with `--data` are expected to work.
    let _operator = match (&listener, operator) {
        (Some(listener), Some(token)) => operate(listener.local_addr()?, &settings, &token),
        (_, _) => None,
    };
    match &listener {
        Some(listener) => greet(listener.local_addr()?, &settings, &server).await?,
        None => tracing::info!(tasks = kept(&settings.store), "serving standard input and output"),
    }
    let running = server.clone();
    let served = async {
        match listener {
            Some(listener) => server.serve(listener, stop).await,
            None => server.serve_lines(stdin(), stdout(), stop).await,
        }
    };
    let stopped = async {
        signals.next().await;
        announce(&at_work, &settings);
        stopping.cancel();
        signals.next().await;
    };
    let renew = Notify::new();
    let renewed = async {
        match (&settings.tls, &tls) {
            (Some(files), Some(tls)) => files.follow(tls, &renew).await,
            (_, _) => pending().await,
        }
    };
    let reloaded = reload::follow(&settings, &running, webhooks.as_deref(), hangup, &renew);
    let result = tokio::select! {
        never = renewed => match never {},
        never = reloaded => match never {},
        result = served => {
            settings.processes.close(LEFTOVER_GRACE).await;
            result
        }
        () = stopped => {
            tracing::warn!("stopped at once; {}", unfinished_tasks(&settings.store));
            settings.processes.close(Duration::ZERO).await;
            return Ok(());
        }
    };
    if let Some(spans) = spans {
        spans.finish().await;
    }
    match (result, &settings.store) {
        // The integrity check names the page that the engine could not read.
        (Err(fault @ ServeError::Engine(_)), StoreKind::Sqlite(path)) => {
            let path = path.clone();
            let damage = tokio::task::spawn_blocking(move || Sqlite::damage(&path)).await;
            Err(damage.ok().flatten().map_or_else(|| fault.into(), Into::into))
        }
        (result, _) => Ok(result?),
    }
}

/// Logs what the shutdown waits for, and how to stop at once.
fn announce(engine: &Engine, settings: &ServerSettings) {
    let agents = engine.at_work();
    if agents.is_empty() {
        tracing::info!("stopping; a second signal stops at once");
        return;
    }
    let count: usize = agents.iter().map(|(_, turns)| turns).sum();
    let names: Vec<_> = agents.iter().map(|(name, turns)| format!("{name} ({turns})")).collect();
    let limit = humantime::format_duration(settings.server.timeouts.stop);
    tracing::warn!(
        "stopping; waiting up to {limit} for {count} {} at work: {}. Press Ctrl-C again (or send a \
         second signal) to stop at once; {}",
        if count == 1 { "task" } else { "tasks" },
        names.join(", "),
        unfinished_tasks(&settings.store)
    );
}

/// The fate of unfinished tasks after a stop, in words.
fn unfinished_tasks(store: &StoreKind) -> &'static str {
    match store {
        StoreKind::Memory => "unfinished tasks are lost",
        StoreKind::Sqlite(_) => "the next start recovers unfinished tasks",
    }
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| not_listening(address, &error))
}

/// The error for an address that cannot be listened on.
fn not_listening(address: SocketAddr, error: &io::Error) -> anyhow::Error {
    let kind = error.kind();
    let advice = if kind == io::ErrorKind::PermissionDenied {
        "ports below 1024 need privileges; choose a port from 1024 on with --port"
    } else if kind == io::ErrorKind::AddrNotAvailable {
        "set --host to an address of this machine"
    } else {
        "is another server running? Try --port 0 for a free port"
    };
    anyhow!("cannot listen on {address}: {error}; {advice}")
}

/// Prints the agents that can work on tasks.
fn list_handlers(handlers: Vec<(Profile, Provenance)>, format: ListFormat) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    match format {
        ListFormat::Table => {
            let names = handlers.iter().map(|(profile, _)| profile.handler_name().as_str().len());
            let width = names.max().unwrap_or(0).max("HANDLER".len());
            writeln!(out, "{:<width$}  {:<10}  DESCRIPTION", "HANDLER", "SOURCE")?;
            for (profile, provenance) in handlers {
                let (name, description) = (profile.handler_name().as_str(), &profile.description);
                writeln!(out, "{name:<width$}  {:<10}  {description}", provenance.name())?;
            }
        }
        ListFormat::Json => {
            let listed: Vec<_> = handlers.iter().map(HandlerRow::new).collect();
            writeln!(out, "{}", serde_json::to_string_pretty(&listed)?)?;
        }
    }
    out.flush()?;
    Ok(())
}

/// One entry of the list as JSON.
#[derive(Serialize)]
struct HandlerRow<'a> {
    /// The name by which it is chosen.
    name: &'a str,
    /// The agent's name, which is also the segment of its URL.
    agent: &'a str,
    description: &'a str,
    source: &'static str,
    path: Option<&'a Path>,
}

impl<'a> HandlerRow<'a> {
    fn new((profile, provenance): &'a (Profile, Provenance)) -> Self {
        Self {
            name: profile.handler_name().as_str(),
            agent: profile.name.as_str(),
            description: &profile.description,
            source: provenance.name(),
            path: provenance.path(),
        }
    }
}

fn open_store(settings: &ServerSettings) -> anyhow::Result<Arc<dyn Store>> {
    let path = match &settings.store {
        StoreKind::Memory => return Ok(Arc::new(Sqlite::memory()?)),
        StoreKind::Sqlite(path) => path,
    };
    if let Some(directory) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        // Other users of this machine must not read the tasks.
        let mut builder = std::fs::DirBuilder::new();
        let made = builder.recursive(true).mode(0o700).create(directory);
        made.map_err(|error| not_created(directory, &error))?;
    }
    Ok(Arc::new(Sqlite::open(path, Options::default())?))
}

/// The error for a data directory that cannot be created.
fn not_created(directory: &Path, error: &io::Error) -> anyhow::Error {
    let advice = if error.kind() == io::ErrorKind::PermissionDenied {
        "make the parent directory writable, or choose another directory with --data"
    } else {
        "choose another directory with --data"
    };
    anyhow!("cannot create the data directory {}: {error}; {advice}", directory.display())
}

/// The authenticators besides the tokens, and the token of the operator.
#[derive(Default)]
pub(crate) struct Access {
    authenticators: Vec<Arc<dyn Authenticate>>,
    operator: Option<ApiKeySecret>,
}

impl Access {
    /// The authenticators of the settings. They begin to download keys of identity providers.
    fn new(settings: &ServerSettings) -> anyhow::Result<Self> {
        let auth = &settings.auth;
        let mut authenticators: Vec<Arc<dyn Authenticate>> = Vec::new();
        if !auth.jwt.is_empty() {
            let jwt = Jwt::new(auth.jwt.clone()).map_err(|fault| settings.in_file(fault))?;
            authenticators.push(Arc::new(jwt));
        }
        if let Some(certificates) = &auth.certificates {
            authenticators.push(Arc::new(Certificates::new(certificates.clone())));
        }
        let operator = match settings.store {
            StoreKind::Memory => None,
            StoreKind::Sqlite(_) => Some(ApiKeySecret::generate()),
        };
        Ok(Self { authenticators, operator })
    }
}

/// Writes the operator file into the data directory. A server without it works, except for verbs with
/// `--data`.
fn operate(
    address: SocketAddr,
    settings: &ServerSettings,
    token: &ApiKeySecret,
) -> Option<OperatorAccess> {
    let StoreKind::Sqlite(path) = &settings.store else { return None };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(Path::new("."));
    let url = local_url(address, settings.tls.is_some());
    let written = OperatorAccess::write(directory, &url, token);
    let failed =
        |error| tracing::warn!(%error, "cannot write operator.json into the data directory");
    written.map_err(failed).ok()
}

/// The sender of webhooks with the keys in the data directory, which it creates if they are missing.
fn stored_webhooks(settings: &ServerSettings) -> anyhow::Result<Option<Arc<HttpSender>>> {
    if !has_push(settings) {
        return Ok(None);
    }
    let mut config = with_stored_keys(settings.webhooks.clone(), &settings.store)?;
    if config.signing_keys.is_empty() {
        config.signing_keys.push(Arc::new(SigningKey::generate_ed25519()?));
    }
    webhook_sender(settings, &config)
}

/// A sender of webhooks without the keys in the data directory, to check the settings.
pub(crate) fn unstored_webhooks(
    settings: &ServerSettings,
) -> anyhow::Result<Option<Arc<HttpSender>>> {
    webhook_sender(settings, &settings.webhooks)
}

fn webhook_sender(
    settings: &ServerSettings,
    config: &WebhookConfig,
) -> anyhow::Result<Option<Arc<HttpSender>>> {
    if !has_push(settings) {
        return Ok(None);
    }
    let sender = HttpSender::new(config).map_err(|fault| settings.in_file(fault))?;
    Ok(Some(Arc::new(sender)))
}

/// True if an agent has webhooks.
fn has_push(settings: &ServerSettings) -> bool {
    settings.agents.iter().any(|agent| agent.profile.push)
}

/// Builds the server from the settings.
pub(crate) fn build(
    settings: &ServerSettings,
    engine: Engine,
    tls: Option<Tls>,
    access: Access,
    webhooks: Option<Arc<HttpSender>>,
) -> anyhow::Result<Server> {
    let mut server = Server::builder(engine).config(settings.server.clone());
    // Cards of remote agents are fetched under the rules of webhooks.
    let http = match &webhooks {
        Some(webhooks) => Arc::clone(webhooks),
        None => {
            let sender = HttpSender::new(&settings.webhooks);
            Arc::new(sender.map_err(|fault| settings.in_file(fault))?)
        }
    };
    server = server.remote_agents(Upstreams, http);
    if let Some(webhooks) = webhooks {
        server = server.webhooks(webhooks);
    }
    if let Some(tls) = tls {
        server = server.tls(tls);
    }
    if let Some(operator) = access.operator {
        server = server.operator(operator);
    }
    for authenticator in access.authenticators {
        server = server.authenticate(authenticator);
    }
    server.build().map_err(|fault| settings.in_file(fault))
}

pub(crate) fn build_engine(
    settings: &ServerSettings,
    store: Arc<dyn Store>,
    webhooks: Option<Arc<HttpSender>>,
) -> anyhow::Result<Engine> {
    let mut builder = Engine::builder(store)
        .settings(settings.engine.clone())
        .default_agent(settings.default_agent.clone());
    if let Some(log) = CompatLog::new(settings.log_level, settings.log_format) {
        builder = builder.observer(log);
    }
    if let Some(webhooks) = webhooks {
        builder = builder.webhooks(webhooks);
    }
    for agent in &settings.agents {
        let profile = agent.profile.clone();
        builder = match &agent.runner {
            AgentRunner::Here(built) => builder.shared_agent(profile, Arc::clone(built)),
            AgentRunner::Workers(role) => builder.role(profile, role.clone()),
        };
    }
    Ok(builder.build()?)
}

/// Prints the server's addresses and a command to try it.
async fn greet(
    address: SocketAddr,
    settings: &ServerSettings,
    server: &Server,
) -> anyhow::Result<()> {
    let local = local_url(address, settings.tls.is_some());
    let (url, trust) = match &settings.tls {
        Some(files) => files.for_curl(local_address(address)),
        None => (local.clone(), String::new()),
    };
    let curl = server.curl(&url).await?;
    let public = settings.server.public_url.as_ref().unwrap_or(&local);
    let names: Vec<_> = settings.agents.iter().map(|agent| agent.profile.name.as_str()).collect();
    let mut out = io::stdout().lock();
    writeln!(out, "herald {} serves {}", env!("CARGO_PKG_VERSION"), names.join(", "))?;
    writeln!(out, "  card   {public}/.well-known/agent-card.json")?;
    writeln!(out, "  listen {address}")?;
    if let [_, _, ..] = &names[..] {
        let width = names.iter().map(|name| name.len()).max().unwrap_or_default();
        for (index, name) in names.iter().enumerate() {
            let label = if index == 0 { "agents" } else { "" };
            let is_default = *name == settings.default_agent.as_str();
            let root = if is_default { "  and at the root" } else { "" };
            writeln!(out, "  {label:<6} {name:<width$}  {public}/agents/{name}{root}")?;
        }
    }
    writeln!(out, "  tasks  {}", kept(&settings.store))?;
    writeln!(out, "  try    {curl}{trust}")?;
    out.flush()?;
    tracing::info!(%address, "listening");
    if settings.server.open_to_network && !address.ip().is_loopback() {
        tracing::warn!(
            "no credentials are required: everyone who can reach {address} can use the agents and read \
             their tasks. Configure tokens under [auth] in herald.toml, or bind to 127.0.0.1"
        );
    }
    Ok(())
}

/// The place of the tasks, for users.
fn kept(store: &StoreKind) -> String {
    match store {
        StoreKind::Memory => "in memory only: all tasks are lost when this stops".to_owned(),
        StoreKind::Sqlite(path) => path.display().to_string(),
    }
}

/// The URL of the address on this machine.
pub(crate) fn local_url(address: SocketAddr, tls: bool) -> String {
    format!("{}://{}", if tls { "https" } else { "http" }, local_address(address))
}

/// The address at which this machine reaches a server that is bound to `address`.
fn local_address(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        let loopback: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        address.set_ip(loopback);
    }
    address
}

/// SIGTERM and SIGINT.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> anyhow::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(Self { terminate, interrupt })
    }

    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // As root, as in many containers, both errors cannot be provoked.
    #[test]
    fn a_missing_permission_is_reported_with_its_remedy() {
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        assert_eq!(
            not_listening((Ipv4Addr::LOCALHOST, 80).into(), &denied).to_string(),
            "cannot listen on 127.0.0.1:80: permission denied; ports below 1024 need privileges; choose a \
             port from 1024 on with --port"
        );
        assert_eq!(
            not_created(Path::new("/srv/data"), &denied).to_string(),
            "cannot create the data directory /srv/data: permission denied; make the parent directory \
             writable, or choose another directory with --data"
        );
    }
}
