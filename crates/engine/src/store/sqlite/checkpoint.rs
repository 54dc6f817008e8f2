//! Checkpoints: pages move from the write-ahead log into the database outside of commits.
//!
//! A thread runs a passive checkpoint whenever enough bytes have accumulated. While writes
//! continue, it never quite catches up, and the log would grow without limit. So at the cap the
//! writer stops between two transactions, waits for a full checkpoint, and restarts the log.

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use rusqlite::Connection;

use super::{Options, rows::first};

/// The size of a page in the log, with the header of its frame.
const FRAME: u64 = 4096 + 24;

/// The writer's handle of the checkpoint thread.
#[derive(Debug)]
pub(super) struct Checkpoints {
    conn: Arc<Mutex<Connection>>,
    wake: mpsc::SyncSender<()>,
    step: u64,
    cap: u64,
    /// The size of the log when the thread was last woken, and when a restart was last tried.
    woken_at: u64,
    tried_at: u64,
    /// The approximate number of bytes written since the size of the log was last read.
    unseen: u64,
}

impl Checkpoints {
    /// Starts the thread. It ends when the handle is dropped.
    pub(super) fn start(
        conn: Connection,
        options: &Options,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (step, cap) = (options.checkpoint_bytes, options.log_cap_bytes);
        let conn = Arc::new(Mutex::new(conn));
        // A capacity of one is enough: a thread that is already woken sees everything written so
        // far.
        let (wake, woken) = mpsc::sync_channel(1);
        let passive = Arc::clone(&conn);
        let thread =
            std::thread::Builder::new().name("herald-checkpoint".into()).spawn(move || {
                while woken.recv().is_ok() {
                    checkpoint(&passive, "PRAGMA wal_checkpoint(PASSIVE)");
                }
            })?;
        Ok((Self { conn, wake, step, cap, woken_at: 0, tried_at: 0, unseen: 0 }, thread))
    }

    /// Must be called by the writer after each commit, outside of a transaction, with the
    /// approximate number of bytes written. Reading the size of the log costs as much as a small
    /// write, so it is read once for several commits.
    pub(super) fn after_commit(&mut self, writer: &Connection, written: u64) {
        self.unseen += written;
        if self.unseen < self.step / 16 {
            return;
        }
        self.unseen = 0;
        let sizes = first(writer, "PRAGMA wal_checkpoint(NOOP)", [], |row| {
            Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
        });
        let Ok(Some((logged, moved))) = sizes else { return };
        let bytes = |frames| u64::try_from(frames).unwrap_or(0) * FRAME;
        let (size, waiting) = (bytes(logged), bytes(logged - moved));
        if size < self.woken_at {
            // The log was restarted.
            (self.woken_at, self.tried_at) = (0, 0);
        }
        if size >= self.cap && size >= self.tried_at + self.step {
            self.tried_at = size;
            // On the connection of the thread, whose lock is free only after its passive
            // checkpoint: two checkpoints at once would fail.
            checkpoint(&self.conn, "PRAGMA wal_checkpoint(RESTART)");
        } else if waiting >= self.step && size >= self.woken_at + self.step / 4 {
            self.woken_at = size;
            self.wake();
        }
    }

    /// Requests a checkpoint. After a full disk it may free space.
    pub(super) fn wake(&self) {
        // If the channel is full, the thread is about to run anyway.
        let _ = self.wake.try_send(());
    }

    /// Moves the whole log into the database, when the store is closed.
    pub(super) fn finish(&self) {
        checkpoint(&self.conn, "PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

fn checkpoint(conn: &Mutex<Connection>, pragma: &str) {
    let conn = conn.lock().unwrap_or_else(PoisonError::into_inner);
    // A failed checkpoint loses nothing: the pages stay in the log, which is equally durable.
    if let Err(error) = first(&conn, pragma, [], |_| Ok(())) {
        tracing::warn!(%error, "the write-ahead log could not be moved into the database");
    }
}
