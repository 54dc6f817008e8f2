//! Remote agents: A2A agents elsewhere that are registered by the URL of their card.
//!
//! A caller names the URL, so the card is fetched and the agent is called through the guard of webhooks. The card is
//! pinned by its digest: a changed card is reported, and followed once the agent is registered again.

use std::{collections::HashSet, convert::Infallible, fmt, sync::Arc, time::Duration};

use herald_engine::{
    Agent, Engine, NewRemoteAgent, Operator, Profile, RegistrationLimits, Skill,
    store::{Declaration, DeclaredSkill, PinnedCard, Registration},
};
use herald_protocol::{
    AgentCard, AgentName, Dialect, Error, ErrorKind,
    card::{
        self, AgentInterface,
        signature::{SignedForm, payload},
    },
};
use tokio::time::sleep;

use crate::webhook::HttpSender;

/// The time between two checks of the cards.
const CHECK_EVERY: Duration = Duration::from_secs(300);
/// The largest card, in bytes.
const MAX_CARD: usize = 256 << 10;
/// The paths of cards, the current one first.
const WELL_KNOWN: [&str; 2] = ["/.well-known/agent-card.json", "/.well-known/agent.json"];
/// The bindings over which remote agents are called.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// Maker of the agents that forward messages to remote agents. The host implements it, since this crate has no A2A
/// client.
pub trait RemoteAgentFactory: fmt::Debug + Send + Sync + 'static {
    /// The agent `name` that forwards to the agent of this card. It must use `http` for its requests, which checks
    /// the address of each.
    fn build(
        &self,
        name: &AgentName,
        card: &AgentCard,
        http: &Arc<HttpSender>,
    ) -> Result<(Profile, Arc<dyn Agent>), Error>;
}

/// The remote agents of a server.
#[derive(Debug)]
pub(crate) struct RemoteAgents {
    pub(crate) factory: Arc<dyn RemoteAgentFactory>,
    pub(crate) http: Arc<HttpSender>,
    pub(crate) check_every: Duration,
}

impl RemoteAgents {
    pub(crate) fn new(factory: Arc<dyn RemoteAgentFactory>, http: Arc<HttpSender>) -> Self {
        Self { factory, http, check_every: CHECK_EVERY }
    }

    /// Fetches the card at a URL, or below it.
    async fn fetch(&self, url: &str) -> Result<AgentCard, Error> {
        let refused = |text: String| Error::field("card_url", text);
        let base = url.trim_end_matches('/');
        let urls = if base.ends_with(".json") {
            vec![base.to_owned()]
        } else {
            WELL_KNOWN.iter().map(|path| format!("{base}{path}")).collect()
        };
        let mut found = None;
        for url in &urls {
            found = self.http.fetch(url, MAX_CARD).await.map_err(refused)?;
            if found.is_some() {
                break;
            }
        }
        let Some(document) = found else {
            return Err(refused(format!("there is no card at {}", urls.join(" or "))));
        };
        let card = card::read(&document);
        let mut card =
            card.map_err(|error| refused(format!("is not an agent card: {}", error.message)))?;
        place(&mut card, base);
        self.check(card)
    }

    /// A card whose agent can be called: without the interfaces that cannot be.
    fn check(&self, mut card: AgentCard) -> Result<AgentCard, Error> {
        let refused = |text: String| Err(Error::field("card_url", text));
        if card.name.trim().is_empty() {
            return refused("the card has no name".to_owned());
        }
        let known = |binding: &str| BINDINGS.contains(&binding);
        card.supported_interfaces.retain(|interface| known(&interface.protocol_binding));
        if card.supported_interfaces.is_empty() {
            return refused("the card lists no interface of JSONRPC or HTTP+JSON".to_owned());
        }
        for interface in &card.supported_interfaces {
            if let Err(refusal) = self.http.check(&interface.url) {
                return refused(format!("the card lists an interface whose URL {refusal}"));
            }
        }
        Ok(card)
    }

