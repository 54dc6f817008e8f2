//! Conformance checker: runs suites in the ACTS format, or the A2A project's TCK, against a server.
//!
//! A run has three parts: the suites as data (`suite.rs`, `load.rs`), the server under test and the calls to
//! it (`target.rs`, `operation.rs`, `grpc.rs`, `raw_http.rs`), and the checks (`assertion.rs`, `stream.rs`,
//! `runner.rs`). `report.rs` has the results; `tck.rs` runs the TCK.

mod assertion;
mod error_name;
mod grpc;
mod load;
mod operation;
mod path;
mod raw_http;
mod report;
mod runner;
mod stream;
mod suite;
mod target;
mod tck;
mod variables;

use std::{
    collections::BTreeMap,
    fmt,
    path::PathBuf,
    time::{Duration, Instant},
};

use herald_protocol::{Timestamp, Version};
use reqwest::Url;
use serde_json::Value;
use tokio::time::timeout;

use self::{
    raw_http::RawHttp,
    report::{AgentInfo, Declared, DeclaredInterface, TestResult},
    runner::TestLocation,
    suite::{SuiteFile, Test},
    target::{Interface, ServerUnderTest},
};

pub use self::{
    raw_http::ExchangeError,
    report::Report,
    suite::{CheckedBinding, Level},
    target::WELL_KNOWN,
};

/// The time limit of a whole run.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// Options of a run.
#[derive(Debug, Clone)]
pub struct CheckOptions {
    /// The possible URLs of the server's card.
    pub cards: Vec<Url>,
    /// Suite files to run instead of the built-in ones.
    pub suites: Vec<PathBuf>,
    /// A checkout of the A2A project's TCK to run instead.
    pub tck: Option<PathBuf>,
    /// Only tests whose id or requirement begins with one of these, if there are any.
    pub only: Vec<String>,
    /// Only these bindings, if any.
    pub bindings: Vec<CheckedBinding>,
    /// Only this version, if any.
    pub version: Option<Version>,
    /// Only tests at least as strict as this.
    pub level: Level,
    /// The timeout of a response, and of a stream.
    pub timeout: Duration,
    /// The token to send to the server.
    pub bearer: Option<String>,
    /// True if the agent acts on the message prefixes of the public suites.
    pub prefixes: bool,
    /// Values of variables in suites.
    pub variables: BTreeMap<String, String>,
    /// Environment variables that hold credentials. The TCK is started without them.
    pub secret_variables: Vec<String>,
    /// The time of the run, for the report.
    pub now: Timestamp,
}

/// A run that could not begin or finish.
#[derive(Debug)]
pub enum CheckError {
    /// The options, a suite or the TCK cannot be used.
    Usage(String),
    /// The server at this host cannot be reached.
    Unreachable(String, ExchangeError),
    /// There is no card at the well-known paths.
    NoCard(String),
    /// The document at a well-known path is not a card.
    InvalidCard(String),
    /// The card requires credentials, and there are none.
    NoCredentials,
    /// The server refuses the credentials.
    Denied,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => f.write_str(what),
            Self::Unreachable(host, why) => {
                write!(f, "the server cannot be reached: {host}: {why}")
            }
            Self::NoCard(why) => write!(f, "there is no agent card: {why}"),
            Self::InvalidCard(why) => write!(f, "the document is not an agent card: {why}"),
            Self::NoCredentials => {
                f.write_str("the card requires credentials, and none were given")
            }
            Self::Denied => f.write_str("the server does not accept the token"),
        }
    }
}

impl std::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreachable(_, error) => Some(error),
            Self::Usage(_)
            | Self::NoCard(_)
            | Self::InvalidCard(_)
            | Self::NoCredentials
            | Self::Denied => None,
        }
    }
}

/// Runs all checks that apply. `progress` is called with the name of each suite.
pub async fn run(options: &CheckOptions, progress: fn(&str)) -> Result<Report, CheckError> {
    let documents = documents(options)?;
    let origin = options.cards.first().map(|url| url.origin().ascii_serialization());
    let http = RawHttp::new(origin.unwrap_or_default(), options.timeout, options.bearer.as_deref());
    let http = http.map_err(CheckError::Usage)?;
    let target = ServerUnderTest::find(&http, &options.cards).await?;
    if options.bearer.is_none() && target.capability("authentication") == Value::Bool(true) {
        return Err(CheckError::NoCredentials);
    }
    if let (Some(_), Some(interface)) = (&options.bearer, target.interfaces.first())
        && interface.denies(&http).await
    {
        return Err(CheckError::Denied);
    }
    let rows = match &options.tck {
        Some(directory) => Box::pin(tck::run(directory, &target, options)).await?,
        None => {
            let checked = checked(&documents, &http, &target, options, progress);
            timeout(LONGEST, checked).await.map_err(|_| {
                let text =
                    format!("the tests take longer than {LONGEST:?}; select some with --only");
                CheckError::Usage(text)
            })??
        }
    };
    if rows.is_empty() {
        let said = target.interfaces.iter().map(Interface::to_string).collect::<Vec<_>>();
        return Err(CheckError::Usage(format!(
            "there is nothing to check: no test matches both the options and the interfaces of the \
             card ({})",
            if said.is_empty() { "none".to_owned() } else { said.join(", ") },
        )));
    }
    Ok(target.report(rows, options.now))
}

