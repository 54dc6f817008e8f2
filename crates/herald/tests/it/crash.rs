//! Crash tests: `kill -9` under load, checked against a ledger of all acknowledgements.
//!
//! Clients record each message before they send it, and each response and stream
//! event as soon as they have it. After the kill and a restart on the same data the ledger is compared
//! with the server's responses.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use serde_json::Value;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};

use crate::{
    http::{Client, Cut},
    support::{CONFORMANCE, Herald, Options, Random, SOON, eventually, number, uuid},
    wire::{self, Draft, Frame, Wire, asked, id, is_terminal, state},
};

const CHUNKS: usize = 40;

/// The longest time from readiness until no task is left working.
const SETTLED: Duration = Duration::from_secs(60);

/// The number of concurrent clients during a check.
const LANES: usize = 8;

/// The repeated action of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Sends to `echo` and waits for the answer.
    Echo,
    /// Reads a stream frame by frame.
    Stream,
    /// Starts a slow task and does not wait for it.
    Long,
    /// Starts a task that works until it is cancelled, and cancels it.
    Cancel,
    /// Answers two questions, then ends the task.
    Turns,
}

/// The clients that load the server.
const CLIENTS: [(Kind, Wire); 13] = [
    (Kind::Echo, Wire::Rpc),
    (Kind::Echo, Wire::Rest),
    (Kind::Echo, Wire::OldRpc),
    (Kind::Echo, Wire::OldRest),
    (Kind::Stream, Wire::Rpc),
    (Kind::Stream, Wire::Rest),
    (Kind::Stream, Wire::OldRpc),
    (Kind::Long, Wire::Rpc),
    (Kind::Long, Wire::OldRpc),
    (Kind::Cancel, Wire::Rest),
    (Kind::Cancel, Wire::OldRpc),
    (Kind::Turns, Wire::Rpc),
    (Kind::Turns, Wire::OldRpc),
];

/// A message that was sent at least once.
#[derive(Debug, Clone)]
struct Sent {
    kind: Kind,
    wire: Wire,
    draft: Draft,
    /// Its task, once the server has returned it.
    task: Option<String>,
    /// True if its response was received.
    answered: bool,
}

/// Everything that was acknowledged.
#[derive(Debug, Default)]
struct Ledger {
    sent: Vec<Sent>,
    /// Tasks in answers, as they were.
    tasks: Vec<(Wire, Value)>,
    /// Events of streams, by task.
    frames: HashMap<String, BTreeMap<u64, Frame>>,
    cancelled: HashSet<String>,
}

/// Differences between acknowledgements and the server's state.
#[derive(Debug, Default)]
struct Findings {
    lost: Vec<String>,
    duplicated: Vec<String>,
    stuck: Vec<String>,
}

#[derive(Debug, Default)]
struct Totals {
    kills: u64,
    /// Since the last successful check.
    kills_in_a_row: u64,
    events: usize,
    resumed: usize,
    resent: usize,
    interrupted: usize,
}

/// State that all clients share.
#[derive(Debug, Clone, Default)]
struct Books {
    ledger: Arc<Mutex<Ledger>>,
    findings: Arc<Mutex<Findings>>,
    totals: Arc<Mutex<Totals>>,
}