    /// The agent that forwards to the agent of this card, with the description in the card.
    fn build(
        &self,
        name: &AgentName,
        card: &AgentCard,
    ) -> Result<(Profile, Arc<dyn Agent>), Error> {
        let (mut profile, agent) = self.factory.build(name, card, &self.http)?;
        let declared = declaration(card);
        profile.title = short(&card.name, 256);
        profile.description = declared.description;
        profile.version = Some(declared.version).filter(|version| !version.is_empty());
        if !declared.skills.is_empty() {
            let skill = |skill: DeclaredSkill| Skill {
                id: skill.id,
                name: skill.name,
                description: skill.description,
                tags: skill.tags,
                examples: skill.examples,
                ..Skill::default()
            };
            profile.skills = declared.skills.into_iter().map(skill).collect();
        }
        Ok((profile, agent))
    }

    /// Serves the registered remote agents that are not served yet, and ends those that were removed.
    fn restore(&self, engine: &Engine, served: &mut HashSet<(AgentName, String)>) {
        let registered = engine.remote_agents();
        engine.end_removed_remotes();
        for one in &registered {
            let Registration { role, card: Some(card), .. } = &*one.registration else { continue };
            if !served.insert((role.clone(), card.digest.clone())) {
                continue;
            }
            // Another registration of this process serves it already.
            if engine.profile(Some(role)).is_some() {
                continue;
            }
            let built =
                card::read(card.document.as_bytes()).and_then(|card| self.build(role, &card));
            let result = match built {
                Ok(agent) => engine.serve_remote(role, agent).map_err(|error| error.to_string()),
                Err(error) => Err(error.message),
            };
            if let Err(error) = result {
                tracing::error!(agent = %role, error, "a remote agent cannot be served");
            }
        }
        served.retain(|(name, digest)| {
            registered.iter().any(|one| {
                let card = one.registration.card.as_ref();
                one.registration.role == *name && card.is_some_and(|card| card.digest == *digest)
            })
        });
    }

    /// Compares the card of each remote agent with the pinned one.
    pub(crate) async fn check_cards(&self, engine: &Engine) {
        for one in engine.remote_agents() {
            let Some(pinned) = &one.registration.card else { continue };
            let name = &one.registration.name;
            let card = match self.fetch(&pinned.url).await {
                Ok(card) => card,
                Err(error) => {
                    tracing::warn!(agent = %name, error = error.message, "the card of a remote agent cannot be checked");
                    continue;
                }
            };
            let found = digest(&card);
            let changed_to = Some(found).filter(|found| *found != pinned.digest);
            if changed_to.is_some() && changed_to != pinned.changed_to {
                tracing::warn!(
                    agent = %name,
                    url = pinned.url,
                    "the card of a remote agent has changed: the registered one stays in use until the agent is \
                     registered again"
                );
            }
            // The store has logged its error, and the next check tries again.
            let _ = engine.record_card(name, changed_to).await;
        }
    }

    /// Serves the registered agents and checks their cards, for ever.
    pub(crate) async fn run(&self, engine: &Engine) -> Infallible {
        let mut served = HashSet::new();
        loop {
            self.restore(engine, &mut served);
            sleep(self.check_every).await;
            self.check_cards(engine).await;
        }
    }

    /// Serves the registered agents once, before the first request.
    pub(crate) fn start(&self, engine: &Engine) {
        self.restore(engine, &mut HashSet::new());
    }
}

/// Registers the remote agent at this URL, under a role or under the name in its card.
pub(crate) async fn register(
    remotes: Option<&RemoteAgents>,
    operator: &Operator<'_>,
    role: Option<String>,
    url: &str,
    limits: RegistrationLimits,
) -> Result<Registration, Error> {
    let Some(remotes) = remotes else {
        let text = "this server cannot call remote agents";
        return Err(Error::new(ErrorKind::UnsupportedOperation, text));
    };
    // Before anything is fetched: only a caller that may register makes this server send requests.
    match &role {
        Some(role) => drop(operator.check_remote(role)?),
        None => operator.check_may_register()?,
    }
    let card = remotes.fetch(url).await?;
    let role = role.unwrap_or_else(|| role_from(&card.name));
    let name = operator.check_remote(&role)?;
    let agent = remotes.build(&name, &card)?;
    let document = Dialect::V1.encode_card(&card);
    let document = String::from_utf8(document)
        .map_err(|_| Error::new(ErrorKind::Internal, "the card cannot be stored"))?;
    let pinned =
        PinnedCard { url: url.to_owned(), digest: digest(&card), document, changed_to: None };
    let declaration = declaration(&card);
    let new = NewRemoteAgent { role, card: pinned, declaration, agent };
    operator.register_remote(new, limits).await
}

