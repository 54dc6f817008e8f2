//! Arguments of `herald worktree`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{OutputArgs, agent::duration};

const EXAMPLES: &str = "\
Examples:
  herald worktree list                              of the server with ./herald-data
  herald worktree clean --unused 7d                 remove merged ones that were not used for a week
  herald worktree clean --force --data /srv/herald  remove all, with their branches";

/// `herald worktree`.
#[derive(Debug, Subcommand)]
pub(crate) enum WorktreeCommand {
    /// List the work trees of coding agents' conversations
    #[command(after_help = EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    List(WorktreeList),

    /// Remove work trees and branches whose changes are merged and that no turn uses
    #[command(after_help = EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Clean(WorktreeClean),
}

/// The place of the work trees, and the output format.
#[derive(Debug, Args)]
pub(crate) struct WorktreePlace {
    /// The data directory of the server
    #[arg(id = "data_directory", long = "data", value_name = "DIR", default_value = "herald-data")]
    pub(crate) data: PathBuf,

    /// The directory of the work trees, if `worktree_dir` is set
    #[arg(long, value_name = "DIR", conflicts_with = "data_directory")]
    pub(crate) worktrees: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WorktreeList {
    #[command(flatten)]
    pub(crate) place: WorktreePlace,
}

#[derive(Debug, Args)]
pub(crate) struct WorktreeClean {
    /// Also remove changes that are not committed or not merged
    #[arg(long)]
    pub(crate) force: bool,

    /// Only work trees that were not used for this time, such as 12h or 7d
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) unused: Option<Duration>,

    #[command(flatten)]
    pub(crate) place: WorktreePlace,
}

impl WorktreeCommand {
    pub(crate) fn output(&self) -> &OutputArgs {
        match self {
            Self::List(args) => &args.place.output,
            Self::Clean(args) => &args.place.output,
        }
    }
}
