//! Last pause of a turn, from the log: the task itself has its state alone.

use herald_protocol::{Error, Seq};

use crate::{
    core::Core,
    fault::is_transient,
    store::{Key, Kind},
};

/// The events that are read at once.
const LOG_PAGE: usize = 100;

/// The last event of a turn with which its task began to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastPause {
    pub(crate) seq: Seq,
    /// True if the turn goes on by itself.
    pub(crate) is_interim: bool,
}

/// The last pause after this event.
pub(crate) async fn last_pause(
    core: &Core,
    key: &Key,
    mut after: Seq,
) -> Result<Option<LastPause>, Error> {
    let mut pause = None;
    loop {
        let read = || core.read(key, after, LOG_PAGE);
        let page = core.retry_while_unavailable(read, is_transient).await?;
        let Some(last) = page.entries.last() else { return Ok(pause) };
        after = last.seq;
        let pauses = page.entries.iter().filter_map(|entry| {
            let is_interim = match entry.kind {
                Kind::Status(state) if state.is_interrupted() => false,
                Kind::Interim(_) => true,
                Kind::Status(_) | Kind::Received(_) | Kind::Artifact | Kind::Reply => return None,
            };
            Some(LastPause { seq: entry.seq, is_interim })
        });
        pause = pauses.last().or(pause);
    }
}