/// Runs the tests of suites.
async fn checked(
    documents: &[SuiteFile],
    http: &RawHttp,
    target: &ServerUnderTest,
    options: &CheckOptions,
    progress: fn(&str),
) -> Result<Vec<TestResult>, CheckError> {
    let mut rows = Vec::new();
    for document in documents {
        let version: Version = document.spec_version.parse().map_err(|_| {
            CheckError::Usage(format!("spec_version {:?} is not a version", document.spec_version))
        })?;
        if options.version.is_some_and(|wanted| wanted != version) {
            continue;
        }
        for suite in &document.suites {
            progress(&format!("{} ({version})", suite.name));
            for test in suite.tests.iter().filter(|test| options.wants(test)) {
                for interface in interfaces(target, version, test, options) {
                    let binding = interface.map(|interface| interface.binding);
                    let anonymous = [&suite.tags, &test.tags]
                        .iter()
                        .any(|tags| tags.iter().any(|tag| tag == "auth"));
                    let place = TestLocation { http, target, version, interface, anonymous };
                    let started = Instant::now();
                    let verdict = Box::pin(runner::run(place, document, test, options)).await;
                    rows.push(TestResult {
                        suite: suite.id.clone(),
                        suite_name: suite.name.clone(),
                        test: test.id.clone(),
                        name: test.name.clone(),
                        requirements: test.requirements(),
                        level: test.level,
                        binding,
                        version,
                        verdict,
                        took: started.elapsed(),
                    });
                }
            }
        }
    }
    Ok(rows)
}

fn documents(options: &CheckOptions) -> Result<Vec<SuiteFile>, CheckError> {
    let usage = |fault: load::LoadError| CheckError::Usage(fault.to_string());
    if options.suites.is_empty() {
        return load::built_in().map_err(usage);
    }
    let loaded = options.suites.iter().map(|path| load::file(path));
    let loaded: Vec<_> = loaded.collect::<Result<_, _>>().map_err(usage)?;
    Ok(loaded.into_iter().flatten().collect())
}

/// The interfaces to run a test over: none in particular for a test of the card, otherwise each declared one
/// that the test and the options allow.
fn interfaces<'a>(
    target: &'a ServerUnderTest,
    version: Version,
    test: &Test,
    options: &CheckOptions,
) -> Vec<Option<&'a Interface>> {
    let mut spoken = target.speaking(version);
    if test.is_about_the_card() {
        // A card without interfaces is invalid in 1.0, so the checks of 1.0 are run on it.
        let fits =
            spoken.next().is_some() || (target.interfaces.is_empty() && version == Version::V1_0);
        return if fits && options.bindings.is_empty() { vec![None] } else { Vec::new() };
    }
    let wanted = |interface: &&Interface| {
        (test.transport.is_empty() || test.transport.contains(&interface.binding))
            && (options.bindings.is_empty() || options.bindings.contains(&interface.binding))
    };
    spoken.filter(wanted).map(Some).collect()
}

impl CheckOptions {
    fn wants(&self, test: &Test) -> bool {
        let named = |prefix: &String| {
            test.id.starts_with(prefix.as_str())
                || test.requirements.iter().any(|one| one.starts_with(prefix.as_str()))
        };
        test.level <= self.level && (self.only.is_empty() || self.only.iter().any(named))
    }
}

impl ServerUnderTest {
    fn report(&self, rows: Vec<TestResult>, now: Timestamp) -> Report {
        let text = |name: &str| {
            let text = self.card.get(name).and_then(Value::as_str).unwrap_or_default();
            assertion::short(text)
        };
        let interfaces = self.interfaces.iter().map(|interface| DeclaredInterface {
            binding: interface.binding.name(),
            version: interface.version.to_string(),
            url: interface.url.to_string(),
        });
        let capabilities = self.card.get("capabilities").cloned().unwrap_or(Value::Null);
        Report {
            url: self.base.to_string(),
            agent: AgentInfo { name: text("name"), version: text("version") },
            declares: Declared { interfaces: interfaces.collect(), capabilities },
            at: now,
            rows,
        }
    }
}
