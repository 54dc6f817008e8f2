//! The profiles of Codex. Its app server has no flag for them, so the file is read here, and what
//! stands in it is given to each thread, above the configuration that Codex reads itself.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::serve::config::Secret;

/// What stands in a profile, which is the file `NAME.config.toml` in the home of Codex.
pub(super) fn profile(
    name: &str,
    environment: &BTreeMap<String, Secret>,
) -> anyhow::Result<Map<String, Value>> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        bail!("profile {name:?}: a profile of Codex has letters, digits, `-` and `_` in its name");
    }
    let path = home(environment)?.join(format!("{name}.config.toml"));
    let read = || format!("profile {name:?}: {}", path.display());
    let text = fs::read_to_string(&path).with_context(read)?;
    toml::from_str(&text).with_context(read)
}

/// Where Codex keeps its files.
fn home(environment: &BTreeMap<String, Secret>) -> anyhow::Result<PathBuf> {
    let given = |name: &str| {
        let own = environment.get(name).map(|value| value.0.clone().into());
        own.or_else(|| env::var_os(name)).filter(|value| !value.is_empty()).map(PathBuf::from)
    };
    let home = given("CODEX_HOME").or_else(|| given("HOME").map(|home| home.join(".codex")));
    home.context("a profile of Codex is looked for in CODEX_HOME, or below HOME: set one of them")
}
