//! An agent of one's own, served: `cargo run -p herald-server --example counting`.
//!
//! It counts to the number it is told, and asks when it was told none.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Engine, Profile, Recovery, Turn, store::sqlite::Sqlite};
use herald_protocol::{Artifact, Part};
use herald_server::Server;
use tokio::net::TcpListener;

#[derive(Debug)]
struct Counting;

#[async_trait]
impl Agent for Counting {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let Ok(last) = turn.message().text().trim().parse::<u32>() else {
            turn.ask("How far shall I count?").await?;
            return Ok(());
        };
        for number in 1..=last {
            // Once `append` returns, the piece is on disk; its error means that the turn is over.
            let piece = Artifact {
                artifact_id: "count".into(),
                parts: vec![Part::text(format!("{number} "))],
                ..Artifact::default()
            };
            turn.append(piece, number == last).await?;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut profile = Profile::new("counting", "Counts to the number it is told");
    profile.recovery = Recovery::Rerun(3);
    let store = Arc::new(Sqlite::memory()?);
    let engine = Engine::builder(store).agent(profile, Counting).build()?;
    let server = Server::builder(engine).build()?;
    let listener = TcpListener::bind("127.0.0.1:8000").await?;
    server.serve(listener, std::future::pending()).await?;
    Ok(())
}
