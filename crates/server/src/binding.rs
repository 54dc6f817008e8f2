//! Names of the bindings.

/// Prefix of a tenant that names an agent, because gRPC has no paths for that.
pub(crate) const AGENTS: &str = "agents/";

/// The binding of a call, as metrics and spans name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    JsonRpc,
    Rest,
    Grpc,
    WebSocket,
    Stdio,
    Mcp,
}

impl Binding {
    pub(crate) const ALL: [Self; 6] =
        [Self::JsonRpc, Self::Rest, Self::Grpc, Self::WebSocket, Self::Stdio, Self::Mcp];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "jsonrpc",
            Self::Rest => "rest",
            Self::Grpc => "grpc",
            Self::WebSocket => "websocket",
            Self::Stdio => "stdio",
            Self::Mcp => "mcp",
        }
    }
}
