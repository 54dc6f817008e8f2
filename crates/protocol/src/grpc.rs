//! A2A over gRPC: the protobuf messages of both generations, read into and written from the same
//! types as JSON.
//!
//! What is required, what is refused and how a field at fault is named are the same as in the JSON
//! of that generation. Two things differ by nature: a number in open data is a double, so that
//! whole numbers beyond 2^53 are rounded, and an empty text or list is the same as an absent one.

mod card;
pub mod status;
mod v03;
mod v1;
mod value;

use std::sync::Arc;

use prost::Message as _;

pub use value::ValueBytes;

use crate::{
    card::AgentCard,
    dialect::Dialect,
    error::{Error, ErrorKind},
    push::{PushConfig, PushConfigPage},
    request::{Operation, Request},
    task::{SendResult, StreamEvent, Task, TaskPage},
    validate::Violations,
};

/// The messages as the protobuf files have them. `cargo xtask generate` makes them.
#[expect(missing_docs, reason = "the types that they are read into are documented")]
#[expect(clippy::all, reason = "nobody wrote them")]
#[rustfmt::skip]
pub mod generated {
    pub mod v03;
    pub mod v1;
}

/// The descriptors of both services, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!("grpc/generated/descriptors.bin");

/// One of the two services.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Service {
    /// A2A 1.0.
    V1,
    /// A2A 0.3.
    V03,
}

impl Service {
    /// Both services.
    pub const ALL: [Self; 2] = [Self::V1, Self::V03];

