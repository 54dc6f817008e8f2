//! Pool of one role: the sessions of its workers, their free places and the turns that they run.
//!
//! A place is free while a poll waits that offers it, so that a task is only claimed for a worker that can
//! be reached. Sessions that can take the same tasks form a class; a claim is made for one class at a time.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
};

use herald_protocol::{Metadata, Task, TenantId};
use tokio::sync::{Notify, watch};

use crate::{
    store::{Epoch, MemberId, WorkerMember},
    turns::turn::{Assignment, StopReason},
    workers::{
        proxy::{PolledTurn, WorkerTurn},
        role::RoleSettings,
    },
};

/// The ended turns that a session remembers, so that a repeated end is answered.
const REMEMBERED_ENDS: usize = 64;

/// The classes whose exhaustion is remembered. Forgetting one costs a query.
const MAX_CLASSES: usize = 1024;

/// The notices of ended tasks that wait for a poll. The oldest one is dropped.
const MAX_ENDED: usize = 64;

/// The tenants whose waking is remembered apart. Forgetting them costs queries.
const MAX_WOKEN: usize = 1024;

/// A class of sessions: those that can take the same tasks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct WorkerClass {
    /// The tenant whose tasks the sessions take; `None` is every tenant.
    pub(crate) tenant: Option<TenantId>,
    /// The labels of the sessions, sorted.
    pub(crate) labels: Arc<[String]>,
}

/// The workers of one role.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    pub(crate) settings: RoleSettings,
    state: Mutex<PoolState>,
    /// Wakes the dispatcher of the role.
    dispatcher: Arc<Notify>,
    /// Held while a session is restored from the store, so that it is restored once.
    pub(crate) restoring: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct PoolState {
    sessions: HashMap<MemberId, WorkerSession>,
    /// The sessions with free places, by class, the one that has waited longest first.
    ready: BTreeMap<WorkerClass, BTreeSet<(u64, MemberId)>>,
    /// The classes for which no task was due, each at a number of `wakes`.
    exhausted: HashMap<WorkerClass, u64>,
    /// Counts the wake-ups of the dispatcher: after each, tasks may be due.
    wakes: u64,
    /// The number of the last wake-up for the tasks of every tenant.
    woken_for_all: u64,
    /// The number of the last wake-up for the tasks of one tenant. A busy tenant must not cost a query for each
    /// idle worker of every other one.
    woken: HashMap<TenantId, u64>,
    /// Tasks that ended without a turn, of which no worker was told, each with its tenant.
    ended: VecDeque<(TenantId, EndedNotice)>,
    /// The next number of a poll, and of the order of sessions.
    next: u64,
}

#[derive(Debug)]
struct WorkerSession {
    worker: Arc<WorkerMember>,
    class: WorkerClass,
    turns: HashMap<(String, Epoch), Arc<WorkerTurn>>,
    ended: VecDeque<(String, Epoch)>,
    /// Places that are taken for turns which the session does not have yet.
    reserved: usize,
    /// Turns of before a restart that are being attached.
    attaching: usize,
    /// Free places of the poll that waits now.
    places: usize,
    /// The number of the last poll.
    poll: u64,
    is_polling: bool,
    /// True if the worker takes no further turn.
    is_draining: bool,
    /// True if the last poll takes notices of ended tasks.
    takes_ended: bool,
    /// The position in [`PoolState::ready`], while it is there.
    order: u64,
    /// Turns of the last poll that the session does not hold.
    lost: Vec<(String, Epoch)>,
    lost_told: HashSet<(String, Epoch)>,
    changes: Arc<watch::Sender<()>>,
}

/// A living session of a worker.
#[derive(Debug, Clone)]
pub struct SessionView {
    /// The session, which is also its member id in the store.
    pub session: MemberId,
    /// The worker.
    pub worker: Arc<WorkerMember>,
    /// The number of its turns.
    pub turns: usize,
    /// True while a poll waits.
    pub is_polling: bool,
}

/// A place of a worker for one turn. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct WorkerPlace {
    pool: Arc<WorkerPool>,
    session: MemberId,
    pub(crate) class: WorkerClass,
    /// True if the turn is one of before a restart.
    pub(crate) is_attached: bool,
    turn: Mutex<Option<Arc<WorkerTurn>>>,
}

/// A poll that waits.
#[derive(Debug)]
pub(crate) struct WaitingPoll {
    pool: Arc<WorkerPool>,
    session: MemberId,
    number: u64,
    pub(crate) changes: watch::Receiver<()>,
}

