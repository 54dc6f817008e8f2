//! temp
use std::{sync::Arc, path::Path};
use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Engine, Profile, Turn, store::sqlite::{Sqlite, Options}};
use herald_protocol::{Artifact, Part};
use herald_server::{Config, Limits, Server};
#[derive(Debug)]
struct Echo;
#[async_trait]
impl Agent for Echo {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let text = turn.message().text();
        if text == "hang" { turn.cancelled().cancelled().await; return Err(AgentError::Stopped) }
        if text == "stream" { for i in 1..=10 { turn.append(Artifact { artifact_id: "a".into(), parts: vec![Part::text(format!("chunk {i}"))], ..Artifact::default() }, i==10).await?; } return Ok(()) }
        turn.complete_with(Artifact { artifact_id: "a".into(), parts: vec![Part::text(text)], ..Artifact::default() }).await?; Ok(())
    }
}
fn main() {
    let dir = std::env::args().nth(1);
    let rt = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    rt.block_on(async {
        let store = match dir { Some(d) => Sqlite::open(Path::new(&d), Options::default()).unwrap(), None => Sqlite::memory().unwrap() };
        let mut p = Profile::new("echo","echo"); p.concurrency = 100_000;
        let engine = Engine::builder(Arc::new(store)).agent(p, Echo).build().unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:8123").await.unwrap();
        let limits = Limits { streams_per_caller: 100_000, ..Limits::default() };
        Server::builder(engine).config(Config { limits, ..Config::default() }).build().unwrap().serve(listener, std::future::pending()).await.unwrap();
    });
}
