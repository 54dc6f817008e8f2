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

/// The answer to an operation that does not stream.
#[derive(Debug, Clone, PartialEq)]
pub enum Reply {
    /// To a send.
    Sent(SendResult),
    /// The task that was asked for.
    Task(Task),
    /// One page of tasks.
    Tasks(TaskPage),
    /// A webhook.
    PushConfig(PushConfig),
    /// One page of webhooks.
    PushConfigs(PushConfigPage),
    /// The webhook is gone.
    Deleted,
    /// The extended card.
    Card(Box<AgentCard>),
}

/// Both read every answer by itself, under the same names.
macro_rules! decode_reply {
    ($reader:ty) => {
        impl $reader {
            /// Reads the answer to an operation. Some servers answer a streaming send as they would
            /// a plain one; then it is read as that.
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
                    // `{}`, `null` and nothing at all are in use.
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

/// Every member of a task may be absent on the wire, so any object would pass for one.
fn named(task: &Task) -> Result<(), Error> {
    if task.id.is_empty() {
        Err(Error::new(ErrorKind::InvalidAgentResponse, "expected a task with an id"))
    } else {
        Ok(())
    }
}
