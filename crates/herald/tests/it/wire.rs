//! The protocol from the client's side, without types of the server.

use herald_protocol::sse::SseEvent;
use serde_json::{Value, json};

use crate::http::{Answer, Call, Client, Cut, Stream};

/// A binding and a version of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Wire {
    Rpc,
    Rest,
    OldRpc,
    OldRest,
    /// 0.1 at `/rpc`.
    FirstRpc,
}

/// A message to send over any binding.
#[derive(Debug, Clone)]
pub(crate) struct Draft {
    pub(crate) id: String,
    /// Empty for a message without parts.
    pub(crate) text: String,
    pub(crate) task: Option<String>,
    pub(crate) context: Option<String>,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) task: String,
    pub(crate) seq: u64,
    /// The event without its JSON-RPC envelope.
    pub(crate) body: Value,
}

/// The error of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) code: i64,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The task that it leaves behind.
    pub(crate) task: Option<String>,
}

impl Draft {
    pub(crate) fn new(id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id: id.into(), text: text.into(), task: None, context: None }
    }

    /// In a conversation.
    pub(crate) fn within(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// The next message of a task.
    pub(crate) fn to(mut self, task: &str) -> Self {
        self.task = Some(task.to_owned());
        self
    }
}

impl Wire {
    /// Wires on which a send can wait.
    pub(crate) const ALL: [Self; 4] = [Self::Rpc, Self::Rest, Self::OldRpc, Self::OldRest];

    /// A send, below `agent`, that waits for the outcome unless told to return `immediately`. In 0.1
    /// it always returns.
    pub(crate) fn send(self, agent: &str, draft: &Draft, immediately: bool) -> Call {
        let mut params = self.params(draft);
        match self {
            Self::Rpc | Self::Rest => {
                params["configuration"] = json!({ "returnImmediately": immediately });
            }
            Self::OldRpc | Self::OldRest => {
                params["configuration"] = json!({ "blocking": !immediately });
            }
            Self::FirstRpc => {}
        }
        self.post(agent, ["SendMessage", "message/send", "tasks/send", "message:send"], &params)
    }

    /// A send that streams.
    pub(crate) fn stream(self, agent: &str, draft: &Draft) -> Call {
        let names =
            ["SendStreamingMessage", "message/stream", "tasks/sendSubscribe", "message:stream"];
        self.post(agent, names, &self.params(draft))
    }

    pub(crate) fn get(self, task: &str) -> Call {
        match self {
            Self::Rpc | Self::OldRpc | Self::FirstRpc => {
                self.named(["GetTask", "tasks/get", "tasks/get", ""], task)
            }
            Self::Rest => Call::get(format!("/tasks/{task}")).header("a2a-version", "1.0"),
            Self::OldRest => Call::get(format!("/v1/tasks/{task}")),
        }
    }

    pub(crate) fn cancel(self, task: &str) -> Call {
        self.named(["CancelTask", "tasks/cancel", "tasks/cancel", ":cancel"], task)
    }

    pub(crate) fn subscribe(self, task: &str) -> Call {
        let names = ["SubscribeToTask", "tasks/resubscribe", "tasks/resubscribe", ":subscribe"];
        self.named(names, task)
    }

    /// A subscription after an event that was seen.
    pub(crate) fn resume(self, task: &str, seen: u64) -> Call {
        self.subscribe(task).header("last-event-id", format!("{task}:{seen}"))
    }

    /// The tasks of a context, which only 1.0 can list.
    pub(crate) fn list(self, context: &str) -> Call {
        match self {
            Self::Rpc | Self::OldRpc | Self::FirstRpc => {
                let names = ["ListTasks", "tasks/list", "tasks/list", ""];
                self.post("", names, &json!({ "contextId": context }))
            }
            Self::Rest => {
                Call::get(format!("/tasks?contextId={context}")).header("a2a-version", "1.0")
            }
            Self::OldRest => Call::get(format!("/v1/tasks?contextId={context}")),
        }
    }

