//! The echo agent's run, as a list of steps. A run has no state but the step it is at.

use bytes::Bytes;
use uuid::Uuid;

use crate::{
    store::{Batch, NewTask},
    wire::{
        Artifact, ArtifactUpdate, Event, Incoming, Message, Part, State, Status, StatusUpdate,
        Task, encode,
    },
};

const CHUNKS: [&str; 10] = [
    "chunk 0 ", "chunk 1 ", "chunk 2 ", "chunk 3 ", "chunk 4 ", "chunk 5 ", "chunk 6 ", "chunk 7 ",
    "chunk 8 ", "chunk 9 ",
];

/// The prefixes are those of the public conformance suite, so that Herald, this server and the peers
/// take the same messages.
const CHUNKED: &str = "tck-stream-chunked";
const HELD: &str = "tck-cancel";

pub(crate) struct Run {
    pub(crate) task: Uuid,
    context: String,
    message_id: String,
    text: String,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Step {
    Submitted,
    Working,
    Chunk(usize),
    /// Works until the client disconnects.
    Held,
    Completed,
}

impl Run {
    pub(crate) fn new(message: Incoming<'_>) -> Self {
        let text = message.parts.iter().filter_map(|part| part.text.as_deref()).collect();
        // Version 7 ids grow, so new rows go to the end of the index.
        let context = message.context_id.map_or_else(|| Uuid::now_v7().to_string(), Into::into);
        Self { task: Uuid::now_v7(), context, message_id: message.message_id.into_owned(), text }
    }

    pub(crate) fn after(&self, step: Step) -> Option<Step> {
        match step {
            Step::Submitted => Some(Step::Working),
            Step::Working if self.text.starts_with(HELD) => Some(Step::Held),
            Step::Working => Some(Step::Chunk(0)),
            Step::Chunk(n) if n + 1 < self.chunks().len() => Some(Step::Chunk(n + 1)),
            Step::Chunk(_) => Some(Step::Completed),
            Step::Held | Step::Completed => None,
        }
    }

    /// What a blocking send makes durable before any work: the task, its dedup row, two events.
    pub(crate) fn accept(&self) -> Batch {
        let mut batch = self.step(Step::Submitted).0;
        batch.events.push(encode(&self.event(Step::Working)));
        batch
    }

    /// What it makes durable before it answers: the other two events and the task as it is answered.
    pub(crate) fn finish(&self) -> (Batch, Bytes) {
        let snapshot = encode(&self.document(State::Completed));
        let events = [Step::Chunk(0), Step::Completed].map(|step| encode(&self.event(step)));
        let batch = Batch {
            task: self.task,
            new: None,
            first_seq: self.seq(Step::Chunk(0)),
            events: events.into(),
            snapshot: Some(snapshot.clone()),
        };
        (batch, snapshot)
    }

    /// The rows of one step of a stream, and the event as it goes on the wire.
    pub(crate) fn step(&self, step: Step) -> (Batch, Bytes) {
        let event = encode(&self.event(step));
        let completed = step == Step::Completed;
        let batch = Batch {
            task: self.task,
            new: (step == Step::Submitted).then(|| self.new_task()),
            first_seq: self.seq(step),
            events: vec![event.clone()],
            snapshot: completed.then(|| encode(&self.document(State::Completed))),
        };
        (batch, event)
    }

    fn new_task(&self) -> NewTask {
        let snapshot = encode(&self.document(State::Submitted));
        NewTask { message_id: self.message_id.clone(), snapshot }
    }

    fn seq(&self, step: Step) -> u32 {
        match step {
            Step::Submitted => 1,
            Step::Working | Step::Held => 2,
            Step::Chunk(n) => 3 + n as u32,
            Step::Completed => 3 + self.chunks().len() as u32,
        }
    }

    fn chunks(&self) -> &[&str] {
        if self.text.starts_with(CHUNKED) { &CHUNKS } else { &CHUNKS[..1] }
    }

    /// Chunk `n` of the answer; an answer of one chunk is the text itself.
    fn chunk(&self, n: usize) -> Part<'_> {
        Part { text: if self.chunks().len() == 1 { &self.text } else { CHUNKS[n] } }
    }

    fn event(&self, step: Step) -> Event<'_> {
        match step {
            Step::Submitted => Event::Task(self.document(State::Submitted)),
            Step::Working | Step::Held => self.status(State::Working),
            Step::Completed => self.status(State::Completed),
            Step::Chunk(n) => Event::ArtifactUpdate(ArtifactUpdate {
                task_id: self.task,
                context_id: &self.context,
                artifact: artifact(vec![self.chunk(n)]),
                append: n > 0,
                last_chunk: n + 1 == self.chunks().len(),
            }),
        }
    }

    fn status(&self, state: State) -> Event<'_> {
        let status = Status::now(state);
        Event::StatusUpdate(StatusUpdate { task_id: self.task, context_id: &self.context, status })
    }

    fn document(&self, state: State) -> Task<'_> {
        let answer = || artifact((0..self.chunks().len()).map(|n| self.chunk(n)).collect());
        Task {
            id: self.task,
            context_id: &self.context,
            status: Status::now(state),
            artifacts: matches!(state, State::Completed).then(|| [answer()]),
            history: [Message {
                message_id: &self.message_id,
                task_id: self.task,
                context_id: &self.context,
                role: "ROLE_USER",
                parts: [Part { text: &self.text }],
            }],
        }
    }
}

fn artifact(parts: Vec<Part<'_>>) -> Artifact<'_> {
    Artifact { artifact_id: "answer", name: "echo", parts }
}
