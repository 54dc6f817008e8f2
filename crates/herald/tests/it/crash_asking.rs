//! Tests of `kill -9` around questions, with answers right before, during and after the kill.
//!
//! One agent waits for the answer inside its turn, the other ends its turn with the question. Both
//! write down every message that they begin to work on, outside the server.

use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{task::JoinSet, time::sleep};

use crate::{
    http::{Client, Cut},
    support::{Herald, Options, Random, number, uuid},
    tasks::ended,
    wire::{Draft, Wire, id, state},
};

/// A coding agent of a few lines. It asks about whatever begins with `ask`, and its session goes on
/// with whatever else it is told.
const WAITING: &str = r#"
say() { printf '%s\n' "{\"jsonrpc\":\"2.0\",$1}"; }
finish() {
    say '"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done."}}}'
    say "\"id\":$1,\"result\":{\"stopReason\":\"end_turn\"}"
}
asking='"id":"may-i","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t","title":"it"},"options":[{"optionId":"yes","name":"Allow","kind":"allow_once"},{"optionId":"no","name":"Reject","kind":"reject_once"}]}'
while read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case $line in
        *'"method":"initialize"'*)
            say "\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{\"loadSession\":true}}" ;;
        *'"method":"session/new"'*)
            read -r session < /proc/sys/kernel/random/uuid
            say "\"id\":$id,\"result\":{\"sessionId\":\"$session\"}" ;;
        *'"method":"session/load"'*)
            say "\"id\":$id,\"result\":{}" ;;
        *'"method":"session/prompt"'*)
            session=${line#*\"sessionId\":\"}
            session=${session%%\"*}
            text=${line#*\"text\":\"}
            text=${text%%\"*}
            echo "$session $text" >> diary
            prompt=$id
            case $text in
                ask*) say "$asking" ;;
                *) finish $id ;;
            esac ;;
        *'"outcome"'*)
            echo "$session yes" >> diary
            finish $prompt ;;
    esac
done
"#;

/// A handler of a few lines that does the same, except that it does not wait.
const ENDING: &str = r#"
while read -r line; do
    turn=${line#*\"turn\":\"}
    turn=${turn%%\"*}
    case $line in
        *'"type":"hello"'*) printf '%s\n' '{"type":"hello","protocol":1}' ;;
        *'"type":"begin"'*)
            task=${line#*\"taskId\":\"}
            task=${task%%\"*}
            text=${line#*\"message\":}
            text=${text#*\"text\":\"}
            text=${text%%\"*}
            echo "$task $text" >> diary
            case $text in
                ask*) state=input-required ;;
                *) state=completed ;;
            esac
            printf '%s\n' "{\"type\":\"status\",\"turn\":\"$turn\",\"state\":\"$state\",\"text\":\"So it is.\"}" ;;
    esac
done
"#;

/// Both agents, with so many attempts.
fn agents(attempts: u32) -> Options {
    Options::config(format!(
        "[[agents]]\nname = \"waiting\"\nkind = \"acp\"\ndefault = true\nconcurrency = 32\n\
         attempts = {attempts}\ncommand = [\"sh\", \"-c\", '''{WAITING}''']\n\
         [[agents]]\nname = \"ending\"\nkind = \"handler\"\nattempts = {attempts}\n\
         command = [\"sh\", \"-c\", '''{ENDING}''']\n"
    ))
}

const AGENTS: [&str; 2] = ["/agents/waiting", "/agents/ending"];

/// The number of starts of each message, by the number in its first line.
fn diary(herald: &Herald) -> HashMap<u64, Runs> {
    let text = fs::read_to_string(herald.home().join("diary")).unwrap();
    let lines = || text.lines().filter_map(|line| line.split_once(' '));
    let questions: HashMap<&str, u64> = lines()
        .filter_map(|(place, said)| Some((place, said.strip_prefix("ask ")?.parse().unwrap())))
        .collect();
    let mut runs: HashMap<u64, Runs> = HashMap::new();
    for (place, said) in lines() {
        let runs = runs.entry(questions[place]).or_default();
        if said == "yes" { runs.answer += 1 } else { runs.question += 1 }
    }
    runs
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Runs {
    question: u64,
    answer: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_right_after_a_kill_belongs_to_its_question() {
    let rounds = number("HERALD_CRASH_ROUNDS", 4);
    // With one attempt, a question that is asked twice fails the task.
    let mut herald = Herald::start(agents(1)).await;
    let mut asked = 0;
    for _ in 0..rounds {
        let mut tasks = Vec::new();
        let mut client = herald.client().await;
        for agent in [AGENTS; 6].concat() {
            asked += 1;
            let call = Wire::Rest.send(agent, &Draft::new(uuid(), format!("ask {asked}")), false);
            let task = Wire::Rest.sent(&client.call(&call).await.unwrap()).unwrap();
            assert_eq!(state(&task), "input-required", "{task}");
            tasks.push((agent, id(&task).to_owned()));
        }
        herald.kill9().await;
        herald.restart().await;
        let mut client = herald.client().await;
        for (agent, task) in &tasks {
            let call = Wire::Rest.send(agent, &Draft::new(uuid(), "yes").to(task), true);
            Wire::Rest.sent(&client.call(&call).await.unwrap()).unwrap();
        }
        for (_, task) in &tasks {
            let task = ended(&herald, task).await;
            assert_eq!(state(&task), "completed", "{task}");
        }
    }
    let runs = diary(&herald);
    let once = Runs { question: 1, answer: 1 };
    assert_eq!(runs.len() as u64, asked);
    assert!(runs.values().all(|runs| *runs == once), "{runs:?}");
}

/// Asks and answers repeatedly, across kills.
#[derive(Debug)]
struct Asker {
    agent: &'static str,
    random: Random,
    kills: Arc<AtomicU64>,
    numbers: Arc<AtomicU64>,
    open: Option<Exchange>,
    done: Vec<Exchange>,
}

/// One question and its answer, and how many kills there had been at each step.
#[derive(Debug)]
struct Exchange {
    number: u64,
    question: Draft,
    answer: Draft,
    sent: u64,
    /// The time of the question, and the task.
    asked: Option<(u64, String)>,
    answered: Option<u64>,
    completed: u64,
}

impl Asker {
    /// Works until the server is killed or, with `last`, until no question is open.
    async fn work(&mut self, address: SocketAddr, last: bool) -> Result<(), Cut> {
        let mut client = Client::connect(address).await?;
        while self.open.is_some() || !last {
            if self.open.is_none() {
                self.open = Some(self.exchange());
            }
            let (kills, random) = (&self.kills, &mut self.random);
            let now = || kills.load(Ordering::SeqCst);
            let Some(open) = &mut self.open else { unreachable!("it was just opened") };
            if open.asked.is_none() {
                let call = Wire::Rest.send(self.agent, &open.question, false);
                let task = Wire::Rest.sent(&client.call(&call).await?).unwrap();
                assert_eq!(state(&task), "input-required", "{task}");
                open.asked = Some((now(), id(&task).to_owned()));
                sleep(Duration::from_millis(random.between(0, 60))).await;
            }
            let (_, task) = open.asked.as_ref().unwrap();
            open.answered.get_or_insert_with(now);
            let answer = open.answer.clone().to(task);
            let call = Wire::Rest.send(self.agent, &answer, false);
            let task = Wire::Rest.sent(&client.call(&call).await?).unwrap();
            assert_eq!(state(&task), "completed", "{task}");
            open.completed = now();
            self.done.extend(self.open.take());
        }
        Ok(())
    }

    fn exchange(&mut self) -> Exchange {
        let number = self.numbers.fetch_add(1, Ordering::SeqCst);
        let question = Draft::new(self.random.uuid(), format!("ask {number}"));
        let answer = Draft::new(self.random.uuid(), "yes");
        let sent = self.kills.load(Ordering::SeqCst);
        Exchange { number, question, answer, sent, asked: None, answered: None, completed: 0 }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_and_answers_survive_kills_at_any_moment() {
    let rounds = number("HERALD_CRASH_ROUNDS", 4) * 3;
    let mut random = Random::seeded("HERALD_CRASH_SEED");
    println!("HERALD_CRASH_SEED={} HERALD_CRASH_ROUNDS={}", random.0, rounds / 3);
    let (kills, numbers) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut herald = Herald::start(agents(99)).await;
    let mut askers: Vec<_> = [AGENTS; 5]
        .concat()
        .into_iter()
        .map(|agent| Asker {
            agent,
            random: random.branch(),
            kills: Arc::clone(&kills),
            numbers: Arc::clone(&numbers),
            open: None,
            done: Vec::new(),
        })
        .collect();
    for round in 0..=rounds {
        let (address, last) = (herald.address, round == rounds);
        let mut working = JoinSet::new();
        for mut asker in askers {
            working.spawn(async move {
                let cut = asker.work(address, last).await.is_err();
                assert_eq!(cut, !last, "the server is killed in every round but the last");
                asker
            });
        }
        if !last {
            // Some kills hit a server during its recovery.
            let moment =
                if round % 3 == 2 { random.between(1, 60) } else { random.between(100, 500) };
            sleep(Duration::from_millis(moment)).await;
            kills.fetch_add(1, Ordering::SeqCst);
            herald.kill9().await;
        }
        askers = working.join_all().await;
        if !last {
            herald.restart().await;
        }
    }
    let diary = diary(&herald);
    let done: Vec<_> = askers.iter().flat_map(|asker| &asker.done).collect();
    let (mut across, mut again) = (0, 0);
    for exchange in &done {
        let runs = diary[&exchange.number];
        let ((asked, _), answered) = (exchange.asked.as_ref().unwrap(), exchange.answered.unwrap());
        // Started once, and once more for each kill that may have interrupted it.
        let question = 1 + asked - exchange.sent;
        let answer = 1 + exchange.completed - answered;
        assert!((1..=question).contains(&runs.question), "{runs:?} {exchange:?}");
        assert!((1..=answer).contains(&runs.answer), "{runs:?} {exchange:?}");
        across += u64::from(exchange.completed > *asked);
        again += runs.question + runs.answer - 2;
    }
    println!(
        "{} kills, {} questions answered, {across} of them across a kill; {again} turns were cut \
         off and run again; refused 0, failed 0, run too often 0",
        kills.load(Ordering::SeqCst),
        done.len(),
    );
    assert!(across > 0, "no kill fell between a question and its answer");
}
