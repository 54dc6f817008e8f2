//! Probe of a receiver for the operator: the checks of a delivery, without a delivery.

use std::net::IpAddr;

use super::{guard::lookup, sender::HttpSender};

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiverProbe {
    /// Webhooks with this URL are refused.
    Refused {
        /// The reason. It continues a sentence that begins with the URL.
        reason: String,
        /// The key under `[push]` that can allow the URL.
        setting: Option<&'static str>,
    },
    /// The name of the host has no address now. Webhooks are accepted, and their deliveries fail.
    NoAddress(String),
    /// The name of the host resolves to an address that is not allowed.
    ForbiddenAddress(IpAddr),
    /// No response: no connection, no valid certificate, or a timeout.
    NoResponse(String),
    /// The receiver answered a `HEAD` request with this status.
    Answered(u16),
}

impl HttpSender {
    /// Checks a URL, looks its name up and sends a `HEAD` request, as a delivery would be sent: to checked
    /// addresses only, without redirects and proxies.
    pub async fn probe(&self, url: &str) -> ReceiverProbe {
        let state = self.state();
        let checked = match state.guard.check(url) {
            Ok(checked) => checked,
            Err(refusal) => {
                let (reason, setting) = (refusal.to_string(), refusal.setting);
                return ReceiverProbe::Refused { reason, setting };
            }
        };
        match lookup(&checked, &*self.resolver).await {
            Err(cause) => return ReceiverProbe::NoAddress(cause),
            Ok(found) if found.is_empty() => {
                return ReceiverProbe::NoAddress("the name has no address".to_owned());
            }
            Ok(found) => {
                let forbidden = |address: &&IpAddr| !state.guard.is_allowed_address(**address);
                if let Some(address) = found.iter().find(forbidden)
                    && !checked.is_allowed_host
                {
                    return ReceiverProbe::ForbiddenAddress(*address);
                }
            }
        }
        let client = match state.client(&checked) {
            Ok(client) => client,
            Err(cause) => return ReceiverProbe::NoResponse(cause),
        };
        match state.response(client.head(checked.url.clone())).await {
            Ok(response) => ReceiverProbe::Answered(response.status().as_u16()),
            Err(cause) => ReceiverProbe::NoResponse(cause),
        }
    }
}
