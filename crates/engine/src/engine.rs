//! Engine handle: calls, feeds, agents, and start and stop.

use std::{sync::Arc, time::Duration};

use herald_protocol::{AgentName, Error, Request, TaskId, Timestamp};

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use crate::{
    agents::{
        profile::{Agent, Profile},
        registry::RegistryError,
        runtime::Runner,
    },
    audit::Act,
    budget::{MemoryBudget, Reservation},
    caller::{AgentRoute, Caller},
    changes,
    core::Core,
    directory::Listed,
    fault::{refuse, shutting_down},
    heartbeat,
    janitor::Janitor,
    operator::Operator,
    ops::{
        cancel, get, list, push,
        reply::Reply,
        send::{StoreGuard, Wish, accept},
        subscribe,
    },
    read::feed::Feed,
    roles,
    settings::Settings,
    store::{ApiKey, ApiKeyId, ApiKeyQuery, AuditSubject, Owner, Position, Scope, Usage},
    turns::{
        dispatcher::Dispatcher,
        recovery::{self, QueuedTasks},
    },
    webhooks::deliverer::Deliverer,
    workers::Workers,
};

/// A cheap handle; clones share one engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) core: Arc<Core>,
}

impl Engine {
    pub(crate) fn new(core: Core) -> Self {
        Self { core: Arc::new(core) }
    }

    /// Answers one call. Every binding ends here.
    pub async fn call(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        request: Request,
    ) -> Result<Reply, Error> {
        self.call_holding(caller, route, request, None, None).await
    }

    /// Answers one call whose request holds memory or a part of a limit. Both are returned as soon as the
    /// request is stored, however long the answer takes. If the caller hangs up before, the guard is held
    /// until the write has ended.
    pub async fn call_holding(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        request: Request,
        reservation: Option<Reservation>,
        guard: Option<StoreGuard>,
    ) -> Result<Reply, Error> {
        caller.authorise(request.operation(), route)?;
        let Some(owner) = caller.acting_for() else {
            return self.answer(caller, route, request, reservation, guard).await;
        };
        let operator = self.operator(caller);
        let (action, subject, writes) = act_of(owner, &request);
        let act = Act { subject: Some(subject.clone()), ..operator.act(action) };
        if writes {
            // Durably and before it is done, so that no write goes without a record.
            operator.record(action, Some(subject), "").await?;
        }
        let reply = Box::pin(self.answer(caller, route, request, reservation, guard)).await;
        match &reply {
            Err(error) => self.core.acts.add(act.refused(error.message.as_str())),
            Ok(_) if !writes => self.core.acts.add(act),
            Ok(_) => {}
        }
        reply
    }

    /// Answers an authorised call.
    async fn answer(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        request: Request,
        reservation: Option<Reservation>,
        guard: Option<StoreGuard>,
    ) -> Result<Reply, Error> {
        let (core, operation) = (&self.core, request.operation());
        core.check_extensions(route)?;
        match request {
            Request::SendMessage(send) => {
                let wish = Wish::of(&send);
                let accepted =
                    Box::pin(accept(core, caller, route, send, guard, operation)).await?;
                drop(reservation);
                let validity = &caller.identity().validity;
                validity.within(accepted.outcome(core, wish)).await.map(Reply::Sent)
            }
            Request::SendStreamingMessage(send) => {
                let wish = Wish::of(&send);
                let accepted =
                    Box::pin(accept(core, caller, route, send, guard, operation)).await?;
                drop(reservation);
                let events = accepted.stream(core, wish).await?;
                Ok(Reply::Stream(events.valid_for(caller)))
            }
            Request::GetTask(get) => get::get(core, caller, route, get).await.map(Reply::Task),
            Request::ListTasks(list) => {
                list::list(core, caller, route, list).await.map(Reply::Tasks)
            }
            Request::CancelTask(cancel) => {
                cancel::cancel(core, caller, route, cancel).await.map(Reply::Task)
            }
            Request::SubscribeToTask(subscribe) => {
                let events = subscribe::subscribe(core, caller, route, subscribe).await?;
                Ok(Reply::Stream(events.valid_for(caller)))
            }
            Request::CreateTaskPushNotificationConfig(config) => {
                push::create(core, caller, route, config).await.map(Reply::PushConfig)
            }
            Request::GetTaskPushNotificationConfig(wanted) => {
                push::get(core, caller, route, wanted).await.map(Reply::PushConfig)
            }
            Request::ListTaskPushNotificationConfigs(list) => {
                push::list(core, caller, route, list).await.map(Reply::PushConfigs)
            }
            Request::DeleteTaskPushNotificationConfig(named) => {
                push::delete(core, caller, route, named).await.map(|()| Reply::Deleted)
            }
            Request::GetExtendedAgentCard(_) => {
                let runtime = match &route.agent {
                    Some(agent) => core.runtime(agent)?,
                    None => core.registry.default_agent(),
                };
                caller.require_agent(&runtime.profile.name)?;
                runtime.profile.for_caller(caller).map(Box::new).map(Reply::ExtendedCard)
            }
        }
    }

