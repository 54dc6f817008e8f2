//! Artifact writer: coalesces text chunks into appends to one artifact, by size and by time.

use std::{future::Future, time::Duration};

use herald_engine::{Stop, Turn};
use herald_protocol::{Artifact, ArtifactId, Metadata, Part};
use tokio::time::{Instant, timeout_at};

/// Buffered bytes at which the writer appends without waiting.
const MAX_CHUNK: usize = 64 << 10;

/// Longest time that text stays in the buffer. A model that emits single words, or a program that prints
/// slowly, then makes twenty events a second instead of thousands; one that answers at once makes one.
const FLUSH_AFTER: Duration = Duration::from_millis(50);

/// Writes the text of one artifact of a turn.
#[derive(Debug)]
pub(crate) struct ArtifactWriter<'a> {
    turn: &'a Turn,
    id: ArtifactId,
    name: &'static str,
    buffer: String,
    /// Deadline for the next flush; set while the buffer holds text.
    due: Option<Instant>,
    is_begun: bool,
}

impl<'a> ArtifactWriter<'a> {
    /// A writer for an artifact that does not exist yet.
    pub(crate) fn new(turn: &'a Turn, id: impl Into<ArtifactId>, name: &'static str) -> Self {
        let (id, buffer) = (id.into(), String::new());
        Self { turn, id, name, buffer, due: None, is_begun: false }
    }

    /// Awaits `next`, or flushes the buffer if its deadline comes first and returns `None`. `next` is then
    /// dropped, so it must be cancel safe.
    pub(crate) async fn next_or_flush<T>(
        &mut self,
        next: impl Future<Output = T>,
    ) -> Result<Option<T>, Stop> {
        let Some(due) = self.due else { return Ok(Some(next.await)) };
        match timeout_at(due, next).await {
            Ok(next) => Ok(Some(next)),
            Err(_) => self.flush().await.map(|()| None),
        }
    }

    /// Adds text to the buffer.
    pub(crate) async fn push(&mut self, text: &str) -> Result<(), Stop> {
        self.buffer.push_str(text);
        self.due.get_or_insert_with(|| Instant::now() + FLUSH_AFTER);
        if self.buffer.len() >= MAX_CHUNK { self.flush().await } else { Ok(()) }
    }

    /// Appends the buffered text, if there is any.
    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        if self.buffer.is_empty() { Ok(()) } else { self.write(false, None).await }
    }

    /// Appends the last chunk with the metadata of the artifact. Writes nothing if there never was text.
    pub(crate) async fn finish(&mut self, metadata: Option<Metadata>) -> Result<(), Stop> {
        if self.is_begun || !self.buffer.is_empty() {
            self.write(true, metadata).await
        } else {
            Ok(())
        }
    }

    async fn write(&mut self, is_last: bool, metadata: Option<Metadata>) -> Result<(), Stop> {
        self.is_begun = true;
        self.due = None;
        let chunk = Artifact {
            artifact_id: self.id.clone(),
            name: Some(self.name.to_owned()),
            parts: vec![Part::text(std::mem::take(&mut self.buffer))],
            metadata,
            ..Artifact::default()
        };
        self.turn.append(chunk, is_last).await
    }
}
