//! State that all endpoints of a server share.

use std::sync::Arc;

use herald_engine::{Engine, budget::MemoryBudget};
use http::{HeaderValue, request::Parts};
use tokio::sync::Semaphore;
use tracing::{Span, field::Empty};

use crate::{
    auth::Chain, caller_limits::CallerLimits, config::Config, guard::Guard, health::ReadinessCache,
    metrics::Metrics, proxy::TrustedProxies, remote::RemoteAgents, signing::CardSigner, tls::Tls,
    webhook::HttpSender,
};

/// State of a server: its engine, its settings, and what its requests use up together.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) engine: Engine,
    pub(crate) config: Config,
    pub(crate) auth: Chain,
    pub(crate) tls: Option<Tls>,
    pub(crate) guard: Guard,
    pub(crate) caller_limits: CallerLimits,
    pub(crate) metrics: Metrics,
    pub(crate) readiness: ReadinessCache,
    /// Permits for the bytes of WebSocket messages that are being received.
    pub(crate) bodies: Semaphore,
    /// Memory budget of large responses that are being sent.
    pub(crate) responses: Arc<MemoryBudget>,
    /// The proxies whose forwarding headers count.
    pub(crate) proxies: TrustedProxies,
    /// The signer of cards, if there is a key.
    pub(crate) signer: Option<CardSigner>,
    /// The sender of webhooks, whose keys are published.
    pub(crate) webhooks: Option<Arc<HttpSender>>,
    /// The remote agents, if they can be called.
    pub(crate) remotes: Option<Arc<RemoteAgents>>,
    /// The public URL without a slash at its end.
    pub(crate) public_url: Option<String>,
    /// The time of the start, which is the time of the last change of the cards.
    pub(crate) started: HeaderValue,
}

impl Shared {
    /// The span of a request. The fields cost a good part of a small request, so without an exporter the
    /// span has the id alone: the caller has it too, and log lines carry their own fields.
    pub(crate) fn span(&self, parts: &Parts, id: &str) -> Span {
        if !self.engine.has_spans() {
            return tracing::error_span!("request", %id);
        }
        tracing::error_span!(
            "request",
            %id,
            method = %parts.method,
            path = parts.uri.path(),
            agent = Empty,
            tenant = Empty,
            operation = Empty,
            version = Empty,
            binding = Empty,
            task = Empty,
            context = Empty,
            seq = Empty,
            status = Empty,
            error = Empty,
            failed = Empty,
            trace = Empty,
            parent = Empty,
        )
    }

    /// A curl command that calls the agent whose endpoints are below `base`. Its credentials are variables,
    /// which the user sets.
    pub(crate) fn curl(&self, base: &str) -> String {
        let schemes = self.auth.schemes();
        // Schemes with a challenge accept a token in that header.
        let takes_token = schemes.iter().any(|scheme| scheme.challenge.is_some());
        let token = if takes_token { " -H \"Authorization: Bearer $HERALD_TOKEN\"" } else { "" };
        let needs_certificate = self.tls.as_ref().is_some_and(Tls::requires_certificates)
            || (!schemes.is_empty() && !takes_token);
        let certificate = if needs_certificate {
            " --cert \"$HERALD_CLIENT_CERT\" --key \"$HERALD_CLIENT_KEY\""
        } else {
            ""
        };
        let (path, version, body) = if self.config.expects_old_clients {
            let body = r#"{"jsonrpc":"2.0","id":1,"method":"tasks/send","params":{"message":{"role":"user","parts":[{"type":"text","text":"hello"}]}}}"#;
            ("rpc", "", body)
        } else {
            let body = r#"{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"text":"hello"}]}}}"#;
            ("a2a/jsonrpc", " -H 'A2A-Version: 1.0'", body)
        };
        format!(
            "curl -s {base}/{path}{version} -H 'Content-Type: application/json'{token}{certificate} \
             -d '{body}'"
        )
    }
}