/// Gives an interface without a URL those at the place of its card, as clients call it: some agents before 1.0 have no
/// URL in their cards.
fn place(card: &mut AgentCard, url: &str) {
    if let [only] = &card.supported_interfaces[..]
        && only.url.is_empty()
    {
        let base = base_of(url);
        let at = |path| AgentInterface { url: format!("{base}{path}"), ..only.clone() };
        card.supported_interfaces = ["/a2a", "/"].map(at).into();
    }
}

/// The place of a card with this URL: that of its well-known path, or the origin. A base URL is one itself.
fn base_of(url: &str) -> &str {
    if !url.ends_with(".json") {
        return url;
    }
    WELL_KNOWN.iter().find_map(|path| url.strip_suffix(path)).unwrap_or_else(|| {
        let host = url.find("://").map_or(0, |at| at + 3);
        url[host..].find('/').map_or(url, |end| &url[..host + end])
    })
}

/// The digest of a card, without its signatures: some algorithms sign the same card differently each time.
fn digest(card: &AgentCard) -> String {
    blake3::hash(&payload(card, SignedForm::Specified)).to_hex().to_string()
}

/// A role from a name for people.
fn role_from(name: &str) -> String {
    let letters = name.chars().map(|letter| {
        if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' }
    });
    let text: String = letters.take(63).collect();
    text.split('-').filter(|word| !word.is_empty()).collect::<Vec<_>>().join("-")
}

/// The content of a card for discovery, within the limits of a registration.
fn declaration(card: &AgentCard) -> Declaration {
    let words = |words: &[String]| -> Vec<String> {
        words.iter().take(32).map(|word| short(word, 256)).collect()
    };
    let mut skills: Vec<DeclaredSkill> = Vec::new();
    for skill in card.skills.iter().take(64) {
        let id = short(&skill.id, 256);
        if !id.trim().is_empty() && !skills.iter().any(|known| known.id == id) {
            skills.push(DeclaredSkill {
                id,
                name: short(&skill.name, 256),
                description: short(&skill.description, 4096),
                tags: words(&skill.tags),
                examples: words(&skill.examples),
            });
        }
    }
    Declaration {
        description: short(&card.description, 4096),
        version: short(&card.version, 256),
        skills,
        streaming: card.capabilities.streaming.unwrap_or_default(),
        ..Declaration::default()
    }
}

/// The beginning of a text without control characters, of at most so many bytes.
fn short(text: &str, most: usize) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(most / 4).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_without_a_url_is_at_its_own_place() {
        for (url, base) in [
            ("https://a.example", "https://a.example"),
            ("https://a.example/b", "https://a.example/b"),
            ("https://a.example/b/.well-known/agent.json", "https://a.example/b"),
            ("https://a.example/cards/b.json", "https://a.example"),
        ] {
            let mut card =
                card::read(br#"{"name":"x","url":"","protocolVersion":"0.2.6"}"#).unwrap();
            place(&mut card, url);
            let urls: Vec<_> =
                card.supported_interfaces.iter().map(|one| one.url.clone()).collect();
            assert_eq!(urls, [format!("{base}/a2a"), format!("{base}/")]);
            let placed = card.clone();
            place(&mut card, "https://other.example");
            assert_eq!(card, placed);
        }
    }

    #[test]
    fn a_role_is_made_from_the_name_of_a_card() {
        for (name, role) in [
            ("Research Agent", "research-agent"),
            ("  Ünï — code/review (2.0)  ", "n-code-review-2-0"),
            ("???", ""),
        ] {
            assert_eq!(role_from(name), role);
        }
        assert_eq!(role_from(&"x".repeat(99)).len(), 63);
    }
}