    /// Follows every task of the caller on this route, or only `tasks`: from now on, or from the event
    /// after a position that an earlier feed returned.
    ///
    /// The events of tasks that retention has removed are missing; no others are.
    pub async fn follow(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        tasks: Vec<TaskId>,
        after: Option<Position>,
    ) -> Result<Feed, Error> {
        Feed::open(&self.core, caller, route, tasks, after).await
    }

    /// True if callers may register webhooks for tasks of an agent with this profile.
    pub fn has_push(&self, profile: &Profile) -> bool {
        profile.push && self.core.webhooks.sender.is_some()
    }

    /// The profiles of the agents, in the order of their names.
    pub fn profiles(&self) -> Vec<Arc<Profile>> {
        let agents = self.core.registry.snapshot();
        agents.sorted().into_iter().map(|runtime| Arc::clone(&runtime.profile)).collect()
    }

    /// One agent's profile; `None` names the default agent.
    pub fn profile(&self, name: Option<&AgentName>) -> Option<Arc<Profile>> {
        match name {
            Some(name) => self.core.registry.get(name).map(|runtime| Arc::clone(&runtime.profile)),
            None => Some(Arc::clone(&self.core.registry.default_agent().profile)),
        }
    }

    /// Registers an agent at run time. Its endpoints answer from now on, and its waiting tasks, if an
    /// agent of this name had any, begin.
    pub fn register(&self, profile: Profile, agent: Arc<dyn Agent>) -> Result<(), RegistryError> {
        let runtime = self.core.registry.register(profile, Runner::Agent(agent))?;
        Dispatcher::spawn(&self.core, runtime);
        heartbeat::announce(&self.core);
        Ok(())
    }

    /// Removes an agent at run time. Its endpoints are gone at once, its running turns continue, and
    /// its queued tasks are treated as `queued` says.
    pub async fn remove(&self, name: &AgentName, queued: QueuedTasks) -> Result<(), RegistryError> {
        self.core.registry.remove(name)?;
        heartbeat::announce(&self.core);
        recovery::treat_queued(&self.core, name, queued).await;
        Ok(())
    }

