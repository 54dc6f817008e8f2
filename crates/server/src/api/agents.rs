//! Agents that the caller may use: discovery, registration, heartbeats, removal.

use std::{collections::HashMap, sync::Arc};

use herald_api::{
    agents::{
        AgentCapabilitiesView, AgentHeartbeat, AgentHeartbeatReply, AgentList, AgentView,
        AgentsQuery, LastSeen, RegisterAgent, RegisteredAgent, RegisteredSkill, RemovedAgents,
    },
    routes::Nothing,
};
use herald_engine::{
    Listed, Profile, RegistrationFilter, WorkerToRegister,
    store::{Declaration, DeclaredSkill, MemberId, Registration},
};
use herald_protocol::{AgentName, Error, ErrorKind};
use uuid::Uuid;

use super::ApiRequest;
use crate::{card, remote};

/// The text that clients of earlier servers know.
const ROUTING_NOTE: &str = "Use 'role' with send_to_agent for routing.";

/// The longest filter, in bytes.
const MAX_FILTER: usize = 256;

/// The most entries of a page, and the usual number. It is higher than that of other lists, because clients of earlier
/// servers read one page.
const MAX_AGENTS: u32 = 1000;

/// The approximate bytes after which a page ends: workers without skills of their own repeat those of their role.
const MAX_BYTES: usize = 1 << 20;

/// The approximate bytes of an entry without its texts.
const ENTRY_BYTES: usize = 512;

/// The entries that are compared before other calls may run.
const CHECKED_AT_ONCE: usize = 64;

pub(super) async fn list(
    request: &ApiRequest<'_>,
    query: AgentsQuery,
    _: Nothing,
) -> Result<AgentList, Error> {
    let AgentsQuery { role, skill, tag, text, page_size, page_token } = &query;
    for (field, filter) in [("role", role), ("skill", skill), ("tag", tag), ("text", text)] {
        if filter.as_ref().is_some_and(|filter| filter.len() > MAX_FILTER) {
            return Err(Error::field(field, format!("must have at most {MAX_FILTER} bytes")));
        }
    }
    let limit = page_size.unwrap_or(MAX_AGENTS);
    if !(1..=MAX_AGENTS).contains(&limit) {
        return Err(Error::field("page_size", format!("must be 1 to {MAX_AGENTS}")));
    }
    let operator = request.operator();
    let list = format!("agents {:?}", (role, skill, tag, text));
    let after = operator.open_token(&list, page_token.as_deref())?;
    let role = role.as_deref().map(AgentName::from);
    let filter = RegistrationFilter { role: role.clone(), name: None };
    let registrations = operator.registrations(&filter)?;
    let profiles = request.engine().profiles();
    let allowed = profiles.iter().filter(|profile| {
        let name = &profile.name;
        role.as_ref().is_none_or(|role| role == name) && request.caller.may_use(name)
    });
    let mut candidates = ListCandidate::all(allowed, &registrations);
    candidates.retain(|one| after.as_deref().is_none_or(|after| one.name > after));
    candidates.sort_unstable_by_key(|one| one.name);
    let (running, turns) = (running_turns(request), turns_of_workers(request));
    let mut agents: Vec<AgentView> = Vec::new();
    let (mut bytes, mut has_more) = (0, false);
    // The entry of the role, for the workers that follow each other.
    let mut own: Option<(&AgentName, AgentEntry)> = None;
    for (number, ListCandidate { profile, listed, .. }) in candidates.into_iter().enumerate() {
        // A search through many agents lets other calls pass.
        if number % CHECKED_AT_ONCE == CHECKED_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        let known = own.take().filter(|(name, _)| **name == profile.name);
        let (_, role) = own.insert(known.unwrap_or_else(|| {
            (&profile.name, AgentEntry::own(request, profile, &running, &query))
        }));
        let entry = match listed {
            Some(listed) => role.of(listed, &turns, &query),
            None => role.clone(),
        };
        if !entry.matches(&query) {
            continue;
        }
        bytes += entry.bytes();
        has_more = agents.len() == limit as usize || (bytes > MAX_BYTES && !agents.is_empty());
        if has_more {
            break;
        }
        agents.push(entry.into_view());
    }
    let last = agents.last().filter(|_| has_more);
    let next_page_token = last.map(|last| operator.token(&list, &last.name));
    Ok(AgentList { agents, routing_note: ROUTING_NOTE.to_owned(), next_page_token })
}

