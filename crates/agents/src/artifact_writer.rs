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
    /// True if the last character stays in the buffer until the artifact is finished.
    holds_last: bool,
}

impl<'a> ArtifactWriter<'a> {
    /// A writer for an artifact that does not exist yet.
    pub(crate) fn new(turn: &'a Turn, id: impl Into<ArtifactId>, name: &'static str) -> Self {
        let (id, buffer) = (id.into(), String::new());
        Self { turn, id, name, buffer, due: None, holds_last: false }
    }

    /// Keeps the last character until the artifact is finished, so that its metadata, which are known
    /// at the end only, always have a chunk with text to go with: an empty part is not content.
    pub(crate) fn holding_last(mut self) -> Self {
        self.holds_last = true;
        self
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
            Err(_) => self.flush_early().await.map(|()| None),
        }
    }

    /// Adds text to the buffer.
    pub(crate) async fn push(&mut self, text: &str) -> Result<(), Stop> {
        self.buffer.push_str(text);
        self.due.get_or_insert_with(|| Instant::now() + FLUSH_AFTER);
        if self.buffer.len() >= MAX_CHUNK { self.flush_early().await } else { Ok(()) }
    }

    /// Appends the buffered text, if there is any.
    pub(crate) async fn flush(&mut self) -> Result<(), Stop> {
        if self.buffer.is_empty() { Ok(()) } else { self.write(false, None).await }
    }

    /// Appends the buffered text while more is expected.
    async fn flush_early(&mut self) -> Result<(), Stop> {
        self.due = None;
        let last = self.buffer.chars().next_back().filter(|_| self.holds_last);
        let held = self.buffer.split_off(self.buffer.len() - last.map_or(0, char::len_utf8));
        self.flush().await?;
        self.buffer = held;
        Ok(())
    }

    /// Appends the rest of the text as the last chunk, with the metadata of the artifact. Writes nothing if
    /// there is no text left.
    pub(crate) async fn finish(&mut self, metadata: Option<Metadata>) -> Result<(), Stop> {
        if self.buffer.is_empty() { Ok(()) } else { self.write(true, metadata).await }
    }

    async fn write(&mut self, is_last: bool, metadata: Option<Metadata>) -> Result<(), Stop> {
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
