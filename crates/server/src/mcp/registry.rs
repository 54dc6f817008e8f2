//! Tools for registrations: register_agent and refresh_agent_heartbeat.

use herald_api::agents::{AgentHeartbeat, RegisterAgent, RegisteredAgent};
use herald_protocol::Error;

use super::{
    arguments::{RefreshArguments, RegisterArguments},
    call::McpCall,
    reply::ToolReply,
    tasks::MAX_NAME,
    untrusted::line,
};
use crate::api;

pub(super) async fn register_agent(
    call: &McpCall,
    arguments: RegisterArguments,
) -> Result<ToolReply, Error> {
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let RegisterArguments {
        agent_name,
        instance_id,
        description,
        skills,
        capabilities,
        labels,
        card_url,
    } = arguments;
    // A role, or the whole name of an instance.
    let given = filled(agent_name).unwrap_or_default();
    let (role, instance) = match given.split_once(':') {
        Some((role, instance)) => (role.to_owned(), Some(instance.to_owned())),
        None => (given, None),
    };
    let new = RegisterAgent {
        role: filled(Some(role)),
        instance_id: filled(instance_id).or(instance),
        card_url: filled(card_url),
        description: filled(description),
        skills,
        capabilities,
        labels,
        ..RegisterAgent::default()
    };
    let exchange = call.exchange(None);
    let registered = api::register_agent(&exchange, &call.caller, call.is_local, new).await?;
    let name = line(&registered.name, MAX_NAME);
    let mut text =
        format!("Registered {name}. Messages reach it by its role {:?}.", registered.role);
    if registered.session.is_some() {
        let RegisteredAgent { heartbeat_seconds, discovery_seconds, poll_seconds, .. } = registered;
        text.push_str(&format!(
            " Call refresh_agent_heartbeat with agent_name {name:?} every {heartbeat_seconds} seconds; after \
             {discovery_seconds} seconds without a heartbeat or a poll it is not listed any more. It gets no tasks \
             over MCP: a program has to poll for them, with POST /api/agents/{name}/poll and the session of this reply, again and \
             again ({poll_seconds} seconds each), as `herald worker` does. Until then messages to its role wait."
        ));
    }
    Ok(ToolReply::new(text, &registered))
}

pub(super) async fn refresh_agent_heartbeat(
    call: &McpCall,
    arguments: RefreshArguments,
) -> Result<ToolReply, Error> {
    let RefreshArguments { agent_name, session } = arguments;
    let (exchange, caller) = (call.exchange(None), &call.caller);
    let heartbeat = AgentHeartbeat { session: session.filter(|session| !session.is_empty()) };
    let replied =
        api::refresh_agent(&exchange, caller, call.is_local, &agent_name, heartbeat).await?;
    let text = format!(
        "{} was seen. The next heartbeat is due in {} seconds.",
        line(&replied.name, MAX_NAME),
        replied.heartbeat_seconds
    );
    Ok(ToolReply::new(text, &replied))
}
