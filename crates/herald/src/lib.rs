//! The command line of Herald. It is a library only so that two binaries can be made of it.

mod args;
mod cmd;
mod config;
mod logging;
mod otlp;
mod settings;

use std::{io::Write, path::Path, process::ExitCode};

use crate::args::{A2aServer, Cli, Command};

const A2A_SERVER: &str = "a2a-server";

/// Runs `herald`, or `a2a-server` if that is what the program is called.
pub fn main() -> ExitCode {
    let called = std::env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_stem().is_some_and(|name| name == A2A_SERVER) {
        return a2a_server();
    }
    run("herald", args::read::<Cli>(&[]).command)
}

/// Runs `a2a-server`.
pub fn a2a_server() -> ExitCode {
    run(A2A_SERVER, Command::Serve(args::read::<A2aServer>(&args::MORE).into()))
}

fn run(name: &str, command: Command) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(Box::pin(async {
            match command {
                Command::Serve(args) => cmd::serve::run(args).await,
            }
        }));
        // What did not stop in time is dropped; its claims die with the process.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done about a standard error that is gone.
            let _ = writeln!(std::io::stderr(), "{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}
