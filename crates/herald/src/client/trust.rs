//! Trust settings: certificates and signing keys from the files of the command line.

use std::{io::Read, path::Path};

use herald_client::{CardKeys, ClientBuilder, Credential};

use crate::{args::TrustArgs, client::error::CliError};

/// The most bytes of a file.
const LARGEST: u64 = 1 << 20;

/// Trusted authorities and keys, and the client certificate.
#[derive(Debug)]
pub(crate) struct TrustSettings {
    accepts_any_certificate: bool,
    root: Option<String>,
    /// The chain and the key of the client certificate.
    own: Option<(String, String)>,
    keys: CardKeys,
    signed: bool,
}

impl TrustSettings {
    pub(crate) fn read(args: &TrustArgs) -> Result<Self, CliError> {
        let own = match &args.client_cert {
            Some(chain) => {
                let chain = file(chain)?;
                let key = args.client_key.as_deref().map(file).transpose()?;
                Some((chain.clone(), key.unwrap_or(chain)))
            }
            None => None,
        };
        let unusable = |error: herald_client::Error| CliError::usage(error.to_string());
        let mut keys = CardKeys::new();
        if let Some(path) = &args.card_keys {
            keys = keys.jwks(file(path)?).map_err(unusable)?;
        }
        for origin in &args.card_keys_from {
            keys = keys.fetched_from(origin).map_err(unusable)?;
        }
        let root = args.ca_cert.as_deref().map(file).transpose()?;
        let signed = args.require_signature == Some(true);
        let accepts_any_certificate = args.insecure == Some(true);
        Ok(Self { accepts_any_certificate, root, own, keys, signed })
    }

    /// True if certificates are not checked.
    pub(crate) fn is_blind(&self) -> bool {
        self.accepts_any_certificate
    }

    /// True if there is a client certificate.
    pub(crate) fn has_certificate(&self) -> bool {
        self.own.is_some()
    }

    pub(crate) fn apply(&self, mut builder: ClientBuilder) -> ClientBuilder {
        if self.accepts_any_certificate {
            builder = builder.danger_accept_any_certificate();
        }
        if let Some(root) = &self.root {
            builder = builder.root_certificate(root.as_str());
        }
        if let Some((chain, key)) = &self.own {
            builder = builder.credential(Credential::certificate(chain, key));
        }
        if self.signed {
            builder = builder.require_signature();
        }
        builder.card_keys(self.keys.clone())
    }
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
