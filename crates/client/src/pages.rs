//! Lists, page by page.

use futures_util::{Stream, stream};
use herald_protocol::{Reply, Request, TaskPage, request::ListTasks};

use crate::{
    client::{Client, unexpected},
    error::Error,
};

/// The pages of a list.
#[derive(Debug)]
pub struct Pages {
    client: Client,
    /// `None` after the last page.
    query: Option<ListTasks>,
}

impl Pages {
    pub(crate) fn new(client: Client, query: ListTasks) -> Self {
        Self { client, query: Some(query) }
    }

    /// The same as a stream of the `futures` crates. It ends after an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<TaskPage, Error>> + Send + Unpin {
        Box::pin(stream::try_unfold(self, async |mut pages: Self| {
            Ok(pages.next().await?.map(|page| (page, pages)))
        }))
    }

    /// The next page; `None` after the last one. A page that fails can be asked for again.
    pub async fn next(&mut self) -> Result<Option<TaskPage>, Error> {
        let Some(query) = &mut self.query else { return Ok(None) };
        let reply = self.client.unary(Request::ListTasks(query.clone())).await?;
        let Reply::Tasks(page) = reply else { return Err(unexpected()) };
        let token = Some(page.next_page_token.clone()).filter(|token| !token.is_empty());
        if token.is_some() && token == query.page_token {
            self.query = None;
            return Err(Error::invalid("the list goes round in circles"));
        }
        match token {
            Some(token) => query.page_token = Some(token),
            None => self.query = None,
        }
        Ok(Some(page))
    }
}
