//! Client side of REST: from a request to method, path and body, by the same route table.

use super::{RouteEntry, V1, V03};
use crate::{
    dialect::Dialect,
    percent,
    request::{ListPushConfigs, ListTasks, Request},
    task::TaskState,
};

/// An HTTP request of the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestCall {
    /// The HTTP method.
    pub method: &'static str,
    /// The path below the interface's URL, with its query.
    pub path: String,
    /// The body, where there is one.
    pub body: Option<Vec<u8>>,
}

/// Writes a request. `None` where the dialect has no such operation on REST.
///
/// The tenant goes into the path, as in the official clients. To subscribe is a POST, as in the text of the
/// specification and in most servers; its protobuf says GET.
pub fn call(dialect: Dialect, mut request: Request) -> Option<RestCall> {
    let (table, tenant) = match dialect {
        Dialect::V1 => (V1, request.take_tenant()),
        Dialect::V03Rest => (V03, None),
        Dialect::V03 | Dialect::V01 => return None,
    };
    let operation = request.operation();
    let (entry, method) = table.iter().find_map(|entry| {
        let mut methods = entry.methods.iter().rev();
        methods.find(|(_, does)| *does == operation).map(|(method, _)| (entry, *method))
    })?;
    let mut path = String::new();
    if let Some(tenant) = tenant.filter(|tenant| !tenant.is_empty()) {
        path.push('/');
        percent::encode(&mut path, tenant.as_str());
    }
    path.push('/');
    push_path(&mut path, entry, &request);
    push_query(&mut path, &request);
    let body = (method == "POST").then(|| dialect.encode_request(&request));
    Some(RestCall { method, path, body })
}

fn push_path(out: &mut String, entry: &RouteEntry, request: &Request) {
    let (task, config) = match request {
        Request::GetTask(get) => (get.id.as_str(), ""),
        Request::CancelTask(cancel) => (cancel.id.as_str(), ""),
        Request::SubscribeToTask(subscribe) => (subscribe.id.as_str(), ""),
        Request::CreateTaskPushNotificationConfig(config) => {
            (config.task_id.as_ref().map_or("", |id| id.as_str()), "")
        }
        Request::GetTaskPushNotificationConfig(config)
        | Request::DeleteTaskPushNotificationConfig(config) => {
            (config.task_id.as_str(), config.id.as_str())
        }
        Request::ListTaskPushNotificationConfigs(list) => (list.task_id.as_str(), ""),
        Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::ListTasks(_)
        | Request::GetExtendedAgentCard(_) => ("", ""),
    };
    let mut rest = entry.path;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let (name, after) = after.split_once('}').unwrap_or((after, ""));
        percent::encode(out, if name == "task" { task } else { config });
        rest = after;
    }
    out.push_str(rest);
}

fn push_query(out: &mut String, request: &Request) {
    match request {
        Request::GetTask(get) => push_pairs(out, [number("historyLength", get.history_length)]),
        Request::ListTasks(list) => push_pairs(out, list_pairs(list)),
        Request::ListTaskPushNotificationConfigs(list) => push_pairs(out, config_pairs(list)),
        Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::CreateTaskPushNotificationConfig(_)
        | Request::GetTaskPushNotificationConfig(_)
        | Request::DeleteTaskPushNotificationConfig(_)
        | Request::GetExtendedAgentCard(_) => {}
    }
}

type Pair = (&'static str, Option<String>);

fn list_pairs(list: &ListTasks) -> [Pair; 7] {
    let status = Some(list.status).filter(|status| *status != TaskState::Unspecified);
    [
        ("contextId", list.context_id.as_ref().map(ToString::to_string)),
        ("status", status.map(|status| status.proto_name().to_owned())),
        number("pageSize", list.page_size),
        ("pageToken", list.page_token.clone()),
        number("historyLength", list.history_length),
        ("statusTimestampAfter", list.status_timestamp_after.map(|moment| moment.to_string())),
        ("includeArtifacts", list.include_artifacts.map(|include| include.to_string())),
    ]
}

fn config_pairs(list: &ListPushConfigs) -> [Pair; 2] {
    [number("pageSize", list.page_size), ("pageToken", list.page_token.clone())]
}

fn number(name: &'static str, value: Option<i32>) -> Pair {
    (name, value.map(|value| value.to_string()))
}

fn push_pairs<const N: usize>(out: &mut String, pairs: [Pair; N]) {
    let mut mark = '?';
    for (name, value) in pairs {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        out.push(mark);
        out.push_str(name);
        out.push('=');
        percent::encode(out, &value);
        mark = '&';
    }
}
