//! Arguments of `herald conformance`.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use herald_conformance::{CheckedBinding, Level};
use herald_protocol::Version;

use super::agent::{Format, SecretArg, duration};

pub(crate) const EXAMPLES: &str = "\
Examples:
  herald conformance localhost:8000                         all built-in checks
  herald conformance REF --level must --binding rest        some of them
  herald conformance REF --only STR -o json                 one area, as JSON
  herald conformance REF --suite suite.acts.yaml --sut tck  tests in the ACTS format
  herald conformance REF --tck ./a2a-tck                    the A2A project's own test kit";

#[derive(Debug, Args)]
pub(crate) struct ConformanceArgs {
    /// The server; the same as --agent-card
    #[arg(value_name = "REF", conflicts_with = "agent_card")]
    pub(crate) reference: Option<String>,

    /// The server: a host or an origin, or the URL of a card
    #[arg(short, long, value_name = "REF")]
    pub(crate) agent_card: Option<String>,

    /// Run the tests of this file (ACTS) instead of the built-in ones; may be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) suite: Vec<PathBuf>,

    /// Run the TCK of the A2A project instead, which is installed in this directory. It supports no
    /// credentials and has its own timeouts
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = ["suite", "a2a_version", "bearer", "sut", "set"])]
    pub(crate) tck: Option<PathBuf>,

    /// Only checks whose id or requirement begins with this, such as SEND or STR-003; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) only: Vec<String>,

    /// Only this binding; may be repeated
    #[arg(long, value_parser = binding(), value_name = "BINDING")]
    pub(crate) binding: Vec<CheckedBinding>,

    /// Only this protocol version, such as 1.0
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) a2a_version: Option<Version>,

    /// Only checks of this level and above
    #[arg(long, value_parser = level(), value_name = "LEVEL")]
    #[arg(default_value = "may")]
    pub(crate) level: Level,

    /// The time limit of a response, and of a stream
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub(crate) timeout: Duration,

    /// A bearer token, sent to the origin of REF only. The flag is visible in the process list;
    /// A2ACLI_BEARER is not
    #[arg(long, value_name = "TOKEN")]
    pub(crate) bearer: Option<SecretArg>,

    /// The agent's behaviour: `tck` if it acts on the message prefixes of the public suites, so that
    /// checks which need them are run
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) sut: Option<Sut>,

    /// The value of a variable in a suite; may be repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) set: Vec<(String, String)>,

    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,

    /// Also write a JUnit XML report to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// A settings file, one A2ACLI_NAME=value per line [default: .env in this directory or above]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sut {
    /// An agent that acts on the prefixes of a2a-tck and ACTS
    Tck,
}

fn level() -> impl TypedValueParser<Value = Level> {
    let values = Level::ALL.map(|level| {
        PossibleValue::new(level.name()).help(match level {
            Level::Must => "Required for conformance",
            Level::Should => "Recommended",
            Level::May => "Optional",
        })
    });
    PossibleValuesParser::new(values).try_map(|name| {
        Level::ALL.into_iter().find(|level| level.name() == name).ok_or("a level is expected")
    })
}

fn binding() -> impl TypedValueParser<Value = CheckedBinding> {
    const LONG_NAME: &str = "http+json";
    let values = CheckedBinding::ALL.map(|binding| {
        let value = PossibleValue::new(binding.name());
        match binding {
            CheckedBinding::JsonRpc => value.help("JSON-RPC 2.0 over HTTP"),
            CheckedBinding::Rest => value.help("HTTP and JSON").alias(LONG_NAME),
            CheckedBinding::Grpc => value.help("gRPC"),
        }
    });
    PossibleValuesParser::new(values).try_map(|name| {
        if name == LONG_NAME {
            return Ok(CheckedBinding::Rest);
        }
        let named = |binding: &CheckedBinding| binding.name() == name;
        CheckedBinding::ALL.into_iter().find(named).ok_or("a binding is expected")
    })
}

fn version(text: &str) -> Result<Version, String> {
    text.parse().map_err(|()| "expected a version such as 1.0".to_owned())
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
