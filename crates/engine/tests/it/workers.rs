//! Workers elsewhere that run the turns of a role.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use herald_engine::{
    AgentRoute, Caller, Clock, Engine, Profile, Recovery, RoleSettings, Scopes, Settings,
    StopReason,
    store::{Actor, Key, Kind, LogEntry, Store, sqlite::Sqlite},
    workers::{
        GivenTurn, NewWorker, Poll, PollReply, SessionRef, TurnOutcome, TurnRef, WorkerCommand,
        WorkerWrite,
    },
};
use herald_protocol::{
    Error, ErrorKind, Message, Metadata, Part, Task, TaskId, TaskState, Timestamp,
    request::SendMessage,
};

use crate::support::{
    Bench, answer, artifact_text, crashed, eventually, failure_reason, file, reopened, rest, say,
    text,
};

const ROLE: &str = "reviewer";

fn role() -> Profile {
    Profile { recovery: Recovery::Rerun(3), ..Profile::new(ROLE, "Reviews code") }
}

/// An engine with one role and no other agent.
async fn engine(
    store: Arc<dyn Store>,
    profile: Profile,
    settings: Settings,
    clock: Clock,
) -> Bench {
    let builder = Engine::builder(store).settings(settings).clock(clock);
    let engine = builder.role(profile, RoleSettings::default()).build().unwrap();
    engine.start_work().await.unwrap();
    Bench { engine, caller: Caller::anonymous("".into()), route: AgentRoute::default() }
}

/// An engine whose role has this lease.
async fn with_lease(lease: Duration) -> Bench {
    let settings = Settings { heartbeat_every: Duration::from_millis(200), ..Settings::default() };
    let builder = Engine::builder(Arc::new(Sqlite::memory().unwrap())).settings(settings);
    let engine = builder.role(role(), RoleSettings { lease: Some(lease) }).build().unwrap();
    engine.start_work().await.unwrap();
    Bench { engine, caller: Caller::anonymous("".into()), route: AgentRoute::default() }
}

async fn bench() -> Bench {
    let store = Arc::new(Sqlite::memory().unwrap());
    engine(store, role(), Settings::default(), Clock::system()).await
}

/// An engine whose heartbeats the test sends, and its clock.
async fn slow_bench(store: Arc<dyn Store>) -> (Bench, Clock) {
    let clock = Clock::manual(Timestamp::from_millis(1_700_000_000_000));
    let settings = Settings { heartbeat_every: Duration::from_secs(3600), ..Settings::default() };
    (engine(store, role(), settings, clock.clone()).await, clock)
}

/// A worker under test.
#[derive(Debug, Clone)]
struct Worker {
    bench: Bench,
    at: SessionRef,
}

/// A turn that a worker has.
#[derive(Debug, Clone)]
struct Given {
    worker: Worker,
    turn: GivenTurn,
}

impl Worker {
    async fn join(bench: &Bench, instance: &str) -> Self {
        Self::joined(bench, instance, 1, &[]).await.unwrap()
    }

    async fn joined(
        bench: &Bench,
        instance: &str,
        concurrency: usize,
        labels: &[&str],
    ) -> Result<Self, Error> {
        let new = NewWorker {
            role: ROLE.into(),
            instance: instance.to_owned(),
            concurrency,
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
        };
        let at = bench.engine.workers().join(&bench.caller, new).await?;
        Ok(Self { bench: bench.clone(), at })
    }

    /// The same worker after a restart of the server.
    fn on(&self, bench: &Bench) -> Self {
        Self { bench: bench.clone(), at: self.at.clone() }
    }

    async fn poll(
        &self,
        free: usize,
        turns: &[&Given],
        wait: Duration,
    ) -> Result<PollReply, Error> {
        let turns = turns.iter().map(|given| (given.turn.id.clone(), given.turn.epoch)).collect();
        let poll = Poll { free, turns, wait, ..Poll::default() };
        self.bench.engine.workers().poll(&self.bench.caller, &self.at, poll).await
    }

    /// Shows that the worker lives, and returns at once.
    async fn beat(&self, turns: &[&Given]) -> Result<PollReply, Error> {
        self.poll(0, turns, Duration::ZERO).await
    }

    /// Polls until a turn is given.
    async fn work(&self) -> Given {
        loop {
            let reply = self.poll(1, &[], Duration::from_secs(5)).await.unwrap();
            if let Some(turn) = reply.assignments.into_iter().next() {
                return Given { worker: self.clone(), turn };
            }
        }
    }
}

impl Given {
    fn at(&self) -> TurnRef {
        let session = self.worker.at.clone();
        TurnRef { session, turn: self.turn.id.clone(), epoch: self.turn.epoch }
    }

    fn text(&self) -> &str {
        self.turn.assignment.message.parts[0].as_text().unwrap()
    }

    fn task(&self) -> &TaskId {
        &self.turn.assignment.task.id
    }

    async fn write(&self, number: u64, commands: Vec<WorkerCommand>) -> Result<u64, Error> {
        let Worker { bench, .. } = &self.worker;
        let write = WorkerWrite { number, after: self.turn.head, commands };
        bench.engine.workers().write(&bench.caller, &self.at(), write).await
    }

    async fn answer(&self, number: u64) -> Result<String, Error> {
        let Worker { bench, .. } = &self.worker;
        let workers = bench.engine.workers();
        let taken = workers.answer(&bench.caller, &self.at(), number, self.turn.head).await;
        taken.map(|(message, _)| message.parts[0].as_text().unwrap().to_owned())
    }

    async fn end(&self, outcome: TurnOutcome) -> Result<(), Error> {
        let Worker { bench, .. } = &self.worker;
        bench.engine.workers().end(&bench.caller, &self.at(), outcome).await
    }
}

fn piece(content: &str, append: bool) -> WorkerCommand {
    WorkerCommand::Write { artifact: text("out", content), append, last: false }
}

fn done(content: &str) -> WorkerCommand {
    let message = Message { parts: vec![Part::text(content)], ..Message::default() };
    WorkerCommand::Report(TaskState::Completed, Some(message), None)
}

fn ask(question: &str) -> WorkerCommand {
    let message = Message { parts: vec![Part::text(question)], ..Message::default() };
    WorkerCommand::Ask(TaskState::InputRequired, Some(message), None)
}

#[track_caller]
fn over<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_eq!(result.unwrap_err().kind, ErrorKind::TurnOver);
}

