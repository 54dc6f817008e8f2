//! Jobs of the writer. Each kind of job has its own type of answer.

use std::fmt;

use tokio::sync::oneshot;

use crate::store::StoreError;

use super::{
    append::{Batch, JobResult},
    rows::Fault,
};

/// A kind of write.
pub(super) trait Work: fmt::Debug + Send + 'static {
    /// The result, sent once the write is durable.
    type Answer: fmt::Debug + Send + 'static;

    /// Writes within the transaction of the batch. A refusal must change nothing; a fault rolls
    /// back the whole batch.
    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Self::Answer>;

    /// The approximate number of bytes that it writes.
    fn weight(&self) -> usize {
        0
    }

    /// True if it needs its own transaction, because it touches all waiting tasks, and damage to
    /// one of them must not fail other writes.
    fn is_large(&self) -> bool {
        false
    }

    /// True if it only checks that a write would succeed.
    fn is_probe(&self) -> bool {
        false
    }

    /// True if it compares heartbeats. No heartbeat is counted between the job and the commit.
    fn compares_heartbeats(&self) -> bool {
        false
    }
}

/// Work, its result within the open transaction, and the channel to its caller.
#[derive(Debug)]
pub(super) struct Job<W: Work> {
    work: W,
    outcome: Option<Result<W::Answer, StoreError>>,
    reply: oneshot::Sender<Result<W::Answer, StoreError>>,
}

/// The receiver of a job's answer.
type AnswerReceiver<W> = oneshot::Receiver<Result<<W as Work>::Answer, StoreError>>;

/// A job of any kind, as an element of the writer's queue.
pub(super) trait Queued: fmt::Debug + Send {
    /// Writes, and keeps the result for [`Queued::reply`].
    fn run(&mut self, batch: &mut Batch<'_>) -> Result<(), Fault>;

    /// Sends the result after the commit, or the error that rolled the batch back. A caller that no
    /// longer waits is not an error: the job is done anyway.
    fn reply(self: Box<Self>, committed: Result<(), StoreError>);

    fn weight(&self) -> usize;

    fn is_large(&self) -> bool;

    fn is_probe(&self) -> bool;

    fn compares_heartbeats(&self) -> bool;
}

impl<W: Work> Job<W> {
    /// A job for the queue, and the receiver of its answer.
    pub(super) fn queued(work: W) -> (Box<dyn Queued>, AnswerReceiver<W>) {
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
