//! Roles: agents whose turns run on workers. They follow the directory: a living worker of an unknown role
//! brings the role, and a role that no configuration declares goes with its last worker.

use std::sync::Arc;

use herald_protocol::AgentName;

use crate::{
    agents::{
        profile::{Agent, Profile},
        registry::RegistryError,
    },
    core::Core,
    directory::{
        Role,
        declaration::{merged, role_profile},
    },
    turns::dispatcher::Dispatcher,
};

/// Declares a role here, and starts its dispatcher.
pub(crate) fn declare(
    core: &Arc<Core>,
    profile: Profile,
    is_declared: bool,
) -> Result<(), RegistryError> {
    let name = profile.name.clone();
    let runtime = core.registry.register(profile.clone(), Arc::new(seam::Unserved))?;
    core.directory.add_role(name, Role { base: profile, is_declared });
    Dispatcher::spawn(core, runtime);
    Ok(())
}

/// Describes a role by its living workers.
pub(crate) fn describe(core: &Core, name: &AgentName) {
    let Some(role) = core.directory.role(name) else { return };
    let workers = core.directory.of_role(name, core.alive_since());
    if let Some(runtime) = core.registry.get(name) {
        runtime.describe(merged(&role, &workers));
    }
}

/// Brings the roles of this process in line with the directory. Returns true if a role came or went, of which
/// the store has to be told.
pub(crate) fn reconcile(core: &Arc<Core>) -> bool {
    let served = core.directory.served_roles(core.alive_since());
    let mut changed = false;
    for (name, role) in core.directory.roles() {
        if role.is_declared || served.contains(&name) {
            continue;
        }
        tracing::info!(role = %name, "the last worker of a role is gone: its endpoints end, its tasks wait");
        core.directory.take_role(&name);
        // The error says that it is gone already.
        changed |= core.registry.remove(&name).is_ok();
    }
    for name in served {
        if core.directory.role(&name).is_none() {
            changed |= restore(core, &name);
        }
        describe(core, &name);
    }
    // A declared role without workers has its own description again.
    for (name, _) in core.directory.roles() {
        describe(core, &name);
    }
    changed
}

/// Declares a role that its stored workers created.
fn restore(core: &Arc<Core>, name: &AgentName) -> bool {
    let workers = core.directory.of_role(name, core.alive_since());
    let Some(first) = workers.first() else { return false };
    let profile = role_profile(name, &first.registration.declaration);
    let declared = declare(core, profile, false);
    if let Err(error) = &declared {
        tracing::warn!(role = %name, %error, "workers are registered for a role that cannot be served");
    }
    declared.is_ok()
}

impl Core {
    /// Serves a remote agent, in place of an earlier version of it.
    pub(crate) fn serve_remote(
        self: &Arc<Self>,
        name: &AgentName,
        (profile, agent): (Profile, Arc<dyn Agent>),
    ) -> Result<(), RegistryError> {
        if self.directory.is_remote(name) {
            // The error says that it is gone already.
            let _ = self.registry.remove(name);
        }
        let runtime = self.registry.register(profile, agent)?;
        self.directory.add_remote(name.clone());
        Dispatcher::spawn(self, runtime);
        Ok(())
    }
}

/// A stand-in until turns run on workers.
mod seam {
    use async_trait::async_trait;

    use crate::{
        agents::{error::AgentError, profile::Agent},
        turns::turn::Turn,
    };

    #[derive(Debug)]
    pub(super) struct Unserved;

    #[async_trait]
    impl Agent for Unserved {
        async fn run(&self, _: &Turn) -> Result<(), AgentError> {
            Err(AgentError::Unavailable("no worker".to_owned()))
        }
    }
}
