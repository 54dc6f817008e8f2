//! Conversation history of turns.

use std::sync::{Arc, Mutex};

use herald_engine::{AgentRoute, Caller, Clock, Engine, Profile, Settings, store::sqlite::Sqlite};
use herald_protocol::{ContextId, Message, Part, SendResult, request::SendMessage};

use crate::support::{Bench, Script, answer, eventually, profile, say, text};

/// For each turn: its own message, and the first messages and results of its earlier tasks.
type HistoryLog = Arc<Mutex<Vec<(String, Vec<String>)>>>;

/// Answers with its message, asks if the message says so, and records its conversation history.
fn recording_agent(log: &HistoryLog) -> Script {
    let log = Arc::clone(log);
    Script::new(move |turn| {
        let log = Arc::clone(&log);
        Box::pin(async move {
            let earlier = turn.earlier().iter().map(|task| {
                let asked = task.history.as_deref().unwrap_or_default().first().unwrap().text();
                let artifacts = task.artifacts.as_deref().unwrap_or_default();
                let given = artifacts.iter().flat_map(|made| &made.parts).filter_map(Part::as_text);
                format!("{asked}={}", given.collect::<String>().chars().take(9).collect::<String>())
            });
            let said = turn.message().text();
            log.lock().unwrap().push((said.clone(), earlier.collect()));
            match said.as_str() {
                "ask" => turn.ask("what?").await?,
                "hang" => turn.cancelled().cancelled().await,
                "huge" => turn.artifact(text("out", "h".repeat(1 << 20))).await?,
                _ => turn.artifact(text("out", said.to_uppercase())).await?,
            }
            Ok(())
        })
    })
}

fn with_memory(memory: usize) -> Profile {
    Profile { memory, ..profile() }
}

async fn bench(memory: usize, log: &HistoryLog) -> Bench {
    Bench::with(recording_agent(log), with_memory(memory), Settings::default()).await
}

fn in_context(context: &str, text: &str) -> Message {
    Message { context_id: Some(ContextId::from(context)), ..say(text) }
}

fn last(log: &HistoryLog) -> Vec<String> {
    log.lock().unwrap().last().unwrap().1.clone()
}

#[tokio::test]
async fn a_turn_gets_the_newest_tasks_of_its_conversation_in_order() {
    let log = HistoryLog::default();
    let bench = bench(3, &log).await;
    for word in ["one", "two", "three", "four"] {
        bench.send(in_context("chat", word)).await.unwrap();
        assert_eq!(bench.send(say("elsewhere")).await.map(|_| ()), Ok(()));
        assert!(last(&log).is_empty(), "a message without a context has no history");
    }
    bench.send(in_context("chat", "five")).await.unwrap();
    assert_eq!(last(&log), ["two=TWO", "three=THREE", "four=FOUR"]);
}

#[tokio::test]
async fn an_agent_without_memory_gets_no_earlier_tasks() {
    let log = HistoryLog::default();
    let bench = bench(0, &log).await;
    bench.send(in_context("chat", "one")).await.unwrap();
    bench.send(in_context("chat", "two")).await.unwrap();
    assert!(last(&log).is_empty());
}

// proves: TEN-004
#[tokio::test]
async fn a_turn_gets_no_tasks_of_other_callers_and_agents() {
    let log = HistoryLog::default();
    let store = Arc::new(Sqlite::memory().unwrap());
    let other = Profile { name: "other".into(), ..with_memory(9) };
    let builder = Engine::builder(store).agent(with_memory(9), recording_agent(&log));
    let engine = builder.agent(other, recording_agent(&log)).build().unwrap();
    engine.start_work().await.unwrap();
    let ann = Caller::new("acme".into(), "ann", herald_engine::Scopes::ALL);
    let bob = Caller::new("acme".into(), "bob", herald_engine::Scopes::ALL);
    let elsewhere = Caller::new("umbrella".into(), "ann", herald_engine::Scopes::ALL);
    for caller in [&ann, &bob, &elsewhere] {
        for agent in ["script", "other"] {
            let route = AgentRoute { agent: Some(agent.into()), ..AgentRoute::default() };
            let bench = Bench { engine: engine.clone(), caller: caller.clone(), route };
            bench.send(in_context("chat", "secret")).await.unwrap();
            assert!(last(&log).is_empty(), "{caller:?} at {agent}");
        }
    }
    let bench = Bench { engine, caller: ann, route: AgentRoute::default() };
    bench.send(in_context("chat", "mine")).await.unwrap();
    assert_eq!(last(&log), ["secret=SECRET"]);
}

