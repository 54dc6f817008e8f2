//! Handlers in Python, listed by the helper in `python/`: those of named packages and, for `a2a-server`, installed ones.

use std::{env, process::Stdio, time::Duration};

use anyhow::{Context, bail};
use herald_protocol::AgentName;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::{process::Command, time::timeout};

use crate::{
    args::{CommonServeArgs, Serve},
    serve::config::{AgentSection, HandlerSection, KindSection, ProgramSection},
};

/// The interpreter: beside this program, as in a virtual environment, or on `PATH`.
const INTERPRETER: &str = "python3";

/// The module that lists and runs handlers.
const HELPER: &str = "herald";

/// Starts the helper without the modules of the current directory, which may be somebody else's. `-P` would need
/// Python 3.11.
const START: &str = "import runpy, sys; sys.path = [entry for entry in sys.path if entry]; \
                     runpy.run_module('herald', run_name='__main__', alter_sys=True)";

/// The time limit for loading handlers.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The handlers in Python.
#[derive(Debug, Default)]
pub(crate) struct PythonHandlers {
    /// Those of `--handler-package`.
    pub(super) given: Vec<PythonHandler>,
    /// Those that were found: modules of the helper's package, and entry points of installed packages.
    pub(super) installed: Vec<PythonHandler>,
    /// Messages about handlers that were found and cannot be used.
    pub(crate) skipped: Vec<String>,
    /// The reason why nothing could be found, if there is one.
    pub(crate) unsearched: Option<String>,
}

/// A handler in Python.
#[derive(Debug)]
pub(crate) struct PythonHandler {
    pub(crate) section: AgentSection,
    /// Its class and file, for messages.
    pub(super) place: String,
}

/// A handler as the helper lists it.
#[derive(Deserialize)]
struct ListedHandler {
    name: String,
    description: String,
    place: String,
    #[serde(default)]
    admission: bool,
}

/// The handlers that the helper found.
#[derive(Deserialize)]
struct FoundHandlers {
    handlers: Vec<FoundHandler>,
    skipped: Vec<String>,
}

#[derive(Deserialize)]
struct FoundHandler {
    #[serde(flatten)]
    listed: ListedHandler,
    /// The module and the class.
    load: String,
}

/// The reason why the helper printed no list.
enum HelperError {
    /// Without Python or the helper there are no handlers.
    Missing(String),
    Failed(anyhow::Error),
}

impl PythonHandlers {
    /// The handlers of `--handler-package` and, for `a2a-server`, the installed ones. Loading a package runs its code, so
    /// `herald serve` loads named packages only.
    pub(crate) async fn load(args: &Serve) -> anyhow::Result<Self> {
        let given = packages(&args.basics).await?;
        let mut handlers = Self { given, ..Self::default() };
        if args.is_a2a_server && !args.basics.no_discovery {
            handlers.discover().await;
        }
        Ok(handlers)
    }

    /// Finds installed handlers. A broken one is skipped, since nobody named it.
    async fn discover(&mut self) {
        let python = interpreter();
        let mut command = Command::new(&python);
        command.args(["-c", START, "--discover"]);
        let found: FoundHandlers = match listed(command).await {
            Ok(found) => found,
            Err(HelperError::Missing(why)) => {
                self.unsearched =
                    Some(format!("installed Python handlers are not searched: {why}"));
                return;
            }
            Err(HelperError::Failed(why)) => {
                let why = format!(
                    "the search for installed Python handlers with {python} failed: {why:#}"
                );
                self.skipped.push(why);
                return;
            }
        };
        self.skipped = found.skipped.into_iter().map(|why| format!("skipped: {why}")).collect();
        for FoundHandler { listed, load } in found.handlers {
            let command = [&python, "-c", START, "--load", &load].map(str::to_owned);
            match section(listed, command.into()) {
                Ok(handler) => self.installed.push(handler),
                Err(why) => self.skipped.push(format!("skipped: {why}")),
            }
        }
    }
}

/// The handlers of `--handler-package`.
pub(crate) async fn packages(basics: &CommonServeArgs) -> anyhow::Result<Vec<PythonHandler>> {
    if basics.handler_package.is_empty() {
        return Ok(Vec::new());
    }
    let python = interpreter();
    let mut command = Command::new(&python);
    command.args(["-m", HELPER]).args(sources(basics)).arg("--list");
    let result: Result<Vec<ListedHandler>, _> = listed(command).await;
    let result = result.map_err(|error| match error {
        HelperError::Missing(why) => anyhow::Error::msg(why),
        HelperError::Failed(why) => why,
    });
    let result = result.with_context(|| {
        let packages = basics.handler_package.join(" ");
        format!("cannot load the handlers of --handler-package {packages}")
    })?;
    let handler = |listed: ListedHandler| {
        let command = [python.clone(), "-m".to_owned(), HELPER.to_owned()].into_iter();
        let command = command.chain(sources(basics)).chain([listed.name.clone()]).collect();
        section(listed, command)
    };
    result.into_iter().map(handler).collect()
}

/// The interpreter beside this program, or the one on `PATH`.
fn interpreter() -> String {
    let beside = env::current_exe().ok().map(|program| program.with_file_name(INTERPRETER));
    let beside = beside.filter(|path| path.exists());
    let beside = beside.and_then(|path| path.into_os_string().into_string().ok());
    beside.unwrap_or_else(|| INTERPRETER.to_owned())
}

/// The list that the helper prints.
async fn listed<T: DeserializeOwned>(mut command: Command) -> Result<T, HelperError> {
    let failed = |why: anyhow::Error| HelperError::Failed(why);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(LOAD_TIMEOUT, command.output()).await;
    let output = output.context("the handlers were not loaded within 60 s").map_err(failed)?;
    let output = output.map_err(|error| {
        HelperError::Missing(format!("python3 cannot be run ({error}); is it installed?"))
    })?;
    if output.status.success() {
        return serde_json::from_slice(&output.stdout)
            .context("the helper for Python printed no list; is it that of another version?")
            .map_err(failed);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last = said.trim().lines().next_back().unwrap_or("python3 printed no error");
    // Python's exit status is the same for every exception, so its text has to tell.
    if last.contains("No module named herald") || last.contains("No module named 'herald") {
        return Err(HelperError::Missing(format!(
            "{last}; install the helper with `pip install ./python` in Herald's sources"
        )));
    }
    Err(failed(anyhow::Error::msg(last.to_owned())))
}

fn section(listed: ListedHandler, command: Vec<String>) -> anyhow::Result<PythonHandler> {
    let ListedHandler { name: handler, description, place, admission } = listed;
    let name = handler.to_lowercase().replace(['_', '.', ' '], "-");
    if !AgentName::new(name.as_str()).is_segment() {
        bail!(
            "the name of the handler {handler:?} ({place}) is not a valid agent name; its property `name` must \
             have 1 to 63 characters of a-z, 0-9, - and _"
        );
    }
    let program = ProgramSection { command: Some(command), ..ProgramSection::default() };
    let mut section =
        AgentSection::new(&name, KindSection::Handler(program, HandlerSection { admission }));
    section.common.description = Some(description).filter(|text| !text.is_empty());
    section.handler = Some(handler).filter(|handler| *handler != name);
    Ok(PythonHandler { section, place })
}

fn sources(basics: &CommonServeArgs) -> impl Iterator<Item = String> {
    let named = basics.handler_package.iter();
    named.flat_map(|package| ["--package".to_owned(), package.clone()])
}