async fn log(bench: &Bench, task: &TaskId) -> Vec<LogEntry> {
    let key = Key { owner: bench.caller.owner().clone(), task: task.clone() };
    bench.engine.operator(&bench.caller).log(&key, 0, 100).await.unwrap()
}

async fn state(bench: &Bench, task: &Task) -> TaskState {
    bench.get(&task.id).await.unwrap().status.state
}

/// Sends heartbeats of the engine, a second apart, while these workers poll.
async fn pass(bench: &Bench, clock: &Clock, seconds: usize, living: &[&Worker]) {
    for _ in 0..seconds {
        clock.set(Timestamp::from_millis(clock.now().as_millis() + 1000));
        for worker in living {
            worker.beat(&[]).await.unwrap();
        }
        bench.engine.heartbeat().await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_runs_a_turn_and_its_caller_sees_every_step() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    assert_eq!(worker.at.name, "reviewer:vm:1");
    assert!(bench.engine.workers().is_served(&ROLE.into()));
    let mut stream = bench.stream(say("review this")).await.unwrap();
    let given = worker.work().await;
    assert_eq!((given.text(), given.turn.assignment.attempt), ("review this", 1));
    let head = given.write(1, vec![piece("one ", true)]).await.unwrap();
    assert_eq!(given.write(2, vec![piece("two", true)]).await.unwrap(), head + 1);
    given.write(3, vec![done("looks good")]).await.unwrap();
    given.end(TurnOutcome::Done).await.unwrap();
    // A repeated end is answered.
    given.end(TurnOutcome::Done).await.unwrap();
    let items = rest(&mut stream).await;
    let numbers: Vec<_> = items.iter().map(|(seq, _)| *seq).collect();
    assert_eq!(numbers, (1..=items.len() as u64).collect::<Vec<_>>());
    let task = bench.get(given.task()).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "one two");
    let last = task.status.message.unwrap();
    assert_eq!(
        (last.parts[0].as_text(), last.task_id.clone()),
        (Some("looks good"), Some(task.id))
    );
    assert!(!last.message_id.is_empty());
    over(given.write(4, vec![piece("late", true)]).await);
}

#[tokio::test]
async fn an_end_without_a_result_completes_or_fails_the_task() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let failed = TurnOutcome::Failed(herald_engine::AgentError::Failed("no disk".to_owned()));
    for (outcome, ends) in [(TurnOutcome::Done, TaskState::Completed), (failed, TaskState::Failed)]
    {
        let task = bench.post(say("go")).await.unwrap();
        worker.work().await.end(outcome).await.unwrap();
        assert_eq!(state(&bench, &task).await, ends);
    }
}

#[tokio::test]
async fn a_worker_asks_within_its_turn_and_takes_the_answer() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    given.write(1, vec![ask("name?")]).await.unwrap();
    assert_eq!(state(&bench, &task).await, TaskState::InputRequired);
    assert_eq!(given.answer(2).await.unwrap_err().kind, ErrorKind::WriteRefused);
    let listed = [&given];
    let waits = worker.poll(0, &listed, Duration::from_secs(5));
    let answers = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        bench.post(answer(&task, "Ann")).await.unwrap()
    };
    let (reply, _) = tokio::join!(waits, answers);
    assert_eq!(reply.unwrap().answered, [given.turn.id.as_str()]);
    // Until it is taken, every reply names it.
    let again = worker.beat(&[&given]).await.unwrap();
    assert_eq!(again.answered.len(), 1);
    assert_eq!(given.answer(2).await.unwrap(), "Ann");
    assert_eq!(given.answer(2).await.unwrap(), "Ann", "a repetition gets the same answer");
    assert!(worker.beat(&[&given]).await.unwrap().answered.is_empty());
    assert_eq!(state(&bench, &task).await, TaskState::Working);
    given.write(3, vec![done("hello Ann")]).await.unwrap();
    given.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(state(&bench, &task).await, TaskState::Completed);
}

#[tokio::test]
async fn a_cancel_reaches_the_worker_by_its_waiting_poll() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    let listed = [&given];
    let waits = worker.poll(0, &listed, Duration::from_secs(5));
    let cancels = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        bench.cancel(&task.id).await.unwrap()
    };
    let (reply, _) = tokio::join!(waits, cancels);
    let reply = reply.unwrap();
    assert_eq!(reply.stop.len(), 1);
    assert_eq!((&reply.stop[0].id, reply.stop[0].reason), (&given.turn.id, StopReason::Cancelled));
    over(given.write(1, vec![piece("late", false)]).await);
    // The worker has stopped the turn, and its place is free.
    let next = bench.post(say("next")).await.unwrap();
    let given = worker.work().await;
    assert_eq!(given.task(), &next.id);
}

#[tokio::test]
async fn a_turn_that_takes_too_long_is_stopped() {
    let store = Arc::new(Sqlite::memory().unwrap());
    let short = Profile { timeout: Some(Duration::from_millis(50)), ..role() };
    let bench = engine(store, short, Settings::default(), Clock::system()).await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    let reply = worker.poll(0, &[&given], Duration::from_secs(5)).await.unwrap();
    assert_eq!(reply.stop[0].reason, StopReason::TimedOut);
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(failure_reason(&task.status), "TIMED_OUT");
}

#[tokio::test]
async fn a_lost_reply_loses_no_turn_and_no_turn_runs_twice() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    // The worker did not get the reply: it lists no turn and offers its place again.
    let again = worker.poll(1, &[], Duration::ZERO).await.unwrap();
    assert_eq!(again.assignments.len(), 1);
    let again = &again.assignments[0];
    assert_eq!((&again.id, again.epoch), (&given.turn.id, given.turn.epoch));
    // Once it is listed, it is not given again, and its place is taken.
    bench.post(say("second")).await.unwrap();
    let reply = worker.beat(&[&given]).await.unwrap();
    assert!(reply.assignments.is_empty() && reply.stop.is_empty());
    // A turn that the session does not hold is to be stopped.
    let mut foreign = given.clone();
    foreign.turn.epoch += 7;
    let reply = worker.poll(0, &[&given, &foreign], Duration::from_secs(5)).await.unwrap();
    assert_eq!(reply.stop.len(), 1);
    assert_eq!((reply.stop[0].epoch, reply.stop[0].reason), (foreign.turn.epoch, StopReason::Lost));
}

