//! The command line of Herald.

mod args;
mod cmd;
mod config;
mod logging;
mod settings;

use std::{io::Write, process::ExitCode};

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(Box::pin(async {
            match cli.command {
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
            let _ = writeln!(std::io::stderr(), "herald: {error:#}");
            ExitCode::FAILURE
        }
    }
}