pub(super) async fn get(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<AgentView, Error> {
    let given = request.parameter(0);
    let filter = RegistrationFilter { role: None, name: Some(given.to_owned()) };
    let listed = request.operator().registrations(&filter)?.pop();
    let name = match &listed {
        Some(one) => one.registration.role.clone(),
        None => AgentName::from(given),
    };
    let profile = request.engine().profile(Some(&name));
    let allowed = profile.filter(|profile| request.caller.may_use(&profile.name));
    let profile = allowed
        .ok_or_else(|| Error::new(ErrorKind::ResourceNotFound, format!("no agent {given:?}")))?;
    let query = AgentsQuery::default();
    let own = AgentEntry::own(request, &profile, &running_turns(request), &query);
    let entry = match listed {
        Some(one) => own.of(&one, &turns_of_workers(request), &query),
        None => own,
    };
    Ok(entry.into_view())
}

pub(super) async fn register(
    request: &ApiRequest<'_>,
    _: Nothing,
    new: RegisterAgent,
) -> Result<RegisteredAgent, Error> {
    let tenant = &request.caller.owner().tenant;
    let limits = request.shared().caller_limits.registrations(tenant);
    if let Some(card_url) = &new.card_url {
        let only = RegisterAgent {
            role: new.role.clone(),
            card_url: new.card_url.clone(),
            ..RegisterAgent::default()
        };
        if new != only {
            let text = "a remote agent is described by its card: give role and card_url alone";
            return Err(Error::field("card_url", text));
        }
        let remotes = request.shared().remotes.as_deref();
        let operator = request.operator();
        let registration = remote::register(remotes, &operator, new.role, card_url, limits).await?;
        return Ok(registered(request, registration));
    }
    let role = new.role.clone().ok_or_else(|| Error::field("role", "is missing"))?;
    let (name, instance) = (new.name.clone(), new.instance_id.clone());
    let declaration = declaration(new);
    let worker = WorkerToRegister { role, instance, name, declaration };
    let registration = request.operator().register_worker(worker, limits).await?;
    Ok(registered(request, registration))
}

pub(super) async fn heartbeat(
    request: &ApiRequest<'_>,
    _: Nothing,
    heartbeat: AgentHeartbeat,
) -> Result<AgentHeartbeatReply, Error> {
    let session = match &heartbeat.session {
        Some(text) => {
            let id = Uuid::parse_str(text);
            let id = id.map_err(|_| Error::field("session", "must be the UUID of a session"))?;
            Some(MemberId(id.as_u128()))
        }
        None => None,
    };
    let name = request.parameter(0).to_owned();
    let last_seen = LastSeen(request.operator().see_worker(&name, session)?);
    Ok(AgentHeartbeatReply { name, last_seen, heartbeat_seconds: heartbeat_seconds(request) })
}

pub(super) async fn remove(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<RemovedAgents, Error> {
    let removed = request.operator().remove_agent(request.parameter(0)).await?;
    Ok(RemovedAgents { removed: removed.iter().map(|one| one.name.to_string()).collect() })
}

/// The description that a worker gives of itself.
fn declaration(new: RegisterAgent) -> Declaration {
    let usual = Declaration::default();
    let capabilities = new.capabilities.unwrap_or_default();
    let skill = |skill: RegisteredSkill| {
        let RegisteredSkill { id, name, description, tags, examples } = skill;
        DeclaredSkill { id, name, description, tags, examples }
    };
    Declaration {
        description: new.description.unwrap_or_default(),
        version: new.version.unwrap_or_default(),
        skills: new.skills.into_iter().map(skill).collect(),
        streaming: capabilities.streaming,
        push: capabilities.push_notifications,
        input_modes: new.input_modes,
        output_modes: new.output_modes,
        labels: new.labels,
        concurrency: new.concurrency.unwrap_or(usual.concurrency),
        recovery: new.recovery.unwrap_or(usual.recovery),
        attempts: new.attempts.unwrap_or(usual.attempts),
        serial: new.serial.unwrap_or_default(),
        waits: new.waits.unwrap_or_default(),
        memory: new.memory.unwrap_or_default(),
    }
}

fn registered(request: &ApiRequest<'_>, registration: Registration) -> RegisteredAgent {
    let (settings, workers) = (request.engine().settings(), request.engine().workers());
    RegisteredAgent {
        name: registration.name.to_string(),
        url: card::base(&request.exchange.server_url(), Some(&registration.role)),
        lease_seconds: workers.lease(&registration.role).as_secs(),
        poll_seconds: workers.longest_poll(&registration.role).as_secs().max(1),
        role: registration.role.to_string(),
        instance_id: registration.instance,
        session: registration.session.map(|session| Uuid::from_u128(session.0).to_string()),
        heartbeat_seconds: heartbeat_seconds(request),
        discovery_seconds: settings.discovery.max_age.as_secs(),
    }
}

/// The time between two heartbeats: a worker is listed also if one of them is lost.
fn heartbeat_seconds(request: &ApiRequest<'_>) -> u64 {
    let discovery = &request.engine().settings().discovery;
    discovery.heartbeat_every.min(discovery.max_age / 2).as_secs().max(1)
}

/// The number of running turns of each agent that has any.
fn running_turns(request: &ApiRequest<'_>) -> HashMap<AgentName, usize> {
    request.engine().at_work().into_iter().collect()
}

/// The number of running turns of each worker.
fn turns_of_workers(request: &ApiRequest<'_>) -> HashMap<MemberId, usize> {
    let sessions = request.engine().workers().sessions(None);
    sessions.into_iter().map(|one| (one.session, one.turns)).collect()
}

/// An agent or a worker that may be on a page, by its name in the list.
struct ListCandidate<'a> {
    name: &'a str,
    profile: &'a Profile,
    /// The worker or the remote agent; `None` for an agent that has neither.
    listed: Option<&'a Listed>,
}

impl<'a> ListCandidate<'a> {
    fn all(
        profiles: impl Iterator<Item = &'a Arc<Profile>>,
        registrations: &'a [Listed],
    ) -> Vec<Self> {
        let mut by_role: HashMap<&AgentName, Vec<&Listed>> = HashMap::new();
        for one in registrations {
            by_role.entry(&one.registration.role).or_default().push(one);
        }
        let mut all = Vec::with_capacity(registrations.len());
        for profile in profiles {
            match by_role.remove(&profile.name) {
                Some(workers) => all.extend(workers.into_iter().map(|one| Self {
                    name: &one.registration.name,
                    profile,
                    listed: Some(one),
                })),
                None => all.push(Self { name: profile.name.as_str(), profile, listed: None }),
            }
        }
        all
    }
}

/// An entry of the list, without its skills.
#[derive(Clone)]
struct AgentEntry {
    view: AgentView,
    /// Shared by the workers of a role that declare none, which may have hundreds of skills.
    skills: Arc<FoundSkills>,
}

/// The skills of an entry, and the filters of the query that they meet. They are compared once, also if thousands of
/// workers share them.
struct FoundSkills {
    ids: Vec<String>,
    has_skill: bool,
    has_tag: bool,
    has_text: bool,
}

impl AgentEntry {
    /// The entry of an agent that has no workers.
    fn own(
        request: &ApiRequest<'_>,
        profile: &Profile,
        running: &HashMap<AgentName, usize>,
        query: &AgentsQuery,
    ) -> Self {
        let engine = request.engine();
        let name = &profile.name;
        let is_role = engine.workers().is_role(name);
        let skills = profile.skills.iter().map(|skill| SkillWords {
            id: &skill.id,
            texts: [&skill.name, &skill.description],
            tags: &skill.tags,
            examples: &skill.examples,
        });
        Self {
            skills: Arc::new(FoundSkills::new(skills, query)),
            view: AgentView {
                name: name.to_string(),
                role: name.to_string(),
                instance_id: String::new(),
                title: profile.title.clone(),
                description: profile.description.clone(),
                url: card::base(&request.exchange.server_url(), Some(name)),
                capabilities: AgentCapabilitiesView {
                    streaming: profile.streaming,
                    push_notifications: engine.has_push(profile),
                },
                last_seen: LastSeen(engine.now()),
                kind: if is_role { "role" } else { "local" }.to_owned(),
                available: engine.is_available(name),
                is_default: engine.profile(None).is_some_and(|default| default.name == *name),
                skills: Vec::new(),
                input_modes: profile.input_modes.clone(),
                output_modes: profile.output_modes.clone(),
                labels: Vec::new(),
                version: profile.version.clone(),
                card_url: None,
                card_digest: None,
                card_changed: false,
                running: running.get(name).map_or(0, |turns| *turns as u64),
                concurrency: profile.concurrency as u64,
            },
        }
    }

    /// The entry of a worker of this role, or of this remote agent.
    fn of(&self, listed: &Listed, turns: &HashMap<MemberId, usize>, query: &AgentsQuery) -> Self {
        let mut entry = self.clone();
        let Registration { name, instance, declaration, card, session, .. } = &*listed.registration;
        let view = &mut entry.view;
        view.name = name.to_string();
        view.instance_id.clone_from(instance);
        view.last_seen = LastSeen(listed.last_seen);
        view.available = true;
        if !declaration.description.is_empty() {
            view.description.clone_from(&declaration.description);
        }
        if !declaration.version.is_empty() {
            view.version = Some(declaration.version.clone());
        }
        view.capabilities.streaming &= declaration.streaming;
        view.capabilities.push_notifications &= declaration.push;
        match card {
            Some(card) => {
                view.kind = "remote".to_owned();
                view.card_url = Some(card.url.clone());
                view.card_digest = Some(card.digest.clone());
                view.card_changed = card.changed_to.is_some();
                return entry;
            }
            None => view.kind = "worker".to_owned(),
        }
        view.labels.clone_from(&declaration.labels);
        view.concurrency = u64::from(declaration.concurrency);
        let turns = session.and_then(|session| turns.get(&session));
        view.running = turns.map_or(0, |turns| *turns as u64);
        if !declaration.skills.is_empty() {
            let skills = declaration.skills.iter().map(|skill| SkillWords {
                id: &skill.id,
                texts: [&skill.name, &skill.description],
                tags: &skill.tags,
                examples: &skill.examples,
            });
            entry.skills = Arc::new(FoundSkills::new(skills, query));
        }
        for (own, declared) in [
            (&mut view.input_modes, &declaration.input_modes),
            (&mut view.output_modes, &declaration.output_modes),
        ] {
            if !declared.is_empty() {
                own.clone_from(declared);
            }
        }
        entry
    }

    /// True if the entry has everything that the query asks for.
    fn matches(&self, query: &AgentsQuery) -> bool {
        let (view, skills) = (&self.view, &*self.skills);
        let mut labels = view.labels.iter();
        let has_tag =
            |tag: &String| skills.has_tag || labels.any(|label| label.eq_ignore_ascii_case(tag));
        let has_text = |text: &String| {
            let own = [&view.name, &view.title, &view.description];
            skills.has_text || contains(own.into_iter().chain(&view.labels), text)
        };
        query.skill.as_ref().is_none_or(|_| skills.has_skill)
            && query.tag.as_ref().is_none_or(has_tag)
            && query.text.as_ref().is_none_or(has_text)
    }

    /// The approximate bytes of the entry in a reply.
    fn bytes(&self) -> usize {
        let AgentView { name, role, title, description, url, .. } = &self.view;
        let AgentView { labels, input_modes, output_modes, .. } = &self.view;
        let texts = [name, role, title, description, url].into_iter();
        let texts = texts.chain(labels).chain(input_modes).chain(output_modes);
        ENTRY_BYTES + texts.chain(&self.skills.ids).map(|text| text.len() + 3).sum::<usize>()
    }

    /// The entry for the caller.
    fn into_view(self) -> AgentView {
        AgentView { skills: self.skills.ids.clone(), ..self.view }
    }
}

/// The words of a skill.
struct SkillWords<'a> {
    id: &'a String,
    texts: [&'a String; 2],
    tags: &'a [String],
    examples: &'a [String],
}

impl FoundSkills {
    fn new<'a>(skills: impl Iterator<Item = SkillWords<'a>>, query: &AgentsQuery) -> Self {
        let AgentsQuery { skill, tag, text, .. } = query;
        let mut found = Self { ids: Vec::new(), has_skill: false, has_tag: false, has_text: false };
        for SkillWords { id, texts, tags, examples } in skills {
            found.has_skill |= skill.as_ref() == Some(id);
            found.has_tag |= tag
                .as_ref()
                .is_some_and(|tag| tags.iter().any(|known| known.eq_ignore_ascii_case(tag)));
            found.has_text |= text.as_ref().is_some_and(|text| {
                let all = texts.into_iter().chain([id]).chain(tags).chain(examples);
                contains(all, text)
            });
            found.ids.push(id.clone());
        }
        found
    }
}

/// True if one of these has the text in it, in any case.
fn contains<'a>(all: impl Iterator<Item = &'a String>, text: &str) -> bool {
    let text = text.to_lowercase();
    let mut all = all.map(|one| one.to_lowercase());
    all.any(|one| one.contains(&text))
}
