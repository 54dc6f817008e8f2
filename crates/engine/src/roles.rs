//! Roles in line with the directory: a living worker of an unknown role brings the role, and a role that no
//! configuration declares goes with its last worker.

use std::sync::Arc;

use herald_protocol::AgentName;

use crate::{
    agents::{
        profile::{Agent, Profile},
        registry::RegistryError,
        runtime::Runner,
    },
    core::Core,
    directory::{
        RoleBase,
        declaration::{merged, role_profile},
    },
    store::{Declaration, MemberId},
    turns::dispatcher::Dispatcher,
    workers::{RoleSettings, Workers},
};

/// Creates a role for its first worker.
pub(crate) fn create(
    core: &Arc<Core>,
    name: &AgentName,
    first: &Declaration,
) -> Result<(), RegistryError> {
    let base = role_profile(name, first);
    Workers { core }.declare_role(base.clone(), RoleSettings::default())?;
    core.directory.add_role(name.clone(), RoleBase { base, is_declared: false });
    tracing::info!(role = %name, "a worker created a role");
    Ok(())
}

/// Describes a role by its living workers.
pub(crate) fn describe(core: &Arc<Core>, name: &AgentName) {
    let Some(role) = core.directory.role(name) else { return };
    let workers = core.directory.summary(name, core.alive_since());
    // The error says that the role is gone.
    let _ = Workers { core }.update_role(merged(&role, workers));
}

/// True if a role that no configuration declares has no living worker.
pub(crate) fn has_unserved(core: &Core) -> bool {
    let mut dynamic = core.directory.roles().into_iter().filter(|(_, role)| !role.is_declared);
    dynamic.any(|(name, _)| !core.directory.is_served(&name, core.alive_since()))
}

/// Brings the roles of this process in line with the directory. Returns true if a role went, of which the
/// store has to be told.
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
    for name in &served {
        restore(core, name);
    }
    // A declared role without workers has its own description again.
    for (name, _) in core.directory.roles() {
        describe(core, &name);
    }
    changed
}

/// Creates a role again that its stored workers created.
fn restore(core: &Arc<Core>, name: &AgentName) {
    if core.directory.role(name).is_some() || (Workers { core }).is_role(name) {
        return;
    }
    let workers = core.directory.of_role(name, core.alive_since());
    let Some(first) = workers.first() else { return };
    if let Err(error) = create(core, name, &first.registration.declaration) {
        tracing::warn!(role = %name, %error, "workers are registered for a role that cannot be served");
    }
}

/// Ends the session of a worker. The turns that it held are due again.
pub(crate) async fn end_session(core: &Arc<Core>, role: &AgentName, session: MemberId) {
    // The store has logged its error, and the lease of the worker ends without polls.
    let _ = core.store.leave(session).await;
    if let Some(pool) = core.registry.get(role).as_ref().and_then(|runtime| runtime.pool()) {
        pool.remove(session);
    }
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
        let runtime = self.registry.register(profile, Runner::Agent(agent))?;
        self.directory.add_remote(name.clone());
        Dispatcher::spawn(self, runtime);
        Ok(())
    }
}
