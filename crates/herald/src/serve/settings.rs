//! Settings of the server: flags, environment and file, merged and checked once at the start.

mod auth;
mod card;
mod card_file;
mod codex;
mod coding;
mod discovery;
mod limits;
mod llm;
mod namesake;
mod program;
mod push;
mod python;
mod server_card;
mod tls;
mod trace;
mod upstream;
mod worker;
mod worker_agent;

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs},
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use herald_agents::{Conformance, Echo, Otherwise, process::Processes};
use herald_engine::{Agent, Profile, Recovery, RoleSettings, agent::Extension};
use herald_protocol::{AgentName, MissingVersion};
use herald_server::{CardInterface, McpConfig, MetricsAccess, SwitchedOff, WebhookConfig};
use http::Uri;

use crate::{
    args::{LogFormat, LogLevel, Serve, TransportArg},
    serve::config::{
        AgentKind, AgentSection, ConfigError, ConformanceSection, Dialects, FileConfig, KeyError,
        KindSection, MissingVersionKey, OtherwiseKey, RepeatedCancel, TimeSpan,
    },
};

use auth::NOBODY_CAN_CALL;
pub(crate) use auth::{AuthSettings, check_names, no_credentials};
use card::CardFields;
pub(crate) use coding::WORKTREES;
pub(crate) use discovery::{Provenance, skipped};
use namesake::{namesake, twice};
pub(crate) use push::{webhook_config, with_stored_keys};
pub(crate) use python::{PythonHandler, PythonHandlers, packages};
use server_card::ServerCard;
pub(crate) use tls::TlsFiles;
pub(crate) use trace::TraceSettings;
pub(crate) use worker_agent::worker_agent;

const DEFAULT_CONFIG: &str = "herald.toml";
const DEFAULT_DATA: &str = "herald-data";
const DEFAULT_PORT: u16 = 8000;

/// The settings of `herald serve`.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    /// The address to listen on, unless `stdio` is set.
    pub(crate) address: SocketAddr,
    pub(crate) stdio: bool,
    /// The certificate, if the port uses TLS.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) store: StoreKind,
    pub(crate) engine: herald_engine::Settings,
    pub(crate) server: herald_server::Config,
    /// The sender of webhooks, without the keys in the data directory.
    pub(crate) webhooks: WebhookConfig,
    pub(crate) auth: AuthSettings,
    pub(crate) agents: Vec<AgentSettings>,
    pub(crate) default_agent: AgentName,
    pub(crate) log_level: LogLevel,
    pub(crate) log_format: LogFormat,
    /// The programs that agents run.
    pub(crate) processes: Processes,
    /// The export of spans, if it is on.
    pub(crate) trace: Option<TraceSettings>,
    /// The file that was read, if any.
    pub(crate) source: Option<PathBuf>,
}

/// The store of tasks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    /// In memory: tasks are lost with the process.
    Memory,
    /// In a SQLite file.
    Sqlite(PathBuf),
}

/// One agent and its profile.
#[derive(Debug)]
pub(crate) struct AgentSettings {
    pub(crate) kind: AgentKind,
    pub(crate) provenance: Provenance,
    pub(crate) profile: Profile,
    pub(crate) runner: AgentRunner,
}

/// The place where the turns of an agent run.
#[derive(Debug)]
pub(crate) enum AgentRunner {
    /// Here.
    Here(Arc<dyn Agent>),
    /// On workers.
    Workers(RoleSettings),
}

impl ServerSettings {
    /// Merges the arguments with the file. clap has already merged flags and environment.
    pub(crate) fn merge(args: &Serve, python: PythonHandlers) -> anyhow::Result<Self> {
        let source = config_path(args);
        let config = source.as_deref().map(FileConfig::read).transpose()?.unwrap_or_default();
        Self::from_parts(args, python, config, source)
    }

