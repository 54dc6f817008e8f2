//! `herald card`.

use herald_client::{Discovered, Verdict};
use herald_protocol::{AgentCard, ErrorKind};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    args::{CardCommand, CardGet, Format},
    client::{
        contact::Contact,
        fault::{Fault, Kind},
    },
    output::{Detail, Page, Show, note},
};

/// Runs a verb of cards.
pub(crate) async fn run(command: &CardCommand) -> Result<(), Fault> {
    match command {
        CardCommand::Get(args) => Box::pin(get(args)).await,
    }
}

async fn get(args: &CardGet) -> Result<(), Fault> {
    let contact = Contact::new(&args.agent, args.reference.as_deref())?;
    contact
        .within(Box::pin(async {
            let discovered = contact.discover().await?;
            if args.validate {
                validate(discovered.document())?;
            }
            let trust = &args.agent.trust;
            let asked = trust.card_keys.is_some()
                || !trust.card_keys_from.is_empty()
                || trust.require_signature == Some(true)
                || contact.out.detail == Detail::Full;
            let told = |verdict: &Verdict| {
                let signature = signature(verdict);
                let signed = *verdict != Verdict::Unsigned;
                if contact.out.format == Format::Json && (asked || signed) {
                    // The card is the protocol's own and has no place for it.
                    note("Signature", &signature);
                }
                signature
            };
            if args.extended {
                let (card, verdict) = Box::pin(extended(&contact, discovered)).await?;
                let signature = told(&verdict);
                return contact.out.show_with(&card, |page| page.field("Signature", signature));
            }
            let card = Document::new(&discovered);
            let selected = contact.selected(&discovered);
            let signature = told(discovered.verdict());
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

/// Asks for the card for authenticated callers, if the public one says that there is one and how to
/// sign in. What the signatures of the one are worth says nothing about the other.
async fn extended(
    contact: &Contact,
    discovered: Discovered,
) -> Result<(AgentCard, Verdict), Fault> {
    let card = discovered.card();
    if card.capabilities.extended_agent_card != Some(true) {
        let kind = Kind::Protocol(ErrorKind::UnsupportedOperation);
        return Err(Fault::new(kind, "the card says that the agent has no extended card")
            .hint("leave --extended out"));
    }
    contact.needs_declared_credential(card)?;
    let client = contact.call(discovered)?;
    let card = client.extended_card().await.map_err(|error| contact.explain(&client, &error))?;
    Ok((card, client.verdict()))
}

/// What a card's signatures are worth. None is no fault: agents need not sign.
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

/// A card as it was written, so that nothing is lost which this program does not know; or, where a
/// signature is good, what the signature is over, and nothing beside it.
struct Document {
    card: AgentCard,
    written: Option<Value>,
}

impl Document {
    fn new(discovered: &Discovered) -> Self {
        let written: Option<Value> = serde_json::from_slice(discovered.document()).ok();
        // What is older than 1.0 is shown as 1.0 has it.
        let written = written.filter(|value| value.get("supportedInterfaces").is_some());
        let written = written.filter(|_| !discovered.verdict().is_verified());
        Self { card: discovered.card().clone(), written }
    }
}

impl Serialize for Document {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.written {
            Some(value) => value.serialize(serializer),
            None => self.card.serialize(serializer),
        }
    }
}

impl Show for Document {
    fn show(&self, page: &mut Page) {
        self.card.show(page);
    }
}

/// Names every member of a card that is not as A2A 1.0 wants it.
fn validate(document: &[u8]) -> Result<(), Fault> {
    let faults = herald_protocol::card::violations(document);
    let Some(first) = faults.first() else { return Ok(()) };
    let mut all: Vec<_> =
        faults.iter().map(|one| format!("{} {}", one.field, one.description)).collect();
    all.truncate(20);
    let text = format!("the card is not valid: {}", all.join("; "));
    Err(Fault::new(Kind::CardInvalid, text).hint(format!("begin with {}", first.field)))
}
