//! Registrations of workers and remote agents: register, heartbeat, remove, discover.

use std::sync::Arc;

use herald_protocol::{AgentName, Error, ErrorKind, Timestamp};

use crate::{
    agents::profile::{Agent, Profile},
    caller::Scopes,
    directory::{Listed, declaration, name},
    fault::refuse,
    heartbeat,
    operator::Operator,
    roles,
    store::{
        Declaration, MemberId, NewRegistration, PinnedCard, Registration, RegistrationName,
        StoreError,
    },
    workers::{NewWorker, Workers},
};

/// A worker to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerToRegister {
    /// The role.
    pub role: String,
    /// The instance id, `host:id`; made here if it is missing.
    pub instance: Option<String>,
    /// The name, which must be the role, a colon and the instance id.
    pub name: Option<String>,
    /// Its description of itself.
    pub declaration: Declaration,
}

/// A remote agent to register, whose card was fetched and checked.
#[derive(Debug)]
pub struct NewRemoteAgent {
    /// The role: the name by which messages reach it here.
    pub role: String,
    /// Its card.
    pub card: PinnedCard,
    /// The content of its card.
    pub declaration: Declaration,
    /// The profile and the agent that forwards messages.
    pub agent: (Profile, Arc<dyn Agent>),
}

/// Filters of a list of registrations. Each applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrationFilter {
    /// Only this role.
    pub role: Option<AgentName>,
}