    fn from_parts(
        args: &Serve,
        python: PythonHandlers,
        mut config: FileConfig,
        source: Option<PathBuf>,
    ) -> anyhow::Result<Self> {
        let address = address(args, &config)?;
        let store = store(args, &config)?;
        let tls = TlsFiles::merge(args, &config)?;
        let mut engine = engine_settings(&config)?;
        // As coding-agent-a2a does, which this flag replaces.
        engine.return_ended = args.adapter.is_some();
        let trace = TraceSettings::merge(&config.trace)?;
        engine.trace = trace.as_ref().map(|trace| trace.sample);
        let log_level = args.basics.log_level.or(config.log.level).unwrap_or_default();
        let log_format = args.log_format.or(config.log.format).unwrap_or(args.default_format);
        let metrics = metrics(&config)?;
        let webhooks = webhook_config(&config)?;
        let auth = if args.basics.stdio {
            AuthSettings::of_stdio()
        } else {
            AuthSettings::read(&config, address.ip(), args.is_a2a_server)?
        };
        if auth.needs_keys && !store.exists() {
            return Err(no_credentials(address.ip()));
        }
        if auth.locks_out(store == StoreKind::Memory) {
            return Err(config.source.fault_at("auth.required", NOBODY_CAN_CALL).into());
        }
        let public_url = public_url(args, &config)?;
        let default_agent = default_agent(&config.agents)?;
        let mut switched_off = switched_off(None, &config.dialects);
        let processes = Processes::new(store.records());
        let chosen: Option<Vec<_>> = config
            .card
            .interfaces
            .take()
            .map(|chosen| chosen.into_iter().map(card_interface).collect());
        let mut agent_card_interfaces = BTreeMap::new();
        let (mut agents, mut own_card_keys) = (Vec::new(), Vec::new());
        for (section, provenance) in sections(args, python, config.agents, source.as_deref())? {
            own_card_keys.push(CardFields::of_agent(&section.common).names());
            // The public conformance kit checks the bindings of the card, so the card lists all.
            if chosen.is_none() && section.kind.kind() == AgentKind::Conformance {
                let name = AgentName::new(section.common.name.as_str());
                agent_card_interfaces.insert(name, CardInterface::ALL.into());
            }
            switched_off
                .extend(self::switched_off(Some(&section.common.name), &section.common.dialects));
            agents.push(agent(section, provenance, &processes)?);
        }
        // The agent of the command line comes first and is the default.
        let default_agent = default_agent
            .filter(|_| args.exec.is_none() && args.adapter.is_none())
            .unwrap_or_else(|| agents[0].profile.name.clone());
        let signing_keys = card::signing_keys(&config.card.signing_keys, &config.source)?;
        let mut server = herald_server::Config {
            public_url,
            allowed_hosts: config.server.allowed_hosts,
            allowed_origins: config.server.allowed_origins,
            trusted_proxies: config.server.trusted_proxies,
            missing_version: match config.protocol.missing_version {
                MissingVersionKey::Strict => MissingVersion::Strict,
                MissingVersionKey::Lenient => MissingVersion::Lenient,
            },
            switched_off,
            expects_old_clients: args.is_a2a_server,
            grpc_reflection: config.grpc.reflection,
            mcp: McpConfig {
                enabled: config.mcp.enabled,
                skills_as_tools: config.mcp.skills_as_tools,
            },
            tokens: auth.tokens.clone(),
            required: auth.required,
            keys_optional: auth.keys_optional,
            open_to_network: auth.open,
            visibility: auth.visibility,
            metrics,
            agent_card_interfaces,
            signing_keys,
            key_url: config.card.jku,
            ..herald_server::Config::default()
        };
        server.card_interfaces = chosen.unwrap_or(server.card_interfaces);
        let (flags, source_text) = (&args.card, &config.source);
        let card =
            ServerCard { flags, section: config.card, source: source_text, own: own_card_keys };
        card.apply(&mut agents, &default_agent, &mut server)?;
        check_names(&config.auth, &config.source, &agents)?;
        server.limits = limits::server_limits(&config.limits)?;
        server.timeouts.stop = span(config.server.drain).unwrap_or(server.timeouts.stop);
        let stdio = args.basics.stdio;
        Ok(Self {
            address,
            tls,
            stdio,
            store,
            engine,
            server,
            webhooks,
            auth,
            agents,
            default_agent,
            log_level,
            log_format,
            processes,
            trace,
            source,
        })
    }
}

