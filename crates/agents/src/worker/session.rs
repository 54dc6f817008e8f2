//! Session of a worker: one life at its server, with the turns that it runs.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use herald_api::workers::{AssignedTurn, HeldTurn, StopTurn, StopTurnReason};
use herald_engine::turn::Assignment;
use herald_protocol::{Metadata, TaskId, locks::lock};
use tokio::sync::{Notify, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Worker, registration::WorkerRegistration};

/// One life of a worker.
#[derive(Debug)]
pub(super) struct WorkerSession {
    pub(super) worker: Arc<Worker>,
    pub(super) registration: WorkerRegistration,
    /// Fires when the worker takes no more work.
    pub(super) draining: CancellationToken,
    /// Fires when the server does not know the session any more.
    pub(super) lost: CancellationToken,
    turns: Mutex<HashMap<ClaimKey, Arc<AssignedRun>>>,
    pub(super) tasks: TaskTracker,
    /// Wakes the poll loop after a change of the running turns.
    changed: Notify,
    /// True if places became free since the last poll began of which no request has told the server.
    has_untold_places: AtomicBool,
    /// The number of polls so far.
    polls: AtomicU64,
}

/// A turn that the server gave to this worker.
#[derive(Debug)]
pub(super) struct Assigned {
    pub(super) claim: ClaimKey,
    pub(super) assignment: Assignment,
    /// The number of the last event of the task.
    pub(super) head: u64,
}

/// The id of a turn and the epoch of its claim.
type ClaimKey = (String, u64);

/// A turn at work here.
#[derive(Debug)]
pub(super) struct AssignedRun {
    claim: ClaimKey,
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
    /// True if the agent was stopped and the server learns of it from the end of the session only.
    is_left_behind: AtomicBool,
    /// True while the agent waits for its caller.
    is_waiting: AtomicBool,
    /// True if the answer to the last question is there.
    pub(super) answered: watch::Sender<bool>,
    /// The last poll that began before the question was written. Its reply cannot know the answer.
    question_at: AtomicU64,
}

/// Ends a wait on drop, because the wait can also end by cancellation.
pub(super) struct CallerWait<'a>(&'a WorkerSession, &'a AssignedRun);

