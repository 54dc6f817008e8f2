//! Replies of the operations, as the client reads them.

use crate::{
    card::AgentCard,
    dialect::Dialect,
    error::{Error, ErrorKind},
    grpc::Service,
    push::{PushConfig, PushConfigPage},
    request::Operation,
    task::{SendResult, Task, TaskPage},
};

/// The reply to an operation that does not stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// The result of a send.
    Sent(SendResult),
    /// The requested task.
    Task(Task),
    /// One page of tasks.
    Tasks(TaskPage),
    /// A webhook.
    PushConfig(PushConfig),
    /// One page of webhooks.
    PushConfigs(PushConfigPage),
    /// The webhook was deleted.
    Deleted,
    /// The extended card.
    Card(Box<AgentCard>),
}

/// `decode_reply` for dialects and services, which have readers of the same names.
macro_rules! decode_reply {
    ($reader:ty) => {
        impl $reader {
            /// Reads the reply to an operation. Some servers reply to a streaming send without a stream;
            /// that is read like the reply to a plain send.
            pub fn decode_reply(self, operation: Operation, bytes: &[u8]) -> Result<Reply, Error> {
                match operation {
                    Operation::SendMessage | Operation::SendStreamingMessage => {
                        let result = self.decode_send_result(bytes)?;
                        if let SendResult::Task(task) = &result {
                            named(task)?;
                        }
                        Ok(Reply::Sent(result))
                    }
                    Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => {
                        let task = self.decode_task(bytes)?;
                        named(&task)?;
                        Ok(Reply::Task(task))
                    }
                    Operation::ListTasks => {
                        let page = self.decode_page(bytes)?;
                        page.tasks.iter().try_for_each(named)?;
                        Ok(Reply::Tasks(page))
                    }
                    Operation::CreateTaskPushNotificationConfig
                    | Operation::GetTaskPushNotificationConfig => {
                        self.decode_push_config(bytes).map(Reply::PushConfig)
                    }
                    Operation::ListTaskPushNotificationConfigs => {
                        self.decode_push_page(bytes).map(Reply::PushConfigs)
                    }
                    // Servers send `{}`, `null` or nothing.
                    Operation::DeleteTaskPushNotificationConfig => Ok(Reply::Deleted),
                    Operation::GetExtendedAgentCard => {
                        self.decode_card(bytes).map(Box::new).map(Reply::Card)
                    }
                }
            }
        }
    };
}

decode_reply!(Dialect);
decode_reply!(Service);

/// Refuses a task without an id: all members may be absent, so any object would be read as a task.
fn named(task: &Task) -> Result<(), Error> {
    if task.id.is_empty() {
        Err(Error::new(ErrorKind::InvalidAgentResponse, "expected a task with an id"))
    } else {
        Ok(())
    }
}
