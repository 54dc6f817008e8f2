//! Results piece by piece: `cargo run -p herald-server --example streaming [ADDRESS] [DATABASE]`.
//!
//! It counts down from the number it is told, and keeps its tasks on disk.

#![expect(clippy::print_stdout, reason = "an example says where it is")]

use std::{env, path::Path, sync::Arc, time::Duration};

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Engine, Profile, Recovery, Turn, store::sqlite::Sqlite};
use herald_protocol::{Artifact, Part};
use herald_server::Server;
use tokio::{net::TcpListener, time::sleep};

#[derive(Debug)]
struct Countdown;

#[async_trait]
impl Agent for Countdown {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let Ok(first) = turn.message().text().trim().parse::<u32>() else {
            return Err(AgentError::Failed("that is no number".to_owned()));
        };
        for number in (0..=first).rev() {
            let piece = Artifact {
                artifact_id: "countdown".into(),
                parts: vec![Part::text(format!("{number} "))],
                ..Artifact::default()
            };
            // Once this returns, the piece is on disk and everybody who follows the task sees it.
            // Its error means that the turn is over: cancelled, or out of time.
            turn.append(piece, number == 0).await?;
            tokio::select! {
                () = sleep(Duration::from_millis(100)) => {}
                () = turn.cancelled().cancelled() => return Err(AgentError::Stopped),
            }
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut profile = Profile::new("countdown", "Counts down from the number it is told");
    // After a crash it may count again; what was half said is then replaced.
    profile.recovery = Recovery::Rerun(3);
    let data = env::args().nth(2).unwrap_or("countdown.db".to_owned());
    let store = Arc::new(Sqlite::open(Path::new(&data), Default::default())?);
    let engine = Engine::builder(store).agent(profile, Countdown).build()?;
    let server = Server::builder(engine).build()?;
    let address = env::args().nth(1).unwrap_or("127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    server.serve(listener, std::future::pending()).await?;
    Ok(())
}
