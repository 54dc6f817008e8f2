//! Registration of a worker: what it offers, and the session that it gets.

use std::time::Duration;

use herald_api::{
    agents::{
        AgentCapabilitiesView, RegisterAgent as Registering, RegisteredAgent, RegisteredSkill,
    },
    routes::{
        Nothing,
        calls::{RegisterAgent, RemoveAgent},
    },
};
use herald_engine::{Profile, Recovery, Skill};
use tokio_util::sync::CancellationToken;

use super::{
    Worker, WorkerError,
    backoff::RetryDelays,
    connection::{ANSWER, RequestError},
};

/// The time limit of the last request of a worker.
const LEAVE: Duration = Duration::from_secs(5);

/// One life of the worker at its server.
#[derive(Debug, Clone)]
pub(super) struct WorkerRegistration {
    pub(super) name: String,
    pub(super) session: String,
    pub(super) url: String,
    pub(super) heartbeat: Duration,
    pub(super) poll_seconds: u32,
}

impl Worker {
    /// Registers, with retries until the server answers. `None` if the worker drains before that.
    pub(super) async fn register(
        &self,
        draining: &CancellationToken,
    ) -> Result<Option<WorkerRegistration>, WorkerError> {
        let request = self.request();
        let mut backoff = RetryDelays::new();
        loop {
            let call = self.connection.call::<RegisterAgent>(&[], &request, ANSWER);
            let answer = tokio::select! {
                answer = call => answer,
                () = draining.cancelled() => return Ok(None),
            };
            match answer {
                Ok(registered) => {
                    self.connection.answered();
                    return WorkerRegistration::new(registered).map(Some);
                }
                Err(RequestError::Refused(refusal)) => return Err(refusal.into()),
                Err(RequestError::Failed(fault)) => {
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
    pub(super) async fn leave(&self, registration: &WorkerRegistration) {
        let name = &*registration.name;
        let left = self.connection.call::<RemoveAgent>(&[name], &Nothing {}, LEAVE).await;
        match left {
            Ok(_) => tracing::info!(name = registration.name, "left the server"),
            Err(error) => {
                tracing::warn!(
                    name = registration.name,
                    ?error,
                    "could not leave the server; its lease ends instead"
                );
            }
        }
    }

    fn request(&self) -> Registering {
        let Profile { recovery, .. } = self.profile;
        let (recovery, attempts) = match recovery {
            Recovery::Resume(attempts) => ("resume", Some(attempts)),
            Recovery::Rerun(attempts) => ("rerun", Some(attempts)),
            Recovery::Fail => ("fail", None),
        };
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Registering {
            role: Some(self.profile.name.to_string()),
            instance_id: Some(self.settings.instance_id.clone()),
            description: Some(self.profile.description.clone()),
            skills: self.profile.skills.iter().map(skill).collect(),
            capabilities: Some(AgentCapabilitiesView {
                streaming: self.profile.streaming,
                push_notifications: self.profile.push,
            }),
            input_modes: self.profile.input_modes.clone(),
            output_modes: self.profile.output_modes.clone(),
            labels: self.settings.labels.clone(),
            concurrency: Some(number(self.settings.concurrency)),
            version: self.profile.version.clone(),
            recovery: Some(recovery.to_owned()),
            attempts,
            serial: Some(self.profile.serial),
            waits: Some(self.profile.waits),
            memory: Some(number(self.profile.memory)),
            name: None,
            card_url: None,
        }
    }
}

impl WorkerRegistration {
    fn new(registered: RegisteredAgent) -> Result<Self, WorkerError> {
        let session = registered.session.ok_or_else(|| WorkerError {
            status: 200,
            message: "the registration has no session; is the role that of a remote agent?"
                .to_owned(),
        })?;
        Ok(Self {
            name: registered.name,
            session,
            url: registered.url,
            heartbeat: Duration::from_secs(registered.heartbeat_seconds.max(1)),
            poll_seconds: u32::try_from(registered.poll_seconds).unwrap_or(1).clamp(1, 60),
        })
    }
}

fn skill(skill: &Skill) -> RegisteredSkill {
    RegisteredSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
    }
}
