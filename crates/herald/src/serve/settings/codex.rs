//! Profiles of Codex. Its app server has no flag for them, so the file is read here and passed to each
//! thread, above the configuration that Codex reads itself.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::serve::config::SecretValue;

/// The content of a profile, the file `NAME.config.toml` in the home of Codex.
pub(super) fn profile(
    name: &str,
    environment: &BTreeMap<String, SecretValue>,
) -> anyhow::Result<Map<String, Value>> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        bail!("profile {name:?}: the name of a Codex profile has letters, digits, `-` and `_`");
    }
    let path = home(environment)?.join(format!("{name}.config.toml"));
    let read = || format!("profile {name:?}: {}", path.display());
    let text = fs::read_to_string(&path).with_context(read)?;
    toml::from_str(&text).with_context(read)
}

/// The home directory of Codex.
fn home(environment: &BTreeMap<String, SecretValue>) -> anyhow::Result<PathBuf> {
    let given = |name: &str| {
        let own = environment.get(name).map(|value| value.0.clone().into());
        own.or_else(|| env::var_os(name)).filter(|value| !value.is_empty()).map(PathBuf::from)
    };
    let home = given("CODEX_HOME").or_else(|| given("HOME").map(|home| home.join(".codex")));
    home.context("profiles of Codex are in CODEX_HOME, or below HOME: set one of these variables")
}