impl ServerSettings {
    /// An error of the server's own checks, with the file that the settings come from.
    pub(crate) fn in_file(&self, fault: impl Into<anyhow::Error>) -> anyhow::Error {
        let fault = fault.into();
        match &self.source {
            Some(path) => fault.context(format!("in {}", path.display())),
            None => fault,
        }
    }
}

impl StoreKind {
    /// True if it is a file that exists.
    fn exists(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Sqlite(path) => path.exists(),
        }
    }

    /// The record of running programs, beside the database.
    fn records(&self) -> Option<PathBuf> {
        match self {
            Self::Memory => None,
            Self::Sqlite(path) => Some(path.with_file_name("processes")),
        }
    }
}

/// All agents that are served with these arguments.
pub(crate) fn handlers(
    args: &Serve,
    python: PythonHandlers,
) -> anyhow::Result<Vec<(Profile, Provenance)>> {
    let source = config_path(args);
    let config = source.as_deref().map(FileConfig::read).transpose()?.unwrap_or_default();
    default_agent(&config.agents)?;
    let processes = Processes::new(store(args, &config)?.records());
    let sections = sections(args, python, config.agents, source.as_deref())?;
    let profile = |(section, provenance)| {
        let agent = agent(section, provenance, &processes)?;
        Ok((agent.profile, agent.provenance))
    };
    sections.into_iter().map(profile).collect()
}

fn config_path(args: &Serve) -> Option<PathBuf> {
    let implied = || Some(PathBuf::from(DEFAULT_CONFIG)).filter(|path| path.exists());
    args.config.clone().or_else(implied)
}

fn address(args: &Serve, config: &FileConfig) -> anyhow::Result<SocketAddr> {
    let port = match args.basics.port.or(config.server.port) {
        Some(port) => port,
        None => inherited_port()?.unwrap_or(match args.adapter {
            Some(_) => coding::PORT,
            None => DEFAULT_PORT,
        }),
    };
    match (&args.basics.host, &config.server.host) {
        (Some(host), _) => resolve(host, port),
        (None, Some(host)) => {
            resolve(host, port).map_err(|fault| config.source.fault_at("server.host", fault).into())
        }
        (None, None) => Ok((Ipv4Addr::LOCALHOST, port).into()),
    }
}

fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    (bare, port).to_socket_addrs().ok().and_then(|mut found| found.next()).with_context(|| {
        format!("{host:?} is not an address to listen on; try 127.0.0.1 or 0.0.0.0")
    })
}

/// An environment variable. An empty one counts as not set.
fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

fn metrics(config: &FileConfig) -> Result<MetricsAccess, ConfigError> {
    match (&config.metrics.token, config.metrics.open) {
        (None, false) => Ok(MetricsAccess::Loopback),
        (None, true) => Ok(MetricsAccess::Everybody),
        (Some(token), false) => Ok(MetricsAccess::Token(token.0.clone())),
        (Some(_), true) => Err(config
            .source
            .fault("[metrics] has a token, but open = true lets everyone in without one")),
    }
}

fn card_interface(binding: TransportArg) -> CardInterface {
    match binding {
        TransportArg::Jsonrpc => CardInterface::JsonRpc,
        TransportArg::HttpJson => CardInterface::Rest,
        TransportArg::Grpc => CardInterface::Grpc,
        TransportArg::Websocket => CardInterface::WebSocket,
    }
}

/// The versions that are switched off.
fn switched_off(agent: Option<&str>, dialects: &Dialects) -> Vec<SwitchedOff> {
    let off = dialects.0.iter().filter(|(_, served)| !**served);
    off.map(|(version, _)| SwitchedOff { agent: agent.map(AgentName::new), version: *version })
        .collect()
}

