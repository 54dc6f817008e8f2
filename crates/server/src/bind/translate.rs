//! The log holds what 1.0 puts on the wire; callers of older generations read it translated.

use bytes::Bytes;
use herald_engine::{Item, Subscription};
use herald_protocol::{Dialect, Error, dialect::StreamWriter};

/// Translates the events of one stream.
#[derive(Debug)]
pub(crate) struct Translator(Option<StreamWriter>);

/// What one item is called where items have names, and its JSON.
pub(crate) type Told = (Option<&'static str>, Bytes);

impl Translator {
    /// For a stream in this dialect.
    pub(crate) async fn new(dialect: Dialect, events: &Subscription) -> Result<Self, Error> {
        let artifacts = match dialect {
            Dialect::V1 => return Ok(Self(None)),
            Dialect::V03 | Dialect::V03Rest => Vec::new(),
            Dialect::V01 => events.artifacts().await?,
        };
        Ok(Self(Some(StreamWriter::new(dialect, artifacts))))
    }

    /// The items that an event becomes, of which there is at least one.
    pub(crate) fn items(&mut self, item: &Item) -> Result<Vec<Told>, Error> {
        let Some(writer) = &mut self.0 else { return Ok(vec![(None, item.body.clone())]) };
        let event = Dialect::V1.decode_event(&item.body)?;
        let items = writer.write(&event, item.closing);
        Ok(items.into_iter().map(|item| (item.name, item.body.into())).collect())
    }
}
