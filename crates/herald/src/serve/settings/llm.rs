//! Agents that ask a language model.

use std::{sync::Arc, time::Duration};

use herald_agents::{Endpoint, Llm, Parameters, Patience};
use herald_engine::{Agent, Profile};
use serde_json::{Number, Value};

use crate::serve::config::{AgentSection, Span};

use super::{kind::Mistake, program::error_detail};

/// An agent that gives its turns to a model.
pub(super) fn agent(section: &mut AgentSection) -> Result<(Profile, Arc<dyn Agent>), Mistake> {
    let name = section.name.as_str();
    let needed = |key: &'static str, example: &str| {
        Mistake::new(key, format!("kind = \"llm\" needs {key}, such as {key} = {example:?}"))
    };
    let url = section.url.as_deref();
    let url = url.ok_or_else(|| needed("url", "http://127.0.0.1:11434/v1"))?;
    let model = section.model.as_deref().ok_or_else(|| needed("model", "llama3.2"))?;
    let key = section.api_key.as_ref().map(|key| key.0.clone());
    let endpoint = Endpoint::new(url, key, patience(section));
    let endpoint = endpoint.map_err(|fault| Mistake::of("url", fault))?;
    let mut llm = Llm::new(name, endpoint, parameters(section, model)?);
    llm.system.clone_from(&section.system);
    llm.images = section.images.unwrap_or(llm.images);
    llm.max_output = section.max_output.map_or(llm.max_output, |size| size.0);
    llm.error_detail = error_detail(section, llm.error_detail);
    // The silence of a model is measured word by word, and not before the first.
    section.idle_timeout = None;
    Ok((llm.profile(), Arc::new(llm)))
}

fn parameters(section: &AgentSection, model: &str) -> Result<Parameters, Mistake> {
    let mut further = section.parameters.clone();
    if let Some(key) = Parameters::OWN.iter().find(|key| further.contains_key(**key)) {
        return Err(Mistake::new("parameters", format!("parameters cannot say {key:?}")));
    }
    let temperature = section.temperature.and_then(Number::from_f64).map(Value::Number);
    let max_tokens = section.max_tokens.map(|tokens| Value::Number(tokens.into()));
    for (key, value) in [("temperature", temperature), ("max_tokens", max_tokens)] {
        further.extend(value.map(|value| (key.to_owned(), value)));
    }
    Ok(Parameters::new(model, further))
}

fn patience(section: &AgentSection) -> Patience {
    let usual = Patience::default();
    let span = |given: Option<Span>, usual: Duration| given.map_or(usual, |span| span.0);
    Patience {
        connect: span(section.connect_timeout, usual.connect),
        first_token: span(section.first_token_timeout, usual.first_token),
        // Zero switches a limit off.
        idle: match section.idle_timeout {
            Some(idle) => Some(idle.0).filter(|idle| !idle.is_zero()),
            None => usual.idle,
        },
        retries: section.retries.unwrap_or(usual.retries),
    }
}
