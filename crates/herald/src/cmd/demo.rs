//! `herald demo-server`: two test agents in memory.

use std::{io::Write, net::Ipv4Addr, sync::Arc};

use anyhow::Context;
use herald_agents::{Conformance, Echo, Otherwise};
use herald_engine::{Engine, store::sqlite::Sqlite};
use herald_server::{CardInterface, Config, Server};
use tokio::{net::TcpListener, signal};

use crate::args::DemoServer;

/// Serves two agents from memory until interrupted.
pub(crate) async fn run(args: DemoServer) -> anyhow::Result<()> {
    let engine = Engine::builder(Arc::new(Sqlite::memory()?))
        .agent(Echo::profile("echo"), Echo)
        .agent(Conformance::profile("demo"), Conformance { otherwise: Otherwise::Complete })
        .default_agent("echo")
        .build()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener.with_context(|| {
        format!("cannot listen on port {}; try --port 0 for a free one", args.port)
    })?;
    let address = listener.local_addr()?;
    {
        let mut out = std::io::stdout().lock();
        writeln!(out, "demo agents at http://{address}; their tasks are lost when this stops")?;
        for (result, agent, text) in [
            ("a task", "", "\"Hello\""),
            ("a message", "/agents/demo", "\"tck-message-response\""),
            ("a question", "/agents/demo", "\"tck-input-required\""),
            ("a stream", "/agents/demo", "\"tck-stream-chunked delay_ms=500\" --stream"),
            ("a file", "/agents/demo", "\"tck-artifact-file\""),
            ("a failure", "/agents/demo", "\"tck-task-failure\""),
        ] {
            writeln!(out, "  {result:<10}  herald send {address}{agent} {text}")?;
        }
        out.flush()?;
    }
    let stop = async {
        // Without a signal handler it runs until it is killed.
        if signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    // The cards list every binding, so that each can be tried.
    let config = Config { card_interfaces: CardInterface::ALL.into(), ..Config::default() };
    Server::builder(engine).config(config).build()?.serve(listener, stop).await?;
    Ok(())
}
