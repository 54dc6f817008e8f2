//! Changes of a turn: the diff of the work tree as an artifact and, on request, the changed files.

use std::path::Path;

use herald_engine::{Stop, Turn};
use herald_protocol::{Artifact, ArtifactId, Content, Json, Part};
use serde::Serialize;

use super::{Coding, dialect::CodingResult};
use crate::git::{
    ChangedFile, GitError, Repository, SnapshotLimits, WorkTreeChanges, WorkTreeSnapshot, Worktree,
};

/// The artifact with the diff.
const CHANGES: &str = "changes";
/// The artifact with the changed files.
const FILES: &str = "files";

/// The member of a message's metadata that asks for the changed files.
const RETURN_FILES: &str = "herald/return-files";

/// Limits of the artifact with the changed files: their number, and the bytes of one and of all.
const MAX_FILES: usize = 100;
const MAX_FILE: usize = 1 << 20;
const MAX_ALL_FILES: usize = 4 << 20;

/// The state of the work tree at the beginning of a turn.
#[derive(Debug)]
pub(super) enum Before {
    /// Changes are not reported: they are switched off, or there is no repository.
    Nothing,
    /// A snapshot.
    Snapshot(Box<WorkTreeSnapshot>),
    /// The snapshot failed.
    Failed(GitError),
}

/// The data part of the artifact with the diff.
#[derive(Serialize)]
struct ChangesData<'a> {
    files: &'a [ChangedFile],
    cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// The data part of the artifact with the changed files.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct FilesData<'a> {
    left_out: Vec<&'a str>,
}

impl Coding {
    /// The state of the work tree that contains `directory`.
    pub(super) async fn before(&self, turn: &Turn, directory: &Path) -> Result<Before, Stop> {
        if !self.changes {
            return Ok(Before::Nothing);
        }
        let Some(repository) = Repository::around(directory) else { return Ok(Before::Nothing) };
        // The data directory is often within the work tree, and changes all the time.
        let excluded = self.processes.data_directory();
        let limits = SnapshotLimits::default();
        let taken =
            WorkTreeSnapshot::take(&repository, directory, excluded, limits, &self.processes);
        let taken = unless_cancelled(turn, taken).await?;
        Ok(taken.map_or_else(Before::Failed, |taken| Before::Snapshot(Box::new(taken))))
    }

    /// Writes the artifacts with the changes and the branch, and completes the task.
    pub(super) async fn complete(
        &self,
        turn: &Turn,
        before: Before,
        worktree: Option<&Worktree>,
        result: CodingResult,
    ) -> Result<(), Stop> {
        self.report_changes(turn, before).await?;
        if let Some(worktree) = worktree {
            self.report_worktree(turn, worktree).await?;
        }
        result.complete(turn).await
    }

    async fn report_changes(&self, turn: &Turn, before: Before) -> Result<(), Stop> {
        let found = match before {
            Before::Nothing => return Ok(()),
            Before::Snapshot(snapshot) => unless_cancelled(turn, snapshot.changes()).await?,
            Before::Failed(error) => Err(error),
        };
        let changes = match found {
            Ok(Some(changes)) => changes,
            Ok(None) => return Ok(()),
            Err(error) => {
                let (task, agent) = (turn.task_id(), &self.name);
                tracing::warn!(%task, %agent, %error, "the changes of a turn are not known");
                let reason = format!("The changes are not known: {}", error.kind);
                let data = ChangesData { files: &[], cut: true, reason: Some(reason) };
                return turn.artifact(artifact(turn, CHANGES, vec![part(&data)])).await;
            }
        };
        let data = ChangesData { files: &changes.files, cut: changes.is_cut, reason: None };
        let diff = Part {
            media_type: Some("text/x-diff".to_owned()),
            filename: Some("changes.diff".to_owned()),
            ..Part::text(changes.diff.as_str())
        };
        // Large files have no diff, and a part has content.
        let diff = (!changes.diff.is_empty()).then_some(diff);
        let parts = diff.into_iter().chain([part(&data)]).collect();
        turn.artifact(artifact(turn, CHANGES, parts)).await?;
        let metadata = turn.message().metadata.as_ref();
        if metadata.and_then(|metadata| metadata.get(RETURN_FILES)) == Some(true) {
            let parts = unless_cancelled(turn, files(&changes)).await?;
            turn.artifact(artifact(turn, FILES, parts)).await?;
        }
        Ok(())
    }
}

/// The new content of the changed files, and a list of those that are left out.
async fn files(changes: &WorkTreeChanges) -> Vec<Part> {
    let (mut parts, mut left_out) = (Vec::new(), Vec::new());
    let mut left = MAX_ALL_FILES;
    for file in changes.files.iter().filter(|file| file.exists()) {
        let limit = MAX_FILE.min(left);
        let content = if parts.len() < MAX_FILES {
            changes.content(file, limit).await.ok().flatten()
        } else {
            None
        };
        match content {
            Some(bytes) => {
                left -= bytes.len();
                parts.push(file_part(file, bytes));
            }
            None => left_out.push(file.path.as_str()),
        }
    }
    parts.push(part(&FilesData { left_out }));
    parts
}

fn file_part(file: &ChangedFile, bytes: Vec<u8>) -> Part {
    let is_text = std::str::from_utf8(&bytes).is_ok_and(|text| !text.contains('\0'));
    let media_type = if is_text { "text/plain" } else { "application/octet-stream" };
    Part {
        filename: Some(file.path.clone()),
        media_type: Some(media_type.to_owned()),
        ..Part::new(Content::Raw(bytes))
    }
}

fn part(data: &impl Serialize) -> Part {
    Part::new(Content::Data(Json::new(data).expect("texts and numbers can be written")))
}

/// An artifact of this turn: each message of a task has its own.
fn artifact(turn: &Turn, name: &str, parts: Vec<Part>) -> Artifact {
    let artifact_id = match turn.earlier_messages() {
        0 => ArtifactId::from(name),
        more => ArtifactId::from(format!("{name}-{}", more + 1)),
    };
    Artifact { artifact_id, name: Some(name.to_owned()), parts, ..Artifact::default() }
}

async fn unless_cancelled<T>(turn: &Turn, work: impl Future<Output = T>) -> Result<T, Stop> {
    tokio::select! {
        done = work => Ok(done),
        () = turn.cancelled().cancelled() => Err(Stop::Over),
    }
}