/// A turn as a worker lists it.
pub(crate) type ListedTurn = (String, Epoch);

/// The content of a reply to a poll.
#[derive(Debug, Default)]
pub struct PollReply {
    /// Turns that the worker does not have yet.
    pub assignments: Vec<GivenTurn>,
    /// Turns that the worker must stop.
    pub stop: Vec<StoppedTurn>,
    /// The ids of turns whose answer can be taken.
    pub answered: Vec<String>,
    /// Tasks that ended without a turn.
    pub ended: Vec<EndedNotice>,
    /// True if the server shuts down. The worker keeps its turns and polls again.
    pub leaving: bool,
}

/// A task that ended without a turn.
#[derive(Debug, Clone)]
pub struct EndedNotice {
    /// The task.
    pub task: Arc<Task>,
    /// The metadata of a cancel.
    pub metadata: Option<Metadata>,
}

/// The places, the turns and the wishes of a poll.
#[derive(Debug, Default)]
pub(crate) struct PollState {
    /// The free places; `None` if the worker takes no further turn.
    pub(crate) free: Option<usize>,
    /// The tenant whose tasks the worker may take; `None` is every tenant.
    pub(crate) tenant: Option<TenantId>,
    pub(crate) turns: Vec<ListedTurn>,
    pub(crate) takes_ended: bool,
}

/// A turn for a worker.
#[derive(Debug, Clone)]
pub struct GivenTurn {
    /// The id of the turn.
    pub id: String,
    /// The epoch of the claim.
    pub epoch: Epoch,
    /// The assignment.
    pub assignment: Assignment,
    /// The end of the task's log.
    pub head: u64,
}

/// A turn that a worker must stop.
#[derive(Debug, Clone, PartialEq)]
pub struct StoppedTurn {
    /// The id of the turn.
    pub id: String,
    /// The epoch under which the worker listed it.
    pub epoch: Epoch,
    /// The reason.
    pub reason: StopReason,
    /// The metadata of a cancel.
    pub metadata: Option<Metadata>,
}

/// A turn of a session, by its id and epoch.
#[derive(Debug)]
pub(crate) enum FoundTurn {
    Running(Arc<WorkerTurn>),
    /// It ended a short time ago.
    Ended,
    Unknown,
}

impl WorkerPool {
    pub(crate) fn new(settings: RoleSettings) -> Self {
        Self {
            settings,
            state: Mutex::default(),
            dispatcher: Arc::default(),
            restoring: tokio::sync::Mutex::default(),
        }
    }

    /// The waker of the dispatcher.
    pub(crate) fn dispatcher(&self) -> &Arc<Notify> {
        &self.dispatcher
    }

    /// Notes that tasks may be due, of this tenant or of any, and wakes the dispatcher.
    pub(crate) fn wake(&self, tenant: Option<&TenantId>) {
        self.lock().wake(tenant);
        self.dispatcher.notify_one();
    }

    /// Adds a session. `attaching` turns of it are offered later.
    pub(crate) fn add(&self, id: MemberId, worker: WorkerMember, attaching: usize) {
        // Each poll says by its credential whether the worker takes the tasks of other tenants.
        let tenant = Some(worker.owner.tenant.clone());
        let session = WorkerSession {
            class: WorkerClass { tenant, labels: worker.labels.clone().into() },
            worker: Arc::new(worker),
            turns: HashMap::new(),
            ended: VecDeque::new(),
            reserved: 0,
            attaching,
            places: 0,
            poll: 0,
            is_polling: false,
            is_draining: false,
            takes_ended: false,
            order: 0,
            lost: Vec::new(),
            lost_told: HashSet::new(),
            changes: Arc::new(watch::Sender::new(())),
        };
        self.lock().sessions.insert(id, session);
    }

    /// Removes a session whose member is dead. Its turns end here. Returns false if it is not known.
    pub(crate) fn remove(&self, id: MemberId) -> bool {
        let mut state = self.lock();
        let Some(mut session) = state.sessions.remove(&id) else { return false };
        session.places = 0;
        state.update_ready(id, &mut session);
        drop(state);
        for turn in session.turns.values() {
            turn.lose();
        }
        session.changes.send_replace(());
        self.wake(None);
        true
    }

    /// The worker of a session.
    pub(crate) fn worker(&self, id: MemberId) -> Option<Arc<WorkerMember>> {
        self.lock().sessions.get(&id).map(|session| Arc::clone(&session.worker))
    }

    /// The ids of the sessions.
    pub(crate) fn ids(&self) -> Vec<MemberId> {
        self.lock().sessions.keys().copied().collect()
    }