#[tokio::test]
async fn a_place_is_free_only_while_a_poll_waits() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    drop(
        tokio::time::timeout(
            Duration::from_millis(20),
            worker.poll(1, &[], Duration::from_secs(5)),
        )
        .await,
    );
    let task = bench.post(say("go")).await.unwrap();
    assert_eq!(state(&bench, &task).await, TaskState::Submitted, "no worker can be reached");
    // A newer poll ends the one that waits.
    let (old, new) = tokio::join!(worker.poll(0, &[], Duration::from_secs(5)), worker.work());
    assert!(old.unwrap().assignments.is_empty());
    assert_eq!(new.task(), &task.id);
}

#[tokio::test]
async fn the_turn_of_a_dead_worker_goes_to_another_and_the_dead_one_cannot_write() {
    let (bench, clock) = slow_bench(Arc::new(Sqlite::memory().unwrap())).await;
    let dies = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let lost = dies.work().await;
    lost.write(1, vec![piece("first", true)]).await.unwrap();
    let lives = Worker::join(&bench, "vm:2").await;
    pass(&bench, &clock, 14, &[&lives]).await;
    assert!(lives.poll(1, &[], Duration::ZERO).await.unwrap().assignments.is_empty());
    pass(&bench, &clock, 3, &[&lives]).await;
    let taken = lives.work().await;
    assert_eq!(taken.task(), &task.id);
    assert_eq!((&taken.turn.id, taken.turn.assignment.attempt), (&lost.turn.id, 2));
    assert!(taken.turn.epoch > lost.turn.epoch);
    let before = log(&bench, &task.id).await.len();
    // Late, with the old epoch, and with the new one of the other session.
    assert_eq!(
        lost.write(2, vec![piece("late", true)]).await.unwrap_err().kind,
        ErrorKind::WorkerExpired
    );
    assert_eq!(dies.beat(&[]).await.unwrap_err().kind, ErrorKind::WorkerExpired);
    let mut old = lost.clone();
    old.worker = lives.clone();
    over(old.write(2, vec![piece("late", true)]).await);
    over(old.end(TurnOutcome::Done).await);
    assert_eq!(log(&bench, &task.id).await.len(), before, "the log is untouched");
    taken.write(1, vec![piece("second", true)]).await.unwrap();
    taken.end(TurnOutcome::Done).await.unwrap();
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "second", "the first piece of an attempt replaces");
}

#[tokio::test]
async fn a_task_fails_after_as_many_dead_workers_as_its_role_allows() {
    let (bench, clock) = slow_bench(Arc::new(Sqlite::memory().unwrap())).await;
    let task = bench.post(say("go")).await.unwrap();
    for number in 1..=3 {
        let worker = Worker::join(&bench, &format!("vm:{number}")).await;
        assert_eq!(worker.work().await.turn.assignment.attempt, number);
        pass(&bench, &clock, 17, &[]).await;
    }
    let worker = Worker::join(&bench, "vm:last").await;
    worker.poll(1, &[], Duration::from_millis(50)).await.unwrap();
    eventually(|| async { state(&bench, &task).await == TaskState::Failed }).await;
    assert_eq!(failure_reason(&bench.get(&task.id).await.unwrap().status), "INTERRUPTED");
}

#[tokio::test]
async fn a_second_life_of_a_name_ends_the_first_at_once() {
    let bench = bench().await;
    let first = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let lost = first.work().await;
    // Another principal cannot take the name while the worker lives.
    let mut other = bench.clone();
    other.caller = Caller::new("".into(), "mallory", Scopes::ALL);
    let refused = Worker::joined(&other, "vm:1", 1, &[]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::WorkerNameTaken);
    let refused = first.on(&other).beat(&[]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Forbidden, "nor use its session");
    let second = Worker::join(&bench, "vm:1").await;
    let given = second.work().await;
    assert_eq!((given.task(), given.turn.assignment.attempt), (&task.id, 2));
    assert_eq!(lost.write(1, vec![done("x")]).await.unwrap_err().kind, ErrorKind::WorkerExpired);
    assert_eq!(first.beat(&[]).await.unwrap_err().kind, ErrorKind::WorkerExpired);
    given.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(state(&bench, &task).await, TaskState::Completed);
    assert_eq!(bench.engine.workers().sessions(None).len(), 1);
}

#[tokio::test]
async fn a_returned_turn_goes_to_another_worker_and_its_attempt_does_not_count() {
    let bench = bench().await;
    let drains = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let given = drains.work().await;
    given.write(1, vec![piece("half", true)]).await.unwrap();
    given.end(TurnOutcome::Returned).await.unwrap();
    let other = Worker::join(&bench, "vm:2").await;
    let again = other.work().await;
    assert_eq!(again.turn.id, given.turn.id);
    assert_eq!(again.turn.assignment.attempt, 1);
    assert!(again.turn.epoch > given.turn.epoch);
    assert!(again.turn.assignment.continued.is_empty(), "the artifact begins again");
    over(given.write(2, vec![piece("late", true)]).await);
    again.write(1, vec![piece("whole", false), done("ok")]).await.unwrap();
    again.end(TurnOutcome::Done).await.unwrap();
    let task = bench.get(&task.id).await.unwrap();
    assert_eq!(
        (task.status.state, artifact_text(&task, "out").as_str()),
        (TaskState::Completed, "whole")
    );
}

#[tokio::test]
async fn a_returned_turn_of_a_role_that_resumes_is_resumed() {
    let store = Arc::new(Sqlite::memory().unwrap());
    let resumes = Profile { recovery: Recovery::Resume(3), ..role() };
    let bench = engine(store, resumes, Settings::default(), Clock::system()).await;
    let worker = Worker::join(&bench, "vm:1").await;
    bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    assert!(!given.turn.assignment.resumed);
    given.write(1, vec![piece("a", true)]).await.unwrap();
    given.end(TurnOutcome::Returned).await.unwrap();
    let again = worker.work().await;
    assert!(again.turn.assignment.resumed);
    assert_eq!(again.turn.assignment.attempt, 1);
    again.write(1, vec![piece("b", true)]).await.unwrap();
    assert_eq!(artifact_text(&bench.get(again.task()).await.unwrap(), "out"), "ab");
}

#[tokio::test]
async fn the_turns_of_a_worker_that_leaves_are_due_at_once() {
    let bench = bench().await;
    let leaves = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let lost = leaves.work().await;
    bench.engine.workers().leave(&bench.caller, &leaves.at).await.unwrap();
    let other = Worker::join(&bench, "vm:2").await;
    assert_eq!(other.work().await.task(), &task.id);
    assert_eq!(lost.end(TurnOutcome::Done).await.unwrap_err().kind, ErrorKind::WorkerExpired);
}

