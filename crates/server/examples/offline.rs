//! An agent and its client in one process, without a socket: `cargo run -p herald-server --example offline [TEXT]`.

#![expect(clippy::print_stdout, reason = "an example shows what it did")]

use std::{env, sync::Arc};

use async_trait::async_trait;
use herald_client::Client;
use herald_engine::{Agent, AgentError, Engine, Profile, Turn, store::sqlite::Sqlite};
use herald_server::Server;

#[derive(Debug)]
struct Shouter;

#[async_trait]
impl Agent for Shouter {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        Ok(turn.answer(turn.message().text().to_uppercase()).await?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let profile = Profile::new("shouter", "Says it louder");
    let engine = Engine::builder(Arc::new(Sqlite::memory()?)).agent(profile, Shouter).build()?;
    engine.start_work().await?; // A server with a socket does this itself.
    let client = Client::in_process(Server::builder(engine).build()?).await?;
    let card = client.card();
    println!("{}: {}", card.name, card.description);
    let text = env::args().nth(1).unwrap_or("hello".to_owned());
    println!("{}", client.send(text.as_str()).await?.text());
    Ok(())
}
