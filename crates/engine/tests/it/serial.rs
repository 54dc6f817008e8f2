//! Turns of serial agents: one at a time per conversation.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_engine::{
    Caller, Clock, Profile, Scopes, Settings,
    store::{Store, sqlite::Sqlite},
};
use herald_protocol::{Message, Part, Task, TaskState};
use tokio::sync::Semaphore;

use crate::support::{Bench, Script, answer, eventually, profile, say};

/// A record of the agent's turns, and a gate that holds them back.
#[derive(Debug)]
struct TurnRecorder {
    /// The messages in the order in which their turns began, by conversation.
    began: Mutex<HashMap<String, Vec<String>>>,
    /// All records, in order.
    records: Mutex<Vec<String>>,
    /// The number of running turns per conversation.
    running: Mutex<HashMap<String, usize>>,
    gate: Semaphore,
}

impl TurnRecorder {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Mutex::default(),
            records: Mutex::default(),
            running: Mutex::default(),
            gate: Semaphore::new(0),
        })
    }

    fn record(&self, what: String) {
        self.records.lock().unwrap().push(what);
    }

    fn records(&self) -> Vec<String> {
        self.records.lock().unwrap().clone()
    }

    fn begins(&self, conversation: &str, what: &str) {
        let mut began = self.began.lock().unwrap();
        began.entry(conversation.to_owned()).or_default().push(what.to_owned());
    }

    fn began(&self, conversation: &str) -> Vec<String> {
        self.began.lock().unwrap().get(conversation).cloned().unwrap_or_default()
    }

    async fn recorded(&self, what: &str) {
        eventually(|| std::future::ready(self.records().iter().any(|record| record == what))).await;
    }

    /// An agent that asserts that it has one turn per conversation. The first word of a message is
    /// its owner, the second its behaviour.
    fn agent(self: &Arc<Self>) -> Script {
        let recorder = Arc::clone(self);
        Script::new(move |turn| {
            let recorder = Arc::clone(&recorder);
            Box::pin(async move {
                let said = turn.message().text();
                let (owner, what) = said.split_once(' ').unwrap();
                let conversation = format!("{owner} in {}", turn.context_id());
                let others = {
                    let mut running = recorder.running.lock().unwrap();
                    let running = running.entry(conversation.clone()).or_default();
                    *running += 1;
                    *running - 1
                };
                assert_eq!(others, 0, "{said} began while another was at work");
                recorder.begins(&conversation, what);
                recorder.record(format!("{said} began"));
                match what {
                    "gate" => recorder.gate.acquire().await.unwrap().forget(),
                    "stubborn" => {
                        turn.cancelled().cancelled().await;
                        recorder.gate.acquire().await.unwrap().forget();
                    }
                    "ask" => turn.ask("what?").await?,
                    "hold" => {
                        turn.ask_within_turn(vec![Part::text("what?")]).await?;
                        assert!(turn.answered().await);
                        turn.take_answer().await?;
                    }
                    _ => tokio::task::yield_now().await,
                }
                recorder.record(format!("{said} ended"));
                *recorder.running.lock().unwrap().get_mut(&conversation).unwrap() -= 1;
                Ok(())
            })
        })
    }
}

fn serial() -> Profile {
    Profile { serial: true, concurrency: 4, grace: Duration::from_secs(600), ..profile() }
}

async fn bench(recorder: &Arc<TurnRecorder>) -> Bench {
    let bench = Bench::with(recorder.agent(), serial(), Settings::default()).await;
    of(&bench, "ann")
}

fn of(bench: &Bench, owner: &'static str) -> Bench {
    Bench { caller: Caller::new("acme".into(), owner, Scopes::ALL), ..bench.clone() }
}

fn in_context(context: &str, text: &str) -> Message {
    Message { context_id: Some(context.into()), ..say(text) }
}

async fn ended(bench: &Bench, task: &Task) -> Task {
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    bench.get(&task.id).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_of_a_conversation_run_one_by_one_in_the_order_of_their_messages() {
    for seed in 1..=4_u64 {
        let recorder = TurnRecorder::new();
        let ann = bench(&recorder).await;
        let bob = of(&ann, "bob");
        let mut random = seed;
        let (mut sent, mut tasks) = (HashMap::<String, Vec<String>>::new(), Vec::new());
        for number in 0..120 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (owner, bench) = [("ann", &ann), ("bob", &bob)][(random >> 33) as usize % 2];
            let context = format!("c{}", (random >> 40) % 3);
            let text = format!("{owner} {number}");
            tasks.push((bench, bench.post(in_context(&context, &text)).await.unwrap()));
            sent.entry(format!("{owner} in {context}")).or_default().push(number.to_string());
        }
        for (bench, task) in &tasks {
            assert_eq!(ended(bench, task).await.status.state, TaskState::Completed);
        }
        assert_eq!(sent.len(), 6);
        for (conversation, sent) in sent {
            assert_eq!(recorder.began(&conversation), sent, "{conversation}");
        }
    }
}

