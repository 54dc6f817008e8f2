//! Choice of the agent for a send: by its handler, or by the role or the skill in the metadata of its message.

use std::{borrow::Cow, sync::Arc};

use herald_protocol::{AgentName, Error, ErrorKind, Metadata, request::SendMessage};

use crate::{
    agents::{
        profile::{Profile, Unavailable},
        runtime::AgentRuntime,
    },
    caller::{AgentRoute, Caller},
    core::Core,
    directory::name::role_of,
};

/// The member of a message's metadata that names the agent or role for it.
const ROLE_MEMBER: &str = "role";
/// The member of a message's metadata that names the skill for it.
const SKILL_MEMBER: &str = "skill";

/// Roles of messages in chats, which clients keep in the metadata of messages. They name no agent.
const CHAT_ROLES: [&str; 5] = ["user", "agent", "assistant", "system", "tool"];

/// The route of the agent that a send chooses; otherwise the route of the call.
pub(crate) fn chosen_route<'a>(
    core: &Core,
    caller: &Caller,
    route: &'a AgentRoute,
    send: &SendMessage,
) -> Result<Cow<'a, AgentRoute>, Error> {
    let chosen = match &send.agent {
        Some(agent) => Some(by_handler(core, route, agent)?),
        None => by_metadata(core, caller, route, send)?,
    };
    let Some(agent) = chosen else { return Ok(Cow::Borrowed(route)) };
    let chosen = AgentRoute { agent: Some(agent), ..route.clone() };
    core.check_extensions(&chosen)?;
    Ok(Cow::Owned(chosen))
}

/// Refuses a message for a role that nobody serves now, if the role wants that.
pub(crate) fn check_available(core: &Core, runtime: &AgentRuntime) -> Result<(), Error> {
    let profile = &runtime.profile;
    match profile.unavailable {
        Unavailable::Queue => return Ok(()),
        Unavailable::Refuse => {}
    }
    let Some(pool) = runtime.pool() else { return Ok(()) };
    if pool.len() > 0 || core.membership.has_worker(&profile.name) {
        return Ok(());
    }
    let text = format!("no worker serves the agent {} now; try again later", profile.name);
    Err(Error::new(ErrorKind::AgentUnavailable, text).with("agent", &profile.name))
}

/// The error for a message that names an instance; `None` if the text does not name one.
pub(crate) fn refuse_instance(name: &str) -> Option<Error> {
    let role = role_of(name)?;
    let text = format!(
        "{name:?} is the name of an instance; messages are routed by role: use /agents/{role}"
    );
    Some(Error::new(ErrorKind::InvalidParams, text).with("role", role))
}

fn by_handler(core: &Core, route: &AgentRoute, handler: &AgentName) -> Result<AgentName, Error> {
    let agents = core.registry.snapshot();
    let chosen = agents.by_handler(handler).map(|runtime| &runtime.profile.name);
    if let Some(agent) = chosen.filter(|agent| route.includes(agent)) {
        return Ok(agent.clone());
    }
    if let Some(error) = refuse_instance(handler.as_str()) {
        return Err(error);
    }
    let offered = agents.iter().map(|it| &it.profile).filter(|it| route.includes(&it.name));
    let mut known: Vec<_> = offered.map(|profile| profile.handler_name()).collect();
    known.sort_unstable();
    let known: Vec<_> = known.into_iter().map(AgentName::as_str).collect();
    Err(Error::field("handler", format!("must be one of: {}", known.join(", "))))
}

/// The agent that the metadata of a new message at the root endpoint names.
fn by_metadata(
    core: &Core,
    caller: &Caller,
    route: &AgentRoute,
    send: &SendMessage,
) -> Result<Option<AgentName>, Error> {
    let is_new = send.message.task_id.is_none() && send.own_task.is_none();
    let Some(metadata) = send.message.metadata.as_ref().filter(|_| is_new && route.agent.is_none())
    else {
        return Ok(None);
    };
    if let Some(role) = word(metadata, ROLE_MEMBER) {
        return by_role(core, caller, &role);
    }
    match word(metadata, SKILL_MEMBER) {
        Some(skill) => by_skill(core, caller, &skill),
        None => Ok(None),
    }
}

fn by_role(core: &Core, caller: &Caller, role: &str) -> Result<Option<AgentName>, Error> {
    let name = AgentName::from(role);
    if core.registry.get(&name).is_some() && caller.may_use(&name) {
        return Ok(Some(name));
    }
    if CHAT_ROLES.contains(&role) {
        return Ok(None);
    }
    let unknown = || {
        let text = "names no agent that you may use; GET /api/agents lists them";
        Error::field("message.metadata.role", text)
    };
    Err(refuse_instance(role).unwrap_or_else(unknown))
}

fn by_skill(core: &Core, caller: &Caller, skill: &str) -> Result<Option<AgentName>, Error> {
    let default = core.registry.default_agent();
    if default.profile.has_skill(skill) {
        return Ok(None);
    }
    let agents = core.registry.snapshot();
    // With one agent there is nothing to choose: the skill is a word for that agent.
    if agents.iter().count() == 1 {
        return Ok(None);
    }
    let all = agents.sorted().into_iter().map(|runtime| &runtime.profile);
    let has = |profile: &&Arc<Profile>| caller.may_use(&profile.name) && profile.has_skill(skill);
    let found: Vec<_> = all.filter(has).map(|profile| &profile.name).collect();
    let field = "message.metadata.skill";
    match &found[..] {
        [only] => Ok(Some((*only).clone())),
        [] => {
            let text = "no agent that you may use has this skill; GET /api/agents lists the skills";
            Err(Error::field(field, text))
        }
        several => {
            let names: Vec<_> = several.iter().map(|name| format!("/agents/{name}")).collect();
            let text = format!(
                "several agents have this skill: send to one of {}, or name one in message.metadata.role",
                names.join(", ")
            );
            Err(Error::field(field, text))
        }
    }
}

/// A text in the metadata. Other values are the caller's own.
fn word(metadata: &Metadata, member: &str) -> Option<String> {
    metadata.get::<String>(member)
}