    /// An unknown method.
    pub(crate) fn nothing(self) -> Call {
        self.post("", ["DoNothing", "nothing/do", "nothing/do", "nothing:do"], &json!({}))
    }

    fn named(self, names: [&str; 4], task: &str) -> Call {
        match self {
            Self::Rpc | Self::OldRpc | Self::FirstRpc => {
                self.post("", names, &json!({ "id": task }))
            }
            Self::Rest | Self::OldRest => {
                let path = format!("tasks/{task}{}", names[3]);
                self.post("", ["", "", "", &path], &json!({}))
            }
        }
    }

    /// The names are those of 1.0, 0.3 and 0.1 on JSON-RPC, and the path on REST.
    fn post(self, agent: &str, names: [&str; 4], params: &Value) -> Call {
        let envelope =
            |method| json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        let [new, old, first, path] = names;
        match self {
            Self::Rpc => Call::post(format!("{agent}/a2a/jsonrpc"), &envelope(new))
                .header("a2a-version", "1.0"),
            Self::Rest => {
                Call::post(format!("{agent}/{path}"), params).header("a2a-version", "1.0")
            }
            Self::OldRpc => Call::post(format!("{agent}/a2a/jsonrpc"), &envelope(old)),
            Self::OldRest => Call::post(format!("{agent}/v1/{path}"), params),
            Self::FirstRpc => Call::post(format!("{agent}/rpc"), &envelope(first)),
        }
    }

    /// The parameters of both sends.
    fn params(self, draft: &Draft) -> Value {
        let Draft { id, text, task, context } = draft;
        let part = match self {
            Self::Rpc | Self::Rest | Self::OldRest => json!({ "text": text }),
            Self::OldRpc => json!({ "kind": "text", "text": text }),
            Self::FirstRpc => json!({ "type": "text", "text": text }),
        };
        let parts = if text.is_empty() { json!([]) } else { json!([part]) };
        let mut message = match self {
            Self::Rpc | Self::Rest => {
                json!({ "messageId": id, "role": "ROLE_USER", "parts": parts })
            }
            Self::OldRpc => {
                json!({ "kind": "message", "messageId": id, "role": "user", "parts": parts })
            }
            Self::OldRest => json!({ "messageId": id, "role": "ROLE_USER", "content": parts }),
            Self::FirstRpc => {
                let mut params = json!({ "message": { "role": "user", "parts": parts } });
                if let Some(task) = task {
                    params["id"] = json!(task);
                }
                if let Some(context) = context {
                    params["sessionId"] = json!(context);
                }
                return params;
            }
        };
        if let Some(task) = task {
            message["taskId"] = json!(task);
        }
        if let Some(context) = context {
            message["contextId"] = json!(context);
        }
        json!({ "message": message })
    }

    /// The result of a call, whatever it is.
    pub(crate) fn result(self, answer: &Answer) -> Result<Value, Fault> {
        let result = self.outcome(answer.status, answer.json())?;
        assert_eq!(answer.status, 200, "{answer:?}");
        Ok(result)
    }

    /// The result of a response without its envelope.
    pub(crate) fn outcome(self, status: u16, mut json: Value) -> Result<Value, Fault> {
        if let Some(error) = json.get("error") {
            let details = error.get("data").or_else(|| error.get("details"));
            let reason = details.and_then(|details| details[0]["reason"].as_str());
            let task = details.and_then(|details| details[0]["metadata"]["taskId"].as_str());
            return Err(Fault {
                status,
                code: error["code"].as_i64().unwrap_or_default(),
                reason: reason.unwrap_or_default().to_owned(),
                message: error["message"].as_str().unwrap_or_default().to_owned(),
                task: task.map(ToOwned::to_owned),
            });
        }
        match self {
            Self::Rpc | Self::OldRpc | Self::FirstRpc => Ok(json["result"].take()),
            Self::Rest | Self::OldRest => Ok(json),
        }
    }

