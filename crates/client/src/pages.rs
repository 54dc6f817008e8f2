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
    /// A token that was given out before, to tell when it comes again.
    mark: Option<String>,
    /// The number of pages so far, and the number at which the mark moves on.
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

    /// The next page; `None` after the last one. A page that fails can be asked for again. Pages that
    /// come round again are an error, however many lie between.
    pub async fn next(&mut self) -> Result<Option<TaskPage>, Error> {
        let Some(query) = &mut self.query else { return Ok(None) };
        let reply = self.core.unary(Request::ListTasks(query.clone())).await?;
        let Reply::Tasks(page) = reply else { return Err(unexpected()) };
        let token = Some(page.next_page_token.clone()).filter(|token| !token.is_empty());
        if token.is_some() && (token == self.mark || token == query.page_token) {
            self.query = None;
            return Err(Error::invalid("the list goes round in circles"));
        }
        // The mark moves on in steps that double, so that it gets onto any circle and waits there long
        // enough for one round (Brent): one token to remember, whatever the list's length.
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
