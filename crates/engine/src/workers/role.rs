//! Role: an agent whose turns run on workers elsewhere.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    agents::{error::AgentError, profile::Agent},
    turns::turn::Turn,
};

/// Settings of a role, beside its profile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoleSettings {
    /// The time without a poll after which a worker is declared dead; `None` means
    /// [`Settings::lease`](crate::Settings::lease).
    pub lease: Option<Duration>,
}

/// The agent of a role. Each turn runs as a [`WorkerTurn`](super::proxy::WorkerTurn), which the permit of
/// the turn names.
#[derive(Debug)]
pub(crate) struct RoleAgent;

#[async_trait]
impl Agent for RoleAgent {
    async fn run(&self, _: &Turn) -> Result<(), AgentError> {
        Err(AgentError::Unavailable("no worker runs this turn".to_owned()))
    }
}
