//! `herald card`: fetch, validate and show agent cards.

use herald_client::{Discovered, Source, Verdict};
use herald_protocol::{AgentCard, ErrorKind};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    args::{CardCommand, CardGet, Format},
    client::{
        contact::Contact,
        error::{CliError, CliErrorKind},
    },
    output::{DetailLevel, Show, TextPage, note},
};

/// Runs a `card` verb.
pub(crate) async fn run(command: &CardCommand) -> Result<(), CliError> {
    match command {
        CardCommand::Get(args) => Box::pin(get(args)).await,
    }
}

async fn get(args: &CardGet) -> Result<(), CliError> {
    let contact = Contact::new(&args.agent, args.reference.as_deref())?;
    contact
        .within(Box::pin(async {
            let discovered = contact.discover().await?;
            if let Source::Program(_) = discovered.source() {
                let text = "a program has no card: it is called over standard input and output";
                let send = contact.command("send", "\"Hello\"");
                return Err(CliError::new(CliErrorKind::CardNotFound, text)
                    .hint(format!("send it a message with: {send}")));
            }
            if args.validate {
                validate(discovered.document())?;
            }
            let trust = &args.agent.trust;
            let asked = trust.card_keys.is_some()
                || !trust.card_keys_from.is_empty()
                || trust.require_signature == Some(true)
                || contact.out.detail == DetailLevel::Full;
            let described = |verdict: &Verdict| {
                let signature = signature(verdict);
                let signed = *verdict != Verdict::Unsigned;
                if contact.out.format == Format::Json && (asked || signed) {
                    // A card has no member for it.
                    note("Signature", &signature);
                }
                signature
            };
            if args.extended {
                let (card, verdict) = Box::pin(extended(&contact, discovered)).await?;
                let signature = described(&verdict);
                return contact.out.show_with(&card, |page| page.field("Signature", signature));
            }
            let card = ShownCard::new(&discovered);
            let selected = contact.selected(&discovered);
            let signature = described(discovered.verdict());
            contact.out.show_with(&card, |page| {
                if let Some(interface) = selected {
                    page.field("Selected Interface", interface);
                }
                page.field("Signature", signature);
                if args.validate {
                    page.field("Valid", "yes");
                }
            })
        }))
        .await
}

/// Fetches the extended card, if the public one declares it and a security scheme. Each card has a verdict of its own.
async fn extended(
    contact: &Contact,
    discovered: Discovered,
) -> Result<(AgentCard, Verdict), CliError> {
    let card = discovered.card();
    if card.capabilities.extended_agent_card != Some(true) {
        let kind = CliErrorKind::Protocol(ErrorKind::UnsupportedOperation);
        return Err(CliError::new(kind, "the agent has no extended card, according to its card")
            .hint("omit --extended"));
    }
    contact.needs_declared_credential(card)?;
    let client = contact.call(discovered)?;
    let card = client.extended_card().await.map_err(|error| contact.explain(&client, &error))?;
    Ok((card, client.verdict()))
}

/// The verdict on a card's signatures, in words. A card without one is valid.
fn signature(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Verified { key, .. } => format!("verified by {key}"),
        Verdict::Unsigned => "absent".to_owned(),
        Verdict::UnknownKey { keys } => {
            format!("unverifiable, no trusted key: {}", keys.join(", "))
        }
        Verdict::Invalid { reason } => format!("unverifiable, invalid: {reason}"),
    }
}

/// A card as it was received, with members that this program does not know. Of a verified card only the members that the
/// signature covers are shown.
struct ShownCard {
    card: AgentCard,
    written: Option<Value>,
}

impl ShownCard {
    fn new(discovered: &Discovered) -> Self {
        let written: Option<Value> = serde_json::from_slice(discovered.document()).ok();
        // Older cards are shown in the form of 1.0.
        let written = written.filter(|value| value.get("supportedInterfaces").is_some());
        let written = written.filter(|_| !discovered.verdict().is_verified());
        Self { card: discovered.card().clone(), written }
    }
}

impl Serialize for ShownCard {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.written {
            Some(value) => value.serialize(serializer),
            None => self.card.serialize(serializer),
        }
    }
}

impl Show for ShownCard {
    fn show(&self, page: &mut TextPage) {
        self.card.show(page);
    }
}

/// An error that lists all members of a card that violate A2A 1.0.
fn validate(document: &[u8]) -> Result<(), CliError> {
    let faults = herald_protocol::card::violations(document);
    let Some(first) = faults.first() else { return Ok(()) };
    let mut all: Vec<_> =
        faults.iter().map(|one| format!("{} {}", one.field, one.description)).collect();
    all.truncate(20);
    let text = format!("the card is not valid: {}", all.join("; "));
    Err(CliError::new(CliErrorKind::CardInvalid, text)
        .hint(format!("correct {} first", first.field)))
}
