//! Arguments of `herald mcp`.

use std::time::Duration;

use clap::Args;

use super::ServerArgs;

pub(super) const EXAMPLES: &str = "\
Claude Code:
  claude mcp add herald -- herald mcp --server http://127.0.0.1:8000
  claude mcp add herald --env A2ACLI_BEARER=KEY -- herald mcp --server https://agents.example.com

Other clients, in their configuration:
  {\"mcpServers\": {\"herald\": {
    \"command\": \"herald\", \"args\": [\"mcp\", \"--server\", \"http://127.0.0.1:8000\"],
    \"env\": {\"A2ACLI_BEARER\": \"KEY\"}}}}

Clients that call MCP servers over HTTP need no bridge: their URL is http://127.0.0.1:8000/mcp.
The key needs the scopes send, read and cancel: herald key create --principal NAME";

/// `herald mcp`.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    server: ServerArgs,
}

impl McpArgs {
    /// The server, without a limit for the whole time.
    pub(crate) fn server(&self) -> ServerArgs {
        ServerArgs { timeout: Duration::ZERO, ..self.server.clone() }
    }
}