    /// The number of sessions.
    pub(crate) fn len(&self) -> usize {
        self.lock().sessions.len()
    }

    /// The number of turns of all sessions.
    pub(crate) fn turns(&self) -> usize {
        self.lock().sessions.values().map(|session| session.turns.len()).sum()
    }

    /// The sessions.
    pub(crate) fn views(&self) -> Vec<SessionView> {
        let state = self.lock();
        let view = |(id, session): (&MemberId, &WorkerSession)| SessionView {
            session: *id,
            worker: Arc::clone(&session.worker),
            turns: session.turns.len(),
            is_polling: session.is_polling,
        };
        state.sessions.iter().map(view).collect()
    }

    /// The number of wake-ups, and the classes that have free places and may have due tasks.
    pub(crate) fn ready(&self) -> (u64, Vec<WorkerClass>) {
        let state = self.lock();
        let classes = state.ready.keys().filter(|class| !state.is_exhausted(class));
        (state.wakes, classes.cloned().collect())
    }

    /// Notes that no task was due for a class after so many wake-ups.
    pub(crate) fn exhaust(&self, class: &WorkerClass, wakes: u64) {
        let mut state = self.lock();
        if state.exhausted.len() >= MAX_CLASSES {
            state.exhausted.clear();
        }
        state.exhausted.insert(class.clone(), wakes);
    }

    /// Takes a free place of a class.
    pub(crate) fn take(self: &Arc<Self>, class: &WorkerClass) -> Option<WorkerPlace> {
        let mut state = self.lock();
        let (_, session) = *state.ready.get(class)?.first()?;
        state.take(session);
        drop(state);
        Some(self.place(session, class.clone(), false))
    }

    /// Takes a free place of a worker with these labels that may take tasks of this tenant, if no task waits for
    /// it.
    pub(crate) fn try_take(
        self: &Arc<Self>,
        tenant: &TenantId,
        required: &[String],
    ) -> Option<WorkerPlace> {
        let mut state = self.lock();
        let fits = |class: &WorkerClass| class.takes(tenant, required) && state.is_exhausted(class);
        let (class, sessions) = state.ready.iter().find(|(class, _)| fits(class))?;
        let (class, (_, session)) = (class.clone(), *sessions.first()?);
        state.take(session);
        drop(state);
        Some(self.place(session, class, false))
    }

    /// The place of a turn that a session holds since before a restart.
    pub(crate) fn attached_place(self: &Arc<Self>, session: MemberId) -> WorkerPlace {
        self.place(session, WorkerClass::default(), true)
    }

    fn place(
        self: &Arc<Self>,
        session: MemberId,
        class: WorkerClass,
        is_attached: bool,
    ) -> WorkerPlace {
        WorkerPlace { pool: Arc::clone(self), session, class, is_attached, turn: Mutex::default() }
    }

    /// Waits until every turn of before a restart is attached. Returns false if the session is gone.
    pub(crate) async fn attached(&self, id: MemberId) -> bool {
        loop {
            let mut changes = match self.lock().sessions.get(&id) {
                None => return false,
                Some(session) if session.attaching == 0 => return true,
                Some(session) => session.changes.subscribe(),
            };
            if changes.changed().await.is_err() {
                return false;
            }
        }
    }

    /// A turn of a session.
    pub(crate) fn turn(&self, session: MemberId, turn: &ListedTurn) -> FoundTurn {
        let state = self.lock();
        let Some(session) = state.sessions.get(&session) else { return FoundTurn::Unknown };
        match session.turns.get(turn) {
            Some(found) => FoundTurn::Running(Arc::clone(found)),
            None if session.ended.contains(turn) => FoundTurn::Ended,
            None => FoundTurn::Unknown,
        }
    }

    /// Tells one of the workers that take such notices, and tasks of this tenant, that a task ended without a
    /// turn. Without such a worker there is nobody to tell.
    pub(crate) fn tell_ended(&self, tenant: &TenantId, notice: EndedNotice) {
        let mut state = self.lock();
        let takers = || {
            let sessions = state.sessions.values().filter(|session| session.takes_ended);
            sessions.filter(|session| session.class.takes(tenant, &[]))
        };
        let taker = takers().find(|session| session.is_polling).or_else(|| takers().next());
        let Some(taker) = taker else { return };
        let changes = Arc::clone(&taker.changes);
        if state.ended.len() >= MAX_ENDED {
            state.ended.pop_front();
        }
        state.ended.push_back((tenant.clone(), notice));
        drop(state);
        changes.send_replace(());
    }

