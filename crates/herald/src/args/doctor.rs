//! `herald doctor`.

use std::time::Duration;

use clap::Args;

use super::{Format, Serve, agent::duration};

pub(super) const EXAMPLES: &str = "\
Examples:
  herald doctor                             what `herald serve` would find here
  herald doctor --config herald.toml        with the flags that the server is started with
  herald doctor -o json                     for programs; exit status 1 if a check fails

The flags and variables are those of `herald serve`: give the same ones.";

/// What is looked at is what `herald serve` with the same flags would use.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) serve: Serve,

    /// How long each check may take
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Duration,

    /// How to print the result
    // Under another id than that of the verbs that call agents, whose settings are not the server's.
    #[arg(id = "report", short = 'o', long = "output", value_enum, default_value_t)]
    #[arg(value_name = "FORMAT")]
    pub(crate) output: Format,
}
