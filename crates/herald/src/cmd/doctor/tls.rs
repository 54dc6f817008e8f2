//! Whether the certificate and the key of the server's own port can be used.

use crate::settings::Settings;

use super::Finding;

const CHECK: &str = "tls";

/// Looks at the files, if there are any.
pub(super) fn check(settings: &Settings) -> Option<Finding> {
    let read = settings.tls.as_ref()?.read();
    Some(match read {
        Ok(_) => Finding::ok(CHECK, "the certificate and its key belong together"),
        Err(fault) => {
            let remedy = "give --tls-certificate the chain of the server's own certificate first, and \
                          --tls-key its key, both in PEM and readable for the user that runs the server";
            Finding::fail(CHECK, format!("{fault:#}"), remedy)
        }
    })
}