// proves: SEND-025, SEND-027, STR-019, STR-020, STR-030
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed_under_load() {
    let rounds = number("HERALD_CRASH_ROUNDS", 4);
    let mut random = Random::seeded("HERALD_CRASH_SEED");
    println!("HERALD_CRASH_SEED={} HERALD_CRASH_ROUNDS={rounds}", random.0);
    let mut herald = Herald::start(Options::agents()).await;
    let books = Books::default();
    for round in 0..rounds {
        let first = books.ledger().sent.len();
        load(&mut herald, &books, &mut random).await;
        // Every other time it is killed again, up to twice, during its recovery.
        let again = if round % 2 == 1 { random.between(1, 3) } else { 0 };
        for _ in 0..again {
            herald.restart().await;
            sleep(Duration::from_millis(random.between(5, 150))).await;
            herald.kill9().await;
        }
        books.totals().kills += 1 + again;
        books.totals().kills_in_a_row = 1 + again;
        herald.restart().await;
        books.check(&herald, first).await;
    }
    books.check_list(&herald).await;
    let (totals, findings) = (books.totals(), books.findings());
    println!(
        "{} kills, {} tasks, {} events checked, {} streams resumed, {} sends repeated, {} turns \
         given up; lost {}, duplicated {}, stuck {}",
        totals.kills,
        books.ledger().starts().count(),
        totals.events,
        totals.resumed,
        totals.resent,
        totals.interrupted,
        findings.lost.len(),
        findings.duplicated.len(),
        findings.stuck.len(),
    );
    assert!(totals.resumed > 0 && totals.resent > 0, "nothing was cut: {totals:?}");
}

/// Every program records its start and end, so that concurrent runs show.
const DIARY: &str = r#"
[[agents]]
name = "diary"
kind = "exec"
serial = true
attempts = 9
command = ["sh", "-c", "read -r said; echo $said begins >> diary; sleep 0.02; echo $said ends >> diary"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_conversation_keep_their_order_when_the_server_is_killed() {
    let mut random = Random::seeded("HERALD_CRASH_SEED");
    println!("HERALD_CRASH_SEED={}", random.0);
    let mut herald = Herald::start(Options::config(DIARY)).await;
    let mut tasks = Vec::new();
    for number in 0..12 {
        let context = format!("c{}", number % 2);
        let draft = Draft::new(uuid(), format!("{context} {number}")).within(context);
        let call = Wire::Rest.send("", &draft, true);
        tasks.push(Wire::Rest.sent(&herald.call(&call).await).unwrap());
    }
    for _ in 0..3 {
        sleep(Duration::from_millis(random.between(1, 80))).await;
        herald.kill9().await;
        herald.restart().await;
    }
    eventually(SOON, "every task has ended", async || {
        let open = async |task: &Value| {
            let found = herald.call(&Wire::Rest.get(id(task))).await;
            !is_terminal(&state(&Wire::Rest.result(&found).unwrap()))
        };
        for task in &tasks {
            if open(task).await {
                return false;
            }
        }
        true
    })
    .await;
    let diary = std::fs::read_to_string(herald.home().join("diary")).unwrap();
    for context in ["c0", "c1"] {
        let mut lines = diary.lines().filter(|line| line.starts_with(context)).peekable();
        for number in (0..12).filter(|number| format!("c{}", number % 2) == context) {
            let (begins, ends) =
                (format!("{context} {number} begins"), format!("{context} {number} ends"));
            assert_eq!(lines.next(), Some(begins.as_str()), "{diary}");
            // Started again, or ended without an acknowledgement, if the server was killed meanwhile.
            let mut last = begins.as_str();
            while let Some(next) = lines.next_if(|line| *line == begins || *line == ends) {
                last = next;
            }
            assert_eq!(last, ends, "{diary}");
        }
        assert_eq!(lines.next(), None, "{diary}");
    }
}

/// Starts all clients, and kills the server under their load.
async fn load(herald: &mut Herald, books: &Books, random: &mut Random) {
    let mut clients = JoinSet::new();
    for (kind, wire) in CLIENTS {
        let (address, random) = (herald.address, random.branch());
        let mut worker = Worker { kind, wire, books: books.clone(), random };
        clients.spawn(async move {
            // It works until the server is killed.
            let _ = worker.work(address).await;
        });
    }
    sleep(Duration::from_millis(random.between(150, 900))).await;
    herald.kill9().await;
    clients.join_all().await;
}

/// One client under load.
#[derive(Debug)]
struct Worker {
    kind: Kind,
    wire: Wire,
    books: Books,
    random: Random,
}

impl Worker {
    async fn work(&mut self, address: SocketAddr) -> Result<(), Cut> {
        let mut client = Client::connect(address).await?;
        loop {
            match self.kind {
                Kind::Echo => {
                    let text = format!("number {}", self.random.next());
                    self.send(&mut client, text, None).await?;
                }
                Kind::Stream => client = self.stream(client).await?,
                Kind::Long => {
                    let delay = self.random.between(0, 300);
                    let text = format!("tck-long-running delay_ms={delay}");
                    self.send(&mut client, text, None).await?;
                    sleep(Duration::from_millis(self.random.between(0, 20))).await;
                }
                Kind::Cancel => {
                    let task = self.send(&mut client, "tck-cancel".into(), None).await?;
                    sleep(Duration::from_millis(self.random.between(0, 20))).await;
                    let answer = client.call(&self.wire.cancel(id(&task))).await?;
                    let task = self.wire.result(&answer).unwrap();
                    assert_eq!(state(&task), "canceled");
                    let mut ledger = self.books.ledger();
                    ledger.cancelled.insert(id(&task).to_owned());
                    ledger.tasks.push((self.wire, task));
                }
                Kind::Turns => {
                    let first = self.send(&mut client, "tck-multi-turn".into(), None).await?;
                    for text in ["more", "and more", "done"] {
                        self.send(&mut client, text.into(), Some(id(&first))).await?;
                    }
                }
            }
        }
    }

    async fn send(
        &mut self,
        client: &mut Client,
        text: String,
        task: Option<&str>,
    ) -> Result<Value, Cut> {
        let mut draft = Draft::new(self.random.uuid(), text);
        draft.task = task.map(str::to_owned);
        let number = self.books.ledger().sending(self.kind, self.wire, draft);
        self.books.send(client, number).await
    }

    async fn stream(&mut self, client: Client) -> Result<Client, Cut> {
        let text = format!("tck-stream-chunked chunks={CHUNKS} size=32 delay_ms=1");
        let draft = Draft::new(self.random.uuid(), text);
        let number = self.books.ledger().sending(self.kind, self.wire, draft.clone());
        let mut stream = client.open(&self.wire.stream(CONFORMANCE, &draft)).await?;
        while let Some(event) = stream.next().await? {
            self.books.saw(number, self.wire.frame(&event));
        }
        self.books.ledger().sent[number].answered = true;
        Ok(stream.done())
    }
}

impl Kind {
    const fn agent(self) -> &'static str {
        match self {
            Self::Echo => "",
            Self::Stream | Self::Long | Self::Cancel | Self::Turns => CONFORMANCE,
        }
    }

    const fn returns_immediately(self) -> bool {
        match self {
            Self::Long | Self::Cancel => true,
            Self::Echo | Self::Stream | Self::Turns => false,
        }
    }
}

