//! Server configuration. Every value has a default.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use herald_engine::{Scopes, Visibility};
use herald_protocol::{AgentName, MissingVersion, TenantId, Version, card::AgentProvider};

use crate::signing::SigningKey;

/// The configuration of a server.
#[derive(Debug, Clone)]
pub struct Config {
    /// The URL by which callers reach the server, such as `https://agents.example.com`. Without it,
    /// cards use the Host header of the request.
    pub public_url: Option<String>,
    /// Host names that requests may name, beside that of `public_url` and those of loopback. `*` is any. On a
    /// loopback listener every other name is refused; elsewhere only if this list is not empty.
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the server, such as `https://console.example.com`. Pages
    /// of the server's own origin are always allowed.
    pub allowed_origins: Vec<String>,
    /// Addresses and networks of proxies, such as `10.0.0.0/8`, whose `X-Forwarded-*` and `Forwarded` headers
    /// count. Those of all other peers are ignored.
    pub trusted_proxies: Vec<String>,
    /// The policy for a 1.0 method without a version.
    pub missing_version: MissingVersion,
    /// Versions before 1.0 that are not served.
    pub switched_off: Vec<SwitchedOff>,
    /// True if the expected clients are those of A2A 0.1: the example call is one of theirs, and calls in
    /// old versions are not logged.
    pub expects_old_clients: bool,
    /// True if the gRPC reflection service is on.
    pub grpc_reflection: bool,
    /// The accepted tokens. API keys of the store are accepted too.
    pub tokens: Vec<Token>,
    /// True if credentials are required although none are configured. They are also required if there are
    /// tokens or other authenticators, and, unless `keys_optional` is set, if the store has API keys.
    pub required: bool,
    /// True if API keys of the store do not make credentials required.
    pub keys_optional: bool,
    /// True if the server may listen beyond loopback without credentials.
    pub open_to_network: bool,
    /// The tasks that callers see whose API key does not say.
    pub visibility: Visibility,
    /// The access to `/metrics`.
    pub metrics: MetricsAccess,
    /// MCP at `/mcp`.
    pub mcp: McpConfig,
    /// The provider in the cards of the agents.
    pub provider: Option<AgentProvider>,
    /// The documentation URL in the cards of the agents.
    pub documentation_url: Option<String>,
    /// The address of a picture in the cards of the agents.
    pub icon_url: Option<String>,
    /// The version of the agents in their cards.
    pub agent_version: String,
    /// True if cards for all versions also have the members of early servers: `push_notifications`,
    /// `state_transition_history` and `authentication`. Readers by the JSON rules of protobuf refuse a member in
    /// two spellings.
    pub snake_case_members: bool,
    /// The card at the root as its owner wrote it, for readers that do not ask for version 1.0. It is served without
    /// changes, so it is not signed.
    pub root_card: Option<Arc<str>>,
    /// The interfaces that cards list, the preferred one first. The port serves every binding, listed or not.
    ///
    /// By default JSON-RPC and REST: some clients refuse a card with any URL that is not http or https,
    /// such as those of gRPC and WebSocket.
    pub card_interfaces: Vec<CardInterface>,
    /// Interfaces in the cards of single agents, in place of `card_interfaces`.
    pub agent_card_interfaces: BTreeMap<AgentName, Vec<CardInterface>>,
    /// Keys of card signatures. The first one signs, all are published at `/.well-known/jwks.json`.
    pub signing_keys: Vec<Arc<SigningKey>>,
    /// True if signatures name the URL of the published keys (`jku`), below `public_url`.
    pub key_url: bool,
    /// The `max-age` of a card.
    pub card_max_age: Duration,
    /// Limits of sizes and numbers.
    pub limits: Limits,
    /// Timeouts.
    pub timeouts: Timeouts,
}

/// Limits of sizes and numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a request body, of a message on a WebSocket, and of a line of standard input.
    pub body: usize,
    /// Bytes of all WebSocket messages that are being received. Bodies over HTTP count against the
    /// budget of the engine.
    pub bodies: usize,
    /// Bytes of all responses that are being sent; an eighth of them is for small ones.
    pub responses: usize,
    /// Bytes of the request line and the headers over HTTP/1; at least 8 KiB. It also limits the buffer of
    /// a connection whose peer reads slowly.
    pub head: usize,
    /// Open streams per caller.
    pub streams_per_caller: usize,
    /// Open connections. Beyond them there are a few for probes of health, on which every other request
    /// is refused.
    pub connections: usize,
    /// Open connections from one address, or from one IPv6 network of 64 bits; zero is no limit. Without a
    /// value the limit is 256, and loopback addresses have none.
    pub connections_per_address: Option<usize>,
    /// Limits of each caller: a principal, or an address without credentials. Without `streams`,
    /// `streams_per_caller` is the limit.
    pub caller: UsageLimits,
    /// Limits of each tenant, that is, of all its callers together.
    pub tenant: UsageLimits,
    /// Limits of single tenants.
    pub tenants: BTreeMap<TenantId, TenantLimits>,
    /// Refused credentials per second from one address; beyond them the answer is 429. Zero is no limit. Without a
    /// value the limit is 10, and loopback addresses have none.
    pub refused_logins_per_second: Option<u32>,
    /// Requests at once on one HTTP/2 connection, and calls at once on one WebSocket.
    pub requests_per_connection: u32,
}

