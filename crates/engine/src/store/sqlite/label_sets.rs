//! Label sets: the labels that tasks require of their worker, interned, so that the queue of each set can
//! be found by an index.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::StoreError;

use super::{
    append::{Batch, JobResult},
    rows::{Fault, first, readable},
    statements as sql,
};

/// The maximum number of different label sets that tasks which have not ended require. A claim looks at every
/// set that has due tasks.
const MAX_LABEL_SETS: i64 = 256;

/// The maximum number of those that the tasks of one owner require, so that one caller cannot use up all.
const MAX_LABEL_SETS_OF_OWNER: usize = 32;

impl Batch<'_> {
    /// The number of a label set for a new task of this owner. A new set is added; sets that no task requires any
    /// more make room for it.
    pub(super) fn label_set(&mut self, owner: i64, labels: &[String]) -> JobResult<i64> {
        if labels.is_empty() {
            return Ok(Ok(0));
        }
        let labels = serde_json::to_string(labels).expect("a list of strings is valid JSON");
        let find = self.prepared.get(sql::FIND_LABEL_SET)?;
        let known: Option<i64> = find.query_row([&labels], |row| row.get(0)).optional()?;
        if !self.may_require(owner, known)? {
            let limit =
                "32 different sets of required labels in the unfinished tasks of one caller";
            return Ok(Err(StoreError::LimitReached(limit)));
        }
        if let Some(known) = known {
            return Ok(Ok(known));
        }
        let count = self.prepared.get(sql::COUNT_LABEL_SETS)?;
        let count: i64 = count.query_row([], |row| row.get(0))?;
        if count >= MAX_LABEL_SETS && self.prepared.run(sql::DROP_LABEL_SETS, [])? == 0 {
            let limit =
                "256 different sets of required labels in the unfinished tasks of all callers";
            return Ok(Err(StoreError::LimitReached(limit)));
        }
        self.prepared.run(sql::ADD_LABEL_SET, [labels])?;
        Ok(Ok(self.conn.last_insert_rowid()))
    }

    /// True if the tasks of an owner require this set already, or few enough others.
    fn may_require(&mut self, owner: i64, set: Option<i64>) -> Result<bool, Fault> {
        let next = self.prepared.get(sql::NEXT_SET_OF_OWNER)?;
        let mut last = 0_i64;
        for _ in 0..MAX_LABEL_SETS_OF_OWNER {
            let found = next.query_row([owner, last], |row| row.get(0)).optional()?;
            match found {
                Some(found) if Some(found) != set => last = found,
                Some(_) | None => return Ok(true),
            }
        }
        Ok(false)
    }
}

/// A set of labels that tasks require.
#[derive(Debug)]
pub(super) struct LabelSet {
    pub(super) id: i64,
    labels: Vec<String>,
}

impl LabelSet {
    /// True if a worker with these labels has every one of the set.
    pub(super) fn fits(&self, labels: Option<&[String]>) -> bool {
        labels.is_none_or(|labels| self.labels.iter().all(|label| labels.contains(label)))
    }
}

/// The label sets among an agent's active tasks of this holder. The statement steps from one set to the
/// next.
pub(super) fn label_sets_of(
    conn: &Connection,
    agent: i64,
    holder: Option<&[u8; 16]>,
) -> Result<Vec<LabelSet>, Fault> {
    let (mut sets, mut last) = (Vec::new(), -1_i64);
    loop {
        let step = params![agent, holder, last];
        let next = first(conn, sql::NEXT_LABEL_SET, step, |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<String>>(1)?))
        })?;
        let Some((id, labels)) = next else { return Ok(sets) };
        last = id;
        let read = || match (id, labels) {
            (0, _) => Ok(Vec::new()),
            (_, Some(labels)) => {
                serde_json::from_str(&labels).map_err(|_| Fault::unreadable("label set"))
            }
            (_, None) => Err(Fault::unreadable("a label set without labels")),
        };
        sets.extend(readable(id, read())?.map(|labels| LabelSet { id, labels }));
    }
}