/// The port from the variables of hosting platforms.
fn inherited_port() -> anyhow::Result<Option<u16>> {
    for name in ["A2A_PORT", "PORT"] {
        if let Some(text) = environment(name) {
            let port = text.parse().with_context(|| format!("{name}={text:?} is not a port"))?;
            return Ok(Some(port));
        }
    }
    Ok(None)
}

fn store(args: &Serve, config: &FileConfig) -> anyhow::Result<StoreKind> {
    if args.ephemeral {
        return Ok(StoreKind::Memory);
    }
    if let Some(data) = &args.data {
        return in_directory(data);
    }
    let Some(url) = &config.store.url else {
        return in_directory(Path::new(DEFAULT_DATA));
    };
    let refused = |said: &str| Err(config.source.fault_at("store.url", said).into());
    match url.split_once(':').unwrap_or((url, "")) {
        ("memory", "") => Ok(StoreKind::Memory),
        ("sqlite", path) if !path.is_empty() => {
            Ok(StoreKind::Sqlite(path.strip_prefix("//").unwrap_or(path).into()))
        }
        ("postgres" | "postgresql", _) => {
            refused("PostgreSQL is not supported in this version; use url = \"sqlite:PATH\"")
        }
        _ => refused("[store] url must be \"sqlite:PATH\" or \"memory:\""),
    }
}

/// The store in a directory, the value of `--data`. A URL would be taken for the name of a directory.
fn in_directory(data: &Path) -> anyhow::Result<StoreKind> {
    let shown = data.display();
    match data.to_str().and_then(|text| text.split_once(':')) {
        Some(("sqlite", path)) => {
            let path = Path::new(path.strip_prefix("//").unwrap_or(path));
            let directory = if path.extension().is_some() { path.parent() } else { Some(path) };
            let directory = directory.filter(|directory| !directory.as_os_str().is_empty());
            let directory = directory.unwrap_or(Path::new(DEFAULT_DATA)).display();
            bail!(
                "--data takes a directory, not the URL {shown}: write --data {directory}; a URL belongs \
                 to [store] url in herald.toml"
            );
        }
        Some(("memory", _)) => {
            bail!(
                "--data takes a directory, not the URL {shown}; for tasks in memory, write --ephemeral"
            );
        }
        Some(("postgres" | "postgresql", _)) => {
            bail!("--data takes a directory, and PostgreSQL is not supported in this version");
        }
        Some(_) | None => {}
    }
    if data.exists() && !data.is_dir() {
        bail!("{shown} is a file; --data needs a directory");
    }
    Ok(StoreKind::Sqlite(data.join("herald.db")))
}

fn engine_settings(config: &FileConfig) -> anyhow::Result<herald_engine::Settings> {
    let mut settings = herald_engine::Settings::default();
    let limits = &config.limits;
    settings.limits.events = limits.task_events.unwrap_or(settings.limits.events);
    settings.limits.bytes = limits.task_bytes.map_or(settings.limits.bytes, |size| size.0);
    settings.memory = limits.memory.map_or(settings.memory, |size| size.0);
    let largest = settings.memory / herald_engine::BYTES_PER_READ_BYTE;
    if limits.task_bytes.is_some_and(|size| size.0 > largest) {
        let text = format!(
            "[limits] task_bytes must be at most a third of memory, {largest} bytes here: reading a \
             task takes three times its size"
        );
        return Err(config.source.fault(&text).into());
    }
    settings.send_wait = limits.send_wait.map_or(settings.send_wait, |span| span.0);
    settings.repeat_cancel = config.protocol.repeated_cancel == RepeatedCancel::Return;
    let retention = &config.store.retention;
    // Zero switches a limit off.
    if let Some(age) = retention.age {
        settings.keep_for = Some(age.0).filter(|age| !age.is_zero());
    }
    if let Some(tasks) = retention.tasks {
        settings.keep_tasks = Some(tasks).filter(|tasks| *tasks > 0);
    }
    if let Some(size) = retention.bytes {
        settings.keep_bytes = Some(size.0).filter(|bytes| *bytes > 0);
    }
    if let Some(age) = retention.audit_age {
        settings.keep_audit_for = Some(age.0).filter(|age| !age.is_zero());
    }
    if let Some(records) = retention.audit_records {
        settings.keep_audit_records = Some(records).filter(|records| *records > 0);
    }
    push::limit(&mut settings.webhooks, config)?;
    settings.discovery = worker::discovery(config)?;
    Ok(settings)
}