#[tokio::test]
async fn a_draining_worker_ends_its_turn_and_gets_no_other() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    bench.post(say("first")).await.unwrap();
    let given = worker.work().await;
    bench.post(say("second")).await.unwrap();
    let turns = vec![(given.turn.id.clone(), given.turn.epoch)];
    let wait = Duration::from_millis(200);
    let poll = Poll { free: 1, turns, is_draining: true, wait, ..Poll::default() };
    let workers = bench.engine.workers();
    let drains = workers.poll(&bench.caller, &worker.at, poll);
    let (reply, ended) = tokio::join!(drains, given.end(TurnOutcome::Done));
    ended.unwrap();
    assert!(reply.unwrap().assignments.is_empty());
    // A poll that offers no place gets one when a turn ends.
    let next = worker.work().await;
    let third = bench.post(say("third")).await.unwrap();
    let listed = [&next];
    let waits = worker.poll(0, &listed, Duration::from_secs(5));
    let ends = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        next.end(TurnOutcome::Done).await.unwrap();
    };
    let (reply, ()) = tokio::join!(waits, ends);
    assert_eq!(reply.unwrap().assignments[0].assignment.task.id, third.id);
}

#[tokio::test]
async fn the_next_message_of_a_task_is_a_new_assignment() {
    let bench = bench().await;
    let (one, two) = (Worker::join(&bench, "vm:1").await, Worker::join(&bench, "vm:2").await);
    let task = bench.post(say("first")).await.unwrap();
    let given = one.work().await;
    bench.post(answer(&task, "second")).await.unwrap();
    given.end(TurnOutcome::Done).await.unwrap();
    let next = two.work().await;
    assert_eq!((next.task(), next.text()), (&task.id, "second"));
    assert!(next.turn.epoch > given.turn.epoch);
    next.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(state(&bench, &task).await, TaskState::Completed);
}

#[tokio::test]
async fn writes_that_the_rules_refuse_change_nothing() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    let canceled = WorkerCommand::Report(TaskState::Canceled, None, None);
    let refused = given.write(1, vec![piece("x", false), canceled]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::WriteRefused);
    assert_eq!(given.write(0, vec![done("x")]).await.unwrap_err().kind, ErrorKind::InvalidParams);
    assert_eq!(given.write(1, Vec::new()).await.unwrap_err().kind, ErrorKind::InvalidParams);
    assert!(bench.get(&task.id).await.unwrap().artifacts.unwrap_or_default().is_empty());
    // The number is free for the next write.
    given.write(1, vec![piece("y", false)]).await.unwrap();
    assert_eq!(artifact_text(&bench.get(&task.id).await.unwrap(), "out"), "y");
}

#[tokio::test]
async fn a_repeated_number_is_written_once() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    let head = given.write(1, vec![piece("a", true)]).await.unwrap();
    assert_eq!(given.write(1, vec![piece("a", true)]).await.unwrap(), head);
    given.write(2, vec![piece("b", true)]).await.unwrap();
    assert_eq!(artifact_text(&bench.get(&task.id).await.unwrap(), "out"), "ab");
    let causes = log(&bench, &task.id).await.into_iter().filter_map(|entry| entry.cause);
    let numbers = causes.filter_map(|cause| match cause.actor {
        Actor::Worker { number, .. } => Some(number),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), [1, 2]);
}

/// The state of a worker with a turn when its server crashed.
async fn before_crash(directory: std::path::PathBuf, question: bool) -> (SessionRef, GivenTurn) {
    let bench = engine(file(&directory), role(), Settings::default(), Clock::system()).await;
    let worker = Worker::join(&bench, "vm:1").await;
    bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    given.write(1, vec![piece("a", true)]).await.unwrap();
    if question {
        given.write(2, vec![ask("name?")]).await.unwrap();
        let task = bench.get(given.task()).await.unwrap();
        bench.post(answer(&task, "Ann")).await.unwrap();
    }
    (given.worker.at, given.turn)
}

#[tokio::test]
async fn a_restarted_server_attaches_the_turns_and_knows_their_writes() {
    let directory = tempfile::tempdir().unwrap();
    let (at, turn) = crashed(before_crash(directory.path().to_owned(), false)).await;
    let store = reopened(directory.path()).await;
    let bench = engine(store, role(), Settings::default(), Clock::system()).await;
    let worker = Worker { bench: bench.clone(), at };
    let given = Given { worker: worker.clone(), turn };
    let other = Worker::join(&bench, "vm:2").await;
    assert!(other.poll(1, &[], Duration::from_millis(50)).await.unwrap().assignments.is_empty());
    // The reply to the first write was lost: the worker repeats it before its first poll.
    given.write(1, vec![piece("a", true)]).await.unwrap();
    let reply = worker.beat(&[&given]).await.unwrap();
    assert!(reply.assignments.is_empty() && reply.stop.is_empty(), "{reply:?}");
    given.write(2, vec![piece("b", true)]).await.unwrap();
    given.write(3, vec![done("ok")]).await.unwrap();
    given.end(TurnOutcome::Done).await.unwrap();
    let task = bench.get(given.task()).await.unwrap();
    assert_eq!(
        (task.status.state, artifact_text(&task, "out").as_str()),
        (TaskState::Completed, "ab")
    );
}

#[tokio::test]
async fn a_turn_that_the_worker_does_not_list_after_a_restart_is_given_again() {
    let directory = tempfile::tempdir().unwrap();
    let (at, turn) = crashed(before_crash(directory.path().to_owned(), false)).await;
    let store = reopened(directory.path()).await;
    let bench = engine(store, role(), Settings::default(), Clock::system()).await;
    let worker = Worker { bench: bench.clone(), at };
    let reply = worker.poll(1, &[], Duration::from_secs(5)).await.unwrap();
    let again = reply.assignments.into_iter().next().unwrap();
    assert_eq!((&again.id, again.epoch), (&turn.id, turn.epoch), "the same claim");
    let again = Given { worker, turn: again };
    // It counts its writes from 1 again.
    again.write(1, vec![piece("b", false), done("ok")]).await.unwrap();
    again.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(artifact_text(&bench.get(again.task()).await.unwrap(), "out"), "b");
}

