//! Turns of one conversation, one after the other.

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

/// What the agent saw, and a gate that holds its turns back.
#[derive(Debug)]
struct Witness {
    /// The messages in the order in which their turns began, by conversation.
    began: Mutex<HashMap<String, Vec<String>>>,
    /// Everything that happened, in order.
    story: Mutex<Vec<String>>,
    /// Conversations in which a turn runs now.
    running: Mutex<HashMap<String, usize>>,
    gate: Semaphore,
}

impl Witness {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            began: Mutex::default(),
            story: Mutex::default(),
            running: Mutex::default(),
            gate: Semaphore::new(0),
        })
    }

    fn tell(&self, what: String) {
        self.story.lock().unwrap().push(what);
    }

    fn story(&self) -> Vec<String> {
        self.story.lock().unwrap().clone()
    }

    fn begins(&self, conversation: &str, what: &str) {
        let mut began = self.began.lock().unwrap();
        began.entry(conversation.to_owned()).or_default().push(what.to_owned());
    }

    fn began(&self, conversation: &str) -> Vec<String> {
        self.began.lock().unwrap().get(conversation).cloned().unwrap_or_default()
    }

    async fn tells(&self, what: &str) {
        eventually(|| std::future::ready(self.story().iter().any(|told| told == what))).await;
    }

    /// An agent that asserts that it is alone in each conversation. The first word of a message says
    /// whose it is, the second what to do.
    fn agent(self: &Arc<Self>) -> Script {
        let witness = Arc::clone(self);
        Script::new(move |turn| {
            let witness = Arc::clone(&witness);
            Box::pin(async move {
                let said = turn.message().text();
                let (owner, what) = said.split_once(' ').unwrap();
                let conversation = format!("{owner} in {}", turn.context_id());
                let others = {
                    let mut running = witness.running.lock().unwrap();
                    let running = running.entry(conversation.clone()).or_default();
                    *running += 1;
                    *running - 1
                };
                assert_eq!(others, 0, "{said} began while another was at work");
                witness.begins(&conversation, what);
                witness.tell(format!("{said} began"));
                match what {
                    "gate" => witness.gate.acquire().await.unwrap().forget(),
                    "stubborn" => {
                        turn.cancelled().cancelled().await;
                        witness.gate.acquire().await.unwrap().forget();
                    }
                    "ask" => turn.ask("what?").await?,
                    "hold" => {
                        turn.ask_within_turn(vec![Part::text("what?")]).await?;
                        assert!(turn.answered().await);
                        turn.take_answer().await?;
                    }
                    _ => tokio::task::yield_now().await,
                }
                witness.tell(format!("{said} ended"));
                *witness.running.lock().unwrap().get_mut(&conversation).unwrap() -= 1;
                Ok(())
            })
        })
    }
}

fn serial() -> Profile {
    Profile { serial: true, concurrency: 4, grace: Duration::from_secs(600), ..profile() }
}

async fn bench(witness: &Arc<Witness>) -> Bench {
    let bench = Bench::with(witness.agent(), serial(), Settings::default()).await;
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
        let witness = Witness::new();
        let ann = bench(&witness).await;
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
            assert_eq!(witness.began(&conversation), sent, "{conversation}");
        }
    }
}

#[tokio::test]
async fn an_answer_to_a_question_takes_its_place_among_the_other_messages() {
    let witness = Witness::new();
    let bench = bench(&witness).await;
    let asked = bench.send(in_context("c", "ann ask")).await.unwrap();
    assert_eq!(asked.status.state, TaskState::InputRequired);
    // A task that waits for its caller holds nobody up.
    bench.send(in_context("c", "ann between")).await.unwrap();
    let gate = bench.post(in_context("c", "ann gate")).await.unwrap();
    witness.tells("ann gate began").await;
    bench.post(in_context("c", "ann before")).await.unwrap();
    bench.post(answer(&asked, "ann answer")).await.unwrap();
    bench.post(answer(&gate, "ann more")).await.unwrap();
    let last = bench.post(in_context("c", "ann after")).await.unwrap();
    witness.gate.add_permits(1);
    ended(&bench, &last).await;
    let order = ["ask", "between", "gate", "before", "answer", "more", "after"];
    assert_eq!(witness.began("ann in c"), order);
    assert_eq!(ended(&bench, &gate).await.status.state, TaskState::Completed);
}

