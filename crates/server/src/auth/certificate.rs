//! Authentication by client certificates, which the TLS layer has verified.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use async_trait::async_trait;
use herald_engine::{Caller, Clock, CredentialKind, Identity, Scopes, Validity, Visibility};
use herald_protocol::{
    Error, ErrorKind, TenantId,
    security::{MutualTlsScheme, SecurityScheme},
};
use http::{header, request::Parts};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use x509_parser::{
    certificate::X509Certificate, extensions::GeneralName, prelude::FromDer,
    x509::AttributeTypeAndValue,
};

use crate::{
    auth::{Authenticate, Scheme, token::API_KEY},
    config::Token,
};

/// The verified certificate of a connection, in the extensions of its requests.
#[derive(Debug, Clone)]
pub struct PeerCertificate(Arc<Peer>);

#[derive(Debug)]
struct Peer {
    der: Vec<u8>,
    /// Cancelled when the trusted authorities or the revoked certificates change.
    revoked: CancellationToken,
    /// The caller, once it is known. A connection has one certificate.
    caller: OnceLock<Result<Caller, Error>>,
}

/// Settings of client certificates.
#[derive(Debug, Clone)]
pub struct CertificateSettings {
    /// The part of a certificate that names its holder.
    pub name: CertificateName,
    /// Holders with permissions of their own. The secret of each is the name.
    pub identities: Vec<Token>,
    /// The tenant of all others; `None` refuses them.
    pub tenant: Option<CertificateTenant>,
    /// The scopes of all others.
    pub scopes: Scopes,
    /// The tasks that all others see.
    pub visibility: Visibility,
}

/// The part of a certificate that names its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateName {
    /// The common name of the subject.
    CommonName,
    /// A URI among the alternative names, such as a SPIFFE id.
    Uri,
    /// A DNS name among the alternative names.
    Dns,
    /// A mail address among the alternative names.
    Email,
}

/// The tenant of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateTenant {
    /// One tenant for all.
    Fixed(TenantId),
    /// The organisation of the subject.
    Organization,
    /// The organisational unit of the subject.
    OrganizationalUnit,
}

/// Authentication by client certificates.
#[derive(Debug)]
pub struct Certificates {
    settings: CertificateSettings,
    clock: Clock,
}

impl PeerCertificate {
    /// A verified certificate in DER. It counts as revoked when `revoked` is cancelled.
    pub fn new(der: Vec<u8>, revoked: CancellationToken) -> Self {
        Self(Arc::new(Peer { der, revoked, caller: OnceLock::new() }))
    }
}

impl Certificates {
    /// Authentication by these settings.
    pub fn new(settings: CertificateSettings) -> Self {
        Self { settings, clock: Clock::system() }
    }

    fn identify(&self, peer: &Peer) -> Result<Caller, Error> {
        let (_, certificate) =
            X509Certificate::from_der(&peer.der).map_err(|_| refused("it cannot be read"))?;
        let names = names(&certificate, self.settings.name);
        let known = self.settings.identities.iter().find(|known| names.contains(&&*known.secret));
        let identity = match known {
            Some(known) => Identity {
                agents: known.agents.clone(),
                skills: known.skills.clone(),
                visibility: known.visibility,
                ..Identity::new(known.tenant.clone(), known.principal.as_str(), known.scopes)
            },
            None => self.other(&certificate, &names)?,
        };
        let validity = Validity {
            expires: Some(Instant::now() + self.left(&certificate)),
            revoked: Some(Arc::new(peer.revoked.clone())),
        };
        let identity = Identity { credential: CredentialKind::Certificate, validity, ..identity };
        Ok(Arc::new(identity).into())
    }

    /// The identity of a holder without an entry of its own.
    fn other(&self, certificate: &X509Certificate<'_>, names: &[&str]) -> Result<Identity, Error> {
        let &[name] = names else {
            return Err(refused("it has no name of the configured kind, or several"));
        };
        let subject = certificate.subject();
        let only = |mut values: Box<dyn Iterator<Item = &AttributeTypeAndValue<'_>> + '_>| {
            let value = values.next().filter(|_| values.next().is_none())?;
            value.as_str().ok().map(str::to_owned)
        };
        let tenant = match &self.settings.tenant {
            None => return Err(refused("its holder is not known to this server")),
            Some(CertificateTenant::Fixed(tenant)) => Some(tenant.clone()),
            Some(CertificateTenant::Organization) => {
                only(Box::new(subject.iter_organization())).map(TenantId::from)
            }
            Some(CertificateTenant::OrganizationalUnit) => {
                only(Box::new(subject.iter_organizational_unit())).map(TenantId::from)
            }
        };
        let tenant = tenant.filter(|tenant| is_name(tenant.as_str()));
        let tenant = tenant.ok_or_else(|| refused("its subject names no tenant"))?;
        let identity = Identity::new(tenant, name, self.settings.scopes);
        Ok(Identity { visibility: self.settings.visibility, ..identity })
    }

    /// The time until the end of a certificate.
    fn left(&self, certificate: &X509Certificate<'_>) -> Duration {
        let end = certificate.validity().not_after.timestamp();
        let left = end - self.clock.now().as_millis() / 1000;
        Duration::from_secs(u64::try_from(left).unwrap_or_default())
    }
}

/// The names of a certificate of the given kind.
fn names<'a>(certificate: &'a X509Certificate<'_>, kind: CertificateName) -> Vec<&'a str> {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let alternative = alternative.into_iter().flat_map(|extension| &extension.value.general_names);
    let alternative = alternative.filter_map(|name| match (kind, name) {
        (CertificateName::Uri, GeneralName::URI(name))
        | (CertificateName::Dns, GeneralName::DNSName(name))
        | (CertificateName::Email, GeneralName::RFC822Name(name)) => Some(*name),
        (_, _) => None,
    });
    let common = certificate.subject().iter_common_name();
    let common = common.filter(|_| kind == CertificateName::CommonName);
    let common = common.filter_map(|name| name.as_str().ok());
    common.chain(alternative).filter(|name| is_name(name)).collect()
}

fn is_name(name: &str) -> bool {
    /// The most bytes of a tenant or a principal.
    const MAX: usize = 256;
    !name.is_empty() && name.len() <= MAX && !name.contains(char::is_control)
}

fn refused(reason: &str) -> Error {
    let text = format!("the client certificate was refused: {reason}");
    Error::new(ErrorKind::Unauthenticated, text)
}

#[async_trait]
impl Authenticate for Certificates {
    async fn authenticate(&self, parts: &Parts) -> Result<Option<Caller>, Error> {
        // Other credentials of the request decide, also if they are wrong.
        let others = [&header::AUTHORIZATION, &API_KEY];
        if others.iter().any(|name| parts.headers.contains_key(*name)) {
            return Ok(None);
        }
        let Some(PeerCertificate(peer)) = parts.extensions.get() else { return Ok(None) };
        let caller = peer.caller.get_or_init(|| self.identify(peer)).clone()?;
        if caller.identity().validity.is_over() {
            return Err(refused("it has expired or may have been revoked; connect again"));
        }
        Ok(Some(caller))
    }

    fn schemes(&self) -> Vec<Scheme> {
        vec![Scheme {
            name: "mutualTLS".into(),
            scheme: SecurityScheme::MutualTls(MutualTlsScheme::default()),
            challenge: None,
            usage: "a client certificate",
        }]
    }
}
