//! Route table: from a path to its endpoint. Fixed paths come first, the paths of tenants last.

use herald_protocol::dialect::EntryPoint;

use crate::signing::KEY_SET;

/// The path of the OAuth 2 metadata, below the resource that it describes.
pub(crate) const RESOURCE_METADATA: &str = "/.well-known/oauth-protected-resource";

/// The paths of the catalogs.
pub(crate) const API_CATALOG: &str = "/.well-known/api-catalog";
pub(crate) const AI_CATALOG: &str = "/.well-known/ai-catalog.json";

/// The match of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteMatch<'a> {
    /// The agent whose own endpoints these are; `None` at the root.
    pub(crate) agent: Option<&'a str>,
    /// The endpoint.
    pub(crate) target: RouteTarget<'a>,
}

/// The endpoints of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteTarget<'a> {
    /// The page for people, and JSON-RPC for programs.
    Root,
    /// JSON-RPC.
    JsonRpc(EntryPoint),
    /// JSON-RPC both ways, over WebSocket.
    Socket,
    /// The feed of all events of the caller's tasks.
    Events,
    /// REST, under its mount. The REST route table decides whether the path exists.
    Rest(Mount, &'a str),
    /// MCP: agents and tasks as tools.
    Mcp,
    /// Herald's own interface. Its route table decides whether the path exists.
    Api,
    /// The agent's card.
    Card,
    /// The public keys of card signatures.
    KeySet,
    /// The extended card, at the path of 0.2.
    ExtendedCard,
    /// The OAuth 2 metadata of the agent's endpoints.
    ResourceMetadata,
    /// The catalog of the agents as links (RFC 9727).
    ApiCatalog,
    /// The catalog of the agents as an AI catalog.
    AiCatalog,
    /// The liveness check.
    Live,
    /// The readiness check.
    Ready,
    /// The metrics.
    Metrics,
}

/// The mount of REST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mount {
    /// The root path. Without `/v1` the version is 1.0.
    Root,
    /// `/a2a/rest`. Without `/v1` the version header decides; without that header it is 0.3.
    Shared,
}

/// First segments that are never a tenant. Some are not served yet and are reserved.
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

/// Matches a path, which is still percent-encoded.
pub(crate) fn find(path: &str) -> Option<RouteMatch<'_>> {
    if let Some(rest) = path.strip_prefix("/agents/") {
        let (agent, path) = match rest.find('/') {
            Some(end) => rest.split_at(end),
            None => (rest, "/"),
        };
        return Some(RouteMatch { agent: Some(agent), target: below(path)? });
    }
    // RFC 9728 puts the path of the resource behind the well-known one.
    if let Some(rest) = path.strip_prefix(RESOURCE_METADATA)
        && let Some(agent) = rest.strip_prefix("/agents/").filter(|agent| !agent.contains('/'))
    {
        return Some(RouteMatch { agent: Some(agent), target: RouteTarget::ResourceMetadata });
    }
    let target = match path {
        "/healthz" => RouteTarget::Live,
        "/readyz" => RouteTarget::Ready,
        "/metrics" => RouteTarget::Metrics,
        "/mcp" | "/mcp/" => RouteTarget::Mcp,
        // Where MCP clients look for the metadata of the URL that they were given.
        _ if path.strip_prefix(RESOURCE_METADATA) == Some("/mcp") => RouteTarget::ResourceMetadata,
        API_CATALOG => RouteTarget::ApiCatalog,
        AI_CATALOG => RouteTarget::AiCatalog,
        _ if is_api(path) => RouteTarget::Api,
        _ => below(path)?,
    };
    Some(RouteMatch { agent: None, target })
}