impl Ledger {
    /// Recorded before it is sent, so that no message is missing from the ledger.
    fn sending(&mut self, kind: Kind, wire: Wire, draft: Draft) -> usize {
        let task = draft.task.clone();
        self.sent.push(Sent { kind, wire, draft, task, answered: false });
        self.sent.len() - 1
    }

    /// The messages that began a task each.
    fn starts(&self) -> impl Iterator<Item = &Sent> {
        self.sent.iter().filter(|sent| sent.draft.task.is_none())
    }

    /// The same, from number `first` on.
    fn starts_since(&self, first: usize, wanted: impl Fn(Kind) -> bool) -> Vec<Sent> {
        let starts = |sent: &&Sent| sent.draft.task.is_none() && wanted(sent.kind);
        self.sent[first..].iter().filter(starts).cloned().collect()
    }

    /// The numbers of some messages, from `first` on.
    fn numbers(&self, first: usize, wanted: impl Fn(&Sent) -> bool) -> impl Iterator<Item = usize> {
        (first..self.sent.len()).filter(move |number| wanted(&self.sent[*number]))
    }

    fn works_until_cancelled(&self) -> HashSet<String> {
        let sent = self.sent.iter().filter(|sent| sent.kind == Kind::Cancel);
        sent.filter_map(|sent| sent.task.clone()).collect()
    }

