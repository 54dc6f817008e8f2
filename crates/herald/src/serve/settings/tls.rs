//! Certificate files of the server's port, and their renewal.

use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use herald_protocol::Timestamp;
use herald_server::{ClientCertificates, Tls};
use tokio::{sync::Notify, time::sleep};

use crate::{
    args::Serve,
    output::quoted,
    serve::config::{ClientAuthKey, FileConfig, TlsSection},
};

/// The interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// The flags or keys that name the two files.
    names: [&'static str; 2],
    clients: Option<ClientFiles>,
}

/// The files of the accepted client certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
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
            let names = ["--tls-certificate", "--tls-key"];
            return Ok(Some(Self { certificate, key, names, clients }));
        }
        let Some(section) = &config.server.tls else { return Ok(None) };
        let (certificate, key) = (section.certificate.clone(), section.key.clone());
        let names = ["certificate under [server.tls]", "key under [server.tls]"];
        Ok(Some(Self { certificate, key, names, clients }))
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> anyhow::Result<Tls> {
        let (certificate, key, clients) = self.contents()?;
        Tls::with_clients(&certificate, &key, clients).with_context(|| self.name())
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
        tls.replace_all(&certificate, &key, clients).with_context(|| self.name())
    }

    fn contents(&self) -> anyhow::Result<(Vec<u8>, Vec<u8>, Option<ClientCertificates>)> {
        let named = |file, name| read(file).with_context(|| format!("{name} cannot be used"));
        let [certificate, key] = self.names;
        let clients = self.clients.as_ref().map(ClientFiles::contents).transpose()?;
        Ok((named(&self.certificate, certificate)?, named(&self.key, key)?, clients))
    }

    fn changed(&self) -> Vec<Option<SystemTime>> {
        let clients = self.clients.iter();
        let clients = clients.flat_map(|files| files.revoked.iter().chain([&files.authorities]));
        let files = [&self.certificate, &self.key].into_iter().chain(clients);
        files.map(|file| file.metadata().ok()?.modified().ok()).collect()
    }

    fn name(&self) -> String {
        format!("{} with {}", self.certificate.display(), self.key.display())
    }
}

impl ClientFiles {
    fn of(section: &TlsSection) -> Option<Self> {
        let authorities = section.client_ca.clone()?;
        let required = section.client_auth == ClientAuthKey::Required;
        Some(Self { authorities, revoked: section.client_crl.clone(), required })
    }

    fn contents(&self) -> anyhow::Result<ClientCertificates> {
        let named = |file: &PathBuf, key| {
            read(file).with_context(|| format!("{key} under [server.tls] cannot be used"))
        };
        let revoked = self.revoked.as_ref().map(|file| named(file, "client_crl")).transpose()?;
        let authorities = named(&self.authorities, "client_ca")?;
        Ok(ClientCertificates { authorities, revoked, required: self.required })
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
