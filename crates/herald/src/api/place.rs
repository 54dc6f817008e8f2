//! The place of a server: its URL, its data directory while it runs, or the directory of a stopped one.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::{Path, PathBuf},
};

use herald_api::{
    ApiRoute,
    operator::{OPERATOR_FILE, OperatorFile},
};
use herald_client::Secrets;
use herald_engine::store::sqlite::{OpenError, Sqlite};

use super::{
    Carrier,
    http::HttpServer,
    status,
    stopped::{DATABASE, StoppedServer},
};
use crate::{
    args::ServerArgs,
    client::error::{CliError, CliErrorKind},
    output::{note, quoted},
};

/// The data directory of `herald serve` without `--data`.
const DEFAULT_DATA: &str = "herald-data";
/// The address of `herald serve` without settings.
const DEFAULT_SERVER: &str = "http://127.0.0.1:8000";
/// The most bytes of an operator file.
const LARGEST: u64 = 1 << 16;

/// Finds the server that the arguments name, for a verb that needs this route.
pub(super) async fn open(
    args: &ServerArgs,
    route: ApiRoute,
    secrets: &Secrets,
) -> Result<Carrier, CliError> {
    if let Some(url) = &args.place.server {
        return Ok(Carrier::Running(HttpServer::at(url, args, secrets)?));
    }
    let variable = || std::env::var_os("HERALD_DATA").filter(|value| !value.is_empty());
    let named = args.place.data.clone().or_else(|| variable().map(PathBuf::from));
    let has_credential = args.has_credential();
    if let Some(directory) = named {
        if has_credential {
            let shown = directory.display();
            note(
                "Note",
                &format!("worked as the operator of {shown}, not with the given credential"),
            );
        }
        return in_directory(&directory, args, route, secrets).await;
    }
    let here = Path::new(DEFAULT_DATA);
    match (here.is_dir(), has_credential) {
        (true, false) => {
            let server = in_directory(here, args, route, secrets).await?;
            if let Carrier::Running(_) = server {
                note("Note", &format!("used the operator's token of ./{DEFAULT_DATA}"));
            }
            Ok(server)
        }
        // The user says who they are. The address of the server in this directory does not get the credential: a
        // file that was found must not decide where a credential goes.
        (true, true) => {
            let running = operator_file(here).ok().flatten();
            let server = running.map(|file| format!("--server {} or ", quoted(&file.url)));
            note(
                "Note",
                &format!(
                    "used the given credential at {DEFAULT_SERVER}, not the server of ./{DEFAULT_DATA}; add \
                     {}--data {DEFAULT_DATA} to choose that one",
                    server.unwrap_or_default()
                ),
            );
            Ok(Carrier::Running(HttpServer::at(DEFAULT_SERVER, args, secrets)?))
        }
        (false, _) => Ok(Carrier::Running(HttpServer::at(DEFAULT_SERVER, args, secrets)?)),
    }
}

async fn in_directory(
    directory: &Path,
    args: &ServerArgs,
    route: ApiRoute,
    secrets: &Secrets,
) -> Result<Carrier, CliError> {
    check_directory(directory, route)?;
    let file = operator_file(directory)?;
    let failure = match &file {
        Some(file) => {
            let server = HttpServer::own(&file.url, &file.token, args, secrets)?;
            match status(&server).await {
                Ok(status) => return Ok(Carrier::Running(server.of_version(status.version))),
                Err(fault) => Some(fault),
            }
        }
        None => None,
    };
    // The lock tells whether a server uses the directory. A file of a server that was killed is still there.
    let database = directory.join(DATABASE);
    let unused = tokio::task::spawn_blocking(move || Sqlite::check_unused(&database)).await;
    match unused.expect("the check does not panic") {
        Ok(()) => Ok(Carrier::Stopped(StoppedServer::open(directory, route)?)),
        Err(OpenError::InUse { .. }) => Err(unreachable(directory, file.as_ref(), failure)),
        Err(fault) => Err(CliError::internal(fault.to_string())),
    }
}

/// An error unless the directory is the data directory of a server. An empty one will be, once it has a key.
fn check_directory(directory: &Path, route: ApiRoute) -> Result<(), CliError> {
    let shown = directory.display();
    if directory.join(DATABASE).is_file() {
        return Ok(());
    }
    let is_empty = std::fs::read_dir(directory).map(|mut entries| entries.next().is_none());
    let fault = match is_empty {
        Ok(true) if route == ApiRoute::CreateKey => return Ok(()),
        Ok(_) => format!("{shown} is not a data directory: it has no {DATABASE}"),
        // It is not created here: with a misspelt path, the key would be one of a server that does not exist.
        Err(error) if error.kind() == ErrorKind::NotFound && route == ApiRoute::CreateKey => {
            let text = format!("the data directory {shown} does not exist");
            let path = quoted(&shown.to_string());
            return Err(CliError::usage(text).hint(format!(
                "check the path; for the first key of a new server, create it with: mkdir -m 700 {path}"
            )));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {
            format!("the data directory {shown} does not exist")
        }
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            format!("{shown} is not a data directory: it is a file")
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let text = format!("the data directory {shown} cannot be read: permission denied");
            return Err(CliError::usage(text).hint(OTHER_USER));
        }
        Err(error) => format!("the data directory {shown} cannot be read: {error}"),
    };
    Err(CliError::usage(fault).hint(
        "give the directory of `herald serve --data`; a server creates it at its first start, and `herald key \
         create` takes an empty one too",
    ))
}

