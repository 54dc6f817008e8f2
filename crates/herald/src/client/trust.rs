//! Trust settings: certificates and signing keys from the files of the command line.

use std::{io::Read, path::Path};

use herald_client::{CardKeys, ClientBuilder, Credential};
use reqwest::{Certificate, Identity};

use crate::{
    args::{TlsArgs, TrustArgs},
    client::error::CliError,
};

/// The most bytes of a file.
const LARGEST: u64 = 1 << 20;

/// Trusted authorities, and the client certificate.
#[derive(Debug, Default)]
pub(crate) struct TlsTrust {
    accepts_any_certificate: bool,
    root: Option<String>,
    /// The chain and the key of the client certificate.
    own: Option<(String, String)>,
}

/// Trusted authorities and keys, and the client certificate.
#[derive(Debug)]
pub(crate) struct TrustSettings {
    tls: TlsTrust,
    keys: CardKeys,
    signed: bool,
}

impl TlsTrust {
    pub(crate) fn read(args: &TlsArgs) -> Result<Self, CliError> {
        let own = match &args.client_cert {
            Some(path) => Some(client_certificate(path, args.client_key.as_deref())?),
            None => None,
        };
        let root = match &args.ca_cert {
            Some(path) => {
                let text = file(path)?;
                if Certificate::from_pem_bundle(text.as_bytes()).unwrap_or_default().is_empty() {
                    let text = format!("{} (--ca-cert) has no certificate in PEM", path.display());
                    return Err(CliError::usage(text));
                }
                Some(text)
            }
            None => None,
        };
        let accepts_any_certificate = args.insecure == Some(true);
        Ok(Self { accepts_any_certificate, root, own })
    }

    /// Trust in every certificate, for a server of this machine.
    pub(crate) fn any() -> Self {
        Self { accepts_any_certificate: true, ..Self::default() }
    }

    /// True if certificates are not checked.
    pub(crate) fn is_blind(&self) -> bool {
        self.accepts_any_certificate
    }

    /// Connections with this trust.
    pub(crate) fn connections(
        &self,
        mut builder: reqwest::ClientBuilder,
    ) -> Result<reqwest::ClientBuilder, CliError> {
        builder = builder.tls_danger_accept_invalid_certs(self.accepts_any_certificate);
        if let Some(root) = &self.root {
            let roots = Certificate::from_pem_bundle(root.as_bytes()).unwrap_or_default();
            builder = builder.tls_certs_merge(roots);
        }
        if let Some((chain, key)) = &self.own {
            let own = Identity::from_pem(format!("{chain}\n{key}").as_bytes());
            builder = builder.identity(own.map_err(|_| {
                CliError::usage("the client certificate and its key cannot be used")
                    .hint("give both in PEM with --client-cert and --client-key")
            })?);
        }
        Ok(builder)
    }
}

impl TrustSettings {
    pub(crate) fn read(args: &TrustArgs) -> Result<Self, CliError> {
        let unusable = |error: herald_client::Error| CliError::usage(error.to_string());
        let mut keys = CardKeys::new();
        if let Some(path) = &args.card_keys {
            keys = keys.jwks(file(path)?).map_err(unusable)?;
        }
        for origin in &args.card_keys_from {
            keys = keys.fetched_from(origin).map_err(unusable)?;
        }
        let signed = args.require_signature == Some(true);
        Ok(Self { tls: TlsTrust::read(&args.tls)?, keys, signed })
    }

    /// True if certificates are not checked.
    pub(crate) fn is_blind(&self) -> bool {
        self.tls.is_blind()
    }

    /// True if there is a client certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.tls.own.is_some()
    }

    pub(crate) fn apply(&self, mut builder: ClientBuilder) -> ClientBuilder {
        if self.tls.accepts_any_certificate {
            builder = builder.danger_accept_any_certificate();
        }
        if let Some(root) = &self.tls.root {
            builder = builder.root_certificate(root.as_str());
        }
        if let Some((chain, key)) = &self.tls.own {
            builder = builder.credential(Credential::certificate(chain, key));
        }
        if self.signed {
            builder = builder.require_signature();
        }
        builder.card_keys(self.keys.clone())
    }
}

/// The chain and the key of a client certificate, which are one file or two.
fn client_certificate(path: &Path, key: Option<&Path>) -> Result<(String, String), CliError> {
    let chain = file(path)?;
    let private = key.map_or_else(|| Ok(chain.clone()), file)?;
    let (shown, key_path) = (path.display(), key.unwrap_or(path).display());
    let fault = if Certificate::from_pem_bundle(chain.as_bytes()).unwrap_or_default().is_empty() {
        format!("{shown} (--client-cert) has no certificate in PEM")
    } else if !private.contains("PRIVATE KEY-----") {
        format!("{key_path} has no private key in PEM")
    } else if Identity::from_pem(format!("{chain}\n{private}").as_bytes()).is_err() {
        format!("the certificate in {shown} cannot be used with the key in {key_path}")
    } else {
        return Ok((chain, private));
    };
    let hint = "give both in PEM: the chain with --client-cert, the key in the same file or with --client-key";
    Err(CliError::usage(fault).hint(hint))
}

fn file(path: &Path) -> Result<String, CliError> {
    let unreadable = |why: &dyn std::fmt::Display| {
        CliError::usage(format!("cannot read {}: {why}", path.display()))
    };
    let mut text = String::new();
    let opened = std::fs::File::open(path).map_err(|error| unreadable(&error))?;
    opened.take(LARGEST).read_to_string(&mut text).map_err(|error| unreadable(&error))?;
    Ok(text)
}
