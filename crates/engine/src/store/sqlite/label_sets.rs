//! Label sets: the labels that tasks require of their worker, interned, so that the queue of each set can
//! be found by an index.

use rusqlite::{Connection, OptionalExtension, params};

use crate::store::StoreError;

use super::{
    append::{Batch, JobResult},
    rows::{Fault, first, readable},
    statements as sql,
};

/// The maximum number of different label sets. A claim looks at every set that has due tasks.
const MAX_LABEL_SETS: i64 = 256;

impl Batch<'_> {
    /// The number of a label set, which is added if it is new.
    pub(super) fn label_set(&mut self, labels: &[String]) -> JobResult<i64> {
        if labels.is_empty() {
            return Ok(Ok(0));
        }
        let labels = serde_json::to_string(labels).expect("a list of strings is valid JSON");
        let find = self.prepared.get(sql::FIND_LABEL_SET)?;
        let found = find.query_row([&labels], |row| row.get(0)).optional()?;
        if let Some(found) = found {
            return Ok(Ok(found));
        }
        let added = self.prepared.run(sql::ADD_LABEL_SET, params![labels, MAX_LABEL_SETS])?;
        Ok(if added == 0 {
            Err(StoreError::LimitReached("256 different sets of required labels"))
        } else {
            Ok(self.conn.last_insert_rowid())
        })
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
