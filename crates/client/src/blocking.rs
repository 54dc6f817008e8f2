//! Blocking client, for programs without an async runtime.
//!
//! Nothing here may be used inside an asynchronous function.

use std::{fmt, sync::Arc};

use herald_protocol::{
    AgentCard, Request, SendResult, StreamEvent, Task, TaskId, TaskPage,
    request::{ListTasks, SendMessage},
};
use tokio::runtime::{Builder, Runtime};

use crate::{ClientBuilder, error::Error};

/// Calls one agent and waits for each answer.
#[derive(Clone)]
pub struct Client {
    runtime: Arc<Runtime>,
    client: crate::Client,
}

/// The events of one task, as an iterator.
pub struct Events {
    runtime: Arc<Runtime>,
    events: crate::Events,
    over: bool,
}

impl Client {
    /// Finds the agent at `url`; see [`crate::Client::connect`].
    pub fn connect(url: &str) -> Result<Self, Error> {
        Self::build(crate::Client::builder(), url)
    }

    /// Finds the agent at `url` with the settings of `builder`.
    pub fn build(builder: ClientBuilder, url: &str) -> Result<Self, Error> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime
            .map_err(|fault| Error::setup(format!("the runtime cannot be started: {fault}")))?;
        let client = runtime.block_on(builder.connect(url))?;
        Ok(Self { runtime: Arc::new(runtime), client })
    }

    /// The agent card.
    pub fn card(&self) -> AgentCard {
        self.client.card()
    }

    /// Sends a message and waits until the task is done or waits for its caller.
    pub fn send(&self, message: impl Into<SendMessage>) -> Result<SendResult, Error> {
        self.runtime.block_on(async {
            let result = self.client.send(message).await?;
            self.client.finish(result).await
        })
    }

    /// Sends a message and returns the events of its task.
    pub fn stream(&self, message: impl Into<SendMessage>) -> Result<Events, Error> {
        let events = self.runtime.block_on(self.client.stream(message))?;
        Ok(Events { runtime: Arc::clone(&self.runtime), events, over: false })
    }

    /// Gets a task.
    pub fn get(&self, id: impl Into<TaskId>) -> Result<Task, Error> {
        self.runtime.block_on(self.client.get(id))
    }

    /// Cancels a task.
    pub fn cancel(&self, id: impl Into<TaskId>) -> Result<Task, Error> {
        self.runtime.block_on(self.client.cancel(id))
    }

    /// Lists tasks, page by page.
    pub fn list(&self, query: ListTasks) -> impl Iterator<Item = Result<TaskPage, Error>> {
        let mut pages = self.client.list(query);
        std::iter::from_fn(move || self.runtime.block_on(pages.next()).transpose()).fuse()
    }

    /// Performs any operation that does not stream.
    pub fn call(&self, request: Request) -> Result<crate::Reply, Error> {
        self.runtime.block_on(self.client.unary(request))
    }
}

impl Iterator for Events {
    type Item = Result<StreamEvent, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let next = self.runtime.block_on(self.events.next()).transpose();
        self.over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("client", &self.client).finish_non_exhaustive()
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("events", &self.events).finish_non_exhaustive()
    }
}
