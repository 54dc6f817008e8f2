//! Registry of agents: the agents that this process serves now. They come and go at run time.

use std::{collections::HashMap, sync::Arc};

use herald_protocol::AgentName;
use tokio::sync::watch;

use super::{
    profile::Profile,
    runtime::{AgentRuntime, Runner},
};

/// The agents of this process. Readers take a snapshot, which a later change leaves as it is.
#[derive(Debug)]
pub(crate) struct Registry {
    agents: watch::Sender<Arc<Agents>>,
}

/// A snapshot of the registry.
#[derive(Debug, Clone)]
pub(crate) struct Agents {
    by_name: HashMap<AgentName, Arc<AgentRuntime>>,
    default: AgentName,
}

/// The reason why an agent was not registered or removed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistryError {
    /// The name is not valid in a URL.
    #[error("the agent name {0:?} must be 1 to 63 characters of a-z, 0-9 and -")]
    BadName(AgentName),
    /// The name is used already.
    #[error("the agent name {0:?} is used twice")]
    Twice(AgentName),
    /// There is no such agent.
    #[error("there is no agent named {0:?}")]
    Unknown(AgentName),
    /// The default agent serves the root endpoints and cannot be removed.
    #[error("the agent {0:?} is the default agent and cannot be removed")]
    IsDefault(AgentName),
}

impl Registry {
    /// A registry of these agents. `default` serves the requests that name no agent.
    pub(crate) fn new(
        agents: Vec<(Profile, Runner)>,
        default: AgentName,
    ) -> Result<Self, RegistryError> {
        let mut by_name = HashMap::new();
        for (profile, runner) in agents {
            add(&mut by_name, profile, runner)?;
        }
        if !by_name.contains_key(&default) {
            return Err(RegistryError::Unknown(default));
        }
        Ok(Self { agents: watch::Sender::new(Arc::new(Agents { by_name, default })) })
    }

    /// The agents now.
    pub(crate) fn snapshot(&self) -> Arc<Agents> {
        Arc::clone(&self.agents.borrow())
    }

    /// The agent of this name.
    pub(crate) fn get(&self, name: &AgentName) -> Option<Arc<AgentRuntime>> {
        self.agents.borrow().by_name.get(name).cloned()
    }

    /// The agent of requests that name none.
    pub(crate) fn default_agent(&self) -> Arc<AgentRuntime> {
        let agents = self.agents.borrow();
        Arc::clone(agents.by_name.get(&agents.default).expect("the default agent is never removed"))
    }

    /// Adds an agent.
    pub(crate) fn register(
        &self,
        profile: Profile,
        runner: Runner,
    ) -> Result<Arc<AgentRuntime>, RegistryError> {
        self.change(|agents| add(&mut agents.by_name, profile, runner))
    }

    /// Replaces the profile of an agent. The former runtime gets no further turns.
    pub(crate) fn update(&self, profile: Profile) -> Result<Arc<AgentRuntime>, RegistryError> {
        let (former, next) = self.change(|agents| {
            let name = profile.name.clone();
            let Some(former) = agents.by_name.get(&name) else {
                return Err(RegistryError::Unknown(name));
            };
            let former = Arc::clone(former);
            let next = Arc::new(former.with_profile(profile));
            agents.by_name.insert(name, Arc::clone(&next));
            Ok((former, next))
        })?;
        former.retire();
        Ok(next)
    }

    /// Removes an agent. Its running turns continue; it gets no further ones.
    pub(crate) fn remove(&self, name: &AgentName) -> Result<Arc<AgentRuntime>, RegistryError> {
        let removed = self.change(|agents| {
            if agents.default == *name {
                return Err(RegistryError::IsDefault(name.clone()));
            }
            agents.by_name.remove(name).ok_or_else(|| RegistryError::Unknown(name.clone()))
        })?;
        removed.retire();
        Ok(removed)
    }

    fn change<T>(
        &self,
        change: impl FnOnce(&mut Agents) -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let mut result = None;
        self.agents.send_if_modified(|agents| {
            let mut next = Agents::clone(agents);
            let changed = change(&mut next);
            let is_changed = changed.is_ok();
            if is_changed {
                *agents = Arc::new(next);
            }
            result = Some(changed);
            is_changed
        });
        result.expect("the closure runs once")
    }
}

impl Agents {
    /// The runtimes, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<AgentRuntime>> {
        self.by_name.values()
    }

    /// The runtimes in the order of their names.
    pub(crate) fn sorted(&self) -> Vec<&Arc<AgentRuntime>> {
        let mut sorted: Vec<_> = self.by_name.values().collect();
        sorted.sort_by(|one, other| one.profile.name.cmp(&other.profile.name));
        sorted
    }

    /// The agent that sends choose by this handler: that of the name, or the one that calls itself so.
    pub(crate) fn by_handler(&self, handler: &AgentName) -> Option<&Arc<AgentRuntime>> {
        self.by_name.get(handler).or_else(|| {
            let mut agents = self.by_name.values();
            agents.find(|runtime| runtime.profile.handler.as_ref() == Some(handler))
        })
    }

    /// True if the agent is registered.
    pub(crate) fn contains(&self, name: &AgentName) -> bool {
        self.by_name.contains_key(name)
    }
}

fn add(
    agents: &mut HashMap<AgentName, Arc<AgentRuntime>>,
    profile: Profile,
    runner: Runner,
) -> Result<Arc<AgentRuntime>, RegistryError> {
    let name = profile.name.clone();
    if !name.is_segment() {
        return Err(RegistryError::BadName(name));
    }
    if agents.contains_key(&name) {
        return Err(RegistryError::Twice(name));
    }
    if let Some(handler) = &profile.handler {
        let mut others = agents.values().map(|runtime| &runtime.profile);
        if others.any(|other| other.name == *handler || other.handler.as_ref() == Some(handler)) {
            return Err(RegistryError::Twice(handler.clone()));
        }
    }
    let runtime = Arc::new(AgentRuntime::new(profile, runner));
    agents.insert(name, Arc::clone(&runtime));
    Ok(runtime)
}
