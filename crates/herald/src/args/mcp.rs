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

/// The help of `--server`.
pub(super) const SERVER_HELP: &str =
    "The server, such as https://agents.example.com [default: http://127.0.0.1:8000]";

/// The address of `herald serve` without settings.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8000";

impl McpArgs {
    /// The server, without a limit for the whole time. A data directory counts only if it is named: the token of its
    /// operator has every scope, and MCP clients start this program in any directory.
    pub(crate) fn server(&self) -> ServerArgs {
        let mut args = ServerArgs { timeout: Duration::ZERO, ..self.server.clone() };
        if !args.place.is_given() {
            args.place.server = Some(DEFAULT_SERVER.to_owned());
        }
        // The URL for clients that need no bridge.
        if let Some(url) = &mut args.place.server {
            let end = url.strip_suffix('/').unwrap_or(url).strip_suffix("/mcp").map(str::len);
            url.truncate(end.unwrap_or(url.len()));
        }
        args
    }
}
