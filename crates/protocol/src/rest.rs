//! REST binding: the route table, from method, path, query and body to a request and back.

mod call;

use std::{borrow::Cow, str::FromStr};

use serde::de::IgnoredAny;

use crate::{
    dialect::Dialect,
    error::Error,
    id::{PushConfigId, TaskId, TenantId},
    percent,
    request::{
        GetExtendedAgentCard, GetTask, ListPushConfigs, ListTasks, Operation, PushConfigRef,
        Request, SubscribeToTask,
    },
    task::TaskState,
    time::{InvalidTimestamp, Timestamp},
    validate::{Validate, Violations, check},
    version::Version,
};

pub use call::{RestCall, call};

/// Match of a method and a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The dialect of the bodies. A mount that serves 0.3 without `/v1` may set it.
    pub dialect: Dialect,
    /// The operation.
    pub operation: Operation,
    /// The namespace in the path.
    pub tenant: Option<TenantId>,
    /// The task in the path.
    pub task: Option<TaskId>,
    /// The webhook in the path.
    pub config: Option<PushConfigId>,
}

/// Reason why no route matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteError {
    /// There is no such path.
    NotFound,
    /// The path has other methods: the value of the `Allow` header.
    MethodNotAllowed(&'static str),
}

/// One path and the operation of each method. `{task}` and `{config}` are ids.
struct RouteEntry {
    path: &'static str,
    allow: &'static str,
    methods: &'static [(&'static str, Operation)],
}

const fn entry(
    path: &'static str,
    allow: &'static str,
    methods: &'static [(&'static str, Operation)],
) -> RouteEntry {
    RouteEntry { path, allow, methods }
}

/// Routes of 1.0. A path with a suffix comes before the path whose id would match the suffix too.
const V1: &[RouteEntry] = &[
    entry("message:send", "POST", &[("POST", Operation::SendMessage)]),
    entry("message:stream", "POST", &[("POST", Operation::SendStreamingMessage)]),
    entry("tasks", "GET", &[("GET", Operation::ListTasks)]),
    entry("tasks/{task}:cancel", "POST", &[("POST", Operation::CancelTask)]),
    entry(
        "tasks/{task}:subscribe",
        "GET, POST",
        &[("GET", Operation::SubscribeToTask), ("POST", Operation::SubscribeToTask)],
    ),
    entry("tasks/{task}", "GET", &[("GET", Operation::GetTask)]),
    entry(
        "tasks/{task}/pushNotificationConfigs",
        "GET, POST",
        &[
            ("GET", Operation::ListTaskPushNotificationConfigs),
            ("POST", Operation::CreateTaskPushNotificationConfig),
        ],
    ),
    entry(
        "tasks/{task}/pushNotificationConfigs/{config}",
        "GET, DELETE",
        &[
            ("GET", Operation::GetTaskPushNotificationConfig),
            ("DELETE", Operation::DeleteTaskPushNotificationConfig),
        ],
    ),
    entry("extendedAgentCard", "GET", &[("GET", Operation::GetExtendedAgentCard)]),
];

/// Routes of 0.3. The path with `task` in the singular is a mistake in its protobuf that clients may follow.
const V03: &[RouteEntry] = &[
    entry("v1/message:send", "POST", &[("POST", Operation::SendMessage)]),
    entry("v1/message:stream", "POST", &[("POST", Operation::SendStreamingMessage)]),
    entry("v1/tasks/{task}:cancel", "POST", &[("POST", Operation::CancelTask)]),
    entry(
        "v1/tasks/{task}:subscribe",
        "GET, POST",
        &[("GET", Operation::SubscribeToTask), ("POST", Operation::SubscribeToTask)],
    ),
    entry("v1/tasks/{task}", "GET", &[("GET", Operation::GetTask)]),
    entry(
        "v1/tasks/{task}/pushNotificationConfigs",
        "GET, POST",
        &[
            ("GET", Operation::ListTaskPushNotificationConfigs),
            ("POST", Operation::CreateTaskPushNotificationConfig),
        ],
    ),
    entry(
        "v1/task/{task}/pushNotificationConfigs",
        "POST",
        &[("POST", Operation::CreateTaskPushNotificationConfig)],
    ),
    entry(
        "v1/tasks/{task}/pushNotificationConfigs/{config}",
        "GET, DELETE",
        &[
            ("GET", Operation::GetTaskPushNotificationConfig),
            ("DELETE", Operation::DeleteTaskPushNotificationConfig),
        ],
    ),
    entry("v1/card", "GET", &[("GET", Operation::GetExtendedAgentCard)]),
];

/// First segments that are never a tenant. A tenant of such a name must be in the body.
const RESERVED: &[&str] = &["v1", "tasks", "message:send", "message:stream", "extendedAgentCard"];

