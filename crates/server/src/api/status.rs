//! `GET /api`: the caller's identity and the server.

use herald_api::{
    routes::Nothing,
    status::{CallerIdentity, SchemeView, ServerStatus, StatusLimits},
};
use herald_engine::{Caller, Visibility};
use herald_protocol::{AgentName, Error, Version};

use super::{ApiRequest, MAX_PAGE};
use crate::config::Config;

pub(super) async fn get(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<ServerStatus, Error> {
    let shared = request.shared();
    let schemes = shared.auth.schemes();
    let schemes = schemes
        .iter()
        .map(|scheme| SchemeView { name: scheme.name.to_string(), usage: scheme.usage.to_owned() });
    Ok(ServerStatus {
        identity: identity(&request.caller),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        started: shared.metrics.started(),
        features: features(&shared.config),
        protocol_versions: versions(&shared.config),
        limits: StatusLimits {
            body_bytes: shared.config.limits.body as u64,
            streams_per_caller: shared.config.limits.streams_per_caller as u64,
            page_size: MAX_PAGE,
        },
        schemes: schemes.collect(),
    })
}

fn identity(caller: &Caller) -> CallerIdentity {
    let identity = caller.identity();
    let names = |agents: &Vec<AgentName>| agents.iter().map(AgentName::to_string).collect();
    CallerIdentity {
        tenant: identity.owner.tenant.to_string(),
        principal: identity.owner.principal.to_string(),
        scopes: identity.scopes.names().map(str::to_owned).collect(),
        agents: identity.agents.as_ref().map(names),
        skills: identity.skills.clone(),
        visibility: match identity.visibility {
            Visibility::Owner => "owner",
            Visibility::Tenant => "tenant",
        }
        .to_owned(),
        credential: identity.credential.kind().to_owned(),
        credential_id: identity.credential.id().map(|id| id.to_string()),
    }
}

fn features(config: &Config) -> Vec<String> {
    let features = [("grpc-reflection", config.grpc_reflection)];
    let on = features.into_iter().filter(|(_, on)| *on);
    on.map(|(name, _)| name.to_owned()).collect()
}

/// The versions that some agent serves.
fn versions(config: &Config) -> Vec<String> {
    let off = |version: &Version| {
        config.switched_off.iter().any(|off| off.version == *version && off.agent.is_none())
    };
    Version::SPOKEN.iter().filter(|version| !off(version)).map(Version::to_string).collect()
}
