//! `herald conformance`.

use std::process::ExitCode;

use herald_client::{Secrets, Source};
use herald_conformance::{Options, Trouble, WELL_KNOWN};
use herald_engine::Clock;
use reqwest::Url;

use crate::{
    args::{Conformance, Format},
    client::{
        fault::{Fault, Kind, connection_hint},
        layers, reference,
    },
    output::{document_of, lines, print, progress},
};

/// Checks a server and prints what was found. The exit code is 0 if every MUST that could be checked
/// is met, and 1 if one is not.
pub(crate) async fn run(args: Conformance) -> Result<ExitCode, Fault> {
    let named = args.reference.as_deref().or(args.agent_card.as_deref());
    let named = named.ok_or_else(|| {
        Fault::usage("no server is named")
            .hint("name it, such as herald conformance localhost:8000, or set A2ACLI_AGENT_CARD")
    })?;
    let cards = cards(named)?;
    let (format, junit) = (args.output, args.junit.clone());
    let secrets = Secrets::default();
    args.bearer.iter().for_each(|token| secrets.add(&token.0));
    let report = herald_conformance::run(&options(args, cards), progress).await;
    let report = report.map_err(|trouble| Fault::from(trouble).without(&secrets))?;
    if let Some(path) = junit {
        let written = std::fs::write(&path, secrets.redact_sentence(&report.junit()));
        written
            .map_err(|fault| Fault::usage(format!("cannot write {}: {fault}", path.display())))?;
    }
    // What was found is told in the server's words, and the server was shown the token.
    print(&secrets.redact_sentence(&match format {
        Format::Text => lines(&report.text()),
        Format::Json => document_of(&report.json()),
    }))?;
    Ok(if report.is_conformant() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Where the server's card may be, the likeliest place first.
fn cards(reference: &str) -> Result<Vec<Url>, Fault> {
    let mut cards = Vec::new();
    for place in reference::places(reference)? {
        match place {
            Source::At(url) => cards.push(url),
            Source::Below(url) => {
                cards.extend(WELL_KNOWN.iter().filter_map(|path| url.join(path).ok()));
            }
            Source::File(_) | Source::Program(_) => {
                return Err(Fault::usage("a server is checked over the network")
                    .hint("name its host, such as localhost:8000, or the URL of its card"));
            }
        }
    }
    Ok(cards)
}

fn options(args: Conformance, cards: Vec<Url>) -> Options {
    Options {
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

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        let said = trouble.to_string();
        match trouble {
            Trouble::Usage(_) => Self::new(Kind::Usage, said),
            Trouble::Unreachable(_) => {
                let hint = connection_hint(&said);
                let fault = Self::new(Kind::Unreachable, said);
                hint.into_iter().fold(fault, Self::hint)
            }
            Trouble::NoCard(_) => Self::new(Kind::CardNotFound, said),
            Trouble::InvalidCard(_) => Self::new(Kind::CardInvalid, said),
            Trouble::NoCredentials => Self::new(Kind::CredentialsMissing, said)
                .hint("give a bearer token with A2ACLI_BEARER"),
            Trouble::Denied => Self::new(Kind::AuthFailed, said)
                .hint("is the token in --bearer or A2ACLI_BEARER the right one?"),
        }
    }
}
