//! Steps that an observer is told of.

use std::sync::{Arc, Mutex};

use herald_engine::{
    AgentRoute, Caller, Engine, Observer, TaskStep,
    store::{Key, sqlite::Sqlite},
};
use herald_protocol::Artifact;

use crate::support::{Bench, Script, answer, eventually, profile, say, text};

/// Remembers every step as text.
#[derive(Debug, Clone, Default)]
struct Steps(Arc<Mutex<Vec<(Key, String)>>>);

impl Observer for Steps {
    fn observe(&self, key: &Key, step: TaskStep<'_>) {
        let of = |artifact: &Artifact| artifact.parts[0].as_text().unwrap_or_default().to_owned();
        let step = match step {
            TaskStep::Created => "created".to_owned(),
            TaskStep::Status(state) => state.kebab_name().to_owned(),
            TaskStep::Artifact(artifact) => format!("artifact {}", of(artifact)),
            TaskStep::TurnBegun(message) => format!("turn on {}", message.text()),
            TaskStep::TurnEnded => "turn ended".to_owned(),
        };
        self.0.lock().unwrap().push((key.clone(), step));
    }
}

impl Steps {
    /// The steps, once so many turns have ended.
    async fn after(&self, turns: usize) -> Vec<String> {
        let ended = |steps: &[(Key, String)]| {
            steps.iter().filter(|(_, step)| step == "turn ended").count() == turns
        };
        eventually(|| async { ended(&self.0.lock().unwrap()) }).await;
        self.0.lock().unwrap().iter().map(|(_, step)| step.clone()).collect()
    }
}

#[tokio::test]
async fn an_observer_is_told_of_every_step_of_a_task_in_order() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() == "hello" {
                turn.ask("Which one?").await?;
                return Ok(());
            }
            turn.artifact(text("a", "one")).await?;
            turn.complete_with(text("b", "two")).await?;
            Ok(())
        })
    });
    let steps = Steps::default();
    let builder = Engine::builder(Arc::new(Sqlite::memory().unwrap())).observer(steps.clone());
    let engine = builder.agent(profile(), agent).build().unwrap();
    engine.start_work().await.unwrap();
    let caller = Caller::anonymous("".into());
    let bench = Bench { engine, caller, route: AgentRoute::default() };
    let asked = bench.send(say("hello")).await.unwrap();
    let first = ["created", "working", "turn on hello", "input-required", "turn ended"];
    assert_eq!(steps.after(1).await, first);
    bench.send(answer(&asked, "the second")).await.unwrap();
    let second = ["working", "turn on the second", "artifact one", "artifact two", "completed"];
    let all = [&first[..], &second, &["turn ended"]].concat();
    assert_eq!(steps.after(2).await, all);
    assert!(steps.0.lock().unwrap().iter().all(|(key, _)| key.task == asked.id));
}
