//! Settings of the client verbs from outside the command line: `A2ACLI_*` variables, then a file
//! that was named or the `.env` here or above, then the user's own file.

use std::{
    collections::BTreeMap,
    fmt,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::client::{fault::Fault, reference::PROGRAM};

/// What all names begin with.
pub(crate) const PREFIX: &str = "A2ACLI_";
/// Settings that are secrets.
pub(crate) const SECRETS: [&str; 3] = ["bearer", "api-key", "client-secret"];
/// Settings that say whom to believe.
const TRUST: [&str; 6] =
    ["trust-origin", "insecure", "ca-cert", "card-keys", "card-keys-from", "require-signature"];
/// More than any such file holds.
const LARGEST: u64 = 1 << 20;

/// Everything outside the command line, the strongest first.
#[derive(Debug, Default)]
pub(crate) struct Layers {
    files: Vec<DotEnv>,
}

/// A file of settings.
#[derive(Debug, Default)]
struct DotEnv {
    path: PathBuf,
    /// Whether it was neither named nor is the user's own: the directory may be somebody else's.
    found: bool,
    values: BTreeMap<String, String>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    Flag,
    Variable(String),
    /// A file that was named, or the user's own.
    File(PathBuf),
    /// A file that was found here or above.
    Found(PathBuf),
    /// A default, because the file that was found does not count here.
    PassedOver(PathBuf, &'static str),
    Default,
}

impl Layers {
    /// Reads the files. `named` stands in the place of the local one.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, Fault> {
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
        let files: Result<_, Fault> = local.into_iter().chain(global).collect();
        Ok(Self { files: files? })
    }

    /// The strongest value of a setting, by the name of its flag.
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

    /// Every name that is written like that of a setting, and where it stands.
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

    /// Whether a setting is the user's own and not that of a file that was found.
    pub(crate) fn is_own(&self, flag: &str) -> bool {
        matches!(self.get(flag), Some((_, Origin::Variable(_) | Origin::File(_))))
    }

    /// Files that hold secrets and that others on this machine can read.
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

/// Why a setting does not count in a file that was found: whoever made the directory must not get what
/// is not in it. `own_credentials` says that some come from elsewhere.
pub(crate) fn objection(flag: &str, value: &str, own_credentials: bool) -> Option<&'static str> {
    match flag {
        "agent-card" if value.starts_with(PROGRAM) => Some("only you start programs"),
        "agent-card" if own_credentials => Some("your credentials are not for whom it names"),
        _ if TRUST.contains(&flag) => Some("it does not decide whom you believe"),
        _ => None,
    }
}

impl DotEnv {
    fn read(path: &Path, found: bool) -> Result<Self, Fault> {
        let fault = |why: &dyn fmt::Display| {
            Fault::usage(format!("cannot read the settings in {}: {why}", path.display()))
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

/// The lines that are ours. A `.env` may hold the settings of other programs, in any shape.
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

/// A value without its quotes, or without the comment behind it.
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

/// Where the user's own settings are.
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
            Self::PassedOver(path, why) => {
                write!(f, "default; file {} is passed over: {why}", path.display())
            }
            Self::Default => f.write_str("default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_another_program_is_passed_over() {
        let text = "DATABASE_URL=x\nnonsense\n# A2ACLI_OUTPUT=json\nexport A2ACLI_BEARER='a b#c' # x\n\
                    A2ACLI_TIMEOUT = 5s # short\nA2ACLI_METADATA=\"{}\"\n";
        let values: Vec<_> = parse(text).into_iter().collect();
        let expected =
            [("A2ACLI_BEARER", "a b#c"), ("A2ACLI_METADATA", "{}"), ("A2ACLI_TIMEOUT", "5s")];
        assert_eq!(values, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn a_flag_has_a_variable_of_its_own() {
        assert_eq!(variable("agent-card"), "A2ACLI_AGENT_CARD");
    }
}