    /// Its full name, which begins the path of every call.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1 => "lf.a2a.v1.A2AService",
            Self::V03 => "a2a.v1.A2AService",
        }
    }

    /// The dialect of the same generation, whose rules hold here too. That of 0.3 on REST is the
    /// JSON form of these very messages.
    pub const fn dialect(self) -> Dialect {
        match self {
            Self::V1 => Dialect::V1,
            Self::V03 => Dialect::V03Rest,
        }
    }

    /// The method of an operation; `None` where the generation has none.
    pub const fn method(self, operation: Operation) -> Option<&'static str> {
        match self {
            Self::V1 => Some(operation.name()),
            Self::V03 => match operation {
                Operation::ListTasks => None,
                Operation::SubscribeToTask => Some("TaskSubscription"),
                Operation::ListTaskPushNotificationConfigs => {
                    Some("ListTaskPushNotificationConfig")
                }
                Operation::GetExtendedAgentCard => Some("GetAgentCard"),
                Operation::SendMessage
                | Operation::SendStreamingMessage
                | Operation::GetTask
                | Operation::CancelTask
                | Operation::CreateTaskPushNotificationConfig
                | Operation::GetTaskPushNotificationConfig
                | Operation::DeleteTaskPushNotificationConfig => Some(operation.name()),
            },
        }
    }

    /// The operation of a method.
    pub fn operation(self, method: &str) -> Option<Operation> {
        let mut all = Operation::ALL.iter().copied();
        all.find(|operation| self.method(*operation) == Some(method))
    }

    /// Reads the request of an operation and checks its required fields.
    pub fn decode(self, operation: Operation, message: &[u8]) -> Result<Request, Error> {
        match self {
            Self::V1 => v1::decode(operation, message),
            Self::V03 => v03::decode(operation, message),
        }
    }

    /// Writes the request of an operation, for clients. 0.3 has no list of tasks, whose request is
    /// empty there.
    pub fn encode_request(self, request: Request) -> Vec<u8> {
        match self {
            Self::V1 => v1::encode_request(request),
            Self::V03 => v03::encode_request(request),
        }
    }

    /// Writes the answer to a send.
    pub fn encode_send_result(self, result: SendResult) -> Vec<u8> {
        match self {
            Self::V1 => generated::v1::SendMessageResponse::from(result).encode_to_vec(),
            Self::V03 => generated::v03::SendMessageResponse::from(result).encode_to_vec(),
        }
    }

    /// Writes a task.
    pub fn encode_task(self, task: Task) -> Vec<u8> {
        match self {
            Self::V1 => generated::v1::Task::from(task).encode_to_vec(),
            Self::V03 => generated::v03::Task::from(task).encode_to_vec(),
        }
    }

    /// Writes a page of tasks. Only 1.0 lists tasks, so both write it as 1.0 does.
    pub fn encode_page(self, page: TaskPage) -> Vec<u8> {
        generated::v1::ListTasksResponse::from(page).encode_to_vec()
    }

    /// Writes one item of a stream. `closing` says that the stream ends with it, which 0.3 puts
    /// into status updates.
    pub fn encode_event(self, event: StreamEvent, closing: bool) -> Vec<u8> {
        match self {
            Self::V1 => generated::v1::StreamResponse::from(event).encode_to_vec(),
            Self::V03 => v03::stream_response(event, closing).encode_to_vec(),
        }
    }

    /// Writes a webhook.
    pub fn encode_push_config(self, config: PushConfig) -> Vec<u8> {
        match self {
            Self::V1 => generated::v1::TaskPushNotificationConfig::from(config).encode_to_vec(),
            Self::V03 => generated::v03::TaskPushNotificationConfig::from(config).encode_to_vec(),
        }
    }

    /// Writes a page of webhooks.
    pub fn encode_push_page(self, page: PushConfigPage) -> Vec<u8> {
        match self {
            Self::V1 => v1::push_page(page).encode_to_vec(),
            Self::V03 => v03::push_page(page).encode_to_vec(),
        }
    }

    /// Writes a card.
    pub fn encode_card(self, card: AgentCard) -> Vec<u8> {
        match self {
            Self::V1 => generated::v1::AgentCard::from(card).encode_to_vec(),
            Self::V03 => generated::v03::AgentCard::from(card).encode_to_vec(),
        }
    }

    /// Reads the answer to a send.
    pub fn decode_send_result(self, message: &[u8]) -> Result<SendResult, Error> {
        reply(match self {
            Self::V1 => v1::send_result(message),
            Self::V03 => v03::send_result(message),
        })
    }

    /// Reads a task.
    pub fn decode_task(self, message: &[u8]) -> Result<Task, Error> {
        reply(match self {
            Self::V1 => v1::task(message),
            Self::V03 => v03::task(message),
        })
    }

    /// Reads a page of tasks.
    pub fn decode_page(self, message: &[u8]) -> Result<TaskPage, Error> {
        reply(v1::page(message))
    }

    /// Reads one item of a stream.
    pub fn decode_event(self, message: &[u8]) -> Result<StreamEvent, Error> {
        reply(match self {
            Self::V1 => v1::event(message),
            Self::V03 => v03::event(message),
        })
    }

    /// Reads a webhook.
    pub fn decode_push_config(self, message: &[u8]) -> Result<PushConfig, Error> {
        reply(match self {
            Self::V1 => v1::push_config(message),
            Self::V03 => v03::push_config(message),
        })
    }

    /// Reads a page of webhooks.
    pub fn decode_push_page(self, message: &[u8]) -> Result<PushConfigPage, Error> {
        reply(match self {
            Self::V1 => v1::read_push_page(message),
            Self::V03 => v03::read_push_page(message),
        })
    }

    /// Reads a card.
    pub fn decode_card(self, message: &[u8]) -> Result<AgentCard, Error> {
        reply(match self {
            Self::V1 => parse::<generated::v1::AgentCard>(message)
                .and_then(|card| Violations::collect(|at| card.read(at))),
            Self::V03 => parse::<generated::v03::AgentCard>(message)
                .and_then(|card| Violations::collect(|at| card.read(at))),
        })
    }
}

/// Reads a protobuf message. The fault names the field, never what stands in it.
fn parse<M: prost::Message + Default>(message: &[u8]) -> Result<M, Error> {
    M::decode(message).map_err(|fault| Error::new(ErrorKind::Parse, fault))
}

/// Turns a fault in an answer into an error of the agent, not of the caller.
fn reply<T>(read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| Error { kind: ErrorKind::InvalidAgentResponse, ..error })
}

/// A text that is there; protobuf makes no difference between an empty and an absent one.
pub(crate) fn filled(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

/// An id or another text of a type of its own that is there.
fn named<T: From<String>>(text: String) -> Option<T> {
    filled(text).map(T::from)
}

/// The protobuf message of a shared value.
fn owned<T: Clone, M: From<T>>(shared: Arc<T>) -> M {
    Arc::unwrap_or_clone(shared).into()
}
