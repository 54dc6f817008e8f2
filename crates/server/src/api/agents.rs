//! Agents that the caller may use.

use herald_api::{
    agents::{AgentCapabilitiesView, AgentList, AgentView},
    routes::Nothing,
};
use herald_engine::{Clock, Profile};
use herald_protocol::{AgentName, Error, ErrorKind};

use super::ApiRequest;
use crate::card;

/// The text that clients of earlier servers know.
const ROUTING_NOTE: &str = "Use 'role' with send_to_agent for routing.";

pub(super) async fn list(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<AgentList, Error> {
    let profiles = request.engine().profiles();
    let allowed = profiles.iter().filter(|profile| request.caller.may_use(&profile.name));
    let agents = allowed.map(|profile| view(request, profile)).collect();
    Ok(AgentList { agents, routing_note: ROUTING_NOTE.to_owned() })
}

pub(super) async fn get(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<AgentView, Error> {
    let name = AgentName::from(request.parameter(0));
    let profile = request.engine().profile(Some(&name));
    let allowed = profile.filter(|profile| request.caller.may_use(&profile.name));
    let profile = allowed.ok_or_else(|| {
        Error::new(ErrorKind::ResourceNotFound, format!("no agent {:?}", name.as_str()))
    })?;
    Ok(view(request, &profile))
}

fn view(request: &ApiRequest<'_>, profile: &Profile) -> AgentView {
    let engine = request.engine();
    let name = &profile.name;
    let running = engine.at_work().into_iter().find(|(agent, _)| agent == name);
    AgentView {
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
        last_seen: Clock::system().now(),
        is_default: engine.profile(None).is_some_and(|default| default.name == *name),
        skills: profile.skills.iter().map(|skill| skill.id.clone()).collect(),
        input_modes: profile.input_modes.clone(),
        output_modes: profile.output_modes.clone(),
        running: running.map_or(0, |(_, turns)| turns as u64),
        concurrency: profile.concurrency as u64,
    }
}