    /// The roles and their workers.
    pub fn workers(&self) -> Workers<'_> {
        Workers { core: &self.core }
    }

    /// True if the agent is there for messages now: a role has a living worker.
    pub fn is_available(&self, name: &AgentName) -> bool {
        !self.workers().is_role(name) || self.workers().is_served(name)
    }

    /// The remote agents that are registered, for the host, which makes the agents that forward to them.
    pub fn remote_agents(&self) -> Vec<Listed> {
        let mut all = self.core.directory.all(self.core.alive_since());
        all.retain(|one| one.registration.card.is_some());
        all
    }

    /// Serves a remote agent that is registered, in place of an earlier version of it.
    pub fn serve_remote(
        &self,
        name: &AgentName,
        agent: (Profile, Arc<dyn Agent>),
    ) -> Result<(), RegistryError> {
        self.core.serve_remote(name, agent)?;
        heartbeat::announce(&self.core);
        Ok(())
    }

    /// Ends the endpoints of remote agents that another node removed.
    pub fn end_removed_remotes(&self) {
        for name in self.core.directory.removed_remotes() {
            // The error says that it is gone already.
            let _ = self.core.registry.remove(&name);
            heartbeat::announce(&self.core);
        }
    }

    /// Records that a remote agent was found with its pinned card (`None`), or with another card, which is not
    /// followed.
    pub async fn record_card(&self, name: &str, changed_to: Option<String>) -> Result<(), Error> {
        let core = &self.core;
        let found = core.directory.find(name, core.alive_since());
        let Some(card) = found.and_then(|one| one.registration.card.clone()) else { return Ok(()) };
        if card.changed_to != changed_to {
            let recorded = core.store.record_card_change(name, changed_to.clone()).await;
            recorded.map_err(refuse)?;
            core.directory.change_card(name, changed_to.clone());
            if changed_to.is_some() {
                core.directory.changed_cards.count();
            }
        }
        core.directory.see(name, core.now(), core.alive_since());
        Ok(())
    }

    /// Checks that a call would be served now.
    pub async fn ready(&self) -> Result<(), Error> {
        if self.is_draining() {
            return Err(shutting_down());
        }
        self.core.store.probe().await.map_err(refuse)
    }

    /// Reads and writes beyond the protocol, for this caller.
    pub fn operator<'a>(&'a self, caller: &'a Caller) -> Operator<'a> {
        Operator { core: &self.core, caller }
    }

    /// Records a refused call in the audit log. Equal refusals of a second become one record. It
    /// never waits.
    pub fn record_refusal(&self, act: Act) {
        self.core.acts.add(act);
    }

    /// The API key whose secret has this hash, for an authenticator. It may be revoked or expired.
    pub async fn find_key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, Error> {
        self.core.store.find_key_by_hash(hash).await.map_err(refuse)
    }

    /// The API key with this id, for an authenticator that holds an older copy.
    pub async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, Error> {
        self.core.store.find_key(id).await.map_err(refuse)
    }

    /// True if there are API keys, valid or not.
    pub async fn has_keys(&self) -> Result<bool, Error> {
        let query = ApiKeyQuery { tenant: None, after: None, limit: 1 };
        let keys = self.core.store.list_keys(query).await.map_err(refuse)?;
        Ok(!keys.is_empty())
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.core.settings
    }

    /// The time now, by the clock of the engine.
    pub fn now(&self) -> Timestamp {
        self.core.now()
    }

    /// Notes the use of an API key. It is stored with those of other keys, at most a minute later.
    pub fn record_key_use(&self, id: &ApiKeyId) {
        self.core.key_uses.add(id, self.core.now());
    }

    /// Notifies when API keys may have been created or revoked, here or by another member. A
    /// notification may be lost, so that a holder of copies also has to read them again
    /// periodically.
    pub fn key_changes(&self) -> watch::Receiver<()> {
        self.core.key_changes.subscribe()
    }

    /// The stored tasks in a scope, in numbers.
    pub async fn usage(&self, scope: &Scope) -> Result<Usage, Error> {
        self.core.store.usage(scope).await.map_err(refuse)
    }

    /// The memory budget of requests while they are read, decoded and stored: each reserves
    /// [`budget::BYTES_PER_REQUEST_BYTE`](crate::budget::BYTES_PER_REQUEST_BYTE) times its size.
    pub fn requests(&self) -> &Arc<MemoryBudget> {
        &self.core.requests
    }

    /// Starts the dispatchers and the janitor. The dispatchers also claim the turns that an earlier
    /// process left unfinished.
    pub async fn start_work(&self) -> Result<(), Error> {
        // The store has logged its error, and the first write tries again.
        let _ = self.core.member().await;
        // A start on a damaged queue fails here, instead of leaving tasks that nobody ever claims.
        self.core.store.agents_unserved().await.map_err(refuse)?;
        self.core.directory.load(&*self.core.store, self.core.now()).await.map_err(refuse)?;
        if roles::reconcile(&self.core) {
            heartbeat::announce(&self.core);
        }
        for runtime in self.core.registry.snapshot().iter() {
            Dispatcher::spawn(&self.core, Arc::clone(runtime));
        }
        self.core.work.spawn(Janitor::new(&self.core).run());
        if let Some(sender) = &self.core.webhooks.sender {
            self.core.work.spawn(Deliverer::new(&self.core, Arc::clone(sender)).run());
        }
        // Apart from the work that a shutdown waits for.
        TaskTracker::new().spawn(heartbeat::keep_alive(Arc::clone(&self.core)));
        TaskTracker::new().spawn(changes::follow_others(Arc::clone(&self.core)));
        let core = Arc::clone(&self.core);
        TaskTracker::new().spawn(async move {
            tokio::select! {
                () = core.acts.run(&*core.store) => {}
                () = core.left.cancelled() => {}
            }
        });
        Ok(())
    }

    /// Sends a heartbeat to the store and looks for members that died. The engine does so periodically.
    pub async fn heartbeat(&self) -> Result<(), Error> {
        self.core.heartbeat().await.map(|_| ()).map_err(refuse)
    }

    /// Fails tasks whose caller did not answer in time and removes tasks by the retention rules. The
    /// janitor does so periodically.
    pub async fn sweep(&self) -> Result<(), Error> {
        Janitor::new(&self.core).sweep().await
    }

    /// Stops claiming tasks, ends every stream so that it can be resumed, and waits at most `grace` for
    /// running turns. The next start claims the turns that are unfinished then.
    pub async fn drain(&self, grace: Duration) {
        let core = &self.core;
        core.draining.cancel();
        core.cache.wake_all();
        core.wakers.wake_all();
        core.work.close();
        if tokio::time::timeout(grace, core.work.wait()).await.is_err() {
            tracing::warn!("some turns did not finish in time; the next start continues them");
        }
        // The store has logged its error.
        let _ = core.acts.flush(&*core.store).await;
        let _ = core.key_uses.flush(&*core.store).await;
        let _ = core.directory.flush(&*core.store).await;
        core.left.cancel();
        core.leave().await;
    }

    /// The agents with running turns, by name, each with the number of its turns.
    pub fn at_work(&self) -> Vec<(AgentName, usize)> {
        let agents = self.core.registry.snapshot();
        let running = agents.sorted().into_iter();
        let running = running.map(|runtime| (runtime.profile.name.clone(), runtime.turns()));
        running.filter(|(_, turns)| *turns > 0).collect()
    }

    /// True once the engine shuts down.
    pub fn is_draining(&self) -> bool {
        self.core.is_draining()
    }

    /// Waits until the engine is shutting down.
    pub async fn draining(&self) {
        self.core.draining.cancelled().await;
    }
}