#[tokio::test]
async fn an_answer_that_came_before_a_restart_can_be_taken_after_it() {
    let directory = tempfile::tempdir().unwrap();
    let (at, turn) = crashed(before_crash(directory.path().to_owned(), true)).await;
    let store = reopened(directory.path()).await;
    let bench = engine(store, role(), Settings::default(), Clock::system()).await;
    let worker = Worker { bench: bench.clone(), at };
    let given = Given { worker: worker.clone(), turn };
    let reply = worker.poll(0, &[&given], Duration::from_secs(5)).await.unwrap();
    assert_eq!(reply.answered, [given.turn.id.as_str()]);
    assert_eq!(given.answer(3).await.unwrap(), "Ann");
    given.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(bench.get(given.task()).await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_worker_that_does_not_come_back_after_a_restart_loses_its_turn() {
    let directory = tempfile::tempdir().unwrap();
    let (_, turn) = crashed(before_crash(directory.path().to_owned(), false)).await;
    let (bench, clock) = slow_bench(reopened(directory.path()).await).await;
    let other = Worker::join(&bench, "vm:2").await;
    pass(&bench, &clock, 14, &[&other]).await;
    assert!(other.poll(1, &[], Duration::from_millis(20)).await.unwrap().assignments.is_empty());
    pass(&bench, &clock, 3, &[&other]).await;
    let taken = other.work().await;
    assert_eq!((taken.turn.id, taken.turn.assignment.attempt), (turn.id, 2));
}

#[tokio::test]
async fn a_stop_of_the_server_ends_polls_and_keeps_the_turns_of_workers() {
    let directory = tempfile::tempdir().unwrap();
    let first = engine(file(directory.path()), role(), Settings::default(), Clock::system()).await;
    let worker = Worker::join(&first, "vm:1").await;
    first.post(say("go")).await.unwrap();
    let given = worker.work().await;
    let stops = async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        first.engine.drain(Duration::from_secs(60)).await;
    };
    let listed = [&given];
    let (reply, ()) = tokio::join!(worker.poll(0, &listed, Duration::from_secs(5)), stops);
    assert!(reply.unwrap().leaving);
    // Not TURN_OVER: the worker keeps the turn.
    assert_eq!(given.write(1, vec![done("x")]).await.unwrap_err().kind, ErrorKind::Unavailable);
    let (at, turn) = (worker.at.clone(), given.turn.clone());
    drop((first, worker, given));
    let store = reopened(directory.path()).await;
    let bench = engine(store, role(), Settings::default(), Clock::system()).await;
    let given = Given { worker: Worker { bench: bench.clone(), at }, turn };
    given.write(1, vec![done("ok")]).await.unwrap();
    given.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(bench.get(given.task()).await.unwrap().status.state, TaskState::Completed);
}

#[tokio::test]
async fn owners_take_turns_at_the_workers() {
    let bench = bench().await;
    let owner = |name: &str| Bench {
        caller: Caller::new("".into(), name, Scopes::CALLER),
        ..bench.clone()
    };
    for number in 0..6 {
        owner("busy").post(say(&format!("busy {number}"))).await.unwrap();
    }
    owner("rare").post(say("rare")).await.unwrap();
    let worker = Worker::join(&bench, "vm:1").await;
    let mut order = Vec::new();
    for _ in 0..7 {
        let given = worker.work().await;
        order.push(given.text().to_owned());
        given.end(TurnOutcome::Done).await.unwrap();
    }
    let rare = order.iter().position(|text| text == "rare").unwrap();
    assert!(rare <= 1, "{order:?}");
    order.retain(|text| text != "rare");
    assert_eq!(order, (0..6).map(|number| format!("busy {number}")).collect::<Vec<_>>());
}

/// Metadata with one member, whose value is JSON.
fn metadata(name: &str, value: &str) -> Option<Metadata> {
    serde_json::from_str(&format!("{{\"{name}\": {value}}}")).unwrap()
}

/// A message with metadata.
fn demanding(content: &str, name: &str, value: &str) -> Message {
    Message { metadata: metadata(name, value), ..say(content) }
}

#[tokio::test]
async fn a_task_waits_for_a_worker_with_the_labels_that_it_requires() {
    let bench = bench().await;
    let plain = Worker::join(&bench, "vm:1").await;
    let gpu = Worker::joined(&bench, "vm:2", 1, &["linux", "gpu"]).await.unwrap();
    let special = bench.post(demanding("gpu", "herald/requires", "[\"gpu\"]")).await.unwrap();
    assert!(plain.poll(1, &[], Duration::from_millis(50)).await.unwrap().assignments.is_empty());
    let given = gpu.work().await;
    assert_eq!(given.task(), &special.id);
    given.end(TurnOutcome::Done).await.unwrap();
    // A worker with labels takes tasks without demands, too.
    let any = bench.post(say("any")).await.unwrap();
    assert_eq!(gpu.work().await.task(), &any.id);
    // The metadata of the send counts if the message has none.
    let mut send = SendMessage { message: say("x"), ..SendMessage::default() };
    send.configuration.return_immediately = true;
    send.metadata = metadata("herald/requires", "[\"tpu\"]");
    bench.sent(send).await.unwrap();
    assert!(plain.poll(1, &[], Duration::from_millis(50)).await.unwrap().assignments.is_empty());
    for bad in ["\"gpu\"", "[\"\"]", "[1]", "null"] {
        let refused = bench.post(demanding("x", "herald/requires", bad)).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidParams, "{bad}");
    }
}

#[tokio::test]
async fn tasks_with_a_higher_priority_come_first() {
    let bench = bench().await;
    for (content, priority) in [("low", "-5"), ("usual", "0"), ("high", "100")] {
        bench.post(demanding(content, "herald/priority", priority)).await.unwrap();
    }
    let worker = Worker::join(&bench, "vm:1").await;
    for expected in ["high", "usual", "low"] {
        let given = worker.work().await;
        assert_eq!(given.text(), expected);
        given.end(TurnOutcome::Done).await.unwrap();
    }
    for bad in ["101", "\"high\"", "1.5"] {
        let refused = bench.post(demanding("x", "herald/priority", bad)).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidParams, "{bad}");
    }
}