#[tokio::test]
async fn an_answer_is_ordered_among_the_other_messages() {
    let recorder = TurnRecorder::new();
    let bench = bench(&recorder).await;
    let asked = bench.send(in_context("c", "ann ask")).await.unwrap();
    assert_eq!(asked.status.state, TaskState::InputRequired);
    // A task that waits for its caller does not block the conversation.
    bench.send(in_context("c", "ann between")).await.unwrap();
    let gate = bench.post(in_context("c", "ann gate")).await.unwrap();
    recorder.recorded("ann gate began").await;
    bench.post(in_context("c", "ann before")).await.unwrap();
    bench.post(answer(&asked, "ann answer")).await.unwrap();
    bench.post(answer(&gate, "ann more")).await.unwrap();
    let last = bench.post(in_context("c", "ann after")).await.unwrap();
    recorder.gate.add_permits(1);
    ended(&bench, &last).await;
    let order = ["ask", "between", "gate", "before", "answer", "more", "after"];
    assert_eq!(recorder.began("ann in c"), order);
    assert_eq!(ended(&bench, &gate).await.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_turn_that_waits_for_its_answer_ends_before_the_next_begins() {
    let recorder = TurnRecorder::new();
    let bench = bench(&recorder).await;
    let asked = bench.send(in_context("c", "ann hold")).await.unwrap();
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let next = bench.post(in_context("c", "ann next")).await.unwrap();
    // A later message of another conversation has had its turn, so the waiting one could have begun
    // as well.
    bench.send(in_context("d", "ann later")).await.unwrap();
    assert_eq!(recorder.began("ann in c"), ["hold"]);
    bench.send(answer(&asked, "ann answer")).await.unwrap();
    ended(&bench, &next).await;
    assert_eq!(ended(&bench, &asked).await.status.state, TaskState::Completed);
    assert_eq!(recorder.began("ann in c"), ["hold", "next"]);
}

#[tokio::test]
async fn other_conversations_and_other_callers_are_not_blocked() {
    let recorder = TurnRecorder::new();
    let ann = bench(&recorder).await;
    let gate = ann.post(in_context("c", "ann gate")).await.unwrap();
    let waits = ann.post(in_context("c", "ann waits")).await.unwrap();
    assert_eq!(waits.status.state, TaskState::Submitted);
    ann.send(in_context("d", "ann elsewhere")).await.unwrap();
    of(&ann, "bob").send(in_context("c", "bob here")).await.unwrap();
    ann.send(say("ann anywhere")).await.unwrap();
    assert_eq!(recorder.began("ann in c"), ["gate"]);
    recorder.gate.add_permits(1);
    ended(&ann, &gate).await;
    ended(&ann, &waits).await;
}

#[tokio::test]
async fn a_waiting_turn_can_be_cancelled() {
    let recorder = TurnRecorder::new();
    let bench = bench(&recorder).await;
    bench.post(in_context("c", "ann gate")).await.unwrap();
    let unwanted = bench.post(in_context("c", "ann unwanted")).await.unwrap();
    let wanted = bench.post(in_context("c", "ann wanted")).await.unwrap();
    assert_eq!(bench.cancel(&unwanted.id).await.unwrap().status.state, TaskState::Canceled);
    recorder.gate.add_permits(1);
    ended(&bench, &wanted).await;
    assert_eq!(recorder.began("ann in c"), ["gate", "wanted"]);
}

#[tokio::test]
async fn the_next_turn_waits_until_a_cancelled_one_has_stopped() {
    let recorder = TurnRecorder::new();
    let bench = bench(&recorder).await;
    let stubborn = bench.post(in_context("c", "ann stubborn")).await.unwrap();
    recorder.recorded("ann stubborn began").await;
    let next = bench.post(in_context("c", "ann next")).await.unwrap();
    bench.cancel(&stubborn.id).await.unwrap();
    // A later message of another conversation has had its turn, so the waiting one could have begun
    // as well.
    bench.send(in_context("d", "ann later")).await.unwrap();
    assert_eq!(recorder.began("ann in c"), ["stubborn"]);
    recorder.gate.add_permits(1);
    ended(&bench, &next).await;
    let records = recorder.records();
    let at = |what: &str| records.iter().position(|record| record == what).unwrap();
    assert!(at("ann stubborn ended") < at("ann next began"), "{records:?}");
}

#[tokio::test]
async fn the_order_survives_a_restart() {
    let store = Arc::new(Sqlite::memory().unwrap());
    let recorder = TurnRecorder::new();
    let engine = async |recorder: &Arc<TurnRecorder>| {
        let store = Arc::clone(&store) as Arc<dyn Store>;
        let settings = Settings::default();
        let bench = Bench::on(store, recorder.agent(), serial(), settings, Clock::system()).await;
        of(&bench, "ann")
    };
    let first = engine(&recorder).await;
    let mut tasks = vec![first.post(in_context("c", "ann gate")).await.unwrap()];
    recorder.recorded("ann gate began").await;
    for number in 0..5 {
        tasks.push(first.post(in_context("c", &format!("ann {number}"))).await.unwrap());
    }
    // The turn is aborted: its claim belongs to a process that has ended.
    first.engine.drain(Duration::ZERO).await;
    let recorder = TurnRecorder::new();
    recorder.gate.add_permits(1);
    let second = engine(&recorder).await;
    for task in &tasks {
        assert_eq!(ended(&second, task).await.status.state, TaskState::Completed);
    }
    assert_eq!(recorder.began("ann in c"), ["gate", "0", "1", "2", "3", "4"]);
}
