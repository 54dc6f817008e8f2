//! Text that comes in pieces, as one artifact that grows.

use std::{future::Future, time::Duration};

use herald_engine::{Stop, Turn};
use herald_protocol::{Artifact, ArtifactId, Metadata, Part};
use tokio::time::{Instant, timeout_at};

/// A piece is written when it has this size,
const PIECE: usize = 16 << 10;

/// or when so long has passed since its first word. Who speaks word by word makes twenty events a
/// second instead of thousands.
const GATHER: Duration = Duration::from_millis(50);

/// An artifact while it grows.
#[derive(Debug)]
pub(crate) struct Growing<'a> {
    turn: &'a Turn,
    id: ArtifactId,
    name: &'static str,
    piece: String,
    /// When the piece is to be written, however short it is.
    due: Option<Instant>,
    is_begun: bool,
}

impl<'a> Growing<'a> {
    /// Nothing yet.
    pub(crate) fn new(turn: &'a Turn, id: impl Into<ArtifactId>, name: &'static str) -> Self {
        let (id, piece) = (id.into(), String::new());
        Self { turn, id, name, piece, due: None, is_begun: false }
    }

    /// Waits for what comes next, or writes what has been gathered if that is due before. `next` is
    /// then dropped, and must lose nothing by that.
    pub(crate) async fn before_due<T>(
        &mut self,
        next: impl Future<Output = T>,
    ) -> Result<Option<T>, Stop> {
        let Some(due) = self.due else { return Ok(Some(next.await)) };
        match timeout_at(due, next).await {
            Ok(next) => Ok(Some(next)),
            Err(_) => self.flush().await.map(|()| None),
        }
    }

    /// Adds to the text.
    pub(crate) async fn say(&mut self, text: &str) -> Result<(), Stop> {
        self.piece.push_str(text);
        self.due.get_or_insert_with(|| Instant::now() + GATHER);
        match self.piece.len() >= PIECE {
            true => self.flush().await,
            false => Ok(()),
        }
    }

    /// Writes what has been gathered, if anything.
    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        match self.piece.is_empty() {
            true => Ok(()),
            false => self.write(false, None).await,
        }
    }

    /// Writes the last piece, and what there is to say about the whole. Nothing said is no artifact.
    pub(crate) async fn finish(&mut self, metadata: Option<Metadata>) -> Result<(), Stop> {
        match self.is_begun || !self.piece.is_empty() {
            true => self.write(true, metadata).await,
            false => Ok(()),
        }
    }

    async fn write(&mut self, is_last: bool, metadata: Option<Metadata>) -> Result<(), Stop> {
        self.is_begun = true;
        self.due = None;
        let piece = Artifact {
            artifact_id: self.id.clone(),
            name: Some(self.name.to_owned()),
            parts: vec![Part::text(std::mem::take(&mut self.piece))],
            metadata,
            ..Artifact::default()
        };
        self.turn.append(piece, is_last).await
    }
}