const OTHER_USER: &str = "run this as the user that runs the server, or use --server URL with an API key that has \
                          the scope admin";

/// The operator file, if there is one.
fn operator_file(directory: &Path) -> Result<Option<OperatorFile>, CliError> {
    let path = directory.join(OPERATOR_FILE);
    let shown = path.display();
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let text = format!("{shown} belongs to another user and cannot be read");
            return Err(CliError::usage(text).hint(OTHER_USER));
        }
        Err(error) => return Err(CliError::usage(format!("{shown} cannot be read: {error}"))),
    };
    let mut bytes = Vec::new();
    let read = file.take(LARGEST).read_to_end(&mut bytes);
    read.map_err(|error| CliError::usage(format!("{shown} cannot be read: {error}")))?;
    // The parser's message is left out, since it may quote the token.
    let content = serde_json::from_slice(&bytes).map_err(|_| {
        CliError::usage(format!("{shown} is not an operator file of herald"))
            .hint("restart the server, which writes the file anew")
    });
    content.map(Some)
}

/// The error for a server that runs and cannot be called.
fn unreachable(
    directory: &Path,
    file: Option<&OperatorFile>,
    failure: Option<CliError>,
) -> CliError {
    let shown = directory.display();
    let own = env!("CARGO_PKG_VERSION");
    match (file, failure) {
        (Some(file), Some(fault)) => {
            let text = format!("a server uses {shown}, but cannot be called: {}", fault.message());
            let fault = CliError::new(CliErrorKind::Unreachable, text);
            if file.version == own {
                fault.hint(format!("is {} its address? Otherwise restart it", quoted(&file.url)))
            } else {
                let version = &file.version;
                fault.hint(format!(
                    "the server is herald {version}, this is {own}: use the same version"
                ))
            }
        }
        (_, _) => {
            let text = format!("a server uses {shown}, and it has no {OPERATOR_FILE} there");
            CliError::new(CliErrorKind::Unreachable, text).hint(format!(
                "it is older than this herald ({own}), or serves standard input only: restart it with this \
                 version, or stop it first"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn each_wrong_directory_has_its_own_sentence() {
        let home = tempfile::tempdir().unwrap();
        let missing = home.path().join("missing");
        let full = home.path().join("full");
        fs::create_dir(&full).unwrap();
        fs::write(full.join("file"), "").unwrap();
        let fault = check_directory(&missing, ApiRoute::CreateKey).unwrap_err();
        assert!(format!("{fault:?}").contains("mkdir -m 700 "), "{fault:?}");
        assert!(!missing.exists());
        let said =
            |path: &Path, route| check_directory(path, route).unwrap_err().message().to_owned();
        assert!(said(&missing, ApiRoute::CreateKey).ends_with("missing does not exist"));
        assert!(said(&full, ApiRoute::CreateKey).ends_with("it has no herald.db"));
        assert!(said(&full.join("file"), ApiRoute::ListKeys).ends_with("it is a file"));
        let empty = home.path().join("empty");
        fs::create_dir(&empty).unwrap();
        assert!(check_directory(&empty, ApiRoute::CreateKey).is_ok());
        assert!(said(&empty, ApiRoute::ListKeys).ends_with("it has no herald.db"));
    }

    #[test]
    fn an_invalid_operator_file_is_reported_without_its_content() {
        let home = tempfile::tempdir().unwrap();
        assert!(operator_file(home.path()).unwrap().is_none());
        let path = home.path().join(OPERATOR_FILE);
        fs::write(&path, r#"{"token": "hunter2"}"#).unwrap();
        let fault = operator_file(home.path()).unwrap_err();
        assert!(fault.message().ends_with("is not an operator file of herald"), "{fault:?}");
        assert!(!format!("{fault:?}").contains("hunter2"));
        // The user of many test machines is root, who can read every file.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
        if File::open(&path).is_err() {
            let fault = operator_file(home.path()).unwrap_err();
            assert!(fault.message().ends_with("belongs to another user and cannot be read"));
        }
    }

    #[test]
    fn a_server_of_another_version_is_named() {
        let file = OperatorFile {
            url: "http://127.0.0.1:1".to_owned(),
            token: "t".to_owned(),
            version: "0.0.1".to_owned(),
        };
        let fault = unreachable(Path::new("d"), Some(&file), Some(CliError::usage("x")));
        assert!(fault.advice().unwrap().starts_with("the server is herald 0.0.1"), "{fault:?}");
        let fault = unreachable(Path::new("d"), None, None);
        assert!(fault.advice().unwrap().starts_with("it is older"), "{fault:?}");
    }
}
