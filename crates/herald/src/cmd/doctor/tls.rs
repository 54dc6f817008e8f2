//! Whether the certificate and the key of the server's own port can be used.

use herald_engine::Clock;
use herald_protocol::Timestamp;

use crate::serve::settings::{Settings, TlsFiles};

use super::Finding;

const CHECK: &str = "tls";

/// Who renews later than this renews too late.
const SOON: i64 = 14;
const DAY: i64 = 24 * 60 * 60 * 1000;

/// What is to be said about a certificate that is good today, by when it ends.
pub(super) fn lasting(
    check: &'static str,
    seen: String,
    until: Option<Timestamp>,
    after: &str,
) -> Finding {
    let Some(until) = until else { return Finding::ok(check, seen) };
    let left = until.as_millis() - Clock::system().now().as_millis();
    let remedy = format!("renew the certificate; {after}");
    match left {
        ..0 => Finding::fail(check, format!("the certificate ended at {until}"), remedy),
        _ if left < SOON * DAY => {
            let days = left / DAY;
            Finding::warn(check, format!("{seen}, but ends at {until}, in {days} days"), remedy)
        }
        _ => Finding::ok(check, format!("{seen}, until {until}")),
    }
}

/// Looks at the files, if there are any.
pub(super) fn check(settings: &Settings) -> Option<Finding> {
    let read = settings.tls.as_ref()?.read();
    Some(match read {
        Ok(_) => {
            let seen = "the certificate and its key belong together".to_owned();
            let until = settings.tls.as_ref().and_then(TlsFiles::valid_until);
            lasting(CHECK, seen, until, "the server takes it up by itself, at once on SIGHUP")
        }
        Err(fault) => {
            let remedy = "give --tls-certificate the chain of the server's own certificate first, and \
                          --tls-key its key, both in PEM and readable for the user that runs the server";
            Finding::fail(CHECK, format!("{fault:#}"), remedy)
        }
    })
}