/// The default agent of the file: the marked one, or the first.
fn default_agent(sections: &[AgentSection]) -> Result<Option<AgentName>, ConfigError> {
    for (index, section) in sections.iter().enumerate() {
        let name = &section.common.name;
        if sections[..index].iter().any(|earlier| earlier.common.name == *name) {
            let said = format!("the agent name {name:?} is used twice");
            return Err(section.place.fault("name", said));
        }
    }
    let mut chosen = sections.iter().filter(|section| section.common.default);
    match (chosen.next(), chosen.next()) {
        (Some(first), Some(second)) => {
            let names = (&first.common.name, &second.common.name);
            let said = format!("both {:?} and {:?} are marked default = true", names.0, names.1);
            Err(second.place.fault("default", said))
        }
        (Some(only), None) => Ok(Some(AgentName::new(only.common.name.as_str()))),
        (None, _) => Ok(sections.first().map(|first| AgentName::new(first.common.name.as_str()))),
    }
}

/// All agents with their provenance: that of the flags, those of the file, the built-in one if there are none, those of
/// packages, and found ones.
fn sections(
    args: &Serve,
    python: PythonHandlers,
    configured: Vec<AgentSection>,
    source: Option<&Path>,
) -> anyhow::Result<Vec<(AgentSection, Provenance)>> {
    let flags = program::of_flags(args)?.or(coding::of_flags(args)?);
    let flags = flags.map(|section| (section, Provenance::CommandLine));
    let configured = configured.into_iter().map(|section| (section, Provenance::Configured));
    let mut sections: Vec<_> = flags.into_iter().chain(configured).collect();
    if sections.is_empty() {
        sections.push((AgentSection::new("echo", KindSection::Echo), Provenance::BuiltIn));
    }
    let found = if args.basics.no_discovery { Vec::new() } else { discovery::discover(source)? };
    for PythonHandler { section, place } in python.given {
        if let Some(known) = namesake(&sections, &section) {
            return Err(twice(known, &section, &place));
        }
        sections.push((section, Provenance::Package(place)));
    }
    for (section, provenance) in found {
        // A found agent does not replace a configured one.
        if namesake(&sections, &section).is_none() {
            sections.push((section, provenance));
        }
    }
    for PythonHandler { section, place } in python.installed {
        match namesake(&sections, &section) {
            None => sections.push((section, Provenance::Installed(place))),
            Some((_, Provenance::Package(known) | Provenance::Installed(known)))
                if *known == place => {}
            Some(known @ (_, Provenance::Package(_) | Provenance::Installed(_))) => {
                return Err(twice(known, &section, &place));
            }
            Some((
                _,
                Provenance::BuiltIn
                | Provenance::CommandLine
                | Provenance::Configured
                | Provenance::Found(_),
            )) => {}
        }
    }
    Ok(sections)
}

/// The agent of a section. An error names the line of its key.
fn agent(
    section: AgentSection,
    provenance: Provenance,
    processes: &Processes,
) -> Result<AgentSettings, ConfigError> {
    let (name, place) = (section.common.name.clone(), section.place.clone());
    let kind = section.kind.kind();
    let (profile, runner) =
        build(section, processes).map_err(|KeyError { key, message: said }| {
            place.fault(&key, format_args!("agent {name:?}: {said}"))
        })?;
    Ok(AgentSettings { kind, provenance, profile, runner })
}

