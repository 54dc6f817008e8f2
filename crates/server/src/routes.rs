//! Which path is what. Fixed paths win; a tenant's come last.

use herald_protocol::dialect::Entry;

/// What a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    /// The agent whose own endpoints these are; `None` at the root.
    pub(crate) agent: Option<&'a str>,
    /// What is there.
    pub(crate) what: What<'a>,
}

/// What can be at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What<'a> {
    /// The page for people, and JSON-RPC for programs.
    Root,
    /// JSON-RPC.
    JsonRpc(Entry),
    /// JSON-RPC both ways, over WebSocket.
    Socket,
    /// Everything that happens to the caller's tasks.
    Events,
    /// REST, under its mount; whether there is something is for the REST table to say.
    Rest(Mount, &'a str),
    /// The agent's card.
    Card,
    /// Whether the process lives.
    Live,
    /// Whether a call would be served.
    Ready,
    /// Numbers for operators.
    Metrics,
}

/// Where REST is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mount {
    /// Beside everything else. Without `/v1` it is 1.0.
    Root,
    /// Under `/a2a/rest`. Without `/v1` the version says which generation, and none is 0.3.
    Shared,
}

/// First segments that are never a tenant's. Some are not served yet and stay free.
const RESERVED: &[&str] = &[
    ".well-known",
    "a2a",
    "agent-card.json",
    "agents",
    "api",
    "console",
    "events",
    "healthz",
    "mcp",
    "metrics",
    "readyz",
    "rpc",
    "ws",
];

/// Finds the place of a path, which is still percent-encoded.
pub(crate) fn find(path: &str) -> Option<Place<'_>> {
    if let Some(rest) = path.strip_prefix("/agents/") {
        let (agent, path) = match rest.find('/') {
            Some(end) => rest.split_at(end),
            None => (rest, "/"),
        };
        return Some(Place { agent: Some(agent), what: below(path)? });
    }
    let what = match path {
        "/healthz" => What::Live,
        "/readyz" => What::Ready,
        "/metrics" => What::Metrics,
        _ => below(path)?,
    };
    Some(Place { agent: None, what })
}

/// What is served at the root and again for every agent.
fn below(path: &str) -> Option<What<'_>> {
    let what = match path {
        "/" => What::Root,
        "/a2a" | "/a2a/" | "/a2a/jsonrpc" | "/a2a/jsonrpc/" | "/v1/a2a" | "/v1/a2a/" => {
            What::JsonRpc(Entry::Main)
        }
        "/rpc" | "/rpc/" => What::JsonRpc(Entry::V01),
        "/.well-known/agent-card.json" | "/.well-known/agent.json" | "/agent-card.json" => {
            What::Card
        }
        "/ws" | "/ws/" => What::Socket,
        "/events" | "/events/" => What::Events,
        _ => match path.strip_prefix("/a2a/rest").filter(|rest| rest.starts_with('/')) {
            Some(rest) => What::Rest(Mount::Shared, rest),
            None => {
                let first = path.strip_prefix('/')?.split('/').next().unwrap_or_default();
                if RESERVED.contains(&first) {
                    return None;
                }
                What::Rest(Mount::Root, path)
            }
        },
    };
    Some(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, agent: Option<&str>, what: Option<What<'_>>) {
        assert_eq!(find(path), what.map(|what| Place { agent, what }), "{path}");
    }

    #[test]
    fn fixed_paths_win_and_every_agent_has_them_too() {
        for prefix in ["", "/agents/echo"] {
            let agent = (!prefix.is_empty()).then_some("echo");
            check(&format!("{prefix}/"), agent, Some(What::Root));
            for path in ["/a2a", "/a2a/", "/a2a/jsonrpc", "/a2a/jsonrpc/", "/v1/a2a"] {
                check(&format!("{prefix}{path}"), agent, Some(What::JsonRpc(Entry::Main)));
            }
            for path in ["/rpc", "/rpc/"] {
                check(&format!("{prefix}{path}"), agent, Some(What::JsonRpc(Entry::V01)));
            }
            for path in
                ["/.well-known/agent-card.json", "/.well-known/agent.json", "/agent-card.json"]
            {
                check(&format!("{prefix}{path}"), agent, Some(What::Card));
            }
            check(&format!("{prefix}/ws"), agent, Some(What::Socket));
            check(&format!("{prefix}/events"), agent, Some(What::Events));
            check(
                &format!("{prefix}/a2a/rest/v1/message:send"),
                agent,
                Some(What::Rest(Mount::Shared, "/v1/message:send")),
            );
            check(
                &format!("{prefix}/acme/tasks/7"),
                agent,
                Some(What::Rest(Mount::Root, "/acme/tasks/7")),
            );
        }
        check("/agents/echo", Some("echo"), Some(What::Root));
        check("/healthz", None, Some(What::Live));
        check("/readyz", None, Some(What::Ready));
        check("/metrics", None, Some(What::Metrics));
    }

    #[test]
    fn a_reserved_first_segment_is_never_a_tenant() {
        for path in ["/a2a/tasks", "/mcp/tasks", "/.well-known/tasks", "/agents/echo/agents/tasks"]
        {
            assert_eq!(find(path), None, "{path}");
        }
        assert_eq!(find(""), None);
        assert_eq!(find("*"), None);
        assert_eq!(find("/agents/echo/healthz"), None);
        assert_eq!(find("/a2a/restful"), None);
    }
}
