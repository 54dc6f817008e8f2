//! Limits of callers and tenants: requests per second, open streams, stored tasks, registrations, and refused
//! credentials.

mod pending;
mod rate;
mod stored;

use std::{collections::HashMap, fmt::Display, hash::Hash, net::IpAddr, time::Duration};

use herald_engine::{Caller, RegistrationLimits, budget::Payer, store::Usage};
use herald_protocol::{Error, ErrorKind, TenantId};

use crate::{
    config::{Limits, TenantLimits, UsageLimits},
    limits::{KeyedLimit, KeyedPermit, network},
};

use pending::PendingMessages;
use rate::Rate;
use stored::StoredLimitsByTenant;

pub(crate) use pending::{LimitedKey, MessageReservation, MessageSize};
pub(crate) use stored::{Most, StoredLimits};

/// Refused credentials of one address that is not a loopback address, per second and at once, unless the
/// configuration has a limit.
const REFUSED_PER_SECOND: u32 = 10;
const REFUSED_BURST: u32 = 100;

/// The limits of callers and tenants, and their use.
#[derive(Debug)]
pub(crate) struct CallerLimits {
    callers: Rates<Payer>,
    tenants: Rates<TenantId>,
    streams: Streams,
    stored: StoredLimitsByTenant,
    pending: PendingMessages,
    registrations: RegistrationLimits,
    registrations_of_tenants: HashMap<TenantId, RegistrationLimits>,
    refused: Option<Rate<IpAddr>>,
    /// True if the limit of refused credentials is that of loopback addresses too.
    refuses_loopback: bool,
}

/// Rates of the callers of each tenant, or of each tenant: the default, and those of tenants that have their
/// own.
#[derive(Debug)]
struct Rates<K: Hash + Eq + Clone> {
    section: &'static str,
    default: Option<Rate<K>>,
    of_tenants: HashMap<TenantId, Option<Rate<K>>>,
}

/// Open streams.
#[derive(Debug)]
struct Streams {
    of_callers: KeyedLimit<Payer>,
    of_tenants: KeyedLimit<TenantId>,
    per_caller: StreamLimits,
    per_tenant: StreamLimits,
}

#[derive(Debug)]
struct StreamLimits {
    default: usize,
    of_tenants: HashMap<TenantId, usize>,
}

/// The permits of one open stream.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    _caller: KeyedPermit<Payer>,
    _tenant: Option<KeyedPermit<TenantId>>,
}

impl CallerLimits {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (refused, refuses_loopback) = match limits.refused_logins_per_second {
            Some(0) => (None, false),
            Some(rate) => (Some(rate), true),
            None => (Some(REFUSED_PER_SECOND), false),
        };
        let usual = RegistrationLimits::default();
        let default = registrations(&limits.caller, &limits.tenant, usual);
        let of_tenant = |(name, own): (&TenantId, &TenantLimits)| {
            (name.clone(), registrations(&own.caller, &own.tenant, default))
        };
        Self {
            callers: Rates::new("limits.caller", &limits.caller, limits, |own| &own.caller),
            tenants: Rates::new("limits.tenant", &limits.tenant, limits, |own| &own.tenant),
            streams: Streams::new(limits),
            stored: StoredLimitsByTenant::new(limits),
            pending: PendingMessages::default(),
            registrations: default,
            registrations_of_tenants: limits.tenants.iter().map(of_tenant).collect(),
            refused: refused.and_then(|rate| Rate::new(rate, REFUSED_BURST.max(rate))),
            refuses_loopback,
        }
    }

    /// Counts a request of a caller. It is refused if the caller or its tenant has made too many.
    pub(crate) fn request(
        &self,
        caller: &Caller,
        payer: impl FnOnce() -> Payer,
    ) -> Result<(), Error> {
        let tenant = &caller.owner().tenant;
        if let Some(rate) = self.callers.of(tenant) {
            rate.check(&payer()).map_err(|delay| self.callers.refusal(rate, delay))?;
        }
        // Without credentials the tenant is a name that anyone can use.
        if let Some(rate) = self.tenants.of(tenant).filter(|_| !caller.is_anonymous()) {
            rate.check(tenant).map_err(|delay| self.tenants.refusal(rate, delay))?;
        }
        Ok(())
    }

    /// The error of a request with refused credentials. Too many from one address get another one.
    ///
    /// Credentials are checked nevertheless: behind a proxy all callers have one address, and one with wrong
    /// credentials must not lock the others out.
    pub(crate) fn refused(&self, error: Error, peer: Option<IpAddr>) -> Error {
        let Some(peer) = peer.filter(|peer| self.refuses_loopback || !peer.is_loopback()) else {
            return error;
        };
        let Some(rate) = &self.refused else { return error };
        if error.kind != ErrorKind::Unauthenticated {
            return error;
        }
        match rate.check(&network(peer)) {
            Ok(()) => error,
            Err(delay) => {
                let limit = "limits.refused_logins_per_second";
                let text = format!("too many refused credentials from this address ({limit})");
                exceeded(text, limit, rate.per_second(), delay)
            }
        }
    }

    /// The permits of a stream.
    pub(crate) fn stream(&self, caller: &Caller, payer: Payer) -> Result<StreamPermit, Error> {
        let tenant = &caller.owner().tenant;
        let Streams { of_callers, of_tenants, per_caller, per_tenant } = &self.streams;
        let limit = per_caller.of(tenant);
        let caller = of_callers.try_acquire(payer, limit);
        let caller = caller.ok_or_else(|| too_many_streams("streams_per_caller", limit))?;
        let limit = per_tenant.of(tenant);
        let tenant = if limit == usize::MAX {
            None
        } else {
            let permit = of_tenants.try_acquire(tenant.clone(), limit);
            Some(permit.ok_or_else(|| too_many_streams("tenant.streams", limit))?)
        };
        Ok(StreamPermit { _caller: caller, _tenant: tenant })
    }

    /// The limits of stored tasks of a tenant and its callers, if there are any.
    pub(crate) fn stored(&self, tenant: &TenantId) -> Option<StoredLimits> {
        self.stored.of(tenant)
    }

    /// The limits of the registrations of a tenant and its callers.
    pub(crate) fn registrations(&self, tenant: &TenantId) -> RegistrationLimits {
        *self.registrations_of_tenants.get(tenant).unwrap_or(&self.registrations)
    }

    /// Reserves the part of a limit that a message takes until it is stored. `used` reads what is stored.
    pub(crate) async fn reserve<F>(
        &self,
        key: LimitedKey,
        most: Most,
        size: MessageSize,
        used: impl Fn() -> F,
    ) -> Result<MessageReservation, Error>
    where
        F: Future<Output = Result<Usage, Error>>,
    {
        self.pending.reserve(key, most, size, used).await
    }

    /// The number of open streams.
    pub(crate) fn open_streams(&self) -> usize {
        self.streams.of_callers.count()
    }
}

