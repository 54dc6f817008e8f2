//! Session of a worker: one life at its server, with the turns that it runs.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use herald_protocol::{Metadata, TaskId, locks::lock};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Worker,
    registration::Registration,
    wire::{AssignedTurn, StoppedTurn, TurnClaim},
};

/// One life of a worker.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) worker: Arc<Worker>,
    pub(super) registration: Registration,
    /// Fires when the worker takes no more work.
    pub(super) draining: CancellationToken,
    /// Fires when the server does not know the session any more.
    pub(super) lost: CancellationToken,
    turns: Mutex<HashMap<TurnClaim, Arc<RunningTurn>>>,
    pub(super) tasks: TaskTracker,
    /// Wakes the poll loop after a change of the running turns.
    changed: Notify,
    /// The number of polls so far.
    polls: AtomicU64,
}

/// A turn at work here.
#[derive(Debug)]
pub(super) struct RunningTurn {
    pub(super) claim: TurnClaim,
    pub(super) task: TaskId,
    /// Fires when the agent must stop.
    pub(super) cancelled: CancellationToken,
    pub(super) cancel_metadata: Arc<Mutex<Option<Metadata>>>,
    /// Fires when the server does not take writes of this turn any more.
    pub(super) over: CancellationToken,
    /// Fires when the turn has left the table.
    pub(super) ended: CancellationToken,
    /// True if the turn goes back into the queue, because the worker drains.
    pub(super) is_returned: AtomicBool,
    /// True while the agent waits for its caller.
    is_waiting: AtomicBool,
    /// True if the answer to the last question is there.
    pub(super) answered: watch::Sender<bool>,
    /// The last poll that began before the question was written. Its reply cannot know the answer.
    question_at: AtomicU64,
}

/// Ends a wait on drop, because the wait can also end by cancellation.
pub(super) struct Waiting<'a>(&'a Session, &'a RunningTurn);

impl Session {
    pub(super) fn new(
        worker: Arc<Worker>,
        registration: Registration,
        draining: CancellationToken,
    ) -> Self {
        Self {
            worker,
            registration,
            draining,
            lost: CancellationToken::new(),
            turns: Mutex::default(),
            tasks: TaskTracker::new(),
            changed: Notify::new(),
            polls: AtomicU64::new(0),
        }
    }

    /// The number of turns that may begin now. A turn that waits for its caller takes no place, as far as
    /// the profile allows.
    pub(super) fn free(&self) -> usize {
        if self.draining.is_cancelled() {
            return 0;
        }
        let turns = lock(&self.turns);
        let waiting = turns.values().filter(|turn| turn.is_waiting.load(Ordering::Relaxed)).count();
        let running = turns.len() - waiting.min(self.worker.profile.max_waiting);
        self.worker.settings.concurrency.saturating_sub(running)
    }

    /// The turns at work. One that the server gave to somebody else is not listed while its agent stops.
    pub(super) fn claims(&self) -> Vec<TurnClaim> {
        let turns = lock(&self.turns);
        let held = turns.values().filter(|turn| !turn.over.is_cancelled());
        held.map(|turn| turn.claim.clone()).collect()
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.turns).is_empty()
    }

    /// Begins a poll and returns its number.
    pub(super) fn begin_poll(&self) -> u64 {
        self.polls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns after a change of the running turns since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds a turn, and stops earlier claims of the same turn, which are returned beside it. `None` if it
    /// is there already: the server gives a turn again whose assignment may have been lost.
    pub(super) fn add(
        &self,
        assigned: &AssignedTurn,
    ) -> Option<(Arc<RunningTurn>, Vec<Arc<RunningTurn>>)> {
        let claim = TurnClaim { id: assigned.id.clone(), epoch: assigned.epoch };
        let mut turns = lock(&self.turns);
        if turns.contains_key(&claim) {
            return None;
        }
        let same = |turn: &&Arc<RunningTurn>| turn.claim.id == claim.id;
        let earlier: Vec<_> = turns.values().filter(same).cloned().collect();
        earlier.iter().for_each(|turn| turn.lose());
        let turn = Arc::new(RunningTurn {
            claim: claim.clone(),
            task: assigned.turn.task.id.clone(),
            cancelled: CancellationToken::new(),
            cancel_metadata: Arc::default(),
            over: CancellationToken::new(),
            ended: CancellationToken::new(),
            is_returned: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            answered: watch::Sender::new(false),
            question_at: AtomicU64::new(0),
        });
        turns.insert(claim, Arc::clone(&turn));
        Some((turn, earlier))
    }

    /// Removes a turn that has ended.
    pub(super) fn remove(&self, turn: &RunningTurn) {
        lock(&self.turns).remove(&turn.claim);
        turn.ended.cancel();
        self.changed.notify_one();
    }

    /// Stops a turn because the server says so.
    pub(super) fn stop(&self, stopped: StoppedTurn) {
        let found: Vec<_> = {
            let turns = lock(&self.turns);
            let same = |turn: &&Arc<RunningTurn>| turn.claim.id == stopped.id;
            let held = turns.values().filter(same).filter(|turn| !turn.over.is_cancelled());
            held.cloned().collect()
        };
        for turn in found {
            if !turn.cancelled.is_cancelled() {
                tracing::info!(task = %turn.task, reason = stopped.reason, "stopping a turn");
                lock(&turn.cancel_metadata).clone_from(&stopped.metadata);
            }
            if stopped.reason == "lost" { turn.lose() } else { turn.cancelled.cancel() }
        }
    }

    /// Notes that the answers to the last questions of these turns are there, by the reply to this poll.
    pub(super) fn note_answers(&self, ids: &[String], poll: u64) {
        let turns = lock(&self.turns);
        for turn in turns.values().filter(|turn| ids.contains(&turn.claim.id)) {
            if poll > turn.question_at.load(Ordering::Relaxed) {
                turn.answered.send_replace(true);
            }
        }
    }

    /// Notes that a turn has a new question, or took its answer: replies to earlier polls do not count.
    pub(super) fn note_question(&self, turn: &RunningTurn) {
        turn.question_at.store(self.polls.load(Ordering::Relaxed), Ordering::Relaxed);
        turn.answered.send_replace(false);
    }

    /// Begins a wait of a turn for its caller.
    pub(super) fn wait<'a>(&'a self, turn: &'a RunningTurn) -> Waiting<'a> {
        turn.is_waiting.store(true, Ordering::Relaxed);
        self.changed.notify_one();
        Waiting(self, turn)
    }

    /// Hands back every turn that still runs.
    pub(super) fn hand_back(&self) {
        for turn in lock(&self.turns).values() {
            turn.is_returned.store(true, Ordering::Relaxed);
            turn.cancelled.cancel();
        }
    }

    /// Stops every turn, because the server gives them to other workers.
    pub(super) fn abandon(&self) {
        self.lost.cancel();
        lock(&self.turns).values().for_each(|turn| turn.lose());
    }
}

impl RunningTurn {
    /// Stops a turn that is no longer this worker's: the server takes no more writes of it.
    fn lose(&self) {
        self.over.cancel();
        self.cancelled.cancel();
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.1.is_waiting.store(false, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}
