//! Asks before it acts: `cargo run -p herald-server --example approval [ADDRESS]`.
//!
//! A question ends the turn, and nothing is held while the caller thinks about it, be it for days.
//! The answer is the next turn of the same task, with all that was said before in its history.

#![expect(clippy::print_stdout, reason = "an example says where it is")]

use std::{env, sync::Arc};

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Engine, Profile, Turn, store::sqlite::Sqlite};
use herald_server::Server;
use tokio::net::TcpListener;

#[derive(Debug)]
struct Approval;

#[async_trait]
impl Agent for Approval {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let history = turn.task().history.as_deref().unwrap_or_default();
        let order = history.first().map(|message| message.text()).unwrap_or_default();
        if history.len() == 1 {
            turn.ask(format!("Shall I {order}? Say yes or no.")).await?;
            return Ok(());
        }
        match turn.message().text().trim() {
            "yes" => turn.answer(format!("I did it: {order}")).await?,
            "no" => turn.reject("As you wish: nothing was done.").await?,
            _ => turn.ask("I did not understand. Say yes or no.").await?,
        }
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profile = Profile::new("approval", "Does what it is told, once that is confirmed");
    let store = Arc::new(Sqlite::memory()?);
    let engine = Engine::builder(store).agent(profile, Approval).build()?;
    let server = Server::builder(engine).build()?;
    let address = env::args().nth(1).unwrap_or("127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    server.serve(listener, std::future::pending()).await?;
    Ok(())
}
