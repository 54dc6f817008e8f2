//! TLS settings: trusted roots and the client certificate.

use reqwest::{Certificate, ClientBuilder, Identity};

use crate::{credential::Credential, error::Error, proof::Secret};

/// TLS settings of all connections of a client.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsSettings {
    /// Trusted roots in addition to those of the system, in PEM.
    pub(crate) roots: Vec<Vec<u8>>,
    /// True if any certificate is accepted.
    pub(crate) accept_any: bool,
}

impl TlsSettings {
    /// Applies the settings and the first client certificate among the credentials.
    pub(crate) fn apply(
        &self,
        mut builder: ClientBuilder,
        credentials: &[Credential],
    ) -> Result<ClientBuilder, Error> {
        let mut roots = Vec::new();
        for pem in &self.roots {
            let found = Certificate::from_pem_bundle(pem).unwrap_or_default();
            if found.is_empty() {
                return Err(Error::setup("a root certificate is not in PEM"));
            }
            roots.extend(found);
        }
        if !roots.is_empty() {
            builder = builder.tls_certs_merge(roots);
        }
        if self.accept_any {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        let own = credentials.iter().find_map(|credential| match credential {
            Credential::Certificate(chain, key) => Some((chain, key)),
            Credential::Bearer(_)
            | Credential::ApiKey(_)
            | Credential::Basic(..)
            | Credential::OAuth(_) => None,
        });
        match own {
            Some((chain, key)) => Ok(builder.identity(identity(chain, key)?)),
            None => Ok(builder),
        }
    }
}

fn identity(chain: &str, key: &Secret) -> Result<Identity, Error> {
    let pem = format!("{chain}\n{}", key.expose());
    Identity::from_pem(pem.as_bytes()).map_err(|_| {
        Error::setup("the client certificate or its key is not in PEM, or one of them is missing")
    })
}