#[tokio::test]
async fn turns_of_a_serial_role_in_one_conversation_run_one_after_the_other() {
    let store = Arc::new(Sqlite::memory().unwrap());
    let serial = Profile { serial: true, ..role() };
    let bench = engine(store, serial, Settings::default(), Clock::system()).await;
    let (one, two) = (Worker::join(&bench, "vm:1").await, Worker::join(&bench, "vm:2").await);
    for content in ["first", "second"] {
        let message = Message { context_id: Some("chat".into()), ..say(content) };
        bench.post(message).await.unwrap();
    }
    let first = one.work().await;
    assert_eq!(first.text(), "first");
    assert!(two.poll(1, &[], Duration::from_millis(50)).await.unwrap().assignments.is_empty());
    first.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(two.work().await.text(), "second");
}

#[tokio::test]
async fn registrations_are_checked() {
    let bench = bench().await;
    for instance in ["", "a/b", "a b", "ü", &"x".repeat(200)] {
        let refused = Worker::joined(&bench, instance, 1, &[]).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidParams, "{instance}");
    }
    for (concurrency, labels) in [(0, vec![]), (5000, vec![]), (1, vec!["a b"])] {
        let refused = Worker::joined(&bench, "vm:1", concurrency, &labels).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidParams);
    }
    let workers = bench.engine.workers();
    let unknown = NewWorker {
        role: "nobody".into(),
        instance: "vm:1".to_owned(),
        concurrency: 1,
        labels: Vec::new(),
    };
    let refused = workers.join(&bench.caller, unknown).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::WorkerUnknown);
    let worker = Worker::join(&bench, "vm:1").await;
    let unknown = uuid::Uuid::new_v4().to_string();
    let at = SessionRef::parse(worker.at.name.as_str(), &unknown).unwrap();
    let stranger = Worker { at, ..worker.clone() };
    assert_eq!(stranger.beat(&[]).await.unwrap_err().kind, ErrorKind::WorkerExpired);
    let without_scope =
        Bench { caller: Caller::new("".into(), "", Scopes::CALLER), ..bench.clone() };
    assert_eq!(worker.on(&without_scope).beat(&[]).await.unwrap_err().kind, ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_role_gets_another_profile_while_its_workers_work() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let first = bench.post(say("first")).await.unwrap();
    let given = worker.work().await;
    let next = Profile { title: "Reviewer".to_owned(), ..role() };
    bench.engine.workers().update_role(next).unwrap();
    assert_eq!(bench.engine.profile(None).unwrap().title, "Reviewer");
    given.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(state(&bench, &first).await, TaskState::Completed);
    let second = bench.post(say("second")).await.unwrap();
    assert_eq!(worker.work().await.task(), &second.id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_workers_share_a_queue_and_every_turn_runs_once() {
    let store: Arc<dyn Store> = Arc::new(Sqlite::memory().unwrap());
    let bench = engine(store, role(), Settings::default(), Clock::system()).await;
    let mut runs = tokio::task::JoinSet::new();
    for number in 0..3 {
        let worker = Worker::join(&bench, &format!("vm:{number}")).await;
        runs.spawn(async move {
            let mut ran = Vec::new();
            loop {
                let reply = worker.poll(1, &[], Duration::from_millis(500)).await.unwrap();
                let Some(turn) = reply.assignments.into_iter().next() else { return ran };
                let given = Given { worker: worker.clone(), turn };
                given.write(1, vec![piece("x", true), done("ok")]).await.unwrap();
                given.end(TurnOutcome::Done).await.unwrap();
                ran.push(given.task().clone());
            }
        });
    }
    let mut tasks = Vec::new();
    for _ in 0..60 {
        tasks.push(bench.post(say("go")).await.unwrap().id);
    }
    let mut counts: HashMap<TaskId, usize> = HashMap::new();
    let mut by_worker = BTreeMap::new();
    for (worker, ran) in runs.join_all().await.into_iter().enumerate() {
        by_worker.insert(worker, ran.len());
        for task in ran {
            *counts.entry(task).or_default() += 1;
        }
    }
    assert!(tasks.iter().all(|task| counts.get(task) == Some(&1)), "{counts:?}");
    assert!(by_worker.values().all(|count| *count > 0), "{by_worker:?}");
}

#[tokio::test]
async fn one_worker_that_asks_for_it_is_told_of_a_task_that_ended_without_a_turn() {
    let bench = bench().await;
    let workers = [Worker::join(&bench, "vm:1").await, Worker::join(&bench, "vm:2").await];
    let polled = async |worker: &Worker, takes_ended, wait| {
        let poll = Poll { takes_ended, wait, ..Poll::default() };
        let reply = bench.engine.workers().poll(&bench.caller, &worker.at, poll).await.unwrap();
        reply.ended.iter().map(|notice| notice.task.id.clone()).collect::<Vec<_>>()
    };
    // Nobody has asked, so nobody is told later.
    let unnoticed = bench.post(say("one")).await.unwrap();
    bench.cancel(&unnoticed.id).await.unwrap();
    assert!(polled(&workers[0], true, Duration::ZERO).await.is_empty());
    let task = bench.post(say("two")).await.unwrap();
    let (found, cancelled) = tokio::join!(
        polled(&workers[0], true, Duration::from_secs(5)),
        // The poll waits, and the notice ends its wait.
        bench.cancel(&task.id)
    );
    cancelled.unwrap();
    assert_eq!(found, [task.id]);
    // The one that has asked before gets it with its next poll; the other one does not take it.
    let task = bench.post(say("three")).await.unwrap();
    bench.cancel(&task.id).await.unwrap();
    assert!(polled(&workers[1], false, Duration::ZERO).await.is_empty());
    assert_eq!(polled(&workers[0], true, Duration::ZERO).await, [task.id]);
    assert!(polled(&workers[0], true, Duration::ZERO).await.is_empty(), "each is told once");
}

#[tokio::test]
async fn a_poll_is_shorter_than_the_lease_of_its_role() {
    let bench = with_lease(Duration::from_secs(3)).await;
    assert_eq!(bench.engine.workers().longest_poll(&ROLE.into()), Duration::from_secs(1));
    let worker = Worker::join(&bench, "host:1").await;
    bench.post(say("hello")).await.unwrap();
    let given = worker.work().await;
    for _ in 0..2 {
        let reply = worker.poll(0, &[&given], Duration::from_secs(5)).await.unwrap();
        assert!(reply.stop.is_empty(), "the worker keeps its turn: {reply:?}");
    }
    let long = Poll { turns: vec![("x".repeat(65), 1)], ..Poll::default() };
    let refused = bench.engine.workers().poll(&bench.caller, &worker.at, long).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::InvalidParams);
}

#[tokio::test]
async fn only_the_last_command_of_a_write_can_end_the_turn() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("hello")).await.unwrap();
    let given = worker.work().await;
    let refused = given.write(1, vec![done("early"), piece("late", false)]).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::WriteRefused, "{refused:?}");
    given.write(1, vec![piece("text", false), done("late")]).await.unwrap();
    given.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(state(&bench, &task).await, TaskState::Completed);
}

