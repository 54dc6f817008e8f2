//! The floor: a minimal server with Herald's durable work and nothing else.
//!
//! `floor --port 8000 --data DIR` serves an echo agent over JSON-RPC (A2A 1.0) at `/`. It writes the
//! rows that Herald must write, with the same durability, and has no engine: no leases, no roles, no
//! tenants, no dialects, no subscriptions. Herald's budgets are multiples of what this costs.

mod echo;
mod rpc;
mod store;
mod wire;

use std::{net::Ipv4Addr, path::PathBuf, sync::Arc};

use anyhow::{Context, bail};
use axum::{
    Router,
    routing::{get, post},
    serve::ListenerExt,
};
use tokio::net::TcpListener;

use crate::{rpc::App, store::Store};

struct Args {
    port: u16,
    data: PathBuf,
}

/// The default runtime, as a server would start it: pinned to one core it has one worker.
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    std::fs::create_dir_all(&args.data)?;
    let store = Store::open(&args.data.join("floor.db")).context("cannot open the database")?;
    let app = Router::new()
        .route("/", post(rpc::call))
        .route("/.well-known/agent-card.json", get(rpc::card))
        .with_state(Arc::new(App { store, card: rpc::card_for(args.port) }));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await?;
    // Without TCP_NODELAY a stream's second frame waits 40 ms for the client's delayed
    // acknowledgement of the first. A socket that refuses is about to fail by itself.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    Ok(axum::serve(listener, app).await?)
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let (mut port, mut data) = (None, None);
        while let Some(word) = words.next() {
            let value = words.next().with_context(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--port" => port = Some(value.parse()?),
                "--data" => data = Some(value.into()),
                _ => bail!("unknown option {word}; usage: floor --port PORT --data DIR"),
            }
        }
        Ok(Self {
            port: port.context("--port is missing")?,
            data: data.context("--data is missing")?,
        })
    }
}
