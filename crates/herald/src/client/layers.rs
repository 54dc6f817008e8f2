//! Layers of client settings: `A2ACLI_*` variables, then the file of `--config` or the `.env` in this directory or
//! above, then the user's own file.

use std::{
    collections::BTreeMap,
    fmt,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::client::{error::CliError, reference::PROGRAM};

/// The common prefix of all variables.
pub(crate) const PREFIX: &str = "A2ACLI_";
/// Settings that are secrets.
pub(crate) const SECRETS: [&str; 3] = ["bearer", "api-key", "client-secret"];
/// Settings that grant trust.
const TRUST: [&str; 6] =
    ["trust-origin", "insecure", "ca-cert", "card-keys", "card-keys-from", "require-signature"];
/// The most bytes of a settings file.
const LARGEST: u64 = 1 << 20;

/// The settings files, in order of precedence.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    files: Vec<DotEnv>,
}

/// A file of settings.
#[derive(Debug, Default)]
struct DotEnv {
    path: PathBuf,
    /// True if it was found in a directory, which may belong to somebody else.
    found: bool,
    values: BTreeMap<String, String>,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Variable(String),
    /// The file of `--config`, or the user's own.
    File(PathBuf),
    /// A file that was found in this directory or above.
    Found(PathBuf),
    /// The default, because the value in a found file is ignored for this reason.
    Ignored(PathBuf, &'static str),
    Default,
}

impl Layers {
    /// Reads the files. `named` replaces the local one.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, CliError> {
        let local = match named {
            Some(path) => Some(path.to_owned()),
            None => std::env::current_dir().ok().and_then(|here| {
                let candidates = here.ancestors().map(|directory| directory.join(".env"));
                candidates.into_iter().find(|path| path.is_file())
            }),
        };
        let global = configuration_directory().map(|directory| directory.join(".env"));
        let found = named.is_none() && local != global;
        let global = global.filter(|path| path.is_file() && Some(path) != local.as_ref());
        let local = local.map(|path| DotEnv::read(&path, found));
        let global = global.map(|path| DotEnv::read(&path, false));
        let files: Result<_, CliError> = local.into_iter().chain(global).collect();
        Ok(Self { files: files? })
    }

    /// The effective value of a setting, by the name of its flag.
    pub(crate) fn get(&self, flag: &str) -> Option<(String, Origin)> {
        let name = variable(flag);
        if let Some(value) = std::env::var(&name).ok().filter(|value| !value.is_empty()) {
            return Some((value, Origin::Variable(name)));
        }
        self.files.iter().find_map(|file| {
            let value = file.values.get(&name).filter(|value| !value.is_empty())?;
            let path = file.path.clone();
            let origin = if file.found { Origin::Found(path) } else { Origin::File(path) };
            Some((value.clone(), origin))
        })
    }

    /// Every name with the prefix of settings, and its source.
    pub(crate) fn names(&self) -> Vec<(String, Origin)> {
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let variables = variables
            .filter(|name| name.starts_with(PREFIX))
            .map(|name| (name.clone(), Origin::Variable(name)));
        let files = self.files.iter().flat_map(|file| {
            file.values.keys().map(|name| (name.clone(), Origin::File(file.path.clone())))
        });
        variables.chain(files).collect()
    }

    /// True if a setting comes from the user and not from a found file.
    pub(crate) fn is_own(&self, flag: &str) -> bool {
        matches!(self.get(flag), Some((_, Origin::Variable(_) | Origin::File(_))))
    }

    /// Files with secrets that other users of this machine can read.
    pub(crate) fn exposed(&self) -> impl Iterator<Item = &Path> {
        let exposed = |file: &&DotEnv| {
            let holds = SECRETS.iter().any(|flag| file.values.contains_key(&variable(flag)));
            let mode = || std::fs::metadata(&file.path).map(|found| found.permissions().mode());
            holds && mode().is_ok_and(|mode| mode & 0o077 != 0)
        };
        self.files.iter().filter(exposed).map(|file| file.path.as_path())
    }

    /// The files that were read.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }
}

/// The reason why a setting in a found file is ignored, so that the author of a directory cannot obtain credentials
/// or trust. `own_credentials` says that credentials come from another source.
pub(crate) fn objection(flag: &str, value: &str, own_credentials: bool) -> Option<&'static str> {
    match flag {
        "agent-card" if value.starts_with(PROGRAM) => {
            Some("a file that was found cannot start a program")
        }
        "agent-card" if own_credentials => {
            Some("a file that was found cannot send your credentials to its agent")
        }
        _ if TRUST.contains(&flag) => Some("a file that was found cannot grant trust"),
        _ => None,
    }
}

impl DotEnv {
    fn read(path: &Path, found: bool) -> Result<Self, CliError> {
        let fault = |why: &dyn fmt::Display| {
            CliError::usage(format!("cannot read the settings in {}: {why}", path.display()))
        };
        let size = std::fs::metadata(path).map_err(|error| fault(&error))?.len();
        if size > LARGEST {
            return Err(fault(&"the file is larger than 1 MiB"));
        }
        let bytes = std::fs::read(path).map_err(|error| fault(&error))?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Self { path: path.to_owned(), found, values: parse(&text) })
    }
}

/// The settings in a text. A `.env` may contain lines of other programs, in any format.
fn parse(text: &str) -> BTreeMap<String, String> {
    let setting = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        let (name, value) = line.split_once('=')?;
        let name = name.trim();
        name.starts_with(PREFIX).then(|| (name.to_owned(), unquoted(value.trim())))
    };
    text.lines().filter_map(setting).collect()
}

/// A value without its quotes, or without the comment after it.
fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote).and_then(|rest| rest.split_once(quote)) {
            return inner.0.to_owned();
        }
    }
    value.split(" #").next().unwrap_or_default().trim_end().to_owned()
}

/// The variable of a flag: `--agent-card` is `A2ACLI_AGENT_CARD`.
pub(crate) fn variable(flag: &str) -> String {
    format!("{PREFIX}{}", flag.to_ascii_uppercase().replace('-', "_"))
}

/// The directory of the user's own settings.
pub(crate) fn configuration_directory() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(Path::new(&home).join(".config/a2a-cli"))
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Variable(name) => write!(f, "environment {name}"),
            Self::File(path) | Self::Found(path) => write!(f, "file {}", path.display()),
            Self::Ignored(path, why) => {
                write!(f, "default; file {} is ignored: {why}", path.display())
            }
            Self::Default => f.write_str("default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_other_programs_are_ignored() {
        let text = "DATABASE_URL=x\nnonsense\n# A2ACLI_OUTPUT=json\nexport A2ACLI_BEARER='a b#c' # x\n\
                    A2ACLI_TIMEOUT = 5s # short\nA2ACLI_METADATA=\"{}\"\n";
        let values: Vec<_> = parse(text).into_iter().collect();
        let expected =
            [("A2ACLI_BEARER", "a b#c"), ("A2ACLI_METADATA", "{}"), ("A2ACLI_TIMEOUT", "5s")];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn each_flag_has_a_variable() {
        assert_eq!(variable("agent-card"), "A2ACLI_AGENT_CARD");
    }
}