#[tokio::test]
async fn the_history_omits_active_tasks_and_includes_paused_ones() {
    let log = HistoryLog::default();
    let bench = bench(9, &log).await;
    let hung = bench.post(in_context("chat", "hang")).await.unwrap();
    let asked = bench.send(in_context("chat", "ask")).await.unwrap();
    eventually(|| std::future::ready(log.lock().unwrap().len() == 2)).await;
    bench.send(in_context("chat", "one")).await.unwrap();
    assert_eq!(last(&log), ["ask="]);
    bench.send(answer(&asked, "this")).await.unwrap();
    assert_eq!(last(&log), ["one=ONE"], "the earlier turns of the task are in its own history");
    bench.cancel(&hung.id).await.unwrap();
    bench.send(in_context("chat", "two")).await.unwrap();
    assert_eq!(last(&log), ["hang=", "ask=THIS", "one=ONE"]);
}

#[tokio::test]
async fn a_history_that_is_too_large_omits_the_oldest_tasks() {
    let log = HistoryLog::default();
    let bench = bench(9, &log).await;
    for word in ["one", "huge", "two", "three"] {
        bench.send(in_context("chat", word)).await.unwrap();
    }
    bench.send(in_context("chat", "four")).await.unwrap();
    assert_eq!(last(&log), ["two=TWO", "three=THREE"]);
    // A large history fits, even if the memory budget is small.
    let log = HistoryLog::default();
    let settings = Settings { memory: 2 << 20, ..Settings::default() };
    let bench = Bench::with(recording_agent(&log), with_memory(9), settings).await;
    let long = "w".repeat(200 << 10);
    for _ in 0..3 {
        bench.send(in_context("chat", &long)).await.unwrap();
    }
    bench.send(in_context("chat", "four")).await.unwrap();
    assert_eq!(last(&log).len(), 2, "a message and its result, twice");
}

#[tokio::test]
async fn direct_answers_are_not_in_the_history() {
    let log = HistoryLog::default();
    let noted = Arc::clone(&log);
    let direct = Script::new(move |turn| {
        let log = Arc::clone(&noted);
        Box::pin(async move {
            let earlier = turn.earlier().iter().map(|task| task.id.to_string()).collect();
            log.lock().unwrap().push((turn.message().text(), earlier));
            turn.reply(vec![Part::text("here")]).await?;
            Ok(())
        })
    });
    let bench = Bench::with(direct.direct(), with_memory(9), Settings::default()).await;
    for _ in 0..2 {
        let message = in_context("chat", "hello");
        let sent = bench.sent(SendMessage { message, ..SendMessage::default() }).await.unwrap();
        assert!(matches!(sent, SendResult::Message(_)));
    }
    assert_eq!(log.lock().unwrap().len(), 2);
    assert!(last(&log).is_empty(), "their logs are hidden");
}

#[tokio::test]
async fn the_history_survives_a_restart() {
    let log = HistoryLog::default();
    let store = Arc::new(Sqlite::memory().unwrap());
    for word in ["one", "two"] {
        let bench = Bench::on(
            Arc::clone(&store) as _,
            recording_agent(&log),
            with_memory(9),
            Settings::default(),
            Clock::system(),
        );
        let bench = bench.await;
        bench.send(in_context("chat", word)).await.unwrap();
        bench.engine.drain(std::time::Duration::from_secs(10)).await;
    }
    assert_eq!(last(&log), ["one=ONE"]);
}
