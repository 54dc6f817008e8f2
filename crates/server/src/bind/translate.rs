//! Translation of logged events, which are stored as 1.0 JSON, for callers with older versions.

use std::collections::HashMap;

use bytes::Bytes;
use herald_engine::{Feed, FeedItem, Item, Subscription};
use herald_protocol::{ArtifactId, Dialect, Error, TaskId, dialect::StreamWriter};

/// Tasks whose translators are kept at hand.
const KEPT: usize = 256;

/// Translates the events of one task.
#[derive(Debug)]
pub(crate) struct Translator(Option<StreamWriter>);

/// Translates the events of many tasks.
#[derive(Debug)]
pub(crate) struct Translators {
    dialect: Dialect,
    /// In 0.1 each task needs one of its own, since artifacts are numbered there.
    tasks: HashMap<TaskId, Translator>,
}

/// What one item is called where items have names, and its JSON.
pub(crate) type Told = (Option<&'static str>, Bytes);

impl Translator {
    /// For a stream in this dialect.
    pub(crate) async fn new(dialect: Dialect, events: &Subscription) -> Result<Self, Error> {
        let artifacts = match dialect {
            Dialect::V1 | Dialect::V03 | Dialect::V03Rest => Vec::new(),
            Dialect::V01 => events.artifacts().await?,
        };
        Ok(Self::knowing(dialect, artifacts))
    }

    fn knowing(dialect: Dialect, artifacts: Vec<ArtifactId>) -> Self {
        Self(match dialect {
            Dialect::V1 => None,
            Dialect::V03 | Dialect::V03Rest | Dialect::V01 => {
                Some(StreamWriter::new(dialect, artifacts))
            }
        })
    }

    /// The items that an event becomes, of which there is at least one.
    pub(crate) fn items(&mut self, item: &Item) -> Result<Vec<Told>, Error> {
        self.write(&item.body, item.closing)
    }

    fn write(&mut self, body: &Bytes, closing: bool) -> Result<Vec<Told>, Error> {
        let Some(writer) = &mut self.0 else { return Ok(vec![(None, body.clone())]) };
        let event = Dialect::V1.decode_event(body)?;
        let items = writer.write(&event, closing);
        Ok(items.into_iter().map(|item| (item.name, item.body.into())).collect())
    }
}

impl Translators {
    /// For feeds in this dialect.
    pub(crate) fn new(dialect: Dialect) -> Self {
        Self { dialect, tasks: HashMap::new() }
    }

    /// The items that an event of this feed becomes.
    pub(crate) async fn items(&mut self, feed: &Feed, item: &FeedItem) -> Result<Vec<Told>, Error> {
        let task = match self.dialect {
            Dialect::V1 | Dialect::V03 | Dialect::V03Rest => &TaskId::default(),
            Dialect::V01 => &item.task,
        };
        if !self.tasks.contains_key(task) {
            let artifacts = match self.dialect {
                Dialect::V1 | Dialect::V03 | Dialect::V03Rest => Vec::new(),
                Dialect::V01 => feed.artifacts(task).await?,
            };
            if self.tasks.len() >= KEPT {
                self.tasks.clear();
            }
            self.tasks.insert(task.clone(), Translator::knowing(self.dialect, artifacts));
        }
        let translator = self.tasks.get_mut(task).expect("it was put there if it was not");
        translator.write(&item.body, item.closing)
    }
}
