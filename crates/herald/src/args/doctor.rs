//! Arguments of `herald doctor`.

use std::time::Duration;

use clap::Args;

use super::{Format, Serve, agent::duration};

pub(super) const EXAMPLES: &str = "\
Examples:
  herald doctor                             check what `herald serve` would use here
  herald doctor --config herald.toml        with the flags of the server
  herald doctor --webhook https://HOST/x    also check whether webhooks reach this URL
  herald doctor -o json                     as JSON; exit status 1 if a check fails

The flags and variables are those of `herald serve`: give the same ones.";

/// The arguments of `herald serve`, and those of the checks.
#[derive(Debug, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) serve: Serve,

    /// The time limit of each check
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
    pub(crate) timeout: Duration,

    /// Also check whether webhooks with this URL would be delivered, with a HEAD request; may be repeated
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Vec<String>,

    /// Output format
    // The id differs from that of client verbs, since client settings do not apply here.
    #[arg(id = "report", short = 'o', long = "output", value_enum, default_value_t)]
    #[arg(value_name = "FORMAT")]
    pub(crate) output: Format,
}
