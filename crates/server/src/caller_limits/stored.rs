//! Limits of stored tasks: active and queued ones, and the bytes of their logs.

use std::{collections::HashMap, time::Duration};

use herald_engine::store::Usage;
use herald_protocol::{Error, TenantId};

use crate::config::{Limits, UsageLimits};

use super::exceeded;

/// The time after which a task may have ended.
const SOON: Duration = Duration::from_secs(1);
/// The time after which retention may have removed a task.
const LATER: Duration = Duration::from_secs(60);

/// The limits of each caller and of each tenant, and those of single tenants.
#[derive(Debug)]
pub(super) struct StoredLimitsByTenant {
    default: StoredLimits,
    of_tenants: HashMap<TenantId, StoredLimits>,
}

/// The limits of the callers of one tenant, and of that tenant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoredLimits {
    /// Of each caller, if there is one.
    pub(crate) caller: Option<Most>,
    /// Of the tenant, if there is one.
    pub(crate) tenant: Option<Most>,
}

/// The most that may be stored.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    section: &'static str,
    active_tasks: u64,
    queued_tasks: u64,
    bytes: u64,
}

impl StoredLimitsByTenant {
    pub(super) fn new(limits: &Limits) -> Self {
        let none = UsageLimits::default();
        let of = |caller: &UsageLimits, tenant: &UsageLimits| StoredLimits {
            caller: Most::new("limits.caller", caller, &limits.caller),
            tenant: Most::new("limits.tenant", tenant, &limits.tenant),
        };
        let of_tenants = limits.tenants.iter();
        let of_tenants = of_tenants.map(|(name, own)| (name.clone(), of(&own.caller, &own.tenant)));
        Self { default: of(&none, &none), of_tenants: of_tenants.collect() }
    }

    /// The limits of a tenant and its callers, if there are any.
    pub(super) fn of(&self, tenant: &TenantId) -> Option<StoredLimits> {
        let limits = self.of_tenants.get(tenant).unwrap_or(&self.default);
        (limits.caller.is_some() || limits.tenant.is_some()).then_some(*limits)
    }
}

impl StoredLimits {
    /// True if the bytes of a message count.
    pub(crate) fn count_bytes(&self) -> bool {
        [self.caller, self.tenant].iter().flatten().any(|most| most.bytes < u64::MAX)
    }
}

impl Most {
    fn new(section: &'static str, own: &UsageLimits, default: &UsageLimits) -> Option<Self> {
        let most = |own: Option<u64>, default: Option<u64>| {
            own.or(default).filter(|most| *most > 0).unwrap_or(u64::MAX)
        };
        let most = Self {
            section,
            active_tasks: most(own.active_tasks, default.active_tasks),
            queued_tasks: most(own.queued_tasks, default.queued_tasks),
            bytes: most(own.stored_bytes, default.stored_bytes),
        };
        let is_limited = [most.active_tasks, most.queued_tasks, most.bytes] != [u64::MAX; 3];
        is_limited.then_some(most)
    }

    /// Refuses a message beyond the limits. Only one that creates a task counts against those of tasks.
    pub(crate) fn check(&self, used: &Usage, creates: bool) -> Result<(), Error> {
        let refuse = |what: &str, key: &str, most: u64, delay| {
            let section = self.section;
            let text =
                format!("too many {what}: at most {most} ([{section}] {key} in herald.toml)");
            Err(exceeded(text, format_args!("{section}.{key}"), most, delay))
        };
        if used.bytes >= self.bytes {
            return refuse("stored bytes", "stored_bytes", self.bytes, LATER);
        }
        if creates && used.active >= self.active_tasks {
            return refuse("active tasks", "active_tasks", self.active_tasks, SOON);
        }
        if creates && used.queued >= self.queued_tasks {
            return refuse("waiting tasks", "queued_tasks", self.queued_tasks, SOON);
        }
        Ok(())
    }
}
