//! Program of an agent: command line, environment and working directory.

use std::{
    collections::BTreeMap,
    env, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) path: PathBuf,
    /// What a caller says is never among them.
    pub(super) arguments: Vec<String>,
    pub(super) directory: Workdir,
    pub(super) environment: BTreeMap<String, String>,
    pub(crate) grace: Duration,
}

/// A directory that programs run in, and must stay within.
#[derive(Debug, Clone)]
pub struct Workdir {
    path: PathBuf,
    roots: Vec<PathBuf>,
}

impl Program {
    /// A program, its arguments, where it runs, what is in its environment beyond what the server
    /// was started with, and how long it may take to end once it is asked to. It must be there.
    pub fn new(
        command: &[String],
        directory: Workdir,
        environment: BTreeMap<String, String>,
        grace: Duration,
    ) -> io::Result<Self> {
        let Some((name, arguments)) = command.split_first().filter(|(name, _)| !name.is_empty())
        else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the command is empty"));
        };
        let path = Self::find(name, environment.get("PATH").map(String::as_str))?;
        Ok(Self { path, arguments: arguments.to_vec(), directory, environment, grace })
    }

    /// Where the program of this name is. It is looked for on `search`, or where the server would.
    pub fn find(name: &str, search: Option<&str>) -> io::Result<PathBuf> {
        let search = search.map(Into::into).or_else(|| env::var_os("PATH"));
        let path = if name.contains('/') {
            // It runs elsewhere, where the same path would lead to something else.
            Some(std::path::absolute(name)?).filter(|path| is_program(path))
        } else {
            env::split_paths(&search.unwrap_or_default())
                .map(|directory| directory.join(name))
                .find(|path| is_program(path))
        };
        path.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, not_found(name)))
    }

    /// The same with more arguments, and with these variables where nobody has set them.
    pub(crate) fn with(&self, more: Vec<String>, variables: &[(&str, &str)]) -> Self {
        let mut program = self.clone();
        program.arguments.extend(more);
        for (name, value) in variables.iter().filter(|(name, _)| env::var_os(name).is_none()) {
            program.environment.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        }
        program
    }

    /// Where it runs.
    pub(crate) fn directory(&self) -> io::Result<PathBuf> {
        self.directory.resolve()
    }
}

fn not_found(name: &str) -> String {
    if !name.contains('/') {
        format!("there is no program {name:?} on PATH that may be run; is it installed?")
    } else if Path::new(name).is_file() {
        format!("the program {name:?} may not be run; is it executable (`chmod +x`)?")
    } else {
        format!("there is no file {name:?}; is it installed?")
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

impl Workdir {
    /// A directory within one of `roots` or, without any, within itself: what it is now must be
    /// what it leads to later.
    pub fn new(path: &Path, roots: &[PathBuf]) -> io::Result<Self> {
        let own = [path.to_owned()];
        let roots = if roots.is_empty() { &own } else { roots };
        let roots = roots.iter().map(|root| real(root)).collect::<io::Result<_>>()?;
        let workdir = Self { path: std::path::absolute(path)?, roots };
        workdir.resolve()?;
        Ok(workdir)
    }

    /// Where it is once all links are followed.
    pub(super) fn resolve(&self) -> io::Result<PathBuf> {
        let path = real(&self.path)?;
        if self.roots.iter().any(|root| path.starts_with(root)) {
            return Ok(path);
        }
        let text = format!("{} leads to {}", self.path.display(), path.display());
        let text = format!("{text}, which is outside of what is allowed");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

fn real(path: &Path) -> io::Result<PathBuf> {
    let found = path.canonicalize().and_then(|path| {
        if path.is_dir() { Ok(path) } else { Err(io::ErrorKind::NotADirectory.into()) }
    });
    found.map_err(|fault| {
        let path = path.display();
        let said = if fault.kind() == io::ErrorKind::NotFound {
            format!("there is no directory {path}")
        } else if fault.kind() == io::ErrorKind::NotADirectory {
            format!("{path} is no directory")
        } else {
            format!("{path}: {fault}")
        };
        io::Error::new(fault.kind(), said)
    })
}
