//! What `herald conformance` takes.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValue, PossibleValuesParser, TypedValueParser},
};
use herald_conformance::{Binding, Level};
use herald_protocol::Version;

use super::agent::{Format, Hidden, duration};

pub(crate) const EXAMPLES: &str = "\
Examples:
  herald conformance localhost:8000                         everything that ships with herald
  herald conformance REF --level must --binding rest        a part of it
  herald conformance REF --only STR -o json                 one area, for programs
  herald conformance REF --suite suite.acts.yaml --sut tck  tests in the form of the A2A project
  herald conformance REF --tck ./a2a-tck                    the A2A project's own test kit";

#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// The server; the same as --agent-card
    #[arg(value_name = "REF", conflicts_with = "agent_card")]
    pub(crate) reference: Option<String>,

    /// The server: a host or an origin, or the URL of a card
    #[arg(short, long, value_name = "REF")]
    pub(crate) agent_card: Option<String>,

    /// Run the tests of this file (ACTS) instead of the built-in ones; may be given again
    #[arg(long, value_name = "FILE")]
    pub(crate) suite: Vec<PathBuf>,

    /// Run the TCK of the A2A project instead, which is checked out and installed in this directory. It
    /// has no use for credentials, and waits as long as it likes
    #[arg(long, value_name = "DIR")]
    #[arg(conflicts_with_all = ["suite", "a2a_version", "bearer", "sut", "set"])]
    pub(crate) tck: Option<PathBuf>,

    /// Only checks whose id or requirement begins so, such as SEND or STR-003; may be given again
    #[arg(long, value_name = "ID")]
    pub(crate) only: Vec<String>,

    /// Only over this binding; may be given again
    #[arg(long, value_parser = binding(), value_name = "BINDING")]
    pub(crate) binding: Vec<Binding>,

    /// Only this version of the protocol, such as 1.0
    #[arg(long, value_name = "VERSION", value_parser = version)]
    pub(crate) a2a_version: Option<Version>,

    /// Leave out what is less binding than this
    #[arg(long, value_parser = level(), value_name = "LEVEL")]
    #[arg(default_value = "may")]
    pub(crate) level: Level,

    /// How long to wait for an answer, and for the end of a stream
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "10s")]
    pub(crate) timeout: Duration,

    /// A bearer token, sent to the origin that REF names and to no other. Others on this machine can
    /// see the flag; A2ACLI_BEARER is not seen
    #[arg(long, value_name = "TOKEN")]
    pub(crate) bearer: Option<Hidden>,

    /// What the agent does: `tck` says that it obeys the message prefixes of the public suites, so
    /// that checks which need them are run
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) sut: Option<Sut>,

    /// A value for a name in a suite; may be given again
    #[arg(long, value_name = "NAME=VALUE", value_parser = pair)]
    pub(crate) set: Vec<(String, String)>,

    /// How to print what was found
    #[arg(short, long, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,

    /// Also write what was found to this file, as JUnit's XML
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// A file of settings, one A2ACLI_NAME=value per line [default: .env here or above]
    #[arg(long, value_name = "PATH")]
    config: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Sut {
    /// An agent that obeys the prefixes of a2a-tck and ACTS
    Tck,
}

fn level() -> impl TypedValueParser<Value = Level> {
    let values = Level::ALL.map(|level| {
        PossibleValue::new(level.name()).help(match level {
            Level::Must => "Without it a server does not conform",
            Level::Should => "Good reasons are needed to do otherwise",
            Level::May => "Free to do or not",
        })
    });
    PossibleValuesParser::new(values).try_map(|name| {
        Level::ALL.into_iter().find(|level| level.name() == name).ok_or("a level is expected")
    })
}

fn binding() -> impl TypedValueParser<Value = Binding> {
    const LONG_NAME: &str = "http+json";
    let values = Binding::ALL.map(|binding| {
        let value = PossibleValue::new(binding.name());
        match binding {
            Binding::JsonRpc => value.help("JSON-RPC 2.0 over HTTP"),
            Binding::Rest => value.help("HTTP and JSON").alias(LONG_NAME),
            Binding::Grpc => value.help("gRPC"),
        }
    });
    PossibleValuesParser::new(values).try_map(|name| {
        if name == LONG_NAME {
            return Ok(Binding::Rest);
        }
        let named = |binding: &Binding| binding.name() == name;
        Binding::ALL.into_iter().find(named).ok_or("a binding is expected")
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
