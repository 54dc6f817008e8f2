//! Certificate files of the server's port, and their renewal.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, anyhow, bail};
use herald_protocol::Timestamp;
use herald_server::{ClientCertificates, Tls, TlsError};
use tokio::{sync::Notify, time::sleep};

use crate::{
    args::Serve,
    output::quoted,
    serve::config::{ClientAuthKey, ConfigText, FileConfig, TlsSection},
};

/// The interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The files of a certificate and its key.
#[derive(Debug, Clone)]
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    clients: Option<ClientFiles>,
    /// True if flags name the certificate and its key.
    is_by_flags: bool,
    /// The configuration, for the lines of errors.
    source: ConfigText,
}

/// The files of the accepted client certificates.
#[derive(Debug, Clone)]
struct ClientFiles {
    authorities: PathBuf,
    revoked: Option<PathBuf>,
    required: bool,
}

impl TlsFiles {
    /// The files of the flags, or else those of the file.
    pub(crate) fn merge(args: &Serve, config: &FileConfig) -> anyhow::Result<Option<Self>> {
        let clients = config.server.tls.as_ref().and_then(ClientFiles::of);
        if let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) {
            let (certificate, key) = (certificate.clone(), key.clone());
            let source = config.source.clone();
            return Ok(Some(Self { certificate, key, clients, is_by_flags: true, source }));
        }
        let Some(section) = &config.server.tls else { return Ok(None) };
        let (certificate, key) = (section.certificate.clone(), section.key.clone());
        let source = config.source.clone();
        Ok(Some(Self { certificate, key, clients, is_by_flags: false, source }))
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> anyhow::Result<Tls> {
        let (certificate, key, clients) = self.contents()?;
        Tls::with_clients(&certificate, &key, clients).map_err(|fault| self.unusable(&fault))
    }

    /// The expiry of the certificate, if it can be read.
    pub(crate) fn valid_until(&self) -> Option<Timestamp> {
        Tls::valid_until(&read(&self.certificate).ok()?)
    }

    /// The URL of the server at this address of this machine, by a name of the certificate, and the flags with which
    /// curl trusts it.
    pub(crate) fn for_curl(&self, local: SocketAddr) -> (String, String) {
        let trust = format!(" --cacert {}", quoted(&self.certificate.display().to_string()));
        let hosts = Tls::hosts(&read(&self.certificate).unwrap_or_default());
        let own = local.ip().to_string();
        let is_name = |host: &&String| host.parse::<IpAddr>().is_err();
        let localhost = hosts.iter().find(|host| *host == "localhost");
        let name = localhost.or_else(|| hosts.iter().find(is_name));
        let Some(name) = name.filter(|_| !hosts.contains(&own)) else {
            return (format!("https://{local}"), trust);
        };
        // A wildcard covers one label.
        let (name, port) = (name.replacen('*', "agents", 1), local.port());
        let url = format!("https://{name}:{port}");
        if name == "localhost" && local.ip().is_loopback() {
            return (url, trust);
        }
        (url, format!("{trust} --connect-to {name}:{port}:{local}"))
    }

    /// Reloads the files whenever one of them has changed, and at once on SIGHUP.
    pub(crate) async fn follow(&self, tls: &Tls, hangup: &Notify) -> Infallible {
        let mut seen = self.changed();
        loop {
            let told = tokio::select! {
                () = sleep(CHECK_INTERVAL) => false,
                () = hangup.notified() => true,
            };
            let now = self.changed();
            if !told && (now == seen || now.iter().any(Option::is_none)) {
                continue;
            }
            match self.renew(tls) {
                Ok(()) => tracing::info!("loaded the renewed certificate"),
                // One file may be written before the other, so the next check tries again.
                Err(error) => {
                    tracing::warn!(
                        error = format!("{error:#}"),
                        "cannot load the renewed certificate; the old one stays in use"
                    );
                    continue;
                }
            }
            seen = now;
        }
    }

    fn renew(&self, tls: &Tls) -> anyhow::Result<()> {
        let (certificate, key, clients) = self.contents()?;
        tls.replace_all(&certificate, &key, clients).map_err(|fault| self.unusable(&fault))
    }

    fn contents(&self) -> anyhow::Result<(Vec<u8>, Vec<u8>, Option<ClientCertificates>)> {
        let named = |file: &Path, key| read(file).map_err(|fault| self.fault(key, &fault));
        let clients = match &self.clients {
            Some(ClientFiles { authorities, revoked, required }) => Some(ClientCertificates {
                authorities: named(authorities, "client_ca")?,
                revoked: revoked.as_ref().map(|file| named(file, "client_crl")).transpose()?,
                required: *required,
            }),
            None => None,
        };
        Ok((named(&self.certificate, "certificate")?, named(&self.key, "key")?, clients))
    }

    /// The error for the content of a file, with the file.
    fn unusable(&self, fault: &TlsError) -> anyhow::Error {
        let clients = self.clients.as_ref();
        let authorities = clients.map(|files| &files.authorities).unwrap_or(&self.certificate);
        let revoked = clients.and_then(|files| files.revoked.as_ref()).unwrap_or(authorities);
        let (key, file) = match fault {
            TlsError::NoCertificate => ("certificate", &self.certificate),
            TlsError::NoKey => ("key", &self.key),
            TlsError::NoAuthority | TlsError::Clients(_) => ("client_ca", authorities),
            TlsError::NoRevocationList => ("client_crl", revoked),
            TlsError::Unusable(_) => {
                let (certificate, key) = (self.certificate.display(), self.key.display());
                let said = anyhow!("{certificate} with {key}: {fault}");
                return self.fault("certificate", &said);
            }
        };
        self.fault(key, &anyhow!("{}: {fault}", file.display()))
    }

    /// An error in the value of a key of `[server.tls]`, or of its flag.
    fn fault(&self, key: &str, fault: &anyhow::Error) -> anyhow::Error {
        if self.is_by_flags && !key.starts_with("client_") {
            return anyhow!("--tls-{key} cannot be used: {fault:#}");
        }
        let said = format!("{key} under [server.tls] cannot be used: {fault:#}");
        self.source.fault_at(&format!("server.tls.{key}"), said).into()
    }

    fn changed(&self) -> Vec<Option<SystemTime>> {
        let clients = self.clients.iter();
        let clients = clients.flat_map(|files| files.revoked.iter().chain([&files.authorities]));
        let files = [&self.certificate, &self.key].into_iter().chain(clients);
        files.map(|file| file.metadata().ok()?.modified().ok()).collect()
    }
}

impl ClientFiles {
    fn of(section: &TlsSection) -> Option<Self> {
        let authorities = section.client_ca.clone()?;
        let required = section.client_auth == ClientAuthKey::Required;
        Some(Self { authorities, revoked: section.client_crl.clone(), required })
    }
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    /// The most bytes of a certificate chain or a key.
    const LIMIT: u64 = 1 << 20;
    let size = file.metadata().with_context(|| format!("cannot read {}", file.display()))?.len();
    if size > LIMIT {
        bail!("{} is too large to be a certificate or a key", file.display());
    }
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}