impl Operator<'_> {
    /// Registers a worker. Needs `work`, and `register` for a role that does not exist. The same name by the
    /// same principal is a new life of the worker, whose former turns are due again.
    pub async fn register_worker(&self, new: WorkerToRegister) -> Result<Registration, Error> {
        let role = name::check_role(&new.role)?;
        let instance = new.instance.unwrap_or_else(new_instance);
        name::check_instance(&instance)?;
        if let Some(given) = &new.name {
            name::check_name(given, &role, &instance)?;
        }
        declaration::check(&new.declaration)?;
        self.caller.require(Scopes::WORK, "working on tasks")?;
        self.caller.require_agent(&role)?;
        let core = self.core;
        let _changing = core.directory.changing.lock().await;
        let is_new_role = self.check_role(&role)?;
        let full = format!("{role}:{instance}");
        self.check_capacity(&full)?;
        self.check_words(&role, &new.declaration)?;
        let known = core.directory.find(&full, core.alive_since());
        if known.is_some_and(|one| one.registration.owner != self.caller.identity().owner) {
            return Err(taken(&full));
        }
        if is_new_role {
            let created = roles::create(core, &role, &new.declaration);
            created.map_err(|error| Error::field("role", error.to_string()))?;
        }
        let registered = self.join(&role, instance, new.declaration).await;
        if registered.is_err() && is_new_role {
            // The role has no worker.
            roles::reconcile(core);
        }
        registered
    }

    /// Begins a session of a worker and stores its registration.
    async fn join(
        &self,
        role: &AgentName,
        instance: String,
        declaration: Declaration,
    ) -> Result<Registration, Error> {
        let core = self.core;
        let worker = NewWorker {
            role: role.clone(),
            instance: instance.clone(),
            concurrency: declaration.concurrency as usize,
            labels: declaration.labels.clone(),
        };
        let session = Workers { core }.join(self.caller, worker).await?;
        let now = core.now();
        let registration = Registration {
            name: session.name.into(),
            role: role.clone(),
            instance,
            owner: self.caller.identity().owner.clone(),
            declaration,
            session: Some(session.session),
            card: None,
            created: now,
            last_seen: now,
        };
        if let Err(error) = self.put(registration.clone()).await {
            roles::end_session(core, role, session.session).await;
            return Err(error);
        }
        core.directory.add(registration.clone());
        roles::describe(core, role);
        let (name, principal) = (&registration.name, &registration.owner.principal);
        tracing::info!(worker = %name, %principal, "a worker is registered");
        Ok(registration)
    }

    /// Registers a remote agent under a role that nothing else has, or renews the pinned card of one. Needs
    /// `register`.
    pub async fn register_remote(&self, new: NewRemoteAgent) -> Result<Registration, Error> {
        let role = self.check_remote(&new.role)?;
        declaration::check(&new.declaration)?;
        let core = self.core;
        let _changing = core.directory.changing.lock().await;
        self.check_remote_role(&role)?;
        self.check_capacity(role.as_str())?;
        let now = core.now();
        let registration = Registration {
            name: role.as_str().into(),
            role: role.clone(),
            instance: String::new(),
            owner: self.caller.identity().owner.clone(),
            declaration: new.declaration,
            session: None,
            card: Some(new.card),
            created: now,
            last_seen: now,
        };
        self.put(registration.clone()).await?;
        core.directory.add(registration.clone());
        core.serve_remote(&role, new.agent)
            .map_err(|error| Error::field("role", error.to_string()))?;
        heartbeat::announce(self.core);
        tracing::info!(agent = %role, principal = %registration.owner.principal, "a remote agent is registered");
        Ok(registration)
    }

    /// Checks that the caller may register agents. Needs `register`.
    pub fn check_may_register(&self) -> Result<(), Error> {
        self.caller.require(Scopes::REGISTER, "registering agents")
    }

    /// Checks that the caller may register a remote agent under this role, before its card is fetched. Needs
    /// `register`.
    pub fn check_remote(&self, role: &str) -> Result<AgentName, Error> {
        let role = name::check_role(role)?;
        self.check_may_register()?;
        self.caller.require_agent(&role)?;
        self.check_remote_role(&role)?;
        Ok(role)
    }

    /// Notes a sign of life of a worker, and returns its time. Needs `work` and the principal that registered the
    /// worker. A worker that is not registered, or has another session, is told to register again.
    pub fn see_worker(&self, name: &str, session: Option<MemberId>) -> Result<Timestamp, Error> {
        self.caller.require(Scopes::WORK, "working on tasks")?;
        let (now, alive_since) = (self.core.now(), self.core.alive_since());
        let listed = self.core.directory.find(name, alive_since);
        // A worker of another principal is not found, so that names cannot be probed.
        let listed = listed.filter(|one| self.may_change(&one.registration));
        let listed = listed.filter(|one| one.registration.card.is_none());
        let listed = listed.ok_or_else(|| unknown(name))?;
        self.caller.require_agent(&listed.registration.role)?;
        if session.is_some() && session != listed.registration.session {
            return Err(unknown(name));
        }
        if self.core.directory.see(name, now, alive_since) { Ok(now) } else { Err(unknown(name)) }
    }

    /// Removes a worker, a remote agent, or a role that workers created. Needs the principal that registered it,
    /// with `work` for a worker and `register` for others, or `admin`.
    pub async fn remove_agent(&self, name: &str) -> Result<Vec<Registration>, Error> {
        let core = self.core;
        let _changing = core.directory.changing.lock().await;
        let role = AgentName::from(name);
        let all = match core.directory.find(name, core.alive_since()) {
            Some(one) => vec![one],
            None => core.directory.of_role(&role, core.alive_since()),
        };
        let all: Vec<_> = all.into_iter().map(|one| one.registration).collect();
        let mine = |one: &Arc<Registration>| self.may_change(one) && self.caller.may_use(&one.role);
        if all.is_empty() || !all.iter().all(mine) {
            let text = format!(
                "no worker or remote agent {name:?} is registered, or not by this principal"
            );
            return Err(Error::new(ErrorKind::ResourceNotFound, text));
        }
        if !self.caller.identity().scopes.contains(Scopes::ADMIN) {
            let is_worker = name.contains(':');
            let scope = if is_worker { Scopes::WORK } else { Scopes::REGISTER };
            self.caller.require(scope, "removing this registration")?;
        }
        let mut removed = Vec::new();
        for one in all {
            let owner = Some(one.owner.clone());
            let audit = self.entry("agent.remove").on("agent", Arc::clone(&one.name), owner);
            core.store.remove_registration(&one.name, audit).await.map_err(refuse)?;
            core.directory.take(&one.name);
            if let Some(session) = one.session {
                roles::end_session(core, &one.role, session).await;
            }
            if one.card.is_some() {
                // The error says that it is gone already.
                let _ = core.registry.remove(&one.role);
            }
            tracing::info!(name = %one.name, "a registration is removed");
            removed.push(Registration::clone(&one));
        }
        if roles::reconcile(core) || removed.iter().any(|one| one.card.is_some()) {
            heartbeat::announce(self.core);
        }
        Ok(removed)
    }

    /// The living workers and the remote agents whose role the caller may use, by name. Needs `read`.
    pub fn registrations(&self, filter: &RegistrationFilter) -> Result<Vec<Listed>, Error> {
        self.caller.require(Scopes::READ, "listing agents")?;
        // A role whose last worker is stale leaves the registry now, and not with the next sweep.
        if roles::has_unserved(self.core) && roles::reconcile(self.core) {
            heartbeat::announce(self.core);
        }
        let mut found = match &filter.role {
            Some(role) => self.core.directory.of_role(role, self.core.alive_since()),
            None => self.core.directory.all(self.core.alive_since()),
        };
        found.retain(|one| self.caller.may_use(&one.registration.role));
        Ok(found)
    }

    /// True if the caller registered it, or administers the server.
    fn may_change(&self, registration: &Registration) -> bool {
        let identity = self.caller.identity();
        registration.owner == identity.owner || identity.scopes.contains(Scopes::ADMIN)
    }

    /// True if the role does not exist yet, which the caller may then create.
    fn check_role(&self, role: &AgentName) -> Result<bool, Error> {
        if (Workers { core: self.core }).is_role(role) {
            return Ok(false);
        }
        if self.core.registry.get(role).is_some() {
            let text =
                "names an agent that this server runs itself; workers need a role of another name";
            return Err(Error::field("role", text));
        }
        self.caller.require(Scopes::REGISTER, "creating a role")?;
        Ok(true)
    }

    /// Refuses a role that something else than a remote agent of this principal has.
    fn check_remote_role(&self, role: &AgentName) -> Result<(), Error> {
        match self.core.directory.find(role.as_str(), self.core.alive_since()) {
            Some(known) if known.registration.card.is_some() => {
                if self.may_change(&known.registration) { Ok(()) } else { Err(taken(role)) }
            }
            Some(_) | None if self.core.registry.get(role).is_some() => {
                let text = "is used already by another agent of this server; choose another name";
                Err(Error::field("role", text))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_capacity(&self, name: &str) -> Result<(), Error> {
        let (directory, limit) = (&self.core.directory, self.core.settings.discovery.registrations);
        let alive_since = self.core.alive_since();
        if directory.len(alive_since) < limit || directory.find(name, alive_since).is_some() {
            return Ok(());
        }
        let text = format!(
            "the server has its {limit} registrations: remove some, or raise [discovery] registrations"
        );
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }

    /// Refuses a worker with which the card of its role would be too large.
    fn check_words(&self, role: &AgentName, declaration: &Declaration) -> Result<(), Error> {
        let most = declaration::MAX_ROLE_WORDS;
        if self.core.directory.words_with(role, declaration) <= most {
            return Ok(());
        }
        let text = format!(
            "with this worker the role {role} would have more than {most} skills or media types: use the ids of \
             its other workers, or another role"
        );
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }

    /// Stores a registration with its audit record.
    async fn put(&self, registration: Registration) -> Result<(), Error> {
        let name = RegistrationName::clone(&registration.name);
        let owner = Some(registration.owner.clone());
        let mut audit = self.entry("agent.register").on("agent", Arc::clone(&name), owner);
        if let Some(card) = &registration.card {
            let url = serde_json::to_string(&card.url).expect("a text is valid JSON");
            audit.detail = format!(r#"{{"card_url":{url},"digest":"{}"}}"#, card.digest).into();
        }
        let alive_since = self.core.alive_since();
        let new = NewRegistration { registration, alive_since, audit };
        match self.core.store.put_registration(new).await {
            Ok(_) => Ok(()),
            Err(StoreError::Conflict) => Err(taken(&name)),
            Err(error) => Err(refuse(error)),
        }
    }
}

/// An instance id for a worker that gives none.
fn new_instance() -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("worker:{}", &id[..12])
}

fn taken(name: impl std::fmt::Display) -> Error {
    let text = format!(
        "the name \"{name}\" is registered by another principal and is in use; choose another instance id"
    );
    Error::new(ErrorKind::WorkerNameTaken, text)
}

/// The error for a worker that has to register again.
fn unknown(name: &str) -> Error {
    let text = format!(
        "no worker {name:?} is registered here: it was not seen for too long, was removed, or has another \
         session; register again"
    );
    Error::new(ErrorKind::WorkerUnknown, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Engine,
        caller::Caller,
        store::{DeclaredSkill, sqlite::Sqlite},
        workers::RoleSettings,
    };

    fn worker(number: usize, skill: &str) -> WorkerToRegister {
        let skill = DeclaredSkill { id: skill.to_owned(), ..DeclaredSkill::default() };
        let declaration = Declaration {
            description: format!("worker {number}"),
            skills: vec![skill],
            ..Declaration::default()
        };
        let instance = Some(format!("host:{number}"));
        WorkerToRegister { role: "reviewer".to_owned(), instance, name: None, declaration }
    }

    async fn engine() -> (Engine, Caller) {
        let builder = Engine::builder(Arc::new(Sqlite::memory().unwrap()));
        let role = Profile::new("other", "Is declared");
        let engine = builder.role(role, RoleSettings::default()).build().unwrap();
        engine.start_work().await.unwrap();
        (engine, Caller::anonymous("".into()))
    }

    /// Counts the registrations that are read, and no time: a registration, a sign of life and a removal read as
    /// many with one worker as with hundreds.
    #[tokio::test]
    async fn the_cost_of_a_registration_does_not_grow_with_the_workers_of_its_role() {
        let (engine, caller) = engine().await;
        let operator = engine.operator(&caller);
        let mut costs = Vec::new();
        for number in 0..300 {
            let before = engine.core.directory.reads();
            operator.register_worker(worker(number, "review")).await.unwrap();
            let name = format!("reviewer:host:{number}");
            operator.see_worker(&name, None).unwrap();
            operator.remove_agent(&name).await.unwrap();
            operator.register_worker(worker(number, "review")).await.unwrap();
            costs.push(engine.core.directory.reads() - before);
        }
        assert!(costs[0] > 0, "nothing is counted");
        // The first one also creates the role, and removes it again.
        assert_eq!(costs[299], costs[1], "{costs:?}");
        let profile = engine.profile(Some(&"reviewer".into())).unwrap();
        assert_eq!((profile.concurrency, profile.skills.len()), (300, 1));
    }

    #[tokio::test]
    async fn a_role_has_a_limited_number_of_skills() {
        let (engine, caller) = engine().await;
        let operator = engine.operator(&caller);
        for number in 0..declaration::MAX_ROLE_WORDS {
            operator.register_worker(worker(number, &format!("skill-{number}"))).await.unwrap();
        }
        let error = operator.register_worker(worker(900, "another")).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        assert!(error.message.contains("256 skills"), "{}", error.message);
        operator.register_worker(worker(900, "skill-7")).await.unwrap();
    }
}
