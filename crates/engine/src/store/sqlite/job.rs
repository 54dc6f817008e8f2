//! Jobs of the writer: each kind of work has its own type of answer.

use std::fmt;

use tokio::sync::oneshot;

use crate::store::StoreError;

use super::{
    append::{Batch, Refused},
    rows::Fault,
};

/// One kind of write.
pub(super) trait Work: fmt::Debug + Send + 'static {
    /// The result of the write, given once it is durable.
    type Answer: fmt::Debug + Send + 'static;

    /// Writes within the transaction of its batch. A refusal must leave nothing behind; a fault fails
    /// the whole batch.
    fn run(&mut self, batch: &mut Batch<'_>) -> Refused<Self::Answer>;

    /// Roughly the bytes that it writes.
    fn weight(&self) -> usize {
        0
    }

    /// True if it has a transaction to itself, because it touches as many tasks as wait, and damage to
    /// one of them must fail no other write.
    fn is_large(&self) -> bool {
        false
    }

    /// True if it asks whether a write would succeed now.
    fn is_probe(&self) -> bool {
        false
    }

    /// True if it depends on heartbeats: none is counted then from before the job to after the commit.
    fn compares_heartbeats(&self) -> bool {
        false
    }
}

/// Work, its outcome within the open transaction, and the caller who waits for it.
#[derive(Debug)]
pub(super) struct Job<W: Work> {
    work: W,
    outcome: Option<Result<W::Answer, StoreError>>,
    reply: oneshot::Sender<Result<W::Answer, StoreError>>,
}

/// Where the answer of a job arrives.
type Answer<W> = oneshot::Receiver<Result<<W as Work>::Answer, StoreError>>;

/// A job of any kind, as the queue of the writer holds it.
pub(super) trait Queued: fmt::Debug + Send {
    /// Writes, and keeps the outcome for [`Queued::reply`].
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault>;

    /// Tells the caller the outcome after the commit, or the error that rolled everything back. A
    /// caller who has gone away is not an error: the work was to be done all the same.
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);

    fn weight(&self) -> usize;

    fn is_large(&self) -> bool;

    fn is_probe(&self) -> bool;

    fn compares_heartbeats(&self) -> bool;
}

impl<W: Work> Job<W> {
    /// A job for the queue, and where its answer arrives.
    pub(super) fn queued(work: W) -> (Box<dyn Queued>, Answer<W>) {
        let (reply, answer) = oneshot::channel();
        (Box::new(Self { work, outcome: None, reply }), answer)
    }
}

impl<W: Work> Queued for Job<W> {
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault> {
        self.outcome = Some(self.work.run(batch)?);
        Ok(())
    }

    fn reply(self: Box<Self>, committed: Result<(), StoreError>) {
        let Self { outcome, reply, .. } = *self;
        let not_run = || Err(StoreError::Unavailable("the writer has stopped".into()));
        let _ = reply.send(committed.and_then(|()| outcome.unwrap_or_else(not_run)));
    }

    fn weight(&self) -> usize {
        self.work.weight()
    }

    fn is_large(&self) -> bool {
        self.work.is_large()
    }

    fn is_probe(&self) -> bool {
        self.work.is_probe()
    }

    fn compares_heartbeats(&self) -> bool {
        self.work.compares_heartbeats()
    }
}