/// The bench for a principal of a tenant.
fn principal(bench: &Bench, tenant: &str, name: &str, scopes: Scopes) -> Bench {
    Bench { caller: Caller::new(tenant.into(), name, scopes), ..bench.clone() }
}

/// The texts of the messages that a worker is given until there is nothing left for it.
async fn texts(worker: &Worker) -> Vec<String> {
    let mut texts = Vec::new();
    loop {
        let reply = worker.poll(1, &[], Duration::from_millis(100)).await.unwrap();
        let Some(turn) = reply.assignments.into_iter().next() else { return texts };
        let given = Given { worker: worker.clone(), turn };
        texts.push(given.text().to_owned());
        given.end(TurnOutcome::Done).await.unwrap();
    }
}

#[tokio::test]
async fn a_worker_gets_the_tasks_of_its_tenant_only() {
    for serial in [false, true] {
        let store = Arc::new(Sqlite::memory().unwrap());
        let profile = Profile { serial, ..role() };
        let bench = engine(store, profile, Settings::default(), Clock::system()).await;
        let acme = principal(&bench, "acme", "robot", Scopes::WORK);
        let zeta = principal(&bench, "zeta", "robot", Scopes::WORK);
        let callers = ["acme", "zeta", ""].map(|it| principal(&bench, it, "ann", Scopes::CALLER));
        for caller in &callers {
            caller.post(say(&format!("for {}", caller.caller.owner().tenant))).await.unwrap();
        }
        let acme = Worker::join(&acme, "vm:1").await;
        assert_eq!(texts(&acme).await, ["for acme"]);
        let zeta = Worker::join(&zeta, "vm:2").await;
        assert_eq!(texts(&zeta).await, ["for zeta"]);
        // A task that arrives while a worker of another tenant waits is not given to it at once either.
        let waits = acme.poll(1, &[], Duration::from_millis(200));
        let sends = async {
            tokio::time::sleep(Duration::from_millis(20)).await;
            callers[1].post(say("late")).await.unwrap()
        };
        let (reply, _) = tokio::join!(waits, sends);
        assert!(reply.unwrap().assignments.is_empty());
        assert_eq!(texts(&zeta).await, ["late"]);
        // The task of the tenant without a name is left to a worker that may take it.
        let all = principal(&bench, "ops", "robot", Scopes::WORK.with(Scopes::WORK_ALL));
        assert_eq!(texts(&Worker::join(&all, "vm:3").await).await, ["for "]);
    }
}

#[tokio::test]
async fn a_worker_with_the_permission_gets_the_tasks_of_every_tenant() {
    let bench = bench().await;
    for scopes in [Scopes::WORK.with(Scopes::WORK_ALL), Scopes::WORK.with(Scopes::ADMIN)] {
        for tenant in ["acme", "zeta", ""] {
            let caller = principal(&bench, tenant, "ann", Scopes::CALLER);
            caller.post(say(&format!("for {tenant}"))).await.unwrap();
        }
        let worker = Worker::join(&principal(&bench, "ops", "robot", scopes), "vm:1").await;
        let mut found = texts(&worker).await;
        found.sort();
        assert_eq!(found, ["for ", "for acme", "for zeta"]);
        // The credential of the poll decides, and not that of the registration.
        principal(&bench, "acme", "ann", Scopes::CALLER).post(say("later")).await.unwrap();
        let less = worker.on(&principal(&bench, "ops", "robot", Scopes::WORK));
        assert!(texts(&less).await.is_empty());
        assert_eq!(texts(&worker).await, ["later"]);
    }
    // Without credentials tenants are plain names.
    principal(&bench, "acme", "ann", Scopes::CALLER).post(say("open")).await.unwrap();
    assert_eq!(texts(&Worker::join(&bench, "vm:2").await).await, ["open"]);
}

#[tokio::test]
async fn the_owners_of_a_tenant_take_turns_while_workers_of_another_take_turns_as_well() {
    let bench = bench().await;
    for number in 0..3 {
        for (tenant, name) in [("acme", "ann"), ("acme", "bob"), ("zeta", "ann"), ("zeta", "bob")] {
            let caller = principal(&bench, tenant, name, Scopes::CALLER);
            caller.post(say(&format!("{name} {number}"))).await.unwrap();
        }
    }
    let join = async |tenant: &str| {
        Worker::join(&principal(&bench, tenant, "robot", Scopes::WORK), tenant).await
    };
    let workers = [join("acme").await, join("zeta").await];
    let mut order = [Vec::new(), Vec::new()];
    for _ in 0..6 {
        for (worker, order) in workers.iter().zip(&mut order) {
            let given = worker.work().await;
            order.push(given.text()[..3].to_owned());
            given.end(TurnOutcome::Done).await.unwrap();
        }
    }
    for order in order {
        assert!(order.windows(2).all(|two| two[0] != two[1]), "{order:?}");
    }
}

#[tokio::test]
async fn a_worker_is_not_told_of_the_end_of_a_task_of_another_tenant() {
    let bench = bench().await;
    let join = async |tenant: &str| {
        Worker::join(&principal(&bench, tenant, "robot", Scopes::WORK), tenant).await
    };
    let workers = [join("acme").await, join("zeta").await];
    let ended = async |worker: &Worker| {
        let poll = Poll { takes_ended: true, ..Poll::default() };
        let reply = bench.engine.workers().poll(&worker.bench.caller, &worker.at, poll).await;
        reply.unwrap().ended.into_iter().map(|notice| notice.task.id.clone()).collect::<Vec<_>>()
    };
    for worker in &workers {
        assert!(ended(worker).await.is_empty());
    }
    let caller = principal(&bench, "zeta", "ann", Scopes::CALLER);
    let task = caller.post(say("secret")).await.unwrap();
    caller.cancel(&task.id).await.unwrap();
    assert!(ended(&workers[0]).await.is_empty());
    assert_eq!(ended(&workers[1]).await, [task.id]);
}

