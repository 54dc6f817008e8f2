//! Isolation of conversations: a turn runs in the work tree of its conversation.

use herald_engine::{Stop, Turn};
use herald_protocol::{Artifact, Content, Json, Part};
use serde::Serialize;

use super::Coding;
use crate::{
    ended::Ended,
    failure::Failure,
    git::{GitError, Merge, Worktree},
};

/// The artifact with the branch and the outcome of its merge.
const WORKTREE: &str = "worktree";

/// The data part of the artifact.
#[derive(Serialize)]
struct WorktreeData<'a> {
    branch: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    merge: Option<Merge>,
}

impl Coding {
    /// The work tree of the turn's conversation; `None` without isolation.
    pub(super) async fn enter_worktree(&self, turn: &Turn) -> Result<Option<Worktree>, Ended> {
        let Some(worktrees) = &self.worktrees else { return Ok(None) };
        let Some(conversation) = turn.conversation_id() else {
            let kind = "cannot isolate this conversation: the server of this worker is too old";
            return Err(Failure::new(kind).into());
        };
        let (name, context) = (self.name.as_str(), turn.context_id().as_str());
        let entered = tokio::select! {
            entered = worktrees.enter(name, conversation, context) => entered,
            () = turn.cancelled().cancelled() => return Err(Stop::Over.into()),
        };
        entered.map(Some).map_err(|error| {
            let kind = format!("has no work tree for this conversation: {}", error.kind);
            Failure { full: error.said, ..Failure::new(kind) }.into()
        })
    }

    /// Merges the work tree of a completed turn if that is configured, and reports its branch.
    pub(super) async fn report_worktree(
        &self,
        turn: &Turn,
        worktree: &Worktree,
    ) -> Result<(), Stop> {
        let Some(worktrees) = self.worktrees.as_ref().filter(|all| all.are_kept()) else {
            return Ok(());
        };
        // A merge is not interrupted by a cancel: it would leave the locks of git behind.
        let merged = worktrees.merge_after_turn(worktree, turn.task_id().as_str()).await;
        let branch = &worktree.record.branch;
        let merge = merged.unwrap_or_else(|error| {
            self.warn(turn, &error, "the work tree of a turn could not be merged");
            let into = worktree.record.base.clone().unwrap_or_else(|| "HEAD".to_owned());
            Some(Merge::Failed { into, reason: error.kind })
        });
        if let Some(problem) = merge.as_ref().and_then(problem) {
            let remedy = format!("The changes are kept; merge the branch {branch} by hand.");
            turn.progress(format!("{problem}. {remedy}")).await?;
        }
        let data = Json::new(&WorktreeData { branch, merge }).expect("texts can be written");
        turn.artifact(Artifact {
            artifact_id: WORKTREE.into(),
            name: Some(WORKTREE.to_owned()),
            parts: vec![Part::new(Content::Data(data))],
            ..Artifact::default()
        })
        .await
    }

    /// Removes the work tree of a completed turn if that is configured.
    pub(super) async fn leave_worktree(&self, turn: &Turn, worktree: Option<Worktree>) {
        let (Some(worktrees), Some(worktree)) = (&self.worktrees, worktree) else { return };
        if let Err(error) = worktrees.delete_after_turn(worktree).await {
            self.warn(turn, &error, "the work tree of a turn could not be removed");
        }
    }

    fn warn(&self, turn: &Turn, error: &GitError, what: &str) {
        let (task, agent) = (turn.task_id(), &self.name);
        tracing::warn!(%task, %agent, %error, "{what}");
    }
}

/// A merge that did not happen, in words.
fn problem(merge: &Merge) -> Option<String> {
    match merge {
        Merge::Unchanged { .. } | Merge::Merged { .. } => None,
        Merge::Conflict { into, files } => {
            Some(format!("Not merged into {into}: conflicts in {}", files.join(", ")))
        }
        Merge::Failed { into, reason } => Some(format!("Not merged into {into}: {reason}")),
    }
}