/// Finds the route. `path` is relative to the mount and still percent-encoded.
pub fn route(method: &str, path: &str) -> Result<Route, RouteError> {
    let path = path.strip_prefix('/').ok_or(RouteError::NotFound)?;
    for (dialect, table) in [(Dialect::V1, V1), (Dialect::V03Rest, V03)] {
        if let Some((entry, found)) = find(table, path) {
            return found.route(dialect, entry, method, None);
        }
    }
    let (tenant, rest) = path.split_once('/').ok_or(RouteError::NotFound)?;
    let tenant = segment(tenant).ok_or(RouteError::NotFound)?;
    if RESERVED.contains(&tenant.as_ref()) {
        return Err(RouteError::NotFound);
    }
    let (entry, found) = find(V1, rest).ok_or(RouteError::NotFound)?;
    found.route(Dialect::V1, entry, method, Some(TenantId::from(tenant.as_ref())))
}

/// The ids in a path.
#[derive(Default)]
struct MatchedRoute {
    task: Option<TaskId>,
    config: Option<PushConfigId>,
}

impl MatchedRoute {
    fn route(
        self,
        dialect: Dialect,
        entry: &RouteEntry,
        method: &str,
        tenant: Option<TenantId>,
    ) -> Result<Route, RouteError> {
        let (_, operation) = entry
            .methods
            .iter()
            .copied()
            .find(|(name, _)| *name == method)
            .ok_or(RouteError::MethodNotAllowed(entry.allow))?;
        Ok(Route { dialect, operation, tenant, task: self.task, config: self.config })
    }
}

fn find<'a>(table: &'a [RouteEntry], path: &str) -> Option<(&'a RouteEntry, MatchedRoute)> {
    table.iter().find_map(|entry| matches(entry.path, path).map(|found| (entry, found)))
}

fn matches(pattern: &str, path: &str) -> Option<MatchedRoute> {
    let mut found = MatchedRoute::default();
    let mut given = path.split('/');
    for expected in pattern.split('/') {
        let given = given.next()?;
        if let Some(suffix) = expected.strip_prefix("{task}") {
            // An escaped colon belongs to the id, so the suffix is removed before decoding.
            let id = segment(given.strip_suffix(suffix)?)?;
            found.task = Some(TaskId::from(id.as_ref()));
        } else if expected == "{config}" {
            found.config = Some(PushConfigId::from(segment(given)?.as_ref()));
        } else if segment(given)? != expected {
            return None;
        }
    }
    if given.next().is_none() { Some(found) } else { None }
}

/// Decodes one segment. `None` if it is empty or not text.
fn segment(text: &str) -> Option<Cow<'_, str>> {
    percent::decode(text).filter(|segment| !segment.is_empty())
}

/// Reads a request from the route, the query and the body. The path has precedence over the body; a body
/// that names another task is refused.
pub fn request(route: &Route, query: Option<&str>, body: &[u8]) -> Result<Request, Error> {
    let query = Query(query.unwrap_or_default());
    let mut request = match route.operation {
        Operation::SendMessage | Operation::SendStreamingMessage => {
            if body.trim_ascii().is_empty() {
                return Err(Error::field("", "the body must hold a message"));
            }
            decode(route, body)?
        }
        Operation::CancelTask | Operation::CreateTaskPushNotificationConfig => {
            decode(route, if is_blank(body) { b"{}" } else { body })?
        }
        Operation::SubscribeToTask => checked(
            SubscribeToTask {
                id: route.task.clone().unwrap_or_default(),
                replay_finished: route.dialect.version() != Version::V1_0,
                ..SubscribeToTask::default()
            },
            Request::SubscribeToTask,
        )?,
        Operation::GetTask => query.get_task(route)?,
        Operation::ListTasks => query.list_tasks()?,
        Operation::ListTaskPushNotificationConfigs => query.list_configs(route)?,
        Operation::GetTaskPushNotificationConfig => {
            checked(config_ref(route), Request::GetTaskPushNotificationConfig)?
        }
        Operation::DeleteTaskPushNotificationConfig => {
            checked(config_ref(route), Request::DeleteTaskPushNotificationConfig)?
        }
        Operation::GetExtendedAgentCard => {
            Request::GetExtendedAgentCard(GetExtendedAgentCard::default())
        }
    };
    let tenant = Violations::collect(|at| {
        let tenant = match &route.tenant {
            Some(tenant) => Some(tenant.clone()),
            None if request.tenant().is_none() => query.text("tenant", at).map(TenantId::from),
            None => None,
        };
        at.optional_id("tenant", tenant.as_ref().map(TenantId::as_str));
        tenant
    })?;
    if let Some(tenant) = tenant {
        request.set_tenant(tenant);
    }
    Ok(request)
}

fn checked<T: Validate>(params: T, wrap: impl FnOnce(T) -> Request) -> Result<Request, Error> {
    check(&params)?;
    Ok(wrap(params))
}

/// Reads the body in the dialect of the route. A body that is not JSON has an error of its own.
fn decode(route: &Route, body: &[u8]) -> Result<Request, Error> {
    route.dialect.decode_at(route.task.as_ref(), route.operation, body).map_err(|error| {
        match serde_json::from_slice::<IgnoredAny>(body) {
            Ok(_) => error,
            Err(fault) => crate::json::malformed(&fault),
        }
    })
}