fn build(section: AgentSection, processes: &Processes) -> Result<(Profile, AgentRunner), KeyError> {
    let name = section.common.name.as_str();
    let built: (Profile, Arc<dyn Agent>) = match &section.kind {
        KindSection::Worker(keys) => {
            let (profile, role) = worker::role(&section, keys)?;
            return Ok((completed(profile, section)?, AgentRunner::Workers(role)));
        }
        KindSection::Echo => (Echo::profile(name), Arc::new(Echo)),
        KindSection::Conformance(ConformanceSection { otherwise }) => {
            let otherwise = match otherwise {
                None | Some(OtherwiseKey::Complete) => Otherwise::Complete,
                Some(OtherwiseKey::Ask) => Otherwise::Ask,
            };
            (Conformance::profile(name), Arc::new(Conformance { otherwise }))
        }
        KindSection::Exec(program, own) => program::exec(&section, program, own, processes)?,
        KindSection::Handler(program, own) => program::handler(&section, program, own, processes)?,
        KindSection::A2a(a2a) => upstream::agent(&section, a2a)?,
        KindSection::Llm(llm) => llm::agent(&section, llm)?,
        KindSection::Coding(preset, program, own) => {
            coding::agent(&section, *preset, program, own, processes)?
        }
    };
    let (profile, agent) = built;
    Ok((completed(profile, section)?, AgentRunner::Here(agent)))
}

/// The profile of an agent with the keys that every agent takes.
fn completed(mut profile: Profile, section: AgentSection) -> Result<Profile, KeyError> {
    let (kind, mut common) = (section.kind.kind(), section.common);
    profile.handler = section.handler.map(AgentName::from);
    if common.name != kind.name() {
        profile.title.clone_from(&common.name);
    }
    card::describe(&mut profile, &mut common, kind)?;
    profile.streaming = common.streaming.unwrap_or(profile.streaming);
    profile.push = common.push.unwrap_or(profile.push);
    profile.concurrency = common.concurrency.map_or(profile.concurrency, NonZeroUsize::get);
    profile.serial = common.serial.unwrap_or(profile.serial);
    // The idle timeout of a model begins with its first token, and the agent enforces it.
    let idle_timeout = common.idle_timeout.filter(|_| kind != AgentKind::Llm);
    for (given, limit) in [
        (common.timeout, &mut profile.timeout),
        (idle_timeout, &mut profile.idle_timeout),
        (common.paused_timeout, &mut profile.paused_timeout),
    ] {
        // Zero switches a limit off.
        *limit = given.map_or(*limit, |span| Some(span.0).filter(|span| !span.is_zero()));
    }
    if !kind.runs_programs() {
        profile.grace = span(common.kill_grace).unwrap_or(profile.grace);
    }
    for extension in common.extensions {
        let (uri, description, required) =
            (extension.uri, extension.description, extension.required);
        // The kind of agent may have declared it.
        profile.extensions.retain(|known| known.uri != uri);
        profile.extensions.push(Extension { uri, description, required });
    }
    Ok(profile)
}

/// The recovery of interrupted turns, by the key `attempts`.
pub(crate) fn recovery(attempts: Option<u32>, otherwise: Recovery) -> Recovery {
    match attempts {
        None => otherwise,
        Some(0 | 1) => Recovery::Fail,
        Some(more) => Recovery::Rerun(more),
    }
}

fn span(span: Option<TimeSpan>) -> Option<Duration> {
    span.map(|span| span.0)
}

fn public_url(args: &Serve, config: &FileConfig) -> anyhow::Result<Option<String>> {
    match (&args.public_url, &config.server.public_url) {
        (Some(url), _) => checked_url(url).map(Some),
        (None, Some(url)) => {
            let located = |fault| config.source.fault_at("server.public_url", fault).into();
            checked_url(url).map(Some).map_err(located)
        }
        (None, None) => Ok(None),
    }
}

fn checked_url(url: &str) -> anyhow::Result<String> {
    let uri: Option<Uri> = url.parse().ok();
    let plain = uri.is_some_and(|uri| {
        let scheme = matches!(uri.scheme_str(), Some("http" | "https"));
        scheme && uri.query().is_none() && !url.contains(['@', '#'])
    });
    if !plain {
        bail!(
            "public_url must look like https://agents.example.com, with a path if there is one, \
             not {url:?}"
        );
    }
    Ok(url.trim_end_matches('/').to_owned())
}
