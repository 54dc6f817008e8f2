//! Certificate files of the server's port, and their renewal.

use std::{
    convert::Infallible,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context, bail};
use herald_protocol::Timestamp;
use herald_server::Tls;
use tokio::{signal::unix::Signal, time::sleep};

use crate::{args::Serve, serve::config::FileConfig};

/// The interval at which the files are checked for changes.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// The files of a certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    /// The flags or keys that name the two files.
    names: [&'static str; 2],
}

impl TlsFiles {
    /// The files of the flags, or else those of the file.
    pub(crate) fn merge(args: &Serve, config: &FileConfig) -> anyhow::Result<Option<Self>> {
        if let (Some(certificate), Some(key)) = (&args.tls_certificate, &args.tls_key) {
            let (certificate, key) = (certificate.clone(), key.clone());
            let names = ["--tls-certificate", "--tls-key"];
            return Ok(Some(Self { certificate, key, names }));
        }
        let Some(section) = &config.server.tls else { return Ok(None) };
        let (certificate, key) = (section.certificate.clone(), section.key.clone());
        let names = ["certificate under [server.tls]", "key under [server.tls]"];
        Ok(Some(Self { certificate, key, names }))
    }

    /// Reads the files.
    pub(crate) fn read(&self) -> anyhow::Result<Tls> {
        let (certificate, key) = self.contents()?;
        Tls::new(&certificate, &key).with_context(|| self.name())
    }

    /// The expiry of the certificate, if it can be read.
    pub(crate) fn valid_until(&self) -> Option<Timestamp> {
        Tls::valid_until(&read(&self.certificate).ok()?)
    }

    /// Reloads the files whenever one of them has changed, and at once on SIGHUP.
    pub(crate) async fn follow(&self, tls: &Tls, mut hangup: Signal) -> Infallible {
        let mut seen = self.changed();
        loop {
            let told = tokio::select! {
                () = sleep(CHECK_INTERVAL) => false,
                Some(()) = hangup.recv() => true,
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
        let (certificate, key) = self.contents()?;
        tls.replace(&certificate, &key).with_context(|| self.name())
    }

    fn contents(&self) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let named = |file, name| read(file).with_context(|| format!("{name} cannot be used"));
        let [certificate, key] = self.names;
        Ok((named(&self.certificate, certificate)?, named(&self.key, key)?))
    }

    fn changed(&self) -> [Option<SystemTime>; 2] {
        [&self.certificate, &self.key].map(|file| file.metadata().ok()?.modified().ok())
    }

    fn name(&self) -> String {
        format!("{} with {}", self.certificate.display(), self.key.display())
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
