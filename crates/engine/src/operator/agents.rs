//! Registrations of workers and remote agents: register, heartbeat, remove, discover.

use std::sync::Arc;

use herald_protocol::{AgentName, Error, ErrorKind, Timestamp};

use crate::{
    agents::profile::{Agent, Profile},
    caller::Scopes,
    directory::{DirectoryUse, Listed, declaration, name},
    fault::refuse,
    heartbeat,
    operator::Operator,
    roles,
    store::{
        Declaration, MemberId, NewRegistration, Owner, PinnedCard, Registration, RegistrationName,
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

/// The most registrations of one principal and of one tenant; `usize::MAX` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegistrationLimits {
    /// Of one principal. All callers without credentials count as one.
    pub per_principal: usize,
    /// Of all principals of one tenant together.
    pub per_tenant: usize,
}

impl Default for RegistrationLimits {
    fn default() -> Self {
        Self { per_principal: 1000, per_tenant: usize::MAX }
    }
}

/// Filters of a list of registrations. Each applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RegistrationFilter {
    /// Only this role.
    pub role: Option<AgentName>,
    /// Only the registration of this name.
    pub name: Option<String>,
}

impl Operator<'_> {
    /// Registers a worker. Needs `work`, and `register` for a role that does not exist. The same name by the
    /// same principal is a new life of the worker, whose former turns are due again.
    pub async fn register_worker(
        &self,
        new: WorkerToRegister,
        limits: RegistrationLimits,
    ) -> Result<Registration, Error> {
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
        let size = DirectoryUse::of(&new.declaration, None);
        self.check_capacity(&full, size, limits)?;
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
    pub async fn register_remote(
        &self,
        new: NewRemoteAgent,
        limits: RegistrationLimits,
    ) -> Result<Registration, Error> {
        let role = self.check_remote(&new.role)?;
        declaration::check(&new.declaration)?;
        let core = self.core;
        let _changing = core.directory.changing.lock().await;
        self.check_remote_role(&role)?;
        let size = DirectoryUse::of(&new.declaration, Some(&new.card));
        self.check_capacity(role.as_str(), size, limits)?;
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
        let (directory, alive_since) = (&self.core.directory, self.core.alive_since());
        let mut found = match (&filter.name, &filter.role) {
            (Some(name), _) => directory.find(name, alive_since).into_iter().collect(),
            (None, Some(role)) => directory.of_role(role, alive_since),
            (None, None) => directory.all(alive_since),
        };
        found.retain(|Listed { registration, .. }| {
            let role = &registration.role;
            self.caller.may_use(role) && filter.role.as_ref().is_none_or(|wanted| wanted == role)
        });
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

    /// Refuses a registration of this size beyond a limit of the server, of its principal or of its tenant.
    fn check_capacity(
        &self,
        name: &str,
        size: DirectoryUse,
        limits: RegistrationLimits,
    ) -> Result<(), Error> {
        let (core, own) = (self.core, &self.caller.identity().owner);
        let (directory, alive_since) = (&core.directory, core.alive_since());
        let age = core.settings.discovery.max_age;
        // Without credentials the tenant is a name that anyone can choose.
        let is_anonymous = own.principal.is_empty();
        let is_own = |owner: &Owner| {
            if is_anonymous { owner.principal.is_empty() } else { owner == own }
        };
        let total = directory.total_without(name, alive_since);
        let principal = directory.use_without(name, alive_since, is_own);
        let is_tenant_limited = limits.per_tenant < usize::MAX && !is_anonymous;
        let tenant = if is_tenant_limited {
            let is_of_tenant = |owner: &Owner| owner.tenant == own.tenant;
            directory.use_without(name, alive_since, is_of_tenant)
        } else {
            DirectoryUse::default()
        };
        let counts = [
            ("this principal has", principal, limits.per_principal, "limits.caller"),
            ("this tenant has", tenant, limits.per_tenant, "limits.tenant"),
            ("the server has", total, core.settings.discovery.registrations, "discovery"),
        ];
        for (owner, used, most, section) in counts {
            if used.registrations >= most {
                let text = format!(
                    "too many registrations: {owner} {most}, which is the limit; remove some, or raise \
                     [{section}] registrations in herald.toml"
                );
                let limit = format!("{section}.registrations");
                return Err(exceeded(text, limit, most).retry_after(age));
            }
        }
        let memory = core.registration_memory();
        for (owner, used, most) in
            [("this principal has", principal, memory / 2), ("the server has", total, memory)]
        {
            if used.bytes.saturating_add(size.bytes) > most {
                let text = format!(
                    "the memory limit of registrations is exceeded: {owner} {most} bytes for their \
                     descriptions and cards; remove some, shorten this one, or raise [limits] memory in \
                     herald.toml"
                );
                return Err(exceeded(text, "limits.memory", most).retry_after(age));
            }
        }
        Ok(())
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

/// The error of a limit, which names it.
fn exceeded(text: String, limit: impl std::fmt::Display, value: usize) -> Error {
    Error::new(ErrorKind::LimitExceeded, text).with("limit", limit).with("value", value)
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
        Engine, Settings,
        caller::Caller,
        store::{DeclaredSkill, sqlite::Sqlite},
        workers::RoleSettings,
    };

    const LIMITS: RegistrationLimits =
        RegistrationLimits { per_principal: 1000, per_tenant: usize::MAX };

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
        engine_with(Settings::default()).await
    }

    async fn engine_with(settings: Settings) -> (Engine, Caller) {
        let builder = Engine::builder(Arc::new(Sqlite::memory().unwrap())).settings(settings);
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
            operator.register_worker(worker(number, "review"), LIMITS).await.unwrap();
            let name = format!("reviewer:host:{number}");
            operator.see_worker(&name, None).unwrap();
            operator.remove_agent(&name).await.unwrap();
            operator.register_worker(worker(number, "review"), LIMITS).await.unwrap();
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
            operator
                .register_worker(worker(number, &format!("skill-{number}")), LIMITS)
                .await
                .unwrap();
        }
        let error = operator.register_worker(worker(900, "another"), LIMITS).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        assert!(error.message.contains("256 skills"), "{}", error.message);
        operator.register_worker(worker(900, "skill-7"), LIMITS).await.unwrap();
    }
    /// A caller with the scopes of a worker.
    fn principal(tenant: &str, name: &str) -> Caller {
        Caller::new(tenant.into(), name, Scopes::WORK.with(Scopes::REGISTER))
    }

    #[tokio::test]
    async fn registrations_are_limited_by_principal_and_by_tenant() {
        let (engine, _) = engine().await;
        let (ann, bob) = (principal("acme", "ann"), principal("acme", "bob"));
        let limits = RegistrationLimits { per_principal: 3, per_tenant: 5 };
        let register = async |caller: &Caller, number| {
            engine.operator(caller).register_worker(worker(number, "review"), limits).await
        };
        let refused = |error: Error| {
            assert_eq!(error.kind, ErrorKind::LimitExceeded, "{error}");
            let limit = error.detail.unwrap().metadata["limit"].clone();
            assert!(error.message.contains("] registrations in herald.toml"), "{}", error.message);
            limit
        };
        for number in 0..3 {
            register(&ann, number).await.unwrap();
        }
        let error = register(&ann, 3).await.unwrap_err();
        assert_eq!(refused(error), "limits.caller.registrations");
        register(&ann, 2).await.expect("a new life of a worker is no further registration");
        register(&bob, 10).await.unwrap();
        register(&bob, 11).await.unwrap();
        let error = register(&bob, 12).await.unwrap_err();
        assert_eq!(refused(error), "limits.tenant.registrations");
        engine.operator(&ann).remove_agent("reviewer:host:0").await.unwrap();
        register(&bob, 12).await.unwrap();
        // Without credentials a caller chooses its tenant.
        for number in 20..23 {
            let caller = Caller::anonymous(format!("tenant-{number}").as_str().into());
            register(&caller, number).await.unwrap();
        }
        let error = register(&Caller::anonymous("more".into()), 23).await.unwrap_err();
        assert_eq!(refused(error), "limits.caller.registrations");
    }

    #[tokio::test]
    async fn the_texts_of_registrations_count_as_memory() {
        let settings = Settings { memory: 16 << 20, ..Settings::default() };
        let (engine, _) = engine_with(settings).await;
        let large = |number| {
            let mut new = worker(number, "review");
            new.declaration.skills[0].examples = vec!["x".repeat(4000); 15];
            new
        };
        let fill = async |caller: &Caller, from: usize| {
            let operator = engine.operator(caller);
            for number in from.. {
                if let Err(error) = operator.register_worker(large(number), LIMITS).await {
                    assert_eq!(error.kind, ErrorKind::LimitExceeded);
                    assert!(error.message.contains("[limits] memory"), "{}", error.message);
                    return number - from;
                }
            }
            unreachable!("the memory is limited")
        };
        let (ann, bob, eve) =
            (principal("acme", "ann"), principal("acme", "bob"), principal("other", "eve"));
        // A mebibyte is for registrations, and one of these takes twice 60 kB and a little more.
        assert_eq!(fill(&ann, 0).await, 4, "a principal has half of it");
        engine.operator(&ann).register_worker(large(3), LIMITS).await.expect("it is replaced");
        assert_eq!(fill(&bob, 100).await, 4);
        assert_eq!(fill(&eve, 200).await, 0, "all of it is used");
        engine.operator(&ann).remove_agent("reviewer:host:0").await.unwrap();
        assert_eq!(fill(&eve, 200).await, 1);
    }
}
