//! Moves pages from the write-ahead log into the database, off the path of commits.
//!
//! A thread does it in passing whenever enough has gathered. While writes keep coming it can never
//! quite catch up and the log would grow for ever; so at the cap the writer itself stops between
//! two transactions, has the rest moved, and starts the log over.

use std::{
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread::JoinHandle,
};

use rusqlite::Connection;

use super::{Options, rows::first};

/// What a page takes in the log: itself and its frame's header.
const FRAME: u64 = 4096 + 24;

/// The writer's side.
#[derive(Debug)]
pub(super) struct Checkpoints {
    conn: Arc<Mutex<Connection>>,
    wake: mpsc::SyncSender<()>,
    step: u64,
    cap: u64,
    /// Bytes in the log when the thread was last woken, and when starting over was last tried.
    woken_at: u64,
    tried_at: u64,
    /// Roughly the bytes that were written since the log was last looked at.
    unseen: u64,
}

impl Checkpoints {
    /// Starts the thread. It ends when the writer drops this.
    pub(super) fn start(
        conn: Connection,
        options: &Options,
    ) -> std::io::Result<(Self, JoinHandle<()>)> {
        let (step, cap) = (options.checkpoint_bytes, options.log_cap_bytes);
        let conn = Arc::new(Mutex::new(conn));
        // One place is enough: a thread that is already woken sees everything up to now.
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

    /// To be called by the writer after each commit, outside any transaction, with roughly the
    /// bytes that went into it. To look at the log costs as much as a small write, so that it is
    /// done once for several of them.
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
            // The log has started over.
            (self.woken_at, self.tried_at) = (0, 0);
        }
        if size >= self.cap && size >= self.tried_at + self.step {
            self.tried_at = size;
            // On the thread's connection, which waits for a passive checkpoint to finish: two at
            // once would refuse each other.
            checkpoint(&self.conn, "PRAGMA wal_checkpoint(RESTART)");
        } else if waiting >= self.step && size >= self.woken_at + self.step / 4 {
            self.woken_at = size;
            self.wake();
        }
    }

    /// Has the log moved soon; a disk that was full may then have room again.
    pub(super) fn wake(&self) {
        // A full channel means that the thread is about to look anyway.
        let _ = self.wake.try_send(());
    }

    /// Empties the log, at the end.
    pub(super) fn finish(&self) {
        checkpoint(&self.conn, "PRAGMA wal_checkpoint(TRUNCATE)");
    }
}

fn checkpoint(conn: &Mutex<Connection>, pragma: &str) {
    let conn = conn.lock().unwrap_or_else(PoisonError::into_inner);
    // Nothing is lost when it fails: the pages stay in the log, which is as durable.
    if let Err(error) = first(&conn, pragma, [], |_| Ok(())) {
        tracing::warn!(%error, "the write-ahead log could not be moved into the database");
    }
}
