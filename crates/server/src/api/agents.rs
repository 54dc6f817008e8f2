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

pub(super) async fn list(
    request: &ApiRequest<'_>,
    query: AgentsQuery,
    _: Nothing,
) -> Result<AgentList, Error> {
    let filters = [
        ("role", &query.role),
        ("skill", &query.skill),
        ("tag", &query.tag),
        ("text", &query.text),
    ];
    for (field, filter) in filters {
        if filter.as_ref().is_some_and(|filter| filter.len() > MAX_FILTER) {
            return Err(Error::field(field, format!("must have at most {MAX_FILTER} bytes")));
        }
    }
    let role = query.role.as_deref().map(AgentName::from);
    let filter = RegistrationFilter { role: role.clone(), name: None };
    let registrations = request.operator().registrations(&filter)?;
    let mut by_role: HashMap<&AgentName, Vec<&Listed>> = HashMap::new();
    for one in &registrations {
        by_role.entry(&one.registration.role).or_default().push(one);
    }
    let running = running_turns(request);
    let mut entries: Vec<AgentEntry> = Vec::new();
    for profile in request.engine().profiles() {
        let name = &profile.name;
        let is_named = role.as_ref().is_none_or(|role| role == name);
        if !is_named || !request.caller.may_use(name) {
            continue;
        }
        let own = AgentEntry::own(request, &profile, &running);
        let Some(workers) = by_role.get(name) else {
            entries.extend(Some(own).filter(|entry| entry.matches(&query)));
            continue;
        };
        let turns = turns_of(request, name);
        let workers = workers.iter().map(|one| own.of(one, &turns));
        entries.extend(workers.filter(|entry| entry.matches(&query)));
    }
    let mut agents: Vec<_> = entries.into_iter().map(AgentEntry::into_view).collect();
    agents.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(AgentList { agents, routing_note: ROUTING_NOTE.to_owned() })
}

pub(super) async fn get(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<AgentView, Error> {
    let given = request.parameter(0);
    let listed = request.operator().registrations(&RegistrationFilter::default())?;
    let listed = listed.into_iter().find(|one| *one.registration.name == *given);
    let name = match &listed {
        Some(one) => one.registration.role.clone(),
        None => AgentName::from(given),
    };
    let profile = request.engine().profile(Some(&name));
    let allowed = profile.filter(|profile| request.caller.may_use(&profile.name));
    let profile = allowed
        .ok_or_else(|| Error::new(ErrorKind::ResourceNotFound, format!("no agent {given:?}")))?;
    let own = AgentEntry::own(request, &profile, &running_turns(request));
    let entry = match listed {
        Some(one) => own.of(&one, &turns_of(request, &name)),
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
        let registration =
            remote::register(remotes, &operator, new.role, card_url, limits).await?;
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

/// The number of running turns of each worker of a role.
fn turns_of(request: &ApiRequest<'_>, role: &AgentName) -> HashMap<MemberId, usize> {
    let sessions = request.engine().workers().sessions(Some(role));
    sessions.into_iter().map(|one| (one.session, one.turns)).collect()
}

/// An entry of the list, without its skills.
#[derive(Clone)]
struct AgentEntry {
    view: AgentView,
    /// Shared by the workers of a role that declare none, which may have hundreds of skills.
    skills: Arc<SkillWords>,
}

/// The skills of an entry, and the words that it is found by.
struct SkillWords {
    ids: Vec<String>,
    tags: Vec<String>,
    texts: Vec<String>,
}

impl AgentEntry {
    /// The entry of an agent that has no workers.
    fn own(
        request: &ApiRequest<'_>,
        profile: &Profile,
        running: &HashMap<AgentName, usize>,
    ) -> Self {
        let engine = request.engine();
        let name = &profile.name;
        let is_role = engine.workers().is_role(name);
        let skills = &profile.skills;
        let words = |skill: &herald_engine::Skill| {
            let both = [skill.name.clone(), skill.description.clone()];
            both.into_iter().chain(skill.examples.clone())
        };
        Self {
            skills: Arc::new(SkillWords {
                ids: skills.iter().map(|skill| skill.id.clone()).collect(),
                tags: skills.iter().flat_map(|skill| skill.tags.clone()).collect(),
                texts: skills.iter().flat_map(words).collect(),
            }),
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
    fn of(&self, listed: &Listed, turns: &HashMap<MemberId, usize>) -> Self {
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
            entry.skills = Arc::new(SkillWords::of(&declaration.skills));
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
        let AgentsQuery { role: _, skill, tag, text } = query;
        let (view, SkillWords { ids, tags, texts }) = (&self.view, &*self.skills);
        let tags = || tags.iter().chain(&view.labels);
        let has_skill = |skill: &String| ids.contains(skill);
        let has_tag = |tag: &String| tags().any(|known| known.eq_ignore_ascii_case(tag));
        let has_text = |text: &String| {
            let text = text.to_lowercase();
            let own = [&view.name, &view.title, &view.description];
            let all = own.into_iter().chain(ids).chain(tags()).chain(texts);
            let mut all = all.map(|one| one.to_lowercase());
            all.any(|one| one.contains(&text))
        };
        skill.as_ref().is_none_or(has_skill)
            && tag.as_ref().is_none_or(has_tag)
            && text.as_ref().is_none_or(has_text)
    }

    /// The entry for the caller.
    fn into_view(self) -> AgentView {
        AgentView { skills: self.skills.ids.clone(), ..self.view }
    }
}

impl SkillWords {
    fn of(skills: &[DeclaredSkill]) -> Self {
        let words = |skill: &DeclaredSkill| {
            let both = [skill.name.clone(), skill.description.clone()];
            both.into_iter().chain(skill.examples.clone())
        };
        Self {
            ids: skills.iter().map(|skill| skill.id.clone()).collect(),
            tags: skills.iter().flat_map(|skill| skill.tags.clone()).collect(),
            texts: skills.iter().flat_map(words).collect(),
        }
    }
}
