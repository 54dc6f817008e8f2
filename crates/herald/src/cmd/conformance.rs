//! `herald conformance`: runs the conformance checker and prints its report.

use std::process::ExitCode;

use herald_client::{Secrets, Source};
use herald_conformance::{CheckError, CheckOptions, WELL_KNOWN};
use herald_engine::Clock;
use reqwest::Url;

use crate::{
    args::{ConformanceArgs, Format},
    client::{
        error::{CliError, CliErrorKind, connection_hint},
        layers, reference,
    },
    output::{document_of, lines, print, progress},
};

/// Checks a server and prints the report. The exit code is 0 if every MUST that could be checked
/// is met, and 1 otherwise.
pub(crate) async fn run(args: ConformanceArgs) -> Result<ExitCode, CliError> {
    let named = args.reference.as_deref().or(args.agent_card.as_deref());
    let named = named.ok_or_else(|| {
        CliError::usage("no server is given")
            .hint("give one, as in herald conformance localhost:8000, or set A2ACLI_AGENT_CARD")
    })?;
    let cards = cards(named)?;
    let (format, junit) = (args.output, args.junit.clone());
    let secrets = Secrets::default();
    args.bearer.iter().for_each(|token| secrets.add(&token.0));
    let report = herald_conformance::run(&options(args, cards), progress).await;
    let report = report.map_err(|trouble| CliError::from(trouble).redacted(&secrets))?;
    if let Some(path) = junit {
        let written = std::fs::write(&path, secrets.redact_sentence(&report.junit()));
        written.map_err(|fault| {
            CliError::usage(format!("cannot write {}: {fault}", path.display()))
        })?;
    }
    // The report quotes the server, which may repeat the token.
    print(&secrets.redact_sentence(&match format {
        Format::Text => lines(&report.text()),
        Format::Json => document_of(&report.json()),
    }))?;
    Ok(if report.is_conformant() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The possible URLs of the server's card, the likeliest first.
fn cards(reference: &str) -> Result<Vec<Url>, CliError> {
    let mut cards = Vec::new();
    for place in reference::places(reference)? {
        match place {
            Source::At(url) => cards.push(url),
            Source::Below(url) => {
                cards.extend(WELL_KNOWN.iter().filter_map(|path| url.join(path).ok()));
            }
            Source::File(_) | Source::Program(_) => {
                return Err(CliError::usage("only a server on the network can be checked")
                    .hint("give its host, such as localhost:8000, or the URL of its card"));
            }
        }
    }
    Ok(cards)
}

fn options(args: ConformanceArgs, cards: Vec<Url>) -> CheckOptions {
    CheckOptions {
        cards,
        suites: args.suite,
        tck: args.tck,
        only: args.only,
        bindings: args.binding,
        version: args.a2a_version,
        level: args.level,
        timeout: args.timeout,
        bearer: args.bearer.map(|token| token.0),
        prefixes: args.sut.is_some(),
        variables: args.set.into_iter().collect(),
        secret_variables: layers::SECRETS.map(layers::variable).to_vec(),
        now: Clock::system().now(),
    }
}

impl From<CheckError> for CliError {
    fn from(error: CheckError) -> Self {
        let message = error.to_string();
        match &error {
            CheckError::Usage(_) => Self::new(CliErrorKind::Usage, message),
            CheckError::Unreachable(..) => {
                let fault = Self::new(CliErrorKind::Unreachable, message);
                connection_hint(&error).into_iter().fold(fault, Self::hint)
            }
            CheckError::NoCard(_) => Self::new(CliErrorKind::CardNotFound, message),
            CheckError::InvalidCard(_) => Self::new(CliErrorKind::CardInvalid, message),
            CheckError::NoCredentials => Self::new(CliErrorKind::CredentialsMissing, message)
                .hint("give a bearer token with A2ACLI_BEARER"),
            CheckError::Denied => Self::new(CliErrorKind::AuthFailed, message)
                .hint("is the token in --bearer or A2ACLI_BEARER the right one?"),
        }
    }
}
