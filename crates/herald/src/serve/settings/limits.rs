//! `[limits]` as the limits of the server.

use std::collections::BTreeMap;

use herald_protocol::TenantId;
use herald_server::{Limits, TenantLimits, UsageLimits};

use crate::serve::config::{LimitsSection, TenantLimitsSection, UsageSection};

/// The limits of the server. Those of tasks and memory belong to the engine.
pub(super) fn server_limits(section: &LimitsSection) -> anyhow::Result<Limits> {
    let default = Limits::default();
    let body = section.body.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
    Ok(Limits {
        body: body.unwrap_or(default.body),
        connections: section.connections.unwrap_or(default.connections),
        connections_per_address: section.connections_per_address,
        streams_per_caller: section.streams_per_caller.unwrap_or(default.streams_per_caller),
        caller: usage(&section.caller),
        tenant: usage(&section.tenant),
        tenants: tenants(&section.tenants)?,
        refused_logins_per_second: section.refused_logins_per_second,
        ..default
    })
}

fn usage(section: &UsageSection) -> UsageLimits {
    UsageLimits {
        requests_per_second: section.requests_per_second,
        burst: section.burst,
        streams: section.streams,
        active_tasks: section.active_tasks,
        queued_tasks: section.queued_tasks,
        stored_bytes: section.stored_bytes.map(|size| size.0),
        registrations: section.registrations,
    }
}

fn tenants(sections: &[TenantLimitsSection]) -> anyhow::Result<BTreeMap<TenantId, TenantLimits>> {
    let mut tenants = BTreeMap::new();
    for section in sections {
        let limits =
            TenantLimits { caller: usage(&section.caller), tenant: usage(&section.tenant) };
        if tenants.insert(TenantId::from(section.name.as_str()), limits).is_some() {
            anyhow::bail!(
                "[[limits.tenants]] has two entries for the tenant {:?}: merge them",
                section.name
            );
        }
    }
    Ok(tenants)
}
