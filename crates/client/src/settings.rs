//! Settings of a client, as its builder collects them.

use std::{fmt, sync::Arc};

use herald_protocol::{TenantId, TraceContext, Version, card::signature::Verdict};

use crate::{
    call::Interceptor,
    credential::Credential,
    error::Error,
    interface::Binding,
    limits::{Limits, Retry, Timeouts},
    oauth::TokenStore,
    signature::CardKeys,
    tls::TlsSettings,
};

/// Returns the trace that the next call belongs to.
type TraceSource = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

/// All settings.
#[derive(Clone, Default)]
pub(crate) struct ClientSettings {
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) retry: Retry,
    pub(crate) preferred: Vec<Binding>,
    pub(crate) version: Option<Version>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) trusted: Vec<String>,
    /// True if calls contain secrets even without credentials.
    pub(crate) confined: bool,
    pub(crate) tls: TlsSettings,
    pub(crate) tokens: Arc<TokenStore>,
    pub(crate) card_keys: CardKeys,
    pub(crate) require_signature: bool,
    pub(crate) extensions: Vec<String>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) trace: Option<TraceSource>,
}

impl ClientSettings {
    /// Returns the verdict, or an error if a signature is required and not verified.
    pub(crate) fn admit(&self, verdict: Verdict, fault: Option<Error>) -> Result<Verdict, Error> {
        if self.require_signature && !verdict.is_verified() {
            Err(Error::untrusted(&verdict, fault))
        } else {
            Ok(verdict)
        }
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSettings")
            .field("limits", &self.limits)
            .field("timeouts", &self.timeouts)
            .field("retry", &self.retry)
            .field("preferred", &self.preferred)
            .field("version", &self.version)
            .field("credentials", &self.credentials)
            .field("trusted", &self.trusted)
            .field("confined", &self.confined)
            .field("tls", &self.tls)
            .field("card_keys", &self.card_keys)
            .field("require_signature", &self.require_signature)
            .field("extensions", &self.extensions)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}
