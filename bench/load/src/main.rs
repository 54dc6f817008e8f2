//! The load generator: a fixed number of requests from a fixed number of kept-alive connections, each
//! answer checked, and the result as one line of JSON.
//!
//! One thread, no pool, no redirects, so that it is never the bottleneck on its own core.

mod args;
mod connection;
mod exchange;
mod flood;
mod grpc;
mod held;
mod large;
mod plan;
mod protobuf;
mod shapes;
mod socket;
mod turns;
mod wire;
mod workers;

use tokio::{runtime, task::LocalSet};

use crate::args::{Args, Mode};

fn main() -> anyhow::Result<()> {
    let args = Args::parse(std::env::args().skip(1))?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    LocalSet::new().block_on(&runtime, async {
        match args.mode {
            Mode::Exchange(kind) => plan::run(kind, &args).await,
            Mode::Open => held::run(&args).await,
            Mode::Large => large::run(&args).await,
            Mode::Turns => turns::run(&args).await,
            Mode::Flood => flood::run(&args).await,
            Mode::Workers => workers::run(&args).await,
        }
    })
}