/// Limits of what one caller, or one tenant, uses. Zero is no limit, `None` is the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageLimits {
    /// Requests per second.
    pub requests_per_second: Option<u32>,
    /// Requests at once, after a pause; by default those of one second.
    pub burst: Option<u32>,
    /// Open streams.
    pub streams: Option<usize>,
    /// Tasks that have not ended. Beyond them no task is created.
    pub active_tasks: Option<u64>,
    /// Tasks that wait for their agent. Beyond them no task is created.
    pub queued_tasks: Option<u64>,
    /// Bytes of the logs of all stored tasks. Beyond them no message is accepted.
    pub stored_bytes: Option<u64>,
    /// Registrations of workers and remote agents; by default 1000 of a caller.
    pub registrations: Option<usize>,
}

/// Limits of one tenant, in place of the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantLimits {
    /// Of each of its callers.
    pub caller: UsageLimits,
    /// Of all of them together.
    pub tenant: UsageLimits,
}

/// Timeouts of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For the first request of a connection, and from the first byte of a request to the end of
    /// its headers.
    pub head: Duration,
    /// For a whole request body, and for a whole message on a WebSocket.
    pub body: Duration,
    /// For the next request on a connection, and for the next call on a WebSocket.
    pub idle: Duration,
    /// For a peer to read any of the bytes that are sent to it.
    pub stall: Duration,
    /// Between two keep-alives on a stream, and between two pings on a WebSocket.
    pub keep_alive: Duration,
    /// Between two pings on HTTP/2, and for each pong.
    pub ping: Duration,
    /// From the signal to stop until open connections are closed by force.
    pub stop: Duration,
}

/// A version that is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchedOff {
    /// The agent; `None` is every agent.
    pub agent: Option<AgentName>,
    /// The version.
    pub version: Version,
}

/// An interface that a card can list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardInterface {
    /// JSON-RPC over HTTP.
    JsonRpc,
    /// HTTP+JSON, also known as REST.
    Rest,
    /// gRPC. Not listed behind a public URL with a path, because gRPC has fixed paths.
    Grpc,
    /// JSON-RPC over a WebSocket, a custom binding of A2A 1.0.
    WebSocket,
}

/// The configuration of MCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct McpConfig {
    /// True if `/mcp` is served.
    pub enabled: bool,
    /// True if every skill of every agent is a tool too.
    pub skills_as_tools: bool,
}

/// Access to `/metrics`.
#[derive(Clone, Default)]
pub enum MetricsAccess {
    /// Everybody, on a loopback listener of a server that needs no credentials; else nobody.
    #[default]
    Loopback,
    /// Callers with this bearer token, which is valid for `/metrics` alone.
    Token(String),
    /// Everybody.
    Everybody,
}

/// A bearer token and its caller.
#[derive(Clone, Default)]
pub struct Token {
    /// The secret.
    pub secret: String,
    /// The tenant of the caller.
    pub tenant: TenantId,
    /// The principal of the caller.
    pub principal: String,
    /// The scopes of the caller.
    pub scopes: Scopes,
    /// The agents that the caller may use; `None` is all.
    pub agents: Option<Vec<AgentName>>,
    /// The skills that the caller may use; `None` is all.
    pub skills: Option<Vec<String>>,
    /// The tasks that the caller sees.
    pub visibility: Visibility,
}

impl Config {
    /// The versions that are on for an agent, newest first.
    pub fn versions(&self, agent: &AgentName) -> Vec<Version> {
        let of_agent = |off: &&SwitchedOff| off.agent.as_ref().is_none_or(|one| one == agent);
        let off: Vec<_> =
            self.switched_off.iter().filter(of_agent).map(|off| off.version).collect();
        Version::SPOKEN.into_iter().filter(|version| !off.contains(version)).collect()
    }

    /// The interfaces that the card of an agent lists.
    pub(crate) fn interfaces(&self, agent: &AgentName) -> &[CardInterface] {
        self.agent_card_interfaces.get(agent).unwrap_or(&self.card_interfaces)
    }
}

impl CardInterface {
    /// Every interface, in the usual order of preference.
    pub const ALL: [Self; 4] = [Self::JsonRpc, Self::Rest, Self::Grpc, Self::WebSocket];
}

impl Default for Config {
    fn default() -> Self {
        Self {
            public_url: None,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            trusted_proxies: Vec::new(),
            missing_version: MissingVersion::Strict,
            switched_off: Vec::new(),
            expects_old_clients: false,
            grpc_reflection: false,
            tokens: Vec::new(),
            required: false,
            keys_optional: false,
            open_to_network: false,
            visibility: Visibility::default(),
            metrics: MetricsAccess::default(),
            mcp: McpConfig::default(),
            provider: None,
            documentation_url: None,
            icon_url: None,
            snake_case_members: false,
            root_card: None,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            card_interfaces: vec![CardInterface::JsonRpc, CardInterface::Rest],
            agent_card_interfaces: BTreeMap::new(),
            signing_keys: Vec::new(),
            key_url: false,
            card_max_age: Duration::from_secs(300),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        }
    }
}

impl Default for McpConfig {
    fn default() -> Self {
        Self { enabled: true, skills_as_tools: false }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 4 << 20,
            bodies: 256 << 20,
            responses: 256 << 20,
            head: 32 << 10,
            streams_per_caller: 1000,
            connections: 10_000,
            connections_per_address: None,
            caller: UsageLimits::default(),
            tenant: UsageLimits::default(),
            tenants: BTreeMap::new(),
            refused_logins_per_second: None,
            requests_per_connection: 256,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(60),
            keep_alive: Duration::from_secs(15),
            ping: Duration::from_secs(20),
            stop: Duration::from_secs(10),
        }
    }
}

impl fmt::Debug for MetricsAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "Loopback",
            Self::Token(_) => "Token(…)",
            Self::Everybody => "Everybody",
        })
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("tenant", &self.tenant)
            .field("principal", &self.principal)
            .field("scopes", &self.scopes)
            .finish_non_exhaustive()
    }
}