/// True for a path of Herald's own interface.
pub(crate) fn is_api(path: &str) -> bool {
    path.strip_prefix("/api").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Matches a path below the root or below an agent.
fn below(path: &str) -> Option<RouteTarget<'_>> {
    let target = match path {
        "/" => RouteTarget::Root,
        "/a2a" | "/a2a/" | "/a2a/jsonrpc" | "/a2a/jsonrpc/" | "/v1/a2a" | "/v1/a2a/" => {
            RouteTarget::JsonRpc(EntryPoint::Main)
        }
        "/rpc" | "/rpc/" => RouteTarget::JsonRpc(EntryPoint::V01),
        "/.well-known/agent-card.json" | "/.well-known/agent.json" | "/agent-card.json" => {
            RouteTarget::Card
        }
        KEY_SET => RouteTarget::KeySet,
        // Beside the URL of JSON-RPC, and where its SDKs looked for it.
        "/a2a/agent/authenticatedExtendedCard" | "/agent/authenticatedExtendedCard" => {
            RouteTarget::ExtendedCard
        }
        RESOURCE_METADATA => RouteTarget::ResourceMetadata,
        "/ws" | "/ws/" => RouteTarget::Socket,
        "/events" | "/events/" => RouteTarget::Events,
        _ => match path.strip_prefix("/a2a/rest").filter(|rest| rest.starts_with('/')) {
            Some(rest) => RouteTarget::Rest(Mount::Shared, rest),
            None => {
                let first = path.strip_prefix('/')?.split('/').next().unwrap_or_default();
                if RESERVED.contains(&first) {
                    return None;
                }
                RouteTarget::Rest(Mount::Root, path)
            }
        },
    };
    Some(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, agent: Option<&str>, target: Option<RouteTarget<'_>>) {
        assert_eq!(find(path), target.map(|target| RouteMatch { agent, target }), "{path}");
    }

    #[test]
    fn fixed_paths_win_and_every_agent_has_them_too() {
        for prefix in ["", "/agents/echo"] {
            let agent = (!prefix.is_empty()).then_some("echo");
            check(&format!("{prefix}/"), agent, Some(RouteTarget::Root));
            for path in ["/a2a", "/a2a/", "/a2a/jsonrpc", "/a2a/jsonrpc/", "/v1/a2a"] {
                check(
                    &format!("{prefix}{path}"),
                    agent,
                    Some(RouteTarget::JsonRpc(EntryPoint::Main)),
                );
            }
            for path in ["/rpc", "/rpc/"] {
                check(
                    &format!("{prefix}{path}"),
                    agent,
                    Some(RouteTarget::JsonRpc(EntryPoint::V01)),
                );
            }
            for path in
                ["/.well-known/agent-card.json", "/.well-known/agent.json", "/agent-card.json"]
            {
                check(&format!("{prefix}{path}"), agent, Some(RouteTarget::Card));
            }
            check(&format!("{prefix}/.well-known/jwks.json"), agent, Some(RouteTarget::KeySet));
            for path in ["/agent", "/a2a/agent"] {
                let path = format!("{prefix}{path}/authenticatedExtendedCard");
                check(&path, agent, Some(RouteTarget::ExtendedCard));
            }
            let metadata = Some(RouteTarget::ResourceMetadata);
            check(&format!("{prefix}/.well-known/oauth-protected-resource"), agent, metadata);
            check(&format!("/.well-known/oauth-protected-resource{prefix}"), agent, metadata);
            check(&format!("{prefix}/ws"), agent, Some(RouteTarget::Socket));
            check(&format!("{prefix}/events"), agent, Some(RouteTarget::Events));
            check(
                &format!("{prefix}/a2a/rest/v1/message:send"),
                agent,
                Some(RouteTarget::Rest(Mount::Shared, "/v1/message:send")),
            );
            check(
                &format!("{prefix}/acme/tasks/7"),
                agent,
                Some(RouteTarget::Rest(Mount::Root, "/acme/tasks/7")),
            );
        }
        check("/agents/echo", Some("echo"), Some(RouteTarget::Root));
        check("/healthz", None, Some(RouteTarget::Live));
        check("/readyz", None, Some(RouteTarget::Ready));
        check("/metrics", None, Some(RouteTarget::Metrics));
        check("/mcp", None, Some(RouteTarget::Mcp));
        check("/mcp/", None, Some(RouteTarget::Mcp));
        let metadata = "/.well-known/oauth-protected-resource/mcp";
        check(metadata, None, Some(RouteTarget::ResourceMetadata));
        assert!(!is_api("/apiary"));
        for path in ["/api", "/api/", "/api/v1/tasks/7:cancel", "/api/no/such", "/api/audit:verify"]
        {
            check(path, None, Some(RouteTarget::Api));
        }
    }

    #[test]
    fn a_reserved_first_segment_is_never_a_tenant() {
        for path in [
            "/a2a/tasks",
            "/mcp/tasks",
            "/.well-known/tasks",
            "/agents/echo/agents/tasks",
            "/agents/echo/api",
            "/agents/echo/mcp",
        ] {
            assert_eq!(find(path), None, "{path}");
        }
        assert_eq!(find(""), None);
        assert_eq!(find("*"), None);
        assert_eq!(find("/agents/echo/healthz"), None);
        assert_eq!(find("/a2a/restful"), None);
    }
}