#[tokio::test]
async fn a_write_beyond_the_next_number_is_refused_and_uses_no_number() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let given = worker.work().await;
    // Write 2 overtakes write 1.
    let early = given.write(2, vec![piece("b", true)]).await.unwrap_err();
    assert_eq!(early.kind, ErrorKind::WriteRefused);
    assert!(early.message.contains("the next number is 1"), "{early:?}");
    given.write(1, vec![piece("a", true)]).await.unwrap();
    given.write(2, vec![piece("b", true)]).await.unwrap();
    assert_eq!(given.answer(4).await.unwrap_err().kind, ErrorKind::WriteRefused);
    // A refused write has not used its number.
    let wrong = WorkerCommand::Report(TaskState::Submitted, None, None);
    assert_eq!(given.write(3, vec![wrong]).await.unwrap_err().kind, ErrorKind::WriteRefused);
    given.write(3, vec![piece("c", true), done("ok")]).await.unwrap();
    given.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(artifact_text(&bench.get(&task.id).await.unwrap(), "out"), "abc");
}

#[tokio::test]
async fn a_late_write_of_an_earlier_run_of_the_turn_is_refused() {
    let bench = bench().await;
    let worker = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let first = worker.work().await;
    first.write(1, vec![piece("old", true)]).await.unwrap();
    // The worker has forgotten the turn, and gets it again under the same epoch.
    let reply = worker.poll(1, &[], Duration::from_secs(5)).await.unwrap();
    let turn = reply.assignments.into_iter().next().unwrap();
    assert_eq!((&turn.id, turn.epoch), (&first.turn.id, first.turn.epoch));
    let second = Given { worker, turn };
    over(first.write(1, vec![piece("old", true)]).await);
    second.write(1, vec![piece("new", true), done("ok")]).await.unwrap();
    second.end(TurnOutcome::Done).await.unwrap();
    assert_eq!(artifact_text(&bench.get(&task.id).await.unwrap(), "out"), "new");
}

#[tokio::test]
async fn a_worker_gets_no_more_turns_than_it_declared() {
    let bench = bench().await;
    let worker = Worker::joined(&bench, "vm:1", 2, &[]).await.unwrap();
    for _ in 0..4 {
        bench.post(say("go")).await.unwrap();
    }
    // Both turns are given, whatever the poll asks for, and no third one while they run.
    let mut given = Vec::new();
    while given.len() < 2 {
        let listed: Vec<&Given> = given.iter().collect();
        let reply = worker.poll(9, &listed, Duration::from_secs(5)).await.unwrap();
        let turns = reply.assignments.into_iter();
        given.extend(turns.map(|turn| Given { worker: worker.clone(), turn }));
    }
    let listed: Vec<&Given> = given.iter().collect();
    let reply = worker.poll(9, &listed, Duration::from_millis(100)).await.unwrap();
    assert!(reply.assignments.is_empty(), "{reply:?}");
    // A turn that waits for its caller takes no place.
    given[0].write(1, vec![ask("name?")]).await.unwrap();
    let reply = worker.poll(9, &listed, Duration::from_secs(5)).await.unwrap();
    assert_eq!(reply.assignments.len(), 1);
}

#[tokio::test]
async fn a_task_beyond_its_deadline_is_failed_by_the_claim_and_not_run() {
    let clock = Clock::manual(Timestamp::from_millis(1_700_000_000_000));
    let hours = Duration::from_secs(3600);
    // Neither the janitor nor a heartbeat finds the task.
    let settings =
        Settings { heartbeat_every: hours, sweep_every: 9 * hours, ..Settings::default() };
    let profile = Profile { queue_timeout: Some(hours), ..role() };
    let store = Arc::new(Sqlite::memory().unwrap());
    let bench = engine(store, profile, settings, clock.clone()).await;
    let late = bench.post(say("late")).await.unwrap();
    clock.set(Timestamp::from_millis(clock.now().as_millis() + 1_800_000));
    let in_time = bench.post(say("in time")).await.unwrap();
    clock.set(Timestamp::from_millis(clock.now().as_millis() + 1_800_001));
    let worker = Worker::join(&bench, "vm:1").await;
    let given = worker.work().await;
    assert_eq!(given.task(), &in_time.id);
    let late = bench.get(&late.id).await.unwrap();
    assert_eq!(late.status.state, TaskState::Failed);
    assert_eq!(failure_reason(&late.status), "NOT_STARTED");
}

#[tokio::test]
async fn a_turn_of_a_dead_worker_that_went_on_while_its_task_waited_is_repeated() {
    let (bench, clock) = slow_bench(Arc::new(Sqlite::memory().unwrap())).await;
    let dies = Worker::join(&bench, "vm:1").await;
    let task = bench.post(say("go")).await.unwrap();
    let lost = dies.work().await;
    let waits = WorkerCommand::Interim(TaskState::InputRequired, None, None);
    lost.write(1, vec![waits]).await.unwrap();
    assert_eq!(state(&bench, &task).await, TaskState::InputRequired);
    let lives = Worker::join(&bench, "vm:2").await;
    pass(&bench, &clock, 17, &[&lives]).await;
    let taken = lives.work().await;
    assert_eq!((taken.task(), taken.turn.assignment.attempt), (&task.id, 2));
}

#[tokio::test]
async fn a_turn_that_goes_on_while_its_task_waits_is_attached_as_such_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_owned();
    let (at, turn) = crashed(async move {
        let bench = engine(file(&path), role(), Settings::default(), Clock::system()).await;
        let worker = Worker::join(&bench, "vm:1").await;
        bench.post(say("go")).await.unwrap();
        let given = worker.work().await;
        let waits = WorkerCommand::Interim(TaskState::InputRequired, None, None);
        given.write(1, vec![waits]).await.unwrap();
        (given.worker.at, given.turn)
    })
    .await;
    let store = reopened(directory.path()).await;
    let bench = engine(store, role(), Settings::default(), Clock::system()).await;
    let given = Given { worker: Worker { bench: bench.clone(), at }, turn };
    given.worker.beat(&[&given]).await.unwrap();
    // The worker returns in this state: an event says that the task waits for its caller, so that streams end.
    given.end(TurnOutcome::Done).await.unwrap();
    let kinds: Vec<_> =
        log(&bench, given.task()).await.into_iter().map(|entry| entry.entry.kind).collect();
    let state = TaskState::InputRequired;
    assert_eq!(kinds[kinds.len() - 2..], [Kind::Interim(state), Kind::Status(state)]);
}
