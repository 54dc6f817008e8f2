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
        for (words, what) in [
            ("\"Hello\"", "an answer"),
            ("\"tck-message-response\"", "a message instead of a task"),
            ("\"tck-input-required\"", "a question back"),
            ("\"tck-stream-chunked chunks=5 delay_ms=500\" --stream", "a text in pieces"),
            ("\"tck-artifact-file\"", "a file"),
            ("\"tck-task-failure\"", "a failure"),
        ] {
            let agent = if words == "\"Hello\"" { "" } else { "/agents/demo" };
            let command = format!("herald send {address}{agent} {words}");
            writeln!(out, "  {command:<86} {what}")?;
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
