//! Operator file: the address and the token of a running server, for the user that runs it.

use serde::{Deserialize, Serialize};

/// The name of the file in the data directory. Only its owner can read it.
pub const OPERATOR_FILE: &str = "operator.json";

/// The content of the file. A server writes it when it listens, with a new token at each start, and
/// removes it when it stops. Commands with `--data` call the server with it, with every scope.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorFile {
    /// The URL of the server on this machine, such as `http://127.0.0.1:8000`.
    pub url: String,
    /// The token, to be sent as `Authorization: Bearer TOKEN`.
    pub token: String,
    /// The version of the server.
    pub version: String,
}

impl std::fmt::Debug for OperatorFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperatorFile").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_not_shown() {
        let file = OperatorFile {
            url: "http://127.0.0.1:8000".to_owned(),
            token: "hunter2".to_owned(),
            version: "1.2.3".to_owned(),
        };
        assert!(!format!("{file:?}").contains("hunter2"));
        let written = serde_json::to_string(&file).unwrap();
        assert_eq!(serde_json::from_str::<OperatorFile>(&written).unwrap(), file);
    }
}