#[tokio::test]
async fn a_turn_that_waits_for_its_answer_itself_goes_on_before_the_next_begins() {
    let witness = Witness::new();
    let bench = bench(&witness).await;
    let asked = bench.send(in_context("c", "ann hold")).await.unwrap();
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let next = bench.post(in_context("c", "ann next")).await.unwrap();
    // Whoever came later and elsewhere has had a turn: the one that waits could have had it before.
    bench.send(in_context("d", "ann later")).await.unwrap();
    assert_eq!(witness.began("ann in c"), ["hold"]);
    bench.send(answer(&asked, "ann answer")).await.unwrap();
    ended(&bench, &next).await;
    assert_eq!(ended(&bench, &asked).await.status.state, TaskState::Completed);
    assert_eq!(witness.began("ann in c"), ["hold", "next"]);
}

#[tokio::test]
async fn other_conversations_and_other_callers_are_not_held_up() {
    let witness = Witness::new();
    let ann = bench(&witness).await;
    let gate = ann.post(in_context("c", "ann gate")).await.unwrap();
    let waits = ann.post(in_context("c", "ann waits")).await.unwrap();
    assert_eq!(waits.status.state, TaskState::Submitted);
    ann.send(in_context("d", "ann elsewhere")).await.unwrap();
    of(&ann, "bob").send(in_context("c", "bob here")).await.unwrap();
    ann.send(say("ann anywhere")).await.unwrap();
    assert_eq!(witness.began("ann in c"), ["gate"]);
    witness.gate.add_permits(1);
    ended(&ann, &gate).await;
    ended(&ann, &waits).await;
}

#[tokio::test]
async fn a_waiting_turn_can_be_cancelled() {
    let witness = Witness::new();
    let bench = bench(&witness).await;
    bench.post(in_context("c", "ann gate")).await.unwrap();
    let unwanted = bench.post(in_context("c", "ann unwanted")).await.unwrap();
    let wanted = bench.post(in_context("c", "ann wanted")).await.unwrap();
    assert_eq!(bench.cancel(&unwanted.id).await.unwrap().status.state, TaskState::Canceled);
    witness.gate.add_permits(1);
    ended(&bench, &wanted).await;
    assert_eq!(witness.began("ann in c"), ["gate", "wanted"]);
}

#[tokio::test]
async fn the_next_turn_waits_until_a_cancelled_one_has_stopped() {
    let witness = Witness::new();
    let bench = bench(&witness).await;
    let stubborn = bench.post(in_context("c", "ann stubborn")).await.unwrap();
    witness.tells("ann stubborn began").await;
    let next = bench.post(in_context("c", "ann next")).await.unwrap();
    bench.cancel(&stubborn.id).await.unwrap();
    // Whoever came later and elsewhere has had a turn: the one that waits could have had it before.
    bench.send(in_context("d", "ann later")).await.unwrap();
    assert_eq!(witness.began("ann in c"), ["stubborn"]);
    witness.gate.add_permits(1);
    ended(&bench, &next).await;
    let story = witness.story();
    let at = |what: &str| story.iter().position(|told| told == what).unwrap();
    assert!(at("ann stubborn ended") < at("ann next began"), "{story:?}");
}

#[tokio::test]
async fn the_order_outlives_the_process() {
    let store = Arc::new(Sqlite::memory().unwrap());
    let witness = Witness::new();
    let engine = async |witness: &Arc<Witness>| {
        let store = Arc::clone(&store) as Arc<dyn Store>;
        let settings = Settings::default();
        let bench = Bench::on(store, witness.agent(), serial(), settings, Clock::system()).await;
        of(&bench, "ann")
    };
    let first = engine(&witness).await;
    let mut tasks = vec![first.post(in_context("c", "ann gate")).await.unwrap()];
    witness.tells("ann gate began").await;
    for number in 0..5 {
        tasks.push(first.post(in_context("c", &format!("ann {number}"))).await.unwrap());
    }
    // The turn is cut off: its claim is that of a life that is over.
    first.engine.drain(Duration::ZERO).await;
    let witness = Witness::new();
    witness.gate.add_permits(1);
    let second = engine(&witness).await;
    for task in &tasks {
        assert_eq!(ended(&second, task).await.status.state, TaskState::Completed);
    }
    assert_eq!(witness.began("ann in c"), ["gate", "0", "1", "2", "3", "4"]);
}
