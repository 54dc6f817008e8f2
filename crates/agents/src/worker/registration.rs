//! Registration of a worker: what it offers, and the session that it gets.

use std::time::Duration;

use herald_engine::{Profile, Recovery, Skill};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::{
    Worker, WorkerError,
    backoff::Backoff,
    connection::{ANSWER, CallError, path},
    wire::Empty,
};

/// The time limit of the last request of a worker.
const LEAVE: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
struct RegisterRequest<'a> {
    role: &'a str,
    instance_id: &'a str,
    description: &'a str,
    skills: Vec<SkillJson<'a>>,
    capabilities: CapabilitiesJson,
    input_modes: &'a [String],
    output_modes: &'a [String],
    labels: &'a [String],
    concurrency: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<&'a str>,
    recovery: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    serial: bool,
    waits: bool,
    memory: usize,
}

#[derive(Debug, Serialize)]
struct SkillJson<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    tags: &'a [String],
    examples: &'a [String],
}

#[derive(Debug, Serialize)]
struct CapabilitiesJson {
    streaming: bool,
    push_notifications: bool,
}

/// One life of the worker at its server.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Registration {
    pub(super) name: String,
    pub(super) session: String,
    pub(super) url: String,
    pub(super) heartbeat_seconds: u64,
    pub(super) poll_seconds: u64,
}

impl Worker {
    /// Registers, with retries until the server answers. `None` if the worker drains before that.
    pub(super) async fn register(
        &self,
        draining: &CancellationToken,
    ) -> Result<Option<Registration>, WorkerError> {
        let request = self.request();
        let mut backoff = Backoff::new();
        loop {
            let call = self.connection.call(Method::POST, "/api/agents", Some(&request), ANSWER);
            let answer = tokio::select! {
                answer = call => answer,
                () = draining.cancelled() => return Ok(None),
            };
            match answer {
                Ok(registration) => {
                    self.connection.answered();
                    return Ok(Some(registration));
                }
                Err(CallError::Refused(refusal)) => return Err(refusal.into()),
                Err(CallError::Unavailable(fault)) => {
                    self.connection.lost(&fault.text);
                    tokio::select! {
                        () = backoff.wait(fault.retry_after) => {}
                        () = draining.cancelled() => return Ok(None),
                    }
                }
            }
        }
    }

    /// Removes the registration. If the server cannot be reached, it learns from the lease.
    pub(super) async fn leave(&self, registration: &Registration) {
        let path = path(&registration.name, "");
        let left = self.connection.call::<Empty>(Method::DELETE, &path, None::<&()>, LEAVE).await;
        match left {
            Ok(Empty {}) => tracing::info!(name = registration.name, "left the server"),
            Err(error) => {
                tracing::warn!(
                    name = registration.name,
                    ?error,
                    "could not leave the server; its lease ends instead"
                );
            }
        }
    }

    fn request(&self) -> RegisterRequest<'_> {
        let Profile { recovery, .. } = self.profile;
        let (recovery, attempts) = match recovery {
            Recovery::Resume(attempts) => ("resume", Some(attempts)),
            Recovery::Rerun(attempts) => ("rerun", Some(attempts)),
            Recovery::Fail => ("fail", None),
        };
        RegisterRequest {
            role: self.profile.name.as_str(),
            instance_id: &self.settings.instance_id,
            description: &self.profile.description,
            skills: self.profile.skills.iter().map(SkillJson::new).collect(),
            capabilities: CapabilitiesJson {
                streaming: self.profile.streaming,
                push_notifications: self.profile.push,
            },
            input_modes: &self.profile.input_modes,
            output_modes: &self.profile.output_modes,
            labels: &self.settings.labels,
            concurrency: self.settings.concurrency,
            version: self.profile.version.as_deref(),
            recovery,
            attempts,
            serial: self.profile.serial,
            waits: self.profile.waits,
            memory: self.profile.memory,
        }
    }
}

impl<'a> SkillJson<'a> {
    fn new(skill: &'a Skill) -> Self {
        Self {
            id: &skill.id,
            name: &skill.name,
            description: &skill.description,
            tags: &skill.tags,
            examples: &skill.examples,
        }
    }
}
