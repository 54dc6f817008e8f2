//! Program of an agent: command line, environment and working directory.

use std::{
    collections::BTreeMap,
    env, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// A program with its arguments, environment and working directory.
#[derive(Debug, Clone)]
pub struct Program {
    pub(super) path: PathBuf,
    /// Never contains text of a caller.
    pub(super) arguments: Vec<String>,
    pub(super) directory: Workdir,
    pub(super) environment: BTreeMap<String, String>,
    pub(crate) grace: Duration,
}

/// Working directory of programs, checked against symbolic links that lead elsewhere.
#[derive(Debug, Clone)]
pub struct Workdir {
    path: PathBuf,
    roots: Vec<PathBuf>,
}

impl Program {
    /// A command that must exist: program and arguments. `environment` is added to that of the server, and
    /// `grace` is the time between SIGTERM and SIGKILL.
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

    /// The path of a program, searched on `search` or else on the server's own `PATH`.
    pub fn find(name: &str, search: Option<&str>) -> io::Result<PathBuf> {
        let search = search.map(Into::into).or_else(|| env::var_os("PATH"));
        let path = if name.contains('/') {
            // The program runs in another directory, where a relative path would not lead to it.
            Some(std::path::absolute(name)?).filter(|path| is_program(path))
        } else {
            env::split_paths(&search.unwrap_or_default())
                .map(|directory| directory.join(name))
                .find(|path| is_program(path))
        };
        path.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, not_found(name)))
    }

    /// The program with more arguments, and with these variables unless they are set already.
    pub(crate) fn with(&self, more: Vec<String>, variables: &[(&str, &str)]) -> Self {
        let mut program = self.clone();
        program.arguments.extend(more);
        for (name, value) in variables.iter().filter(|(name, _)| env::var_os(name).is_none()) {
            program.environment.entry((*name).to_owned()).or_insert_with(|| (*value).to_owned());
        }
        program
    }

    /// The same program in another working directory.
    pub(crate) fn at(&self, directory: &Path) -> io::Result<Self> {
        let directory = Workdir::new(directory, &[])?;
        Ok(Self { directory, ..self.clone() })
    }

    /// The working directory.
    pub fn directory(&self) -> io::Result<PathBuf> {
        self.directory.resolve()
    }
}

fn not_found(name: &str) -> String {
    if !name.contains('/') {
        format!("there is no executable program {name:?} on PATH; is it installed?")
    } else if Path::new(name).is_file() {
        format!("the program {name:?} is not executable; run `chmod +x` on it")
    } else {
        format!("there is no file {name:?}; check the path")
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

impl Workdir {
    /// The directory at `path`, which must be within one of `roots`. Without roots it must stay the directory
    /// that `path` leads to now, even if a link on the way is changed later.
    pub fn new(path: &Path, roots: &[PathBuf]) -> io::Result<Self> {
        let own = [path.to_owned()];
        let roots = if roots.is_empty() { &own } else { roots };
        let roots = roots.iter().map(|root| real(root)).collect::<io::Result<_>>()?;
        let workdir = Self { path: std::path::absolute(path)?, roots };
        workdir.resolve()?;
        Ok(workdir)
    }

    /// The directory after all links are followed.
    pub(super) fn resolve(&self) -> io::Result<PathBuf> {
        let path = real(&self.path)?;
        if self.roots.iter().any(|root| path.starts_with(root)) {
            return Ok(path);
        }
        let text = format!("{} leads to {}", self.path.display(), path.display());
        let text = format!("{text}, which is outside of the allowed directories");
        Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
    }
}

fn real(path: &Path) -> io::Result<PathBuf> {
    let found = path.canonicalize().and_then(|path| {
        if path.is_dir() { Ok(path) } else { Err(io::ErrorKind::NotADirectory.into()) }
    });
    found.map_err(|fault| {
        let path = path.display();
        let text = if fault.kind() == io::ErrorKind::NotFound {
            format!("there is no directory {path}")
        } else if fault.kind() == io::ErrorKind::NotADirectory {
            format!("{path} is not a directory")
        } else {
            format!("{path}: {fault}")
        };
        io::Error::new(fault.kind(), text)
    })
}
