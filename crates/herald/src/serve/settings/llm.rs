//! Language models as agents.

use std::{sync::Arc, time::Duration};

use herald_agents::{Endpoint, EndpointTimeouts, Llm, Parameters};
use herald_engine::{Agent, Profile};
use serde_json::{Number, Value};

use crate::serve::config::{AgentSection, KeyError, LlmSection, TimeSpan};

use super::{program::error_detail, recovery};

/// Builds the agent of a section.
pub(super) fn agent(
    section: &AgentSection,
    keys: &LlmSection,
) -> Result<(Profile, Arc<dyn Agent>), KeyError> {
    let name = section.common.name.as_str();
    let needed = |key: &'static str, example: &str| {
        KeyError::new(key, format!("kind = \"llm\" needs {key}, such as {key} = {example:?}"))
    };
    let url = keys.url.as_deref();
    let url = url.ok_or_else(|| needed("url", "http://127.0.0.1:11434/v1"))?;
    let model = keys.model.as_deref().ok_or_else(|| needed("model", "llama3.2"))?;
    let key = keys.api_key.as_ref().map(|key| key.0.clone());
    let endpoint = Endpoint::new(url, key, patience(section, keys));
    let endpoint = endpoint.map_err(|fault| KeyError::of("url", fault))?;
    let mut llm = Llm::new(name, endpoint, parameters(keys, model)?);
    llm.system.clone_from(&keys.system);
    llm.images = keys.images.unwrap_or(llm.images);
    llm.max_output = keys.max_output.map_or(llm.max_output, |size| size.0);
    llm.error_detail = error_detail(keys.error_detail, llm.error_detail);
    let mut profile = llm.profile();
    profile.memory = keys.memory.unwrap_or(profile.memory);
    profile.recovery = recovery(keys.attempts, profile.recovery);
    Ok((profile, Arc::new(llm)))
}

fn parameters(keys: &LlmSection, model: &str) -> Result<Parameters, KeyError> {
    let mut further = keys.parameters.clone();
    if let Some(own) = Parameters::OWN.iter().find(|own| further.contains_key(**own)) {
        let remedy = match *own {
            "model" => "use the key of that name",
            _ => "leave it out, because its value is fixed",
        };
        let said = format!("parameters cannot contain {own:?}: {remedy}");
        return Err(KeyError::new("parameters", said));
    }
    let temperature = keys.temperature.and_then(Number::from_f64).map(Value::Number);
    let max_tokens = keys.max_tokens.map(|tokens| Value::Number(tokens.into()));
    for (key, value) in [("temperature", temperature), ("max_tokens", max_tokens)] {
        further.extend(value.map(|value| (key.to_owned(), value)));
    }
    Ok(Parameters::new(model, further))
}

fn patience(section: &AgentSection, keys: &LlmSection) -> EndpointTimeouts {
    let usual = EndpointTimeouts::default();
    let span = |given: Option<TimeSpan>, usual: Duration| given.map_or(usual, |span| span.0);
    EndpointTimeouts {
        connect: span(keys.connect_timeout, usual.connect),
        first_token: span(keys.first_token_timeout, usual.first_token),
        // Zero switches a limit off.
        idle: match section.common.idle_timeout {
            Some(idle) => Some(idle.0).filter(|idle| !idle.is_zero()),
            None => usual.idle,
        },
        retries: keys.retries.unwrap_or(usual.retries),
    }
}
