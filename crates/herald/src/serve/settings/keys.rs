//! Keys of an agent that not every kind takes.

use crate::serve::config::AgentSection;

use super::kind::{Kind, Mistake};

/// Stands for every kind of coding agent.
const CODING: &str = "";

/// Refuses keys that mean nothing to agents of this kind.
pub(super) fn check(section: &AgentSection, kind: Kind) -> Result<(), Mistake> {
    let programs: &[&str] = &["exec", "handler", CODING];
    let keys: &[(&'static str, bool, &[&str])] = &[
        ("command", section.command.is_some(), programs),
        ("workdir", section.workdir.is_some(), programs),
        ("allowed_roots", !section.allowed_roots.is_empty(), programs),
        ("env", !section.env.is_empty(), programs),
        ("max_output", section.max_output.is_some(), &["exec", "handler", "llm", CODING]),
        ("attempts", section.attempts.is_some(), &["exec", "handler", "llm", CODING]),
        (
            "error_detail",
            section.error_detail.is_some(),
            &["exec", "handler", "a2a", "llm", CODING],
        ),
        ("input", section.input.is_some(), &["exec"]),
        ("otherwise", section.otherwise.is_some(), &["conformance"]),
        ("url", section.url.is_some(), &["a2a", "llm"]),
        ("retries", section.retries.is_some(), &["a2a", "llm"]),
        ("binding", section.binding.is_some(), &["a2a"]),
        ("version", section.version.is_some(), &["a2a"]),
        ("auth", section.auth.is_some(), &["a2a"]),
        ("tls", section.tls.is_some(), &["a2a"]),
        ("trusted_origins", !section.trusted_origins.is_empty(), &["a2a"]),
        ("idempotent", section.idempotent.is_some(), &["a2a"]),
        ("model", section.model.is_some(), &["llm", CODING]),
        ("profile", section.profile.is_some(), &[CODING]),
        ("force", section.force.is_some(), &[CODING]),
        ("start_timeout", section.start_timeout.is_some(), &[CODING]),
        ("approval_timeout", section.approval_timeout.is_some(), &[CODING]),
        ("max_waiting", section.max_waiting.is_some(), &[CODING]),
        ("api_key", section.api_key.is_some(), &["llm"]),
        ("system", section.system.is_some(), &["llm"]),
        ("images", section.images.is_some(), &["llm"]),
        ("temperature", section.temperature.is_some(), &["llm"]),
        ("max_tokens", section.max_tokens.is_some(), &["llm"]),
        ("parameters", !section.parameters.is_empty(), &["llm"]),
        ("connect_timeout", section.connect_timeout.is_some(), &["llm"]),
        ("first_token_timeout", section.first_token_timeout.is_some(), &["llm"]),
    ];
    let kind = match kind {
        Kind::Coding(_) => CODING,
        Kind::Echo | Kind::Conformance | Kind::Exec | Kind::Handler | Kind::A2a | Kind::Llm => {
            kind.name()
        }
    };
    let misplaced = keys.iter().find(|(_, given, kinds)| *given && !kinds.contains(&kind));
    let Some((key, _, kinds)) = misplaced else { return Ok(()) };
    let named = |kind: &&str| match *kind {
        CODING => "that of a coding agent".to_owned(),
        kind => format!("{kind:?}"),
    };
    let kinds: Vec<_> = kinds.iter().map(named).collect();
    let kinds = match kinds.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    };
    Err(Mistake::new(key, format!("`{key}` belongs to kind = {kinds}")))
}
