//! Stored logins: tokens by the origin of their agent, in a file that only its owner can read.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions, TryLockError},
    io::{ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use herald_client::{Secret, Token};
use serde::{Deserialize, Serialize};

use crate::{
    args::LoginArgs,
    client::{error::CliError, layers},
    output::warn,
};

/// The most bytes of the file.
const LARGEST: u64 = 4 << 20;
/// The end of the year 9999, the latest time that can be formatted.
const LATEST: u64 = 253_402_300_799;
/// The longest wait for the lock of another writer.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The file with the logins.
#[derive(Debug, Clone)]
pub(crate) struct Logins {
    path: PathBuf,
}

/// One login.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Login {
    pub(crate) client_id: String,
    access_token: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    /// In seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    expires: Option<u64>,
    token_url: String,
    /// A hash of the client secret that the token was fetched with, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    secret_hash: Option<String>,
    /// The scopes of the command line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
}

/// The logins by the origin of their agent.
pub(crate) type LoginMap = BTreeMap<String, Login>;

#[derive(Default, Serialize, Deserialize)]
struct LoginFile {
    #[serde(default)]
    agents: LoginMap,
}

impl Login {
    pub(crate) fn new(args: &LoginArgs, client_id: &str, token: &Token) -> Self {
        Self {
            client_id: client_id.to_owned(),
            access_token: token.access.expose().to_owned(),
            refresh_token: token.refresh.as_ref().map(|secret| secret.expose().to_owned()),
            expires: token.expires,
            token_url: token.from.clone(),
            secret_hash: args.client_secret.as_ref().map(|secret| hash(client_id, &secret.0)),
            scopes: args.scope.clone(),
        }
    }

    /// True if calls with these arguments may use it. A token that was fetched with a secret is used with the same
    /// secret and scopes only, or if none are given: a revoked secret must not seem to work because of an older
    /// token.
    pub(crate) fn fits(&self, args: &LoginArgs) -> bool {
        if args.client_id.as_ref().is_some_and(|id| *id != self.client_id) {
            return false;
        }
        let (Some(secret), Some(known)) = (&args.client_secret, &self.secret_hash) else {
            return true;
        };
        let same_scopes = args.scope.is_empty() || args.scope == self.scopes;
        same_scopes && *known == hash(&self.client_id, &secret.0)
    }

    pub(crate) fn token(&self) -> Token {
        Token {
            access: Secret::new(&self.access_token),
            refresh: self.refresh_token.as_ref().map(Secret::new),
            expires: self.expires.map(|end| end.min(LATEST)),
            from: self.token_url.clone(),
        }
    }
}

/// A hash that identifies a secret without storing it.
fn hash(client_id: &str, secret: &str) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("herald credentials.json client secret");
    hasher.update(&(client_id.len() as u64).to_le_bytes());
    hasher.update(client_id.as_bytes());
    hasher.update(secret.as_bytes());
    hasher.finalize().to_hex().to_string()
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl Logins {
    /// The user's file, which may not exist.
    pub(crate) fn of_user() -> Result<Self, CliError> {
        let directory = layers::configuration_directory();
        let directory = directory.ok_or_else(|| {
            CliError::internal("logins cannot be stored: HOME is not set")
                .hint("set HOME to your directory")
        })?;
        Ok(Self { path: directory.join("credentials.json") })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// All logins; none if the file does not exist.
    pub(crate) fn read(&self) -> Result<LoginMap, CliError> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(LoginMap::new()),
            Err(error) => return Err(self.fault("read", &error)),
        };
        let found = file.metadata().map_err(|error| self.fault("read", &error))?;
        if found.permissions().mode() & 0o077 != 0 {
            let shown = self.path.display();
            warn(&format!("other users can read the logins in {shown}; run: chmod 600 {shown}"));
        }
        if found.len() > LARGEST {
            return Err(self.fault("read", &"it is too large"));
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| self.fault("read", &error))?;
        // The parser's message is left out, since it may quote a token.
        let document = serde_json::from_slice::<LoginFile>(&bytes);
        let document = document.map_err(|_| self.fault("read", &"it is not a file of logins"))?;
        Ok(document.agents)
    }

    /// Changes the logins under a lock. The file is replaced atomically, so that readers need no lock.
    pub(crate) fn change(&self, change: impl FnOnce(&mut LoginMap)) -> Result<(), CliError> {
        let directory = self.path.parent().unwrap_or(Path::new("."));
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
        made.map_err(|error| self.fault("write", &error))?;
        let _lock = self.lock()?;
        let mut agents = self.read()?;
        change(&mut agents);
        self.write(&LoginFile { agents }).map_err(|error| self.fault("write", &error))
    }

    fn write(&self, document: &LoginFile) -> std::io::Result<()> {
        let new = self.path.with_extension("json.new");
        // A leftover of an earlier run may have other permissions.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let mut text = serde_json::to_vec_pretty(document)?;
        text.push(b'\n');
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// A lock that is released when it is dropped.
    fn lock(&self) -> Result<File, CliError> {
        let path = self.path.with_extension("lock");
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
        let file = file.map_err(|error| self.fault("lock", &error))?;
        let end = Instant::now() + LOCK_TIMEOUT;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(TryLockError::WouldBlock) if Instant::now() < end => {
                    // The system has no lock call with a timeout.
                    thread::park_timeout(Duration::from_millis(10));
                }
                Err(error) => return Err(self.fault("lock", &error)),
            }
        }
    }

    fn fault(&self, verb: &str, why: &dyn std::fmt::Display) -> CliError {
        let shown = self.path.display();
        CliError::internal(format!("cannot {verb} the logins in {shown}: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(token: &str) -> Login {
        let token = Token {
            access: Secret::new(token),
            refresh: None,
            expires: Some(1),
            from: "https://id.example/token".into(),
        };
        Login::new(&LoginArgs::default(), "me", &token)
    }

    #[test]
    fn only_the_owner_can_read_stored_logins() {
        let directory = tempfile::tempdir().unwrap();
        let logins = Logins { path: directory.path().join("a/b/credentials.json") };
        assert!(logins.read().unwrap().is_empty());
        logins.change(|kept| drop(kept.insert("https://a.example".into(), login("t")))).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(logins.path()), 0o600);
        assert_eq!(mode(logins.path().parent().unwrap()), 0o700);
        let found = logins.read().unwrap();
        assert_eq!(found["https://a.example"].token(), login("t").token());
        assert!(!format!("{found:?}").contains("\"t\""));
    }

    #[test]
    fn concurrent_writers_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let logins = Logins { path: directory.path().join("credentials.json") };
        thread::scope(|scope| {
            for number in 0..8 {
                let logins = logins.clone();
                scope.spawn(move || {
                    for round in 0..8 {
                        let agent = format!("https://{number}-{round}.example");
                        logins.change(|kept| drop(kept.insert(agent, login("t")))).unwrap();
                    }
                });
            }
        });
        assert_eq!(logins.read().unwrap().len(), 64);
    }

    #[test]
    fn an_invalid_file_is_reported_without_its_content() {
        let directory = tempfile::tempdir().unwrap();
        let logins = Logins { path: directory.path().join("credentials.json") };
        fs::write(logins.path(), "{\"agents\": \"hunter2\"}").unwrap();
        let fault = logins.read().unwrap_err();
        assert!(!fault.message().contains("hunter2"), "{fault:?}");
        assert!(logins.change(|_| {}).is_err());
        assert!(fs::read_to_string(logins.path()).unwrap().contains("hunter2"), "it is left alone");
    }
}