    /// Begins a poll, which ends the one before it. `None` if the session is gone.
    pub(crate) fn begin_poll(
        self: &Arc<Self>,
        id: MemberId,
        poll: PollState,
    ) -> Option<WaitingPoll> {
        let PollState { free, tenant, turns: listed, takes_ended } = poll;
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        let mut session = state.sessions.remove(&id)?;
        // Out of the class of the last poll, if its credential had other rights.
        session.places = 0;
        state.update_ready(id, &mut session);
        session.class.tenant = tenant;
        session.poll = number;
        session.is_polling = true;
        session.is_draining = free.is_none();
        session.takes_ended = takes_ended;
        let listed: HashSet<ListedTurn> = listed.into_iter().collect();
        for (turn, proxy) in &session.turns {
            proxy.polled(number, listed.contains(turn));
        }
        session.lost_told.retain(|turn| listed.contains(turn));
        session.lost =
            listed.into_iter().filter(|turn| !session.turns.contains_key(turn)).collect();
        let unlisted = session.turns.values().filter(|turn| turn.is_unlisted(number)).count();
        let free = free.unwrap_or(0).saturating_sub(session.reserved + unlisted);
        session.places = free.min(session.unused());
        state.update_ready(id, &mut session);
        let has_work = session.places > 0 && !state.is_exhausted(&session.class);
        let changes = Arc::clone(&session.changes);
        state.sessions.insert(id, session);
        drop(state);
        if has_work {
            self.dispatcher.notify_one();
        }
        changes.send_replace(());
        Some(WaitingPoll {
            pool: Arc::clone(self),
            session: id,
            number,
            changes: changes.subscribe(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().expect("nothing panics while it holds the sessions")
    }
}

impl WorkerSession {
    /// The places that no turn takes, whatever the worker says: it declared how many turns it runs at once.
    fn unused(&self) -> usize {
        let held = self.turns.values().filter(|turn| turn.takes_place()).count();
        self.worker.concurrency.saturating_sub(self.reserved + held)
    }
}

impl WorkerClass {
    /// True if the sessions take a task of this tenant that requires these labels.
    fn takes(&self, tenant: &TenantId, required: &[String]) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
            && required.iter().all(|label| self.labels.contains(label))
    }
}

impl PoolState {
    fn wake(&mut self, tenant: Option<&TenantId>) {
        self.wakes += 1;
        let Some(tenant) = tenant else {
            self.woken_for_all = self.wakes;
            return;
        };
        if self.woken.len() >= MAX_WOKEN && !self.woken.contains_key(tenant) {
            self.woken.clear();
            self.woken_for_all = self.wakes;
        }
        self.woken.insert(tenant.clone(), self.wakes);
    }

    /// True if no task was due for the class at the last wake-up that concerns it.
    fn is_exhausted(&self, class: &WorkerClass) -> bool {
        let last = match &class.tenant {
            None => self.wakes,
            Some(tenant) => {
                self.woken_for_all.max(self.woken.get(tenant).copied().unwrap_or_default())
            }
        };
        self.exhausted.get(class).is_some_and(|exhausted| *exhausted >= last)
    }

    /// Takes a place of a session.
    fn take(&mut self, id: MemberId) {
        let Some(mut session) = self.sessions.remove(&id) else { return };
        session.places -= 1;
        session.reserved += 1;
        self.update_ready(id, &mut session);
        self.sessions.insert(id, session);
    }

    /// Moves a session to the end of its class, or out of it if it has no free place.
    fn update_ready(&mut self, id: MemberId, session: &mut WorkerSession) {
        if let Some(class) = self.ready.get_mut(&session.class) {
            class.remove(&(session.order, id));
            if class.is_empty() {
                self.ready.remove(&session.class);
            }
        }
        if session.places > 0 {
            self.next += 1;
            session.order = self.next;
            let class = self.ready.entry(session.class.clone()).or_default();
            class.insert((session.order, id));
        }
    }

    /// Frees a place of the poll that waits now, if there is one.
    fn free_place(&mut self, id: MemberId) -> bool {
        let Some(mut session) = self.sessions.remove(&id) else { return false };
        let takes_more = session.is_polling && !session.is_draining;
        if takes_more && session.places < session.unused() {
            session.places += 1;
        }
        self.update_ready(id, &mut session);
        let has_work = session.places > 0 && !self.is_exhausted(&session.class);
        self.sessions.insert(id, session);
        has_work
    }
}

impl WorkerPlace {
    /// The member that the claim of the turn names.
    pub(crate) fn member(&self) -> MemberId {
        self.session
    }

    /// The pool of the worker.
    pub(crate) fn pool(&self) -> &Arc<WorkerPool> {
        &self.pool
    }

    /// Gives the turn to the session, whose poll returns with it.
    pub(crate) fn offer(&self, turn: &Arc<WorkerTurn>) {
        *self.turn() = Some(Arc::clone(turn));
        let mut state = self.pool.lock();
        let Some(session) = state.sessions.get_mut(&self.session) else {
            drop(state);
            turn.lose();
            return;
        };
        self.settle(session);
        turn.belongs_to(Arc::clone(&session.changes));
        session.turns.insert((turn.id.clone(), turn.claim.epoch), Arc::clone(turn));
        session.changes.send_replace(());
    }

    /// Ends the state in which the session does not have the turn.
    fn settle(&self, session: &mut WorkerSession) {
        let count = if self.is_attached { &mut session.attaching } else { &mut session.reserved };
        *count = count.saturating_sub(1);
    }

    fn turn(&self) -> MutexGuard<'_, Option<Arc<WorkerTurn>>> {
        self.turn.lock().expect("nothing panics while it holds this lock")
    }
}

impl Drop for WorkerPlace {
    fn drop(&mut self) {
        let turn = self.turn().take();
        let mut state = self.pool.lock();
        let mut frees = false;
        if let Some(session) = state.sessions.get_mut(&self.session) {
            match &turn {
                Some(turn) => {
                    let key = (turn.id.clone(), turn.claim.epoch);
                    session.turns.remove(&key);
                    if session.ended.len() >= REMEMBERED_ENDS {
                        session.ended.pop_front();
                    }
                    session.ended.push_back(key);
                    frees = turn.has_outcome();
                }
                None => {
                    self.settle(session);
                    frees = !self.is_attached;
                }
            }
            session.changes.send_replace(());
        }
        let has_work = frees && state.free_place(self.session);
        drop(state);
        if has_work {
            self.pool.dispatcher.notify_one();
        }
        if let Some(turn) = turn {
            turn.finished.cancel();
        }
    }
}

impl WaitingPoll {
    /// The reply, and true if it has something that the worker was not told before. `None` if the session
    /// is gone or a newer poll has begun.
    pub(crate) fn collect(&self) -> Option<(PollReply, bool)> {
        let mut state = self.pool.lock();
        let session = state.sessions.get_mut(&self.session)?;
        if session.poll != self.number {
            return None;
        }
        let (mut reply, mut is_new) = (PollReply::default(), false);
        for (id, epoch) in &session.lost {
            is_new |= session.lost_told.insert((id.clone(), *epoch));
            let (id, epoch, reason) = (id.clone(), *epoch, StopReason::Lost);
            reply.stop.push(StoppedTurn { id, epoch, reason, metadata: None });
        }
        for turn in session.turns.values() {
            let (id, epoch) = (turn.id.clone(), turn.claim.epoch);
            let polled = turn.for_poll(self.number);
            turn.told(&polled);
            match polled {
                PolledTurn::Quiet => {}
                PolledTurn::Assign(head) => {
                    is_new = true;
                    let assignment = turn.assignment.clone();
                    reply.assignments.push(GivenTurn { id, epoch, assignment, head });
                }
                PolledTurn::Stop(reason, metadata, fresh) => {
                    is_new |= fresh;
                    reply.stop.push(StoppedTurn { id, epoch, reason, metadata });
                }
                PolledTurn::Answered(fresh) => {
                    is_new |= fresh;
                    reply.answered.push(id);
                }
            }
        }
        if session.takes_ended {
            let class = session.class.clone();
            let (told, left) = std::mem::take(&mut state.ended)
                .into_iter()
                .partition(|(tenant, _)| class.takes(tenant, &[]));
            state.ended = left;
            let told: VecDeque<(TenantId, EndedNotice)> = told;
            reply.ended = told.into_iter().map(|(_, notice)| notice).collect();
            is_new |= !reply.ended.is_empty();
        }
        Some((reply, is_new))
    }

    /// True if the session still exists.
    pub(crate) fn is_alive(&self) -> bool {
        self.pool.lock().sessions.contains_key(&self.session)
    }
}

impl Drop for WaitingPoll {
    fn drop(&mut self) {
        let mut state = self.pool.lock();
        let Some(mut session) = state.sessions.remove(&self.session) else { return };
        if session.poll == self.number {
            session.is_polling = false;
            session.places = 0;
            state.update_ready(self.session, &mut session);
        }
        state.sessions.insert(self.session, session);
    }
}