/// The name in the audit log and the object of a call for an owner, and true if the call changes a task.
fn act_of(owner: &Owner, request: &Request) -> (&'static str, AuditSubject, bool) {
    let (action, task, writes) = match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            ("task.send", send.message.task_id.as_ref(), true)
        }
        Request::GetTask(get) => ("task.read", Some(&get.id), false),
        Request::ListTasks(_) => ("task.list", None, false),
        Request::CancelTask(cancel) => ("task.cancel", Some(&cancel.id), true),
        Request::SubscribeToTask(subscribe) => ("task.follow", Some(&subscribe.id), false),
        Request::CreateTaskPushNotificationConfig(config) => {
            ("task.push", config.task_id.as_ref(), true)
        }
        Request::DeleteTaskPushNotificationConfig(named) => {
            ("task.push", Some(&named.task_id), true)
        }
        Request::GetTaskPushNotificationConfig(wanted) => {
            ("task.read_push", Some(&wanted.task_id), false)
        }
        Request::ListTaskPushNotificationConfigs(list) => {
            ("task.read_push", Some(&list.task_id), false)
        }
        Request::GetExtendedAgentCard(_) => ("card.read", None, false),
    };
    let id = task.map_or("", TaskId::as_str).into();
    (action, AuditSubject { kind: "task".into(), id, owner: Some(owner.clone()) }, writes)
}
