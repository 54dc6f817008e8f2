//! Paginated lists.

use std::sync::Arc;

use futures_util::{Stream, stream};
use herald_protocol::{Reply, Request, TaskPage, request::ListTasks};

use crate::{
    client_core::{ClientCore, unexpected},
    error::Error,
};

/// The pages of a list.
#[derive(Debug)]
pub struct Pages {
    core: Arc<ClientCore>,
    /// `None` after the last page.
    query: Option<ListTasks>,
    /// An earlier page token, to detect a list that repeats itself.
    mark: Option<String>,
    /// The number of pages so far, and the number at which the mark moves.
    count: u64,
    next_mark: u64,
}

impl Pages {
    pub(crate) fn new(core: Arc<ClientCore>, query: ListTasks) -> Self {
        Self { core, mark: query.page_token.clone(), query: Some(query), count: 0, next_mark: 1 }
    }

    /// The same as a stream of the `futures` crates. It ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<TaskPage, Error>> + Send + Unpin {
        Box::pin(stream::try_unfold(self, async |mut pages: Self| {
            Ok(pages.next().await?.map(|page| (page, pages)))
        }))
    }

    /// The next page; `None` after the last one. A failed page can be requested again. A list that repeats its
    /// pages is an error.
    pub async fn next(&mut self) -> Result<Option<TaskPage>, Error> {
        let Some(query) = &mut self.query else { return Ok(None) };
        let reply = self.core.unary(Request::ListTasks(query.clone())).await?;
        let Reply::Tasks(page) = reply else { return Err(unexpected()) };
        let token = Some(page.next_page_token.clone()).filter(|token| !token.is_empty());
        if token.is_some() && (token == self.mark || token == query.page_token) {
            self.query = None;
            return Err(Error::invalid("the list repeats its pages without end"));
        }
        // Cycle detection by Brent: the mark moves in steps that double, so one token is enough for lists and
        // cycles of any length.
        self.count += 1;
        if self.count == self.next_mark {
            self.mark.clone_from(&token);
            self.next_mark *= 2;
        }
        match token {
            Some(token) => query.page_token = Some(token),
            None => self.query = None,
        }
        Ok(Some(page))
    }
}