    /// The task that a send led to.
    pub(crate) fn sent(self, answer: &Answer) -> Result<Value, Fault> {
        let mut result = self.result(answer)?;
        match self {
            Self::Rpc | Self::Rest | Self::OldRest => Ok(result["task"].take()),
            Self::OldRpc | Self::FirstRpc => Ok(result),
        }
    }

    /// An event, taken out of its envelope.
    pub(crate) fn frame(self, event: &SseEvent) -> Frame {
        assert_ne!(event.event.as_deref(), Some("error"), "the stream broke: {event:?}");
        let id = event.id.as_deref().unwrap_or_else(|| panic!("no id: {event:?}"));
        let mut body: Value = serde_json::from_str(&event.data).unwrap();
        if let Self::Rpc | Self::OldRpc | Self::FirstRpc = self {
            assert_eq!(body["id"], 7, "{event:?}");
            body = body["result"].take();
        }
        Frame::new(id, body)
    }

    /// All remaining frames.
    pub(crate) async fn rest_of(self, stream: &mut Stream) -> Result<Vec<Frame>, Cut> {
        let mut frames = Vec::new();
        while let Some(event) = stream.next().await? {
            frames.push(self.frame(&event));
        }
        Ok(frames)
    }

    /// The whole log of a task that has ended, from its first event on.
    pub(crate) async fn replay(
        self,
        client: Client,
        task: &str,
    ) -> Result<(Client, Vec<Frame>), Cut> {
        let mut stream = client.open(&self.resume(task, 0)).await?;
        let frames = self.rest_of(&mut stream).await?;
        Ok((stream.done(), frames))
    }
}

impl Frame {
    pub(crate) fn new(event: &str, body: Value) -> Self {
        let (task, seq) = event.rsplit_once(':').expect("an id names a task and a place in it");
        Self { task: task.to_owned(), seq: seq.parse().unwrap(), body }
    }

    /// The state in a status update or a snapshot, in one spelling for all wires.
    pub(crate) fn state(&self) -> Option<String> {
        let body = &self.body;
        let inner = body.get("statusUpdate").or_else(|| body.get("task")).unwrap_or(body);
        inner.get("status").map(|_| state(inner))
    }

    /// The text of an artifact chunk.
    pub(crate) fn text(&self) -> Option<&str> {
        let update = self.body.get("artifactUpdate").unwrap_or(&self.body);
        update.get("artifact")?["parts"][0]["text"].as_str()
    }
}

/// The state of a task, in one spelling for all wires.
pub(crate) fn state(task: &Value) -> String {
    let state = task["status"]["state"].as_str().unwrap_or_else(|| panic!("no state: {task}"));
    let state = state.strip_prefix("TASK_STATE_").unwrap_or(state);
    state.to_lowercase().replace('_', "-").replace("cancelled", "canceled")
}

pub(crate) fn is_terminal(state: &str) -> bool {
    matches!(state, "completed" | "failed" | "canceled" | "rejected")
}

/// The id of a task.
pub(crate) fn id(task: &Value) -> &str {
    task["id"].as_str().unwrap_or_else(|| panic!("no id: {task}"))
}

/// The ids of a task's messages of its user, in order.
pub(crate) fn asked(task: &Value) -> Vec<&str> {
    let history = task["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    let users =
        history.iter().filter(|one| matches!(one["role"].as_str(), Some("ROLE_USER" | "user")));
    users.map(|message| message["messageId"].as_str().unwrap()).collect()
}

/// A list of tasks in this state, or in any.
pub(crate) fn list(state: Option<&str>, page_size: u32, token: &str) -> Call {
    let state = state.map(|state| format!("&status=TASK_STATE_{state}")).unwrap_or_default();
    let token = if token.is_empty() { String::new() } else { format!("&pageToken={token}") };
    Call::get(format!("/tasks?pageSize={page_size}{state}{token}")).header("a2a-version", "1.0")
}
