//! Prepared statements, checked out for one transaction. Looking a statement up by its text and
//! returning it to the cache costs about as much as running it.

use std::fmt;

use rusqlite::{CachedStatement, Connection, Params};

/// The statements that a transaction has used so far.
pub(super) struct Prepared<'c> {
    conn: &'c Connection,
    ready: Vec<(&'static str, CachedStatement<'c>)>,
}

impl<'c> Prepared<'c> {
    pub(super) fn new(conn: &'c Connection) -> Self {
        Self { conn, ready: Vec::with_capacity(8) }
    }

    pub(super) fn get(&mut self, sql: &'static str) -> rusqlite::Result<&mut CachedStatement<'c>> {
        let at = match self.ready.iter().position(|(known, _)| *known == sql) {
            Some(at) => at,
            None => {
                self.ready.push((sql, self.conn.prepare_cached(sql)?));
                self.ready.len() - 1
            }
        };
        Ok(&mut self.ready[at].1)
    }

    /// Runs a statement and returns the number of changed rows.
    pub(super) fn run(
        &mut self,
        sql: &'static str,
        params: impl Params,
    ) -> rusqlite::Result<usize> {
        self.get(sql)?.execute(params)
    }
}

impl fmt::Debug for Prepared<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.ready.iter().map(|(sql, _)| sql)).finish()
    }
}