impl WorkerSession {
    pub(super) fn new(
        worker: Arc<Worker>,
        registration: WorkerRegistration,
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
            has_untold_places: AtomicBool::new(false),
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
    pub(super) fn claims(&self) -> Vec<HeldTurn> {
        let turns = lock(&self.turns);
        let held = turns.values().filter(|turn| !turn.over.is_cancelled());
        held.map(|turn| HeldTurn { id: turn.id().to_owned(), epoch: turn.epoch() }).collect()
    }

    /// True if no agent is at work.
    pub(super) fn is_idle(&self) -> bool {
        lock(&self.turns).values().all(|turn| turn.is_left_behind.load(Ordering::Relaxed))
    }

    /// Begins a poll and returns its number.
    pub(super) fn begin_poll(&self) -> u64 {
        self.has_untold_places.store(false, Ordering::Relaxed);
        self.polls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// True if a poll in flight that offers nothing must be made again. The end of a turn is no reason: the
    /// server gives its place to the poll that waits.
    pub(super) fn has_untold_places(&self) -> bool {
        self.has_untold_places.load(Ordering::Relaxed) && self.free() > 0
    }

    /// Returns after a change of the running turns since the last call.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Adds a turn, and stops earlier claims of the same turn, which are returned beside it. `None` if it
    /// is there already: the server gives a turn again whose assignment may have been lost.
    pub(super) fn add(
        &self,
        assigned: &Assigned,
    ) -> Option<(Arc<AssignedRun>, Vec<Arc<AssignedRun>>)> {
        let claim = assigned.claim.clone();
        let mut turns = lock(&self.turns);
        if turns.contains_key(&claim) {
            return None;
        }
        let same = |turn: &&Arc<AssignedRun>| turn.id() == claim.0;
        let earlier: Vec<_> = turns.values().filter(same).cloned().collect();
        earlier.iter().for_each(|turn| turn.lose());
        let turn = Arc::new(AssignedRun {
            claim: claim.clone(),
            task: assigned.assignment.task.id.clone(),
            cancelled: CancellationToken::new(),
            cancel_metadata: Arc::default(),
            over: CancellationToken::new(),
            ended: CancellationToken::new(),
            is_returned: AtomicBool::new(false),
            is_left_behind: AtomicBool::new(false),
            is_waiting: AtomicBool::new(false),
            answered: watch::Sender::new(false),
            question_at: AtomicU64::new(0),
        });
        turns.insert(claim, Arc::clone(&turn));
        Some((turn, earlier))
    }

    /// Removes a turn that has ended.
    pub(super) fn remove(&self, turn: &AssignedRun) {
        lock(&self.turns).remove(&turn.claim);
        turn.ended.cancel();
        if turn.over.is_cancelled() {
            self.has_untold_places.store(true, Ordering::Relaxed);
        }
        self.changed.notify_one();
    }

    /// Leaves a stopped turn to the end of the session. It stays listed until then, because the server
    /// would give it again otherwise.
    pub(super) fn leave_behind(&self, turn: &AssignedRun) {
        turn.is_left_behind.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Stops a turn because the server says so.
    pub(super) fn stop(&self, stopped: StopTurn) {
        let claim = (stopped.id, stopped.epoch);
        let Some(turn) = lock(&self.turns).get(&claim).cloned() else { return };
        if !turn.cancelled.is_cancelled() {
            tracing::info!(task = %turn.task, reason = ?stopped.reason, "stopping a turn");
            *lock(&turn.cancel_metadata) = stopped.metadata;
        }
        match stopped.reason {
            StopTurnReason::Lost => turn.lose(),
            StopTurnReason::Cancelled | StopTurnReason::TimedOut => turn.cancelled.cancel(),
        }
    }

    /// Notes that the answers to the last questions of these turns are there, by the reply to this poll.
    pub(super) fn note_answers(&self, ids: &[String], poll: u64) {
        let turns = lock(&self.turns);
        for turn in turns.values().filter(|turn| ids.contains(&turn.claim.0)) {
            if poll > turn.question_at.load(Ordering::Relaxed) {
                turn.answered.send_replace(true);
            }
        }
    }

    /// Notes that a turn has a new question, or took its answer: replies to earlier polls do not count.
    pub(super) fn note_question(&self, turn: &AssignedRun) {
        turn.question_at.store(self.polls.load(Ordering::Relaxed), Ordering::Relaxed);
        turn.answered.send_replace(false);
    }

    /// Begins a wait of a turn for its caller.
    pub(super) fn wait<'a>(&'a self, turn: &'a AssignedRun) -> CallerWait<'a> {
        turn.is_waiting.store(true, Ordering::Relaxed);
        self.has_untold_places.store(true, Ordering::Relaxed);
        self.changed.notify_one();
        CallerWait(self, turn)
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

impl Assigned {
    /// Reads the assignment in a reply of the server.
    pub(super) fn read(turn: &AssignedTurn) -> Result<Self, serde_json::Error> {
        let assignment = serde_json::from_str(turn.turn.get())?;
        Ok(Self { claim: (turn.id.clone(), turn.epoch), assignment, head: turn.head })
    }
}

impl AssignedRun {
    pub(super) fn id(&self) -> &str {
        &self.claim.0
    }

    pub(super) fn epoch(&self) -> u64 {
        self.claim.1
    }

    /// Stops a turn that is no longer this worker's: the server takes no more writes of it.
    fn lose(&self) {
        self.over.cancel();
        self.cancelled.cancel();
    }
}

impl Drop for CallerWait<'_> {
    fn drop(&mut self) {
        self.1.is_waiting.store(false, Ordering::Relaxed);
        self.0.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use herald_engine::{Stop, rules::Command, turn::Sink as _};
    use herald_protocol::TaskState;
    use reqwest::{Client, header::HeaderMap};
    use serde_json::Value;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
        task::JoinHandle,
    };

    use super::*;
    use crate::{
        Echo,
        worker::{WorkerConnection, WorkerSettings, sink::WorkerSink},
    };

    fn session(concurrency: usize, max_waiting: usize) -> WorkerSession {
        session_at("http://127.0.0.1:9", concurrency, max_waiting)
    }

    fn session_at(url: &str, concurrency: usize, max_waiting: usize) -> WorkerSession {
        let mut profile = Echo::profile("echo");
        profile.max_waiting = max_waiting;
        let settings = WorkerSettings {
            instance_id: "host:1".to_owned(),
            labels: Vec::new(),
            concurrency,
            drain_timeout: Duration::ZERO,
        };
        let connection = WorkerConnection::new(url, Client::new(), HeaderMap::new());
        let worker = Worker::new(profile, Arc::new(Echo), settings, connection);
        let registration = WorkerRegistration {
            name: "echo:host:1".to_owned(),
            session: "s".to_owned(),
            url: String::new(),
            heartbeat: Duration::from_secs(45),
            poll_seconds: 5,
        };
        WorkerSession::new(Arc::new(worker), registration, CancellationToken::new())
    }

    fn assigned(id: &str, epoch: u64) -> Assigned {
        let message = r#"{"messageId":"m","role":"ROLE_USER","parts":[{"text":"Hello"}]}"#;
        let status = r#"{"state":"TASK_STATE_WORKING"}"#;
        let task = format!(r#"{{"id":"t","contextId":"c","status":{status}}}"#);
        let turn = format!(
            r#"{{"id":"{id}","task":{task},"earlier":[],"message":{message},"seq":1,
                "acceptedOutputModes":[],"metadata":null,"trace":null,"attempt":1,"resumed":false,
                "continued":[]}}"#
        );
        let assigned = format!(r#"{{"id":"{id}","epoch":{epoch},"turn":{turn},"head":2}}"#);
        Assigned::read(&serde_json::from_str(&assigned).unwrap()).unwrap()
    }

    #[test]
    fn a_waiting_turn_leaves_its_place_as_far_as_the_profile_allows() {
        let session = session(2, 1);
        let (first, _) = session.add(&assigned("a", 1)).unwrap();
        let (second, _) = session.add(&assigned("b", 1)).unwrap();
        assert_eq!(session.free(), 0);
        let waiting = [session.wait(&first), session.wait(&second)];
        assert_eq!(session.free(), 1, "one of the two");
        drop(waiting);
        assert_eq!(session.free(), 0);
        session.remove(&first);
        assert_eq!(session.free(), 1);
        session.draining.cancel();
        assert_eq!(session.free(), 0, "a worker that drains takes nothing");
    }

    #[test]
    fn a_turn_that_is_given_again_runs_once_and_a_newer_claim_replaces_it() {
        let session = session(4, 0);
        let (first, earlier) = session.add(&assigned("a", 1)).unwrap();
        assert!(earlier.is_empty() && session.add(&assigned("a", 1)).is_none());
        let (second, earlier) = session.add(&assigned("a", 2)).unwrap();
        assert!(Arc::ptr_eq(&earlier[0], &first) && first.cancelled.is_cancelled());
        let newest = HeldTurn { id: "a".to_owned(), epoch: 2 };
        assert_eq!(session.claims(), [newest], "only the newest is listed");
        assert!(!second.cancelled.is_cancelled());
    }

    #[test]
    fn an_answer_counts_only_in_a_poll_that_began_after_the_question() {
        let session = session(1, 0);
        let (turn, _) = session.add(&assigned("a", 1)).unwrap();
        let open = session.begin_poll();
        session.note_question(&turn);
        session.note_answers(&["a".to_owned()], open);
        assert!(
            !*turn.answered.borrow(),
            "that poll may know the answer to an earlier question only"
        );
        let next = session.begin_poll();
        session.note_answers(&["a".to_owned()], next);
        assert!(*turn.answered.borrow());
    }

    /// A server that answers one request after the other, each on a connection of its own, and keeps their bodies.
    async fn server(answers: [(u16, &'static str); 3]) -> (String, JoinHandle<Vec<Value>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = TaskTracker::new().spawn(async move {
            let mut bodies = Vec::new();
            for (status, answer) in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let (mut received, mut chunk) = (String::new(), [0; 4096]);
                let body = loop {
                    let read = stream.read(&mut chunk).await.unwrap();
                    received.push_str(std::str::from_utf8(&chunk[..read]).unwrap());
                    if let Some((_, body)) = received.split_once("\r\n\r\n")
                        && let Ok(body) = serde_json::from_str(body)
                    {
                        break body;
                    }
                };
                bodies.push(body);
                let length = answer.len();
                let answer = format!(
                    "HTTP/1.1 {status} Answer\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{answer}"
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            bodies
        });
        (url, served)
    }

    #[tokio::test]
    async fn a_refused_write_uses_no_number() {
        let refusal = r#"{"error":{"code":422,"message":"too large","details":[{"reason":"WRITE_REFUSED"}]}}"#;
        let (url, served) =
            server([(200, r#"{"head":3}"#), (422, refusal), (200, r#"{"head":4}"#)]).await;
        let session = Arc::new(session_at(&url, 1, 0));
        let (turn, _) = session.add(&assigned("a", 1)).unwrap();
        let sink = WorkerSink::new(session, turn, 2);
        let working = || vec![Command::Report(TaskState::Working, None, None)];
        sink.write(working()).await.unwrap();
        assert!(matches!(sink.write(working()).await, Err(Stop::Refused(_))));
        sink.write(working()).await.unwrap();
        let bodies = served.await.unwrap();
        let numbers: Vec<_> = bodies.iter().map(|body| (&body["number"], &body["after"])).collect();
        let expected = [(1, 2), (2, 3), (2, 3)]
            .map(|(number, after)| (Value::from(number), Value::from(after)));
        assert_eq!(numbers, expected.iter().map(|(one, other)| (one, other)).collect::<Vec<_>>());
    }

    #[test]
    fn a_lost_session_takes_its_turns_with_it() {
        let session = session(1, 0);
        let (turn, _) = session.add(&assigned("a", 1)).unwrap();
        session.abandon();
        assert!(turn.over.is_cancelled() && turn.cancelled.is_cancelled());
        assert!(session.claims().is_empty() && !session.is_idle(), "its agent may still run");
    }
}
