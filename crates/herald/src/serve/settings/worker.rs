//! Roles that workers serve, and the registrations of workers.

use std::time::Duration;

use anyhow::Context;
use herald_engine::{DiscoverySettings, Profile, Recovery, RoleSettings, Unavailable};

use crate::serve::config::{
    AgentSection, FileConfig, KeyError, RecoveryKey, UnavailableKey, WorkerSection,
};

use super::{environment, span};

/// The environment variable that sets the age limit of workers, in seconds.
const MAX_AGE_VARIABLE: &str = "A2A_AGENT_DISCOVERY_MAX_AGE";

/// The time that a task waits for a worker, unless the file says otherwise.
const DEADLINE: Duration = Duration::from_secs(3600);

/// The number of attempts at a turn, unless the file says otherwise.
const ATTEMPTS: u32 = 3;

/// The profile and the settings of a role.
pub(super) fn role(
    section: &AgentSection,
    keys: &WorkerSection,
) -> Result<(Profile, RoleSettings), KeyError> {
    let name = section.common.name.as_str();
    let description = format!("Tasks of the role {name}, which workers serve");
    let mut profile = Profile::new(name, description);
    profile.unavailable = match keys.unavailable {
        None | Some(UnavailableKey::Queue) => Unavailable::Queue,
        Some(UnavailableKey::Refuse) => Unavailable::Refuse,
    };
    let deadline = span(keys.deadline).unwrap_or(DEADLINE);
    // Zero switches the limit off.
    profile.queue_timeout = Some(deadline).filter(|deadline| !deadline.is_zero());
    let attempts = keys.attempts.unwrap_or(ATTEMPTS);
    profile.recovery = match (keys.recovery, attempts) {
        (Some(RecoveryKey::Fail), _) | (None | Some(RecoveryKey::Rerun), 0 | 1) => Recovery::Fail,
        (None | Some(RecoveryKey::Rerun), attempts) => Recovery::Rerun(attempts),
        (Some(RecoveryKey::Resume), attempts) => Recovery::Resume(attempts.max(1)),
    };
    profile.memory = keys.memory.unwrap_or(profile.memory);
    profile.waits = keys.waits.unwrap_or(profile.waits);
    if keys.lease.is_some_and(|lease| lease.0 < Duration::from_secs(3)) {
        return Err(KeyError::of(
            "lease",
            "must be at least 3s: a worker polls every second or more",
        ));
    }
    Ok((profile, RoleSettings { lease: span(keys.lease) }))
}

/// The settings of registrations: the variable wins over the file.
pub(super) fn discovery(config: &FileConfig) -> anyhow::Result<DiscoverySettings> {
    let section = &config.discovery;
    let mut settings = DiscoverySettings::default();
    settings.max_age = span(section.max_age).unwrap_or(settings.max_age);
    if let Some(text) = environment(MAX_AGE_VARIABLE) {
        let seconds = text.trim().parse::<u64>();
        let seconds = seconds.with_context(|| {
            format!("{MAX_AGE_VARIABLE}={text:?} must be a number of seconds, such as 120")
        })?;
        settings.max_age = Duration::from_secs(seconds);
    }
    if settings.max_age < Duration::from_secs(2) {
        let text = format!(
            "workers must be listed for at least 2 seconds: raise [discovery] max_age or {MAX_AGE_VARIABLE}"
        );
        return Err(config.source.fault_at("discovery.max_age", &text).into());
    }
    settings.registrations = section.registrations.unwrap_or(settings.registrations);
    Ok(settings)
}