fn is_blank(body: &[u8]) -> bool {
    matches!(body.trim_ascii(), b"" | b"null")
}

fn config_ref(route: &Route) -> PushConfigRef {
    PushConfigRef {
        tenant: None,
        task_id: route.task.clone().unwrap_or_default(),
        id: route.config.clone().unwrap_or_default(),
    }
}

/// The part of a URL after the question mark.
struct Query<'a>(&'a str);

impl Query<'_> {
    fn get_task(&self, route: &Route) -> Result<Request, Error> {
        Violations::collect(|at| {
            let mut params = GetTask {
                tenant: None,
                id: route.task.clone().unwrap_or_default(),
                history_length: self.number("historyLength", at),
            };
            params.validate(at);
            params.history_length = route.dialect.history_length(params.history_length);
            Request::GetTask(params)
        })
    }

    fn list_tasks(&self) -> Result<Request, Error> {
        Violations::collect(|at| {
            let params = ListTasks {
                tenant: None,
                context_id: self.text("contextId", at).map(Into::into),
                status: self.state("status", at),
                page_size: self.number("pageSize", at),
                page_token: self.text("pageToken", at),
                history_length: self.number("historyLength", at),
                status_timestamp_after: self.moment("statusTimestampAfter", at),
                include_artifacts: self.parse("includeArtifacts", "must be true or false", at),
            };
            params.validate(at);
            Request::ListTasks(params)
        })
    }

    fn list_configs(&self, route: &Route) -> Result<Request, Error> {
        Violations::collect(|at| {
            let params = ListPushConfigs {
                tenant: None,
                task_id: route.task.clone().unwrap_or_default(),
                page_size: self.number("pageSize", at),
                page_token: self.text("pageToken", at),
            };
            params.validate(at);
            Request::ListTaskPushNotificationConfigs(params)
        })
    }

    /// The value of a parameter, by its name or by the name in snake case. An empty value is absent.
    fn text(&self, name: &str, at: &mut Violations<'_>) -> Option<String> {
        let snake = snake_case(name);
        let mut found: Option<Cow<'_, str>> = None;
        for pair in self.0.split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if key != name && key != snake {
                continue;
            }
            match form_decode(value) {
                None => at.add(name, "must be UTF-8"),
                Some(value) if found.as_ref().is_some_and(|found| *found != value) => {
                    at.add(name, "is given twice");
                }
                Some(value) => found = Some(value),
            }
        }
        found.map(Cow::into_owned).filter(|value| !value.is_empty())
    }

    fn parse<T: FromStr>(&self, name: &str, expected: &str, at: &mut Violations<'_>) -> Option<T> {
        let value = self.text(name, at)?.parse().ok();
        if value.is_none() {
            at.add(name, expected);
        }
        value
    }

    fn number(&self, name: &str, at: &mut Violations<'_>) -> Option<i32> {
        self.parse(name, "must be an integer", at)
    }

    fn state(&self, name: &str, at: &mut Violations<'_>) -> TaskState {
        let Some(text) = self.text(name, at) else { return TaskState::Unspecified };
        let number = text.parse().ok().and_then(TaskState::from_number);
        TaskState::from_name(&text).or(number).unwrap_or_else(|| {
            at.add(name, "must be a task state such as TASK_STATE_WORKING");
            TaskState::Unspecified
        })
    }

    fn moment(&self, name: &str, at: &mut Violations<'_>) -> Option<Timestamp> {
        let text = self.text(name, at)?;
        // An unescaped plus of an offset was decoded as a space.
        let moment = text.parse().or_else(|_| text.replace(' ', "+").parse());
        moment.map_err(|fault: InvalidTimestamp| at.add(name, fault.to_string())).ok()
    }
}

/// Decodes a value of a query, where a plus is a space.
fn form_decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('+') {
        return percent::decode(text);
    }
    percent::decode(&text.replace('+', " ")).map(|text| Cow::Owned(text.into_owned()))
}

fn snake_case(name: &str) -> String {
    let mut snake = String::with_capacity(name.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_a_query_a_plus_is_a_space() {
        assert_eq!(form_decode("a+b%2Bc").as_deref(), Some("a b+c"));
    }

    #[test]
    fn every_entry_allows_exactly_its_methods() {
        for entry in V1.iter().chain(V03) {
            let methods: Vec<_> = entry.methods.iter().map(|(method, _)| *method).collect();
            assert_eq!(methods.join(", "), entry.allow, "{}", entry.path);
        }
    }

    #[test]
    fn no_tenant_can_hide_a_route() {
        for entry in V1.iter().chain(V03) {
            let first = entry.path.split('/').next().unwrap_or_default();
            assert!(RESERVED.contains(&first), "{first}");
        }
    }

    #[test]
    fn names_in_snake_case() {
        assert_eq!(snake_case("statusTimestampAfter"), "status_timestamp_after");
        assert_eq!(snake_case("status"), "status");
    }
}
