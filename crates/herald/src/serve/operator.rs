//! Operator file: the URL and the operator token of a running server, in its data directory.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use herald_api::operator::{OPERATOR_FILE, OperatorFile};
use herald_engine::keys::ApiKeySecret;

/// The file of this process. Dropping it removes the file.
#[derive(Debug)]
pub(crate) struct OperatorAccess(PathBuf);

impl OperatorAccess {
    /// Writes the file, readable by its owner only, in place of one that an earlier process left.
    pub(crate) fn write(directory: &Path, url: &str, token: &ApiKeySecret) -> io::Result<Self> {
        let (path, new) = (directory.join(OPERATOR_FILE), directory.join("operator.json.new"));
        // It may be left from a process that was killed.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        let content = OperatorFile {
            url: url.to_owned(),
            token: token.reveal().to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        serde_json::to_writer(&mut file, &content)?;
        file.flush()?;
        fs::rename(&new, &path)?;
        Ok(Self(path))
    }
}

impl Drop for OperatorAccess {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::warn!(%error, file = %self.0.display(), "cannot remove the operator file");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_file_is_replaced_readable_by_its_owner_only_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(OPERATOR_FILE);
        for left in [OPERATOR_FILE, "operator.json.new"] {
            fs::write(directory.path().join(left), "left by a killed process").unwrap();
        }
        let token = ApiKeySecret::generate();
        let access = OperatorAccess::write(directory.path(), "http://127.0.0.1:1", &token).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fs::read_to_string(&path).unwrap().contains(token.reveal()));
        drop(access);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
