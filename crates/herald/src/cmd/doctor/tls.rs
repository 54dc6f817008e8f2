//! Check of the certificate and the key of the server's own port.

use herald_engine::Clock;
use herald_protocol::Timestamp;

use crate::serve::settings::{ServerSettings, TlsFiles};

use super::Finding;

const CHECK: &str = "tls";

/// Days before the expiry of a certificate from which on the check warns.
const SOON: i64 = 14;
const DAY: i64 = 24 * 60 * 60 * 1000;

/// The finding for a valid certificate, by its expiry.
pub(super) fn expiry(
    check: &'static str,
    seen: String,
    until: Option<Timestamp>,
    after: &str,
) -> Finding {
    let Some(until) = until else { return Finding::ok(check, seen) };
    let left = until.as_millis() - Clock::system().now().as_millis();
    let remedy = format!("renew the certificate; {after}");
    match left {
        ..0 => Finding::fail(check, format!("the certificate expired at {until}"), remedy),
        _ if left < SOON * DAY => {
            let days = left / DAY;
            Finding::warn(check, format!("{seen}, but expires at {until}, in {days} days"), remedy)
        }
        _ => Finding::ok(check, format!("{seen}, until {until}")),
    }
}

/// Checks the files, if there are any.
pub(super) fn check(settings: &ServerSettings) -> Option<Finding> {
    let read = settings.tls.as_ref()?.read();
    Some(match read {
        Ok(_) => {
            let seen = "the certificate and its key belong together".to_owned();
            let until = settings.tls.as_ref().and_then(TlsFiles::valid_until);
            expiry(CHECK, seen, until, "the server loads it automatically, at once on SIGHUP")
        }
        Err(fault) => {
            let remedy = "give --tls-certificate the certificate and its chain, and --tls-key its key, \
                          both in PEM and readable for the user that runs the server";
            Finding::fail(CHECK, format!("{fault:#}"), remedy)
        }
    })
}