fn too_many_streams(key: &'static str, limit: usize) -> Error {
    let text =
        format!("too many open streams: at most {limit} ([limits] {key}); close one and try again");
    exceeded(text, format!("limits.{key}"), limit, Duration::from_secs(1))
}

/// The error of a limit, which names it.
fn exceeded(text: String, limit: impl Display, value: impl Display, delay: Duration) -> Error {
    let error = Error::new(ErrorKind::LimitExceeded, text);
    error.with("limit", limit).with("value", value).retry_after(delay)
}

impl<K: Hash + Eq + Clone> Rates<K> {
    fn new(
        section: &'static str,
        default: &UsageLimits,
        limits: &Limits,
        own: impl Fn(&TenantLimits) -> &UsageLimits,
    ) -> Self {
        let rate = |usage: &UsageLimits| {
            let per_second = usage.requests_per_second?;
            Rate::new(per_second, usage.burst.unwrap_or(per_second))
        };
        let of_tenants = limits.tenants.iter();
        let of_tenants = of_tenants
            .filter(|(_, tenant)| own(tenant).requests_per_second.is_some())
            .map(|(name, tenant)| (name.clone(), rate(own(tenant))));
        Self { section, default: rate(default), of_tenants: of_tenants.collect() }
    }

    fn of(&self, tenant: &TenantId) -> Option<&Rate<K>> {
        if self.of_tenants.is_empty() {
            return self.default.as_ref();
        }
        self.of_tenants.get(tenant).unwrap_or(&self.default).as_ref()
    }

    fn refusal(&self, rate: &Rate<K>, delay: Duration) -> Error {
        let (section, most) = (self.section, rate.per_second());
        let text = format!(
            "too many requests: at most {most} per second ([{section}] requests_per_second in \
             herald.toml)"
        );
        exceeded(text, format_args!("{section}.requests_per_second"), most, delay)
    }
}

impl Streams {
    fn new(limits: &Limits) -> Self {
        let of = |default: usize, own: fn(&TenantLimits) -> Option<usize>| {
            let of_tenants = limits.tenants.iter();
            let of_tenants = of_tenants
                .filter_map(|(name, tenant)| Some((name.clone(), unless_zero(own(tenant)?))));
            StreamLimits { default: unless_zero(default), of_tenants: of_tenants.collect() }
        };
        let per_caller = limits.caller.streams.unwrap_or(limits.streams_per_caller);
        Self {
            of_callers: KeyedLimit::default(),
            of_tenants: KeyedLimit::default(),
            per_caller: of(per_caller, |tenant| tenant.caller.streams),
            per_tenant: of(limits.tenant.streams.unwrap_or(0), |tenant| tenant.tenant.streams),
        }
    }
}

/// The limits of registrations that these set, otherwise those of `default`.
fn registrations(
    caller: &UsageLimits,
    tenant: &UsageLimits,
    default: RegistrationLimits,
) -> RegistrationLimits {
    RegistrationLimits {
        per_principal: caller.registrations.map_or(default.per_principal, unless_zero),
        per_tenant: tenant.registrations.map_or(default.per_tenant, unless_zero),
    }
}

/// Zero is no limit.
const fn unless_zero(limit: usize) -> usize {
    if limit == 0 { usize::MAX } else { limit }
}

impl StreamLimits {
    fn of(&self, tenant: &TenantId) -> usize {
        if self.of_tenants.is_empty() {
            return self.default;
        }
        self.of_tenants.get(tenant).copied().unwrap_or(self.default)
    }
}
