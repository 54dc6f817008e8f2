//! Check of receivers of webhooks: a delivery would reach them.

use herald_server::{HttpSender, ReceiverProbe};
use reqwest::Url;

use crate::serve::settings::ServerSettings;

use super::Finding;

const CHECK: &str = "webhook";

/// Probes each URL as a delivery would be sent, without a delivery.
pub(super) async fn check(settings: &ServerSettings, urls: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if urls.is_empty() {
        return findings;
    }
    let sender = match HttpSender::new(&settings.webhooks) {
        Ok(sender) => sender,
        Err(error) => {
            return vec![Finding::fail(CHECK, error.to_string(), "correct [push]")];
        }
    };
    for url in urls {
        findings.push(finding(url, sender.probe(url).await));
    }
    findings
}

fn finding(url: &str, probe: ReceiverProbe) -> Finding {
    // The path or the query may contain a secret.
    let parsed = Url::parse(url).ok();
    let origin = parsed.as_ref().map(|url| url.origin().ascii_serialization());
    let origin = origin.as_deref().unwrap_or("the URL");
    let host = parsed.as_ref().and_then(|url| {
        let (host, port) = (url.host_str()?, url.port_or_known_default()?);
        Some(format!("{host}:{port}"))
    });
    let host = host.unwrap_or_else(|| "HOST:PORT".to_owned());
    let allow = format!(
        "if the receiver is yours, allow it: [push] allowed_hosts = [\"{host}\"], or \
         PUSH_NOTIFICATION_ALLOWED_HOSTS={host}"
    );
    match probe {
        ReceiverProbe::Refused { reason, setting } => {
            let seen = format!("registrations are refused: {origin} {reason}");
            let remedy = match setting {
                Some("allowed_hosts" | "allowed_ports") => allow,
                Some(setting) => format!("change the URL, or [push] {setting}"),
                None => "change the URL".to_owned(),
            };
            Finding::fail(CHECK, seen, remedy)
        }
        ReceiverProbe::NoAddress(cause) => {
            let seen = format!("{origin} has no address now, so deliveries fail: {cause}");
            Finding::fail(CHECK, seen, "check the name, and the DNS server of this machine")
        }
        ReceiverProbe::ForbiddenAddress(address) => {
            let seen =
                format!("{origin} is refused: it resolves to {address}, which is not public");
            Finding::fail(CHECK, seen, allow)
        }
        ReceiverProbe::NoResponse(cause) => {
            let seen = format!("{origin} does not answer, so deliveries fail: {cause}");
            let remedy =
                "start the receiver, and check its port, its certificate and the firewalls";
            Finding::fail(CHECK, seen, remedy)
        }
        ReceiverProbe::Answered(status) => match status {
            300..=399 => {
                let seen = format!("{origin} answers HEAD with {status}");
                Finding::warn(CHECK, seen, "redirects are not followed: register the URL behind it")
            }
            500..=599 => {
                let seen = format!("{origin} answers HEAD with {status}");
                Finding::warn(
                    CHECK,
                    seen,
                    "look into the receiver: after 5xx an event is sent again",
                )
            }
            _ => Finding::ok(CHECK, format!("{origin} answers HEAD with {status}")),
        },
    }
}
