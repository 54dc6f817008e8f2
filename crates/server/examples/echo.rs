//! The smallest agent: `cargo run -p herald-server --example echo [ADDRESS]`.

#![expect(clippy::print_stdout, reason = "an example says where it is")]

use std::{env, sync::Arc};

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Engine, Profile, Turn, store::sqlite::Sqlite};
use herald_server::Server;
use tokio::net::TcpListener;

#[derive(Debug)]
struct Echo;

#[async_trait]
impl Agent for Echo {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        // The answer becomes the artifact `response`, and the task is completed with it.
        Ok(turn.answer(turn.message().text()).await?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The card is made of this description and of the skills, of which there is one so far.
    let profile = Profile::new("echo", "Says back what it is told");
    let store = Arc::new(Sqlite::memory()?);
    let engine = Engine::builder(store).agent(profile, Echo).build()?;
    let server = Server::builder(engine).build()?;
    let address = env::args().nth(1).unwrap_or("127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}", listener.local_addr()?);
    server.serve(listener, std::future::pending()).await?;
    Ok(())
}
