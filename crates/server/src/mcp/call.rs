//! One call of a tool: its caller, and the operations of the protocol that tools use.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_engine::{Caller, Reply, budget::Reservation};
use herald_protocol::{
    AgentName, Dialect, Error, ErrorKind, Request, SendResult, Task, TaskPage, locks::lock,
};
use http::request::Parts;
use tokio::time::timeout;
use uuid::Uuid;

use crate::{bind::Exchange, binding::Binding, guard::Ingress, shared::Shared, trace};

/// One request with a call of a tool. It owns everything, because the SDK runs tools in tasks of its own.
#[derive(Debug)]
pub(super) struct McpCall {
    pub(super) shared: Arc<Shared>,
    pub(super) parts: Parts,
    pub(super) id: Uuid,
    pub(super) ingress: Ingress,
    pub(super) caller: Caller,
    /// True if only the local user can have sent the request.
    pub(super) is_local: bool,
    /// The memory of the request, until a message is stored.
    pub(super) reservation: Mutex<Option<Reservation>>,
}

/// The result of a send within its time.
#[derive(Debug)]
pub(super) enum SendOutcome {
    Sent(SendResult),
    /// The agent answers directly, without a task, and has not answered in time.
    NotYet,
}

impl McpCall {
    /// The exchange of an operation at the endpoints of an agent, or of those at the root.
    pub(super) fn exchange(&self, agent: Option<AgentName>) -> Exchange<'_> {
        let (id, ingress) = (self.id, self.ingress);
        let mut exchange =
            Exchange::new(&self.shared, &self.parts, agent, Binding::Mcp, id, ingress);
        exchange.join_trace(trace::of(&self.parts.headers).as_ref());
        exchange
    }

    /// The agent with a role. The name of an instance is refused, because it does not route.
    pub(super) fn role(&self, given: &str) -> Result<AgentName, Error> {
        if let Some((role, _)) = given.split_once(':') {
            let text = format!(
                "agent_name: {given:?} is the name of one instance, and messages are routed by role: the server chooses \
                 the instance"
            );
            let hint = format!("use agent_name {role:?}");
            return Err(Error::new(ErrorKind::InvalidParams, text).with("hint", hint));
        }
        let name = AgentName::from(given);
        if self.shared.engine.profile(Some(&name)).is_none() {
            let text = format!("agent_name: no agent has the role {given:?}");
            let hint = "discover_agents lists the roles";
            return Err(Error::new(ErrorKind::InvalidParams, text).with("hint", hint));
        }
        Ok(name)
    }

    /// The agent that an optional role names, or the default one.
    pub(super) fn role_or_default(&self, given: Option<&str>) -> Result<AgentName, Error> {
        match given {
            Some(given) => self.role(given),
            None => Ok(self.default_agent()),
        }
    }

    pub(super) fn default_agent(&self) -> AgentName {
        let profile = self.shared.engine.profile(None).expect("an engine has its default agent");
        profile.name.clone()
    }

    /// Passes an operation to the engine, as every binding does.
    pub(super) async fn perform(
        &self,
        agent: Option<AgentName>,
        request: Request,
    ) -> Result<Reply, Error> {
        let exchange = self.exchange(agent);
        let reservation = lock(&self.reservation).take();
        let replied = exchange.call(&self.caller, Dialect::V1, request, reservation).await;
        let replied = replied.map_err(|error| exchange.explain(error))?;
        Ok(replied.into_reply().0)
    }

    /// Sends a message and waits for the outcome, at most `wait`. `request` makes the request, with or without
    /// waiting: the second one finds the task of the first by the id of the message.
    pub(super) async fn send(
        &self,
        agent: Option<AgentName>,
        request: impl Fn(bool) -> Request,
        wait: Duration,
    ) -> Result<SendOutcome, Error> {
        if !wait.is_zero() {
            let sent = timeout(wait, self.perform(agent.clone(), request(false))).await;
            if let Ok(sent) = sent {
                return sent_result(sent?).map(SendOutcome::Sent);
            }
        }
        let immediate = self.perform(agent, request(true));
        // An agent that answers directly has no task to return before the answer.
        match timeout(COMMIT, immediate).await {
            Ok(sent) => sent_result(sent?).map(SendOutcome::Sent),
            Err(_) => Ok(SendOutcome::NotYet),
        }
    }

    /// A task of the caller.
    pub(super) async fn task(&self, request: Request) -> Result<Task, Error> {
        let Reply::Task(task) = self.perform(None, request).await? else {
            return Err(unexpected());
        };
        task.decode()
    }

    /// A page of tasks of the caller.
    pub(super) async fn tasks(&self, request: Request) -> Result<TaskPage, Error> {
        let Reply::Tasks(page) = self.perform(None, request).await? else {
            return Err(unexpected());
        };
        Ok(page)
    }
}

/// The longest time for a message to be stored, after the wait for its outcome.
const COMMIT: Duration = Duration::from_secs(3);

fn sent_result(reply: Reply) -> Result<SendResult, Error> {
    let Reply::Sent(sent) = reply else { return Err(unexpected()) };
    sent.decode()
}

fn unexpected() -> Error {
    Error::new(ErrorKind::Internal, "the operation returned another kind of reply")
}
