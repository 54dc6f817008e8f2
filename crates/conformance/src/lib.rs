//! Checks a server against the A2A specification, by suites in the form of ACTS or by the
//! A2A project's TCK.
//!
//! A run has three parts: the suites as data (`suite.rs`, `load.rs`), the server and how it is spoken
//! to (`target.rs`, `operation.rs`, `grpc.rs`, `wire.rs`), and what must be so (`assertion.rs`,
//! `stream.rs`, `runner.rs`). What was found is in `report.rs`; `tck.rs` runs somebody else's checks.

mod assertion;
mod error_name;
mod grpc;
mod load;
mod operation;
mod path;
mod report;
mod runner;
mod stream;
mod suite;
mod target;
mod tck;
mod variables;
mod wire;

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
    report::{Agent, Declared, DeclaredInterface, Row},
    runner::Place,
    suite::{Document, Test},
    target::{Interface, Target},
    wire::Wire,
};

pub use self::{
    report::Report,
    suite::{Binding, Level},
    target::WELL_KNOWN,
};

/// How long all tests may take, whatever they wait for.
const LONGEST: Duration = Duration::from_secs(60 * 60);

/// What to check, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where the server's card may be.
    pub cards: Vec<Url>,
    /// Files to run instead of what ships with this binary.
    pub suites: Vec<PathBuf>,
    /// A checkout of the A2A project's TCK to run instead.
    pub tck: Option<PathBuf>,
    /// Only tests of which an id or a requirement begins so.
    pub only: Vec<String>,
    /// Only these bindings, if any.
    pub bindings: Vec<Binding>,
    /// Only this version, if any.
    pub version: Option<Version>,
    /// Only tests at least as strict as this.
    pub level: Level,
    /// How long to wait for an answer, and for the end of a stream.
    pub timeout: Duration,
    /// The token to send to the server.
    pub bearer: Option<String>,
    /// Whether the agent obeys the message prefixes of the public suites.
    pub prefixes: bool,
    /// Values for names in suites.
    pub variables: BTreeMap<String, String>,
    /// Environment variables that hold credentials. The TCK is started without them.
    pub secret_variables: Vec<String>,
    /// The time of the run, for the report.
    pub now: Timestamp,
}

/// Why nothing was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// What was asked for cannot be done.
    Usage(String),
    /// The server cannot be reached.
    Unreachable(String),
    /// There is no card where cards are.
    NoCard(String),
    /// What is there is no card.
    InvalidCard(String),
    /// The card asks for credentials, and there are none.
    NoCredentials,
    /// The server does not take the credentials.
    Denied,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(what) => f.write_str(what),
            Self::Unreachable(why) => write!(f, "the server cannot be reached: {why}"),
            Self::NoCard(why) => write!(f, "there is no agent card: {why}"),
            Self::InvalidCard(why) => write!(f, "what was found is no agent card: {why}"),
            Self::NoCredentials => {
                f.write_str("the card asks for credentials, and none were given")
            }
            Self::Denied => f.write_str("the server does not accept the token"),
        }
    }
}

impl std::error::Error for Trouble {}

/// Runs all checks that apply. `progress` hears what they are about.
pub async fn run(options: &Options, progress: fn(&str)) -> Result<Report, Trouble> {
    let documents = documents(options)?;
    let origin = options.cards.first().map(|url| url.origin().ascii_serialization());
    let wire = Wire::new(origin.unwrap_or_default(), options.timeout, options.bearer.as_deref());
    let wire = wire.map_err(Trouble::Usage)?;
    let target = Target::find(&wire, &options.cards).await?;
    if options.bearer.is_none() && target.capability("authentication") == Value::Bool(true) {
        return Err(Trouble::NoCredentials);
    }
    if let (Some(_), Some(interface)) = (&options.bearer, target.interfaces.first())
        && interface.denies(&wire).await
    {
        return Err(Trouble::Denied);
    }
    let rows = match &options.tck {
        Some(directory) => Box::pin(tck::run(directory, &target, options)).await?,
        None => {
            let checked = checked(&documents, &wire, &target, options, progress);
            timeout(LONGEST, checked).await.map_err(|_| {
                let text = format!("the tests are not done within {LONGEST:?}; run a part of them");
                Trouble::Usage(text)
            })??
        }
    };
    if rows.is_empty() {
        let said = target.interfaces.iter().map(Interface::to_string).collect::<Vec<_>>();
        return Err(Trouble::Usage(format!(
            "there is nothing to check: no test fits what was asked for and what the card \
             declares ({})",
            if said.is_empty() { "no interface".to_owned() } else { said.join(", ") },
        )));
    }
    Ok(target.report(rows, options.now))
}

/// Runs the tests of suites.
async fn checked(
    documents: &[Document],
    wire: &Wire,
    target: &Target,
    options: &Options,
    progress: fn(&str),
) -> Result<Vec<Row>, Trouble> {
    let mut rows = Vec::new();
    for document in documents {
        let version: Version = document.spec_version.parse().map_err(|_| {
            Trouble::Usage(format!("spec_version {:?} is no version", document.spec_version))
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
                    let place = Place { wire, target, version, interface, anonymous };
                    let started = Instant::now();
                    let verdict = Box::pin(runner::run(place, document, test, options)).await;
                    rows.push(Row {
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

fn documents(options: &Options) -> Result<Vec<Document>, Trouble> {
    let usage = |fault: load::LoadError| Trouble::Usage(fault.to_string());
    if options.suites.is_empty() {
        return load::built_in().map_err(usage);
    }
    let loaded = options.suites.iter().map(|path| load::file(path));
    let loaded: Vec<_> = loaded.collect::<Result<_, _>>().map_err(usage)?;
    Ok(loaded.into_iter().flatten().collect())
}

/// Where to run a test: once if it is about the card, else over each binding that is declared.
fn interfaces<'a>(
    target: &'a Target,
    version: Version,
    test: &Test,
    options: &Options,
) -> Vec<Option<&'a Interface>> {
    let mut spoken = target.speaking(version);
    if test.is_about_the_card() {
        // A card that declares nothing is at fault by 1.0, so it is looked at as one of 1.0.
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

impl Options {
    fn wants(&self, test: &Test) -> bool {
        let named = |prefix: &String| {
            test.id.starts_with(prefix.as_str())
                || test.requirements.iter().any(|one| one.starts_with(prefix.as_str()))
        };
        test.level <= self.level && (self.only.is_empty() || self.only.iter().any(named))
    }
}

impl Target {
    fn report(&self, rows: Vec<Row>, now: Timestamp) -> Report {
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
            agent: Agent { name: text("name"), version: text("version") },
            declares: Declared { interfaces: interfaces.collect(), capabilities },
            at: now,
            rows,
        }
    }
}
