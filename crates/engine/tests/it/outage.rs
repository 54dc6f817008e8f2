//! A store that fails for a moment: work waits, and nothing is forgotten.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use async_trait::async_trait;
use herald_engine::{
    Clock, Settings,
    store::{
        Append, Holder, Key, Kind, ListQuery, Listing, Original, Page, Retention, Store,
        StoreError, Stored, sqlite::Sqlite,
    },
};
use herald_protocol::{AgentName, Seq, TaskState, Timestamp};

use crate::support::{Bench, Script, answer, artifact_text, eventually, profile, say, text};

/// A real store in front of which chosen appends meet a full disk.
#[derive(Debug)]
struct Outage {
    store: Sqlite,
    which: fn(&Append) -> bool,
    /// How many of them still fail.
    left: Mutex<usize>,
}

impl Outage {
    fn of(which: fn(&Append) -> bool, count: usize) -> Arc<Self> {
        Arc::new(Self { store: Sqlite::memory().unwrap(), which, left: Mutex::new(count) })
    }
}

#[async_trait]
impl Store for Outage {
    async fn append(&self, append: Append) -> Result<Seq, StoreError> {
        if (self.which)(&append) {
            let mut left = self.left.lock().unwrap();
            if let Some(fewer) = left.checked_sub(1) {
                *left = fewer;
                return Err(StoreError::Unavailable("no space left on device".to_owned()));
            }
        }
        self.store.append(append).await
    }

    async fn load(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        self.store.load(key).await
    }

    async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<Page, StoreError> {
        self.store.read(key, after, limit).await
    }

    async fn list(&self, query: ListQuery) -> Result<Listing, StoreError> {
        self.store.list(query).await
    }

    async fn due(
        &self,
        agent: Option<&AgentName>,
        living: Holder,
        limit: usize,
    ) -> Result<Vec<(Key, AgentName)>, StoreError> {
        self.store.due(agent, living, limit).await
    }

    async fn original(&self, key: &[u8; 32]) -> Result<Option<Original>, StoreError> {
        self.store.original(key).await
    }

    async fn paused(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Key>, StoreError> {
        self.store.paused(agent, before, limit).await
    }

    async fn sweep(&self, retention: Retention, limit: usize) -> Result<usize, StoreError> {
        self.store.sweep(retention, limit).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.store.probe().await
    }

    fn secret(&self) -> [u8; 32] {
        self.store.secret()
    }
}

#[tokio::test]
async fn what_an_agent_says_waits_until_it_can_be_stored() {
    let store =
        Outage::of(|append| append.events.iter().any(|(kind, _)| *kind == Kind::Artifact), 3);
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.complete_with(text("out", "kept")).await?;
            Ok(())
        })
    });
    let bench = Bench::on(store, agent, profile(), Settings::default(), Clock::system()).await;
    let task = bench.send(say("go")).await.unwrap();
    assert_eq!(task.status.state, TaskState::Completed);
    assert_eq!(artifact_text(&task, "out"), "kept");
}

#[tokio::test]
async fn a_turn_that_could_not_be_begun_is_begun_later() {
    let second_turn =
        |append: &Append| append.header.run.turn > 1 && append.header.run.holder.is_some();
    let store = Outage::of(second_turn, 2);
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let turns = Arc::new(AtomicUsize::new(0));
    let (waited, counted) = (Arc::clone(&gate), Arc::clone(&turns));
    let agent = Script::new(move |_| {
        let (gate, turns) = (Arc::clone(&waited), Arc::clone(&counted));
        Box::pin(async move {
            gate.acquire().await.unwrap().forget();
            turns.fetch_add(1, Ordering::SeqCst);
            Ok(())
        })
    });
    let bench = Bench::on(store, agent, profile(), Settings::default(), Clock::system()).await;
    let task = bench.post(say("one")).await.unwrap();
    bench.post(answer(&task, "two")).await.unwrap();
    gate.add_permits(2);
    eventually(|| async { bench.get(&task.id).await.unwrap().status.state.is_terminal() }).await;
    assert_eq!(turns.load(Ordering::SeqCst), 2);
}
