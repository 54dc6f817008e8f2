//! `herald worktree`: the work trees of coding agents' conversations.

use std::path::PathBuf;

use herald_agents::{
    git::{FoundWorktree, GitError, WorktreeState},
    process::Processes,
};
use serde::Serialize;

use crate::{
    args::{WorktreeClean, WorktreeCommand, WorktreePlace},
    client::error::CliError,
    output::{Output, Show, TextPage, table::table},
    serve::settings::WORKTREES,
};

/// The work trees that a verb lists or has treated.
#[derive(Serialize)]
struct WorktreePage {
    worktrees: Vec<WorktreeView>,
}

#[derive(Serialize)]
struct WorktreeView {
    agent: String,
    context: String,
    branch: String,
    state: WorktreeState,
    /// Absent where nothing was to be removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<bool>,
    path: PathBuf,
}

/// Runs a `worktree` verb.
pub(crate) async fn run(command: &WorktreeCommand) -> Result<(), CliError> {
    let processes = Processes::new(None);
    let out = Output::new(command.output());
    let worktrees = match command {
        WorktreeCommand::List(args) => {
            let found = find(&args.place, &processes).await?;
            found.iter().map(|worktree| view(worktree, None)).collect()
        }
        WorktreeCommand::Clean(args) => clean(args, &processes).await?,
    };
    out.show(&WorktreePage { worktrees })
}

async fn find(
    place: &WorktreePlace,
    processes: &Processes,
) -> Result<Vec<FoundWorktree>, CliError> {
    let directory = match &place.worktrees {
        Some(directory) => directory.clone(),
        None => place.data.join(WORKTREES),
    };
    // Git reads paths from another directory.
    let directory = std::path::absolute(directory).map_err(|error| failed(&error.into()))?;
    FoundWorktree::all(&directory, processes).await.map_err(|error| failed(&error))
}

async fn clean(args: &WorktreeClean, processes: &Processes) -> Result<Vec<WorktreeView>, CliError> {
    let mut views = Vec::new();
    for worktree in find(&args.place, processes).await? {
        let idle = worktree.used.and_then(|used| used.elapsed().ok());
        let is_old = args.unused.is_none_or(|least| idle.is_some_and(|idle| idle >= least));
        let is_safe = match worktree.state {
            WorktreeState::Merged => true,
            WorktreeState::InUse => false,
            WorktreeState::Uncommitted | WorktreeState::Unmerged | WorktreeState::Broken => {
                args.force
            }
        };
        let mut view = view(&worktree, Some(false));
        if is_old && is_safe {
            let removed = worktree.remove(processes).await.map_err(|error| failed(&error))?;
            view.removed = Some(removed);
        }
        views.push(view);
    }
    Ok(views)
}

fn view(worktree: &FoundWorktree, removed: Option<bool>) -> WorktreeView {
    let record = &worktree.record;
    WorktreeView {
        agent: record.agent.clone(),
        context: record.context.clone(),
        branch: record.branch.clone(),
        state: worktree.state,
        removed,
        path: worktree.path.clone(),
    }
}

fn failed(error: &GitError) -> CliError {
    CliError::internal(error.to_string())
}

impl Show for WorktreePage {
    fn show(&self, page: &mut TextPage) {
        let row = |one: &WorktreeView| {
            let removed = match one.removed {
                Some(true) => "removed",
                Some(false) => "kept",
                None => "",
            };
            [
                one.agent.clone(),
                one.branch.clone(),
                one.state.name().to_owned(),
                removed.to_owned(),
                one.context.clone(),
                one.path.display().to_string(),
            ]
        };
        let rows: Vec<_> = self.worktrees.iter().map(row).collect();
        let head = ["AGENT", "BRANCH", "STATE", "CLEANED", "CONTEXT", "PATH"];
        page.table(&table(head, &rows));
    }
}