    /// The last event that was seen of a task.
    fn last_seen(&self, task: &str) -> u64 {
        self.frames.get(task).and_then(|seen| seen.keys().last().copied()).unwrap_or(0)
    }
}

impl Books {
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    fn findings(&self) -> MutexGuard<'_, Findings> {
        self.findings.lock().unwrap()
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap()
    }

    fn lost(&self, what: String) {
        self.findings().lost.push(what);
    }

    fn duplicated(&self, what: String) {
        self.findings().duplicated.push(what);
    }

    /// Sends a message that is in the ledger, for the first time or again.
    async fn send(&self, client: &mut Client, number: usize) -> Result<Value, Cut> {
        let Sent { kind, wire, draft, .. } = self.ledger().sent[number].clone();
        let call = wire.send(kind.agent(), &draft, kind.returns_immediately());
        let answer = client.call(&call).await?;
        let task = wire.sent(&answer).unwrap_or_else(|fault| panic!("{draft:?}: {fault:?}"));
        self.belongs(number, id(&task));
        let mut ledger = self.ledger();
        ledger.sent[number].answered = true;
        ledger.tasks.push((wire, task.clone()));
        Ok(task)
    }

    /// Records an event of a stream. A gap before it is a lost event.
    fn saw(&self, number: usize, frame: Frame) {
        self.belongs(number, &frame.task);
        let last = self.ledger().last_seen(&frame.task);
        if frame.seq <= last {
            self.duplicated(format!("event {} after {last}: {frame:?}", frame.seq));
        } else if frame.seq != last + 1 {
            self.lost(format!("events between {last} and {}: {frame:?}", frame.seq));
        }
        let mut ledger = self.ledger();
        ledger.frames.entry(frame.task.clone()).or_default().insert(frame.seq, frame);
    }

    /// One message, one task, however often it is sent.
    fn belongs(&self, number: usize, task: &str) {
        let known = self.ledger().sent[number].task.replace(task.to_owned());
        if let Some(known) = known.filter(|known| known != task) {
            self.duplicated(format!("message {number} is in {known} and in {task}"));
        }
    }

    /// Compares a server after its restart with everything that it acknowledged before.
    /// Messages from number `first` on are new since the last time.
    async fn check(&self, herald: &Herald, first: usize) {
        let address = herald.address;
        herald.ready().await;
        let ready = Instant::now();
        self.check_tasks(address).await;
        self.assert_clean();
        self.resume_streams(address, first).await;
        self.resend(address, first).await;
        self.wait_until_settled(herald, ready).await;
        self.assert_clean();
        self.cancel_and_finish(address, first).await;
        self.check_logs(address, first).await;
        let total = total_in(herald, None).await;
        let starts = self.ledger().starts().count() as u64;
        if total > starts {
            self.duplicated(format!("{total} tasks for {starts} messages"));
        } else if total < starts {
            self.lost(format!("{total} tasks for {starts} messages"));
        }
        for state in ["SUBMITTED", "WORKING"] {
            let left = total_in(herald, Some(state)).await;
            if left > 0 {
                self.findings().stuck.push(format!("{left} tasks are {state}"));
            }
        }
        self.assert_clean();
    }

    #[track_caller]
    fn assert_clean(&self) {
        let findings = self.findings();
        let Findings { lost, duplicated, stuck } = &*findings;
        let (lost, duplicated, stuck) = (lost.len(), duplicated.len(), stuck.len());
        assert_eq!((lost, duplicated, stuck), (0, 0, 0), "{findings:#?}");
    }

    /// Every acknowledged task exists, and ended tasks are unchanged.
    async fn check_tasks(&self, address: SocketAddr) {
        let tasks = std::mem::take(&mut self.ledger().tasks);
        let books = self.clone();
        lanes(address, tasks, move |mut client, (wire, told): (Wire, Value)| {
            let books = books.clone();
            async move {
                let answer = client.call(&wire.get(id(&told))).await.unwrap();
                match wire.result(&answer) {
                    Err(fault) => books.lost(format!("{fault:?} instead of {told}")),
                    Ok(found) if is_terminal(&state(&told)) => {
                        if found != told {
                            books.lost(format!("{found} instead of {told}"));
                        }
                    }
                    Ok(found) => {
                        let (before, now) = (asked(&told), asked(&found));
                        if now.get(..before.len()) != Some(&before[..]) {
                            books.lost(format!("messages {before:?} of {found}"));
                        }
                    }
                }
                client
            }
        })
        .await;
    }

    /// Interrupted streams resume where they were, by both ways to resume.
    async fn resume_streams(&self, address: SocketAddr, first: usize) {
        let cut: Vec<_> = self.unanswered(first, |kind| kind == Kind::Stream);
        self.totals().resumed += cut.len();
        let books = self.clone();
        lanes(address, cut, move |client, number: usize| {
            let books = books.clone();
            async move {
                let Sent { wire, draft, task, .. } = books.ledger().sent[number].clone();
                let again = wire.stream(CONFORMANCE, &draft);
                let call = match task {
                    None => again,
                    Some(task) => {
                        let seen = books.ledger().last_seen(&task);
                        match number % 2 {
                            0 => wire.resume(&task, seen),
                            _ => again.header("last-event-id", format!("{task}:{seen}")),
                        }
                    }
                };
                let mut stream = client.open(&call).await.unwrap();
                while let Some(event) = stream.next().await.unwrap() {
                    books.saw(number, wire.frame(&event));
                }
                books.ledger().sent[number].answered = true;
                stream.done()
            }
        })
        .await;
    }

    /// Clients without a response send again with the same id, and so do some with one.
    async fn resend(&self, address: SocketAddr, first: usize) {
        let mut numbers = self.unanswered(first, |kind| kind != Kind::Stream);
        self.totals().resent += numbers.len();
        let answered = |sent: &Sent| sent.answered && sent.kind == Kind::Echo;
        numbers.extend(self.ledger().numbers(first, answered).step_by(10));
        let books = self.clone();
        lanes(address, numbers, move |mut client, number: usize| {
            let books = books.clone();
            async move {
                books.send(&mut client, number).await.unwrap();
                client
            }
        })
        .await;
    }

    /// Only tasks that work until they are cancelled are still working.
    async fn wait_until_settled(&self, herald: &Herald, ready: Instant) {
        loop {
            let mut left = Vec::new();
            for state in ["SUBMITTED", "WORKING"] {
                let answer = herald.call(&wire::list(Some(state), 100, "")).await;
                left.extend(answer.json()["tasks"].as_array().unwrap().iter().cloned());
            }
            let kept = self.ledger().works_until_cancelled();
            left.retain(|task| !kept.contains(id(task)));
            if left.is_empty() {
                return;
            }
            if ready.elapsed() > SETTLED {
                self.findings().stuck.extend(left.iter().map(Value::to_string));
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Cancels working tasks, and answers waiting ones.
    async fn cancel_and_finish(&self, address: SocketAddr, first: usize) {
        let open = self.ledger().starts_since(first, |kind| match kind {
            Kind::Cancel | Kind::Turns => true,
            Kind::Echo | Kind::Stream | Kind::Long => false,
        });
        let books = self.clone();
        lanes(address, open, move |mut client, Sent { kind, wire, task, .. }: Sent| {
            let books = books.clone();
            async move {
                let task = task.expect("by now every message has its task");
                let answer = client.call(&wire.get(&task)).await.unwrap();
                let before = wire.result(&answer).unwrap();
                if kind == Kind::Turns && !is_terminal(&state(&before)) {
                    let draft = Draft::new(uuid(), "done").to(&task);
                    let number = books.ledger().sending(kind, wire, draft);
                    let after = books.send(&mut client, number).await.unwrap();
                    assert_eq!(state(&after), "completed", "{before} {after}");
                } else if kind == Kind::Cancel {
                    let cancelled = books.ledger().cancelled.contains(&task);
                    let answer = client.call(&wire.cancel(&task)).await.unwrap();
                    match wire.result(&answer) {
                        Ok(task) if !cancelled => assert_eq!(state(&task), "canceled", "{task}"),
                        Ok(task) => books.lost(format!("the cancel of {task}")),
                        Err(fault) => {
                            assert_eq!(fault.reason, "TASK_NOT_CANCELABLE", "{fault:?}");
                            let end = state(&before);
                            // It was cancelled, or interrupted too often.
                            assert!(matches!(end.as_str(), "canceled" | "failed"), "{before}");
                        }
                    }
                }
                client
            }
        })
        .await;
    }

    /// Every log is complete, ends once, and agrees with the streams.
    async fn check_logs(&self, address: SocketAddr, first: usize) {
        let starts = self.ledger().starts_since(first, |_| true);
        let books = self.clone();
        lanes(address, starts, move |client, sent: Sent| {
            let books = books.clone();
            async move {
                let task = sent.task.clone().unwrap();
                let (mut client, log) = sent.wire.replay(client, &task).await.unwrap();
                books.check_log(&sent, &task, &log);
                let answer = client.call(&Wire::Rest.get(&task)).await.unwrap();
                let found = Wire::Rest.result(&answer).unwrap();
                books.check_messages(&found, first);
                books.check_outcome(&sent, &found, &log);
                client
            }
        })
        .await;
    }

    fn check_log(&self, sent: &Sent, task: &str, log: &[Frame]) {
        let seqs: Vec<u64> = log.iter().map(|frame| frame.seq).collect();
        let whole: Vec<u64> = (1..=log.len() as u64).collect();
        if seqs != whole {
            let distinct: BTreeSet<_> = seqs.iter().collect();
            let twice = distinct.len() < seqs.len();
            let what = format!("the log of {task} is {seqs:?}");
            if twice { self.duplicated(what) } else { self.lost(what) }
        }
        let ends =
            log.iter().filter(|frame| frame.state().is_some_and(|state| is_terminal(&state)));
        let last = log.last().and_then(Frame::state).unwrap_or_default();
        match ends.count() {
            1 if is_terminal(&last) => {}
            0 => self.lost(format!("the end of {task}: {log:?}")),
            _ => self.duplicated(format!("ends of {task}: {log:?}")),
        }
        let ledger = self.ledger();
        let seen = ledger.frames.get(task);
        // A live stream begins with the task after its first event.
        let seen: Vec<_> = seen.into_iter().flatten().filter(|(seq, _)| **seq > 1).collect();
        for (seq, frame) in &seen {
            let kept = log.get(usize::try_from(**seq).unwrap() - 1);
            if kept != Some(*frame) {
                self.findings().lost.push(format!("{kept:?} instead of {frame:?}"));
            }
        }
        if sent.kind == Kind::Stream && seen.len() + 1 != log.len() {
            let what = format!("{} of {} events of {task} came", seen.len() + 1, log.len());
            self.findings().lost.push(what);
        }
        self.totals().events += log.len();
    }

    /// Every message is in its task, and only once.
    fn check_messages(&self, task: &Value, first: usize) {
        let messages = asked(task);
        let ledger = self.ledger();
        let sent = ledger.sent[first..].iter();
        let sent = sent.filter(|sent| sent.task.as_deref() == Some(id(task)));
        let expected: BTreeSet<&str> = sent.map(|sent| sent.draft.id.as_str()).collect();
        let distinct: BTreeSet<&str> = messages.iter().copied().collect();
        if distinct.len() != messages.len() {
            self.duplicated(format!("messages {messages:?} of {task}"));
        }
        if distinct != expected {
            self.lost(format!("messages {messages:?} of {task} are not {expected:?}"));
        }
    }

    fn check_outcome(&self, sent: &Sent, task: &Value, log: &[Frame]) {
        let outcome = state(task);
        assert_eq!(log.last().and_then(Frame::state).as_deref(), Some(outcome.as_str()), "{task}");
        let reason = &task["status"]["message"]["metadata"]["reason"];
        if outcome == "failed" && reason == "INTERRUPTED" {
            // The agents have three attempts, so three interruptions end a task.
            let mut totals = self.totals();
            assert!(totals.kills_in_a_row >= 3, "{task}");
            totals.interrupted += 1;
            return;
        }
        let parts = task["artifacts"][0]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let texts: Vec<_> = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
        match sent.kind {
            Kind::Cancel => return assert_eq!(outcome, "canceled", "{task}"),
            Kind::Echo => assert_eq!(texts, [format!("Echo: {}", sent.draft.text)], "{task}"),
            Kind::Stream => {
                assert_eq!(texts.len(), CHUNKS, "{task}");
                check_chunks(&texts);
                let all: Vec<_> = log.iter().filter_map(Frame::text).collect();
                // Each attempt starts anew.
                for attempt in all.chunk_by(|_, next| !next.starts_with("chunk 0 ")) {
                    check_chunks(attempt);
                }
            }
            Kind::Long => assert_eq!(texts, ["Long-running work is done"], "{task}"),
            Kind::Turns => {}
        }
        assert_eq!(outcome, "completed", "{task}");
    }

    /// The list has every task, in the state it ended in.
    async fn check_list(&self, herald: &Herald) {
        let mut client = herald.client().await;
        let (mut listed, mut token) = (HashSet::new(), String::new());
        loop {
            let page = client.call(&wire::list(None, 100, &token)).await.unwrap().json();
            for task in page["tasks"].as_array().unwrap() {
                assert!(is_terminal(&state(task)), "{task}");
                if !listed.insert(id(task).to_owned()) {
                    self.duplicated(format!("{task} in the list"));
                }
            }
            page["nextPageToken"].as_str().unwrap().clone_into(&mut token);
            if token.is_empty() {
                break;
            }
        }
        let ledger = self.ledger();
        let started: HashSet<_> = ledger.starts().map(|sent| sent.task.clone().unwrap()).collect();
        assert_eq!(listed.len(), started.len());
        assert!(listed == started);
    }

    fn unanswered(&self, first: usize, wanted: impl Fn(Kind) -> bool) -> Vec<usize> {
        let open = |sent: &Sent| !sent.answered && wanted(sent.kind);
        self.ledger().numbers(first, open).collect()
    }
}

fn check_chunks(texts: &[&str]) {
    for (index, text) in texts.iter().enumerate() {
        assert!(text.starts_with(&format!("chunk {index} ")), "{index} of {texts:?}");
    }
}

/// The number of tasks in this state, or in any.
async fn total_in(herald: &Herald, state: Option<&str>) -> u64 {
    let page = herald.call(&wire::list(state, 1, "")).await.json();
    page["totalSize"].as_u64().unwrap_or_else(|| panic!("no totalSize: {page}"))
}

/// Processes all items with a few concurrent lanes, each on one connection.
async fn lanes<T, F>(
    address: SocketAddr,
    items: Vec<T>,
    work: impl Fn(Client, T) -> F + Clone + Send + 'static,
) where
    T: Send + 'static,
    F: Future<Output = Client> + Send + 'static,
{
    let mut lanes: Vec<Vec<T>> = (0..LANES).map(|_| Vec::new()).collect();
    for (index, item) in items.into_iter().enumerate() {
        lanes[index % LANES].push(item);
    }
    let mut tasks = JoinSet::new();
    for lane in lanes {
        let work = work.clone();
        tasks.spawn(async move {
            let mut client = Client::connect(address).await.unwrap();
            for item in lane {
                client = work(client, item).await;
            }
        });
    }
    tasks.join_all().await;
}
