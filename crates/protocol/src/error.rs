//! Protocol errors: the one table of their codes and names in each binding.

use std::{borrow::Cow, collections::BTreeMap, fmt, time::Duration};

/// Declares the kinds of errors, the list of them and their codes from one table, so that a new kind
/// needs a value in every column.
macro_rules! errors {
    ($(
        $(#[$doc:meta])*
        $kind:ident {
            json_rpc: $json_rpc:literal, json_rpc_v03: $json_rpc_v03:literal,
            json_rpc_v01: $json_rpc_v01:literal, json_rpc_http: $json_rpc_http:literal,
            http: $http:literal, grpc: $grpc:ident,
            reason: $reason:literal, name: $name:literal,
        }
    )*) => {
        /// Every kind of error that a call can end with.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)*
        }

        impl ErrorKind {
            /// Every kind, in the order of the table.
            pub const ALL: &'static [Self] = &[$(Self::$kind,)*];

            /// The row of the table.
            pub const fn codes(self) -> Codes {
                match self {
                    $(Self::$kind => Codes {
                        json_rpc: $json_rpc,
                        json_rpc_v03: $json_rpc_v03,
                        json_rpc_v01: $json_rpc_v01,
                        json_rpc_http: $json_rpc_http,
                        http: $http,
                        grpc: GrpcCode::$grpc,
                        reason: $reason,
                        name: $name,
                    },)*
                }
            }
        }
    };
}

// The numbers are those of A2A 1.0.1. Our own kinds stay outside the range that the protocol reserves
// (-32001 to -32099). Kinds that share a code are told apart by the first in this order.
errors! {
    /// The bytes are not JSON.
    Parse {
        json_rpc: -32700, json_rpc_v03: -32700, json_rpc_v01: -32700, json_rpc_http: 200,
        http: 400, grpc: InvalidArgument,
        reason: "PARSE_ERROR", name: "JSONParseError",
    }
    /// The JSON is not a request.
    InvalidRequest {
        json_rpc: -32600, json_rpc_v03: -32600, json_rpc_v01: -32600, json_rpc_http: 200,
        http: 400, grpc: InvalidArgument,
        reason: "INVALID_REQUEST", name: "InvalidRequestError",
    }
    /// The version has no such operation.
    MethodNotFound {
        json_rpc: -32601, json_rpc_v03: -32601, json_rpc_v01: -32601, json_rpc_http: 200,
        http: 404, grpc: Unimplemented,
        reason: "METHOD_NOT_FOUND", name: "MethodNotFoundError",
    }
    /// The parameters do not fit the operation.
    InvalidParams {
        json_rpc: -32602, json_rpc_v03: -32602, json_rpc_v01: -32602, json_rpc_http: 200,
        http: 400, grpc: InvalidArgument,
        reason: "INVALID_PARAMS", name: "InvalidParamsError",
    }
    /// A fault of the server; the log has the cause under the id of the request.
    Internal {
        json_rpc: -32603, json_rpc_v03: -32603, json_rpc_v01: -32603, json_rpc_http: 200,
        http: 500, grpc: Internal,
        reason: "INTERNAL_ERROR", name: "InternalError",
    }
    /// The task does not exist, or not for this caller.
    TaskNotFound {
        json_rpc: -32001, json_rpc_v03: -32001, json_rpc_v01: -32001, json_rpc_http: 200,
        http: 404, grpc: NotFound,
        reason: "TASK_NOT_FOUND", name: "TaskNotFoundError",
    }
    /// The task ended before it could be cancelled.
    TaskNotCancelable {
        json_rpc: -32002, json_rpc_v03: -32002, json_rpc_v01: -32002, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "TASK_NOT_CANCELABLE", name: "TaskNotCancelableError",
    }
    /// The agent has no push notifications.
    PushNotificationNotSupported {
        json_rpc: -32003, json_rpc_v03: -32003, json_rpc_v01: -32003, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "PUSH_NOTIFICATION_NOT_SUPPORTED", name: "PushNotificationNotSupportedError",
    }
    /// The agent or the state of the task does not allow the operation.
    UnsupportedOperation {
        json_rpc: -32004, json_rpc_v03: -32004, json_rpc_v01: -32004, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "UNSUPPORTED_OPERATION", name: "UnsupportedOperationError",
    }
    /// The agent's tasks cannot be streamed. Since 0.2 this is one of the unsupported operations.
    StreamingNotSupported {
        json_rpc: -32004, json_rpc_v03: -32004, json_rpc_v01: -32006, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "UNSUPPORTED_OPERATION", name: "UnsupportedOperationError",
    }
    /// The task has ended and takes no more messages. Since 0.2 it is one of the unsupported
    /// operations.
    TaskEnded {
        json_rpc: -32004, json_rpc_v03: -32004, json_rpc_v01: -32009, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "UNSUPPORTED_OPERATION", name: "UnsupportedOperationError",
    }
    /// A part's media type is not among the agent's input modes.
    ContentTypeNotSupported {
        json_rpc: -32005, json_rpc_v03: -32005, json_rpc_v01: -32005, json_rpc_http: 200,
        http: 400, grpc: InvalidArgument,
        reason: "CONTENT_TYPE_NOT_SUPPORTED", name: "ContentTypeNotSupportedError",
    }
    /// The agent violated the protocol.
    InvalidAgentResponse {
        json_rpc: -32006, json_rpc_v03: -32006, json_rpc_v01: -32603, json_rpc_http: 200,
        http: 500, grpc: Internal,
        reason: "INVALID_AGENT_RESPONSE", name: "InvalidAgentResponseError",
    }
    /// The card promises an extended card and the agent has none.
    ExtendedAgentCardNotConfigured {
        json_rpc: -32007, json_rpc_v03: -32007, json_rpc_v01: -32004, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "EXTENDED_AGENT_CARD_NOT_CONFIGURED", name: "ExtendedAgentCardNotConfiguredError",
    }
    /// The agent requires an extension that the caller did not name.
    ExtensionSupportRequired {
        json_rpc: -32008, json_rpc_v03: -32600, json_rpc_v01: -32600, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "EXTENSION_SUPPORT_REQUIRED", name: "ExtensionSupportRequiredError",
    }
    /// The interface does not support the version.
    VersionNotSupported {
        json_rpc: -32009, json_rpc_v03: -32009, json_rpc_v01: -32600, json_rpc_http: 200,
        http: 400, grpc: FailedPrecondition,
        reason: "VERSION_NOT_SUPPORTED", name: "VersionNotSupportedError",
    }
    /// No agent is available for the task.
    AgentUnavailable {
        json_rpc: -31010, json_rpc_v03: -32007, json_rpc_v01: -32011, json_rpc_http: 200,
        http: 503, grpc: Unavailable,
        reason: "AGENT_UNAVAILABLE", name: "HERALD_AGENT_UNAVAILABLE",
    }
    /// Credentials are missing or unknown.
    Unauthenticated {
        json_rpc: -31011, json_rpc_v03: -32008, json_rpc_v01: -32007, json_rpc_http: 401,
        http: 401, grpc: Unauthenticated,
        reason: "AUTHENTICATION_REQUIRED", name: "HERALD_AUTHENTICATION_REQUIRED",
    }
    /// The credentials do not allow the operation.
    Forbidden {
        json_rpc: -31012, json_rpc_v03: -32009, json_rpc_v01: -32008, json_rpc_http: 403,
        http: 403, grpc: PermissionDenied,
        reason: "AUTHORIZATION_FAILED", name: "HERALD_AUTHORIZATION_FAILED",
    }
    /// The idempotency key was used before with other content.
    IdempotencyConflict {
        json_rpc: -31013, json_rpc_v03: -31013, json_rpc_v01: -31013, json_rpc_http: 200,
        http: 409, grpc: AlreadyExists,
        reason: "IDEMPOTENCY_CONFLICT", name: "HERALD_IDEMPOTENCY_CONFLICT",
    }
    /// A limit of the server is reached; the message names it.
    LimitExceeded {
        json_rpc: -31014, json_rpc_v03: -31014, json_rpc_v01: -32010, json_rpc_http: 429,
        http: 429, grpc: ResourceExhausted,
        reason: "LIMIT_EXCEEDED", name: "HERALD_LIMIT_EXCEEDED",
    }
    /// The body or one of its parts is larger than the limit of the server.
    TooLarge {
        json_rpc: -32600, json_rpc_v03: -32600, json_rpc_v01: -32600, json_rpc_http: 200,
        http: 413, grpc: ResourceExhausted,
        reason: "TOO_LARGE", name: "HERALD_TOO_LARGE",
    }
    /// Something that `/api` names does not exist, or not for this caller.
    ResourceNotFound {
        json_rpc: -31015, json_rpc_v03: -31015, json_rpc_v01: -31015, json_rpc_http: 200,
        http: 404, grpc: NotFound,
        reason: "RESOURCE_NOT_FOUND", name: "HERALD_RESOURCE_NOT_FOUND",
    }
    /// Several owners have a task with the id that an administrator named.
    AmbiguousTask {
        json_rpc: -31016, json_rpc_v03: -31016, json_rpc_v01: -31016, json_rpc_http: 200,
        http: 409, grpc: FailedPrecondition,
        reason: "AMBIGUOUS_TASK", name: "HERALD_AMBIGUOUS_TASK",
    }
    /// The answer names another question than the one that is open.
    QuestionChanged {
        json_rpc: -31017, json_rpc_v03: -31017, json_rpc_v01: -31017, json_rpc_http: 200,
        http: 409, grpc: FailedPrecondition,
        reason: "QUESTION_CHANGED", name: "HERALD_QUESTION_CHANGED",
    }
    /// The worker is not registered.
    WorkerUnknown {
        json_rpc: -31018, json_rpc_v03: -31018, json_rpc_v01: -31018, json_rpc_http: 200,
        http: 404, grpc: NotFound,
        reason: "WORKER_UNKNOWN", name: "HERALD_WORKER_UNKNOWN",
    }
    /// The session of the worker has ended: its lease is over, or it has left or began a new life.
    WorkerExpired {
        json_rpc: -31019, json_rpc_v03: -31019, json_rpc_v01: -31019, json_rpc_http: 200,
        http: 410, grpc: FailedPrecondition,
        reason: "WORKER_EXPIRED", name: "HERALD_WORKER_EXPIRED",
    }
    /// A living worker of another principal has the name.
    WorkerNameTaken {
        json_rpc: -31020, json_rpc_v03: -31020, json_rpc_v01: -31020, json_rpc_http: 200,
        http: 409, grpc: AlreadyExists,
        reason: "WORKER_NAME_TAKEN", name: "HERALD_WORKER_NAME_TAKEN",
    }
    /// The worker does not hold the turn, or no longer.
    TurnOver {
        json_rpc: -31021, json_rpc_v03: -31021, json_rpc_v01: -31021, json_rpc_http: 200,
        http: 409, grpc: FailedPrecondition,
        reason: "TURN_OVER", name: "HERALD_TURN_OVER",
    }
    /// The rules or a limit of the task refuse what a worker writes.
    WriteRefused {
        json_rpc: -31022, json_rpc_v03: -31022, json_rpc_v01: -31022, json_rpc_http: 200,
        http: 422, grpc: InvalidArgument,
        reason: "WRITE_REFUSED", name: "HERALD_WRITE_REFUSED",
    }
    /// The server cannot do it now; the same call may succeed later.
    Unavailable {
        json_rpc: -32603, json_rpc_v03: -32603, json_rpc_v01: -32011, json_rpc_http: 200,
        http: 503, grpc: Unavailable,
        reason: "UNAVAILABLE", name: "HERALD_UNAVAILABLE",
    }
}

/// Codes and names of one kind of error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codes {
    /// The JSON-RPC `error.code`.
    pub json_rpc: i32,
    /// The same in 0.3, which leaves numbers free that 1.0 has taken since; servers of its time use
    /// them for conditions of their own.
    pub json_rpc_v03: i32,
    /// The same in 0.1, which gave other meanings to the numbers from -32006 on.
    pub json_rpc_v01: i32,
    /// The HTTP status of a JSON-RPC response. Most errors are errors of JSON-RPC alone, which HTTP
    /// delivers with 200.
    pub json_rpc_http: u16,
    /// The HTTP status on the REST binding.
    pub http: u16,
    /// The gRPC status.
    pub grpc: GrpcCode,
    /// The `reason` of `google.rpc.ErrorInfo`: the key to branch on.
    pub reason: &'static str,
    /// The name of the error in the specification, which the command line prints and conformance suites
    /// use. The names of our own kinds begin with `HERALD_`.
    pub name: &'static str,
}

/// The gRPC statuses that the table uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are gRPC's")]
pub enum GrpcCode {
    InvalidArgument = 3,
    NotFound = 5,
    AlreadyExists = 6,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl GrpcCode {
    /// The name that stands in `error.status` of a REST body.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::NotFound => "NOT_FOUND",
            Self::AlreadyExists => "ALREADY_EXISTS",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::Unimplemented => "UNIMPLEMENTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
            Self::Unauthenticated => "UNAUTHENTICATED",
        }
    }
}

impl ErrorKind {
    /// The kind of a `reason`.
    pub fn from_reason(reason: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.codes().reason == reason)
    }

    /// The first kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.codes().name == name)
    }

    /// The name of the error in words, such as "Task not found". Messages of JSON-RPC begin with it, as those of other
    /// servers do.
    pub fn title(self) -> String {
        // JSON-RPC has one number for both.
        let kind = if self == Self::TooLarge { Self::InvalidRequest } else { self };
        let (first, rest) = kind.codes().reason.split_at(1);
        format!("{first}{}", rest.replace('_', " ").to_ascii_lowercase())
    }

    /// True if the same call may succeed a little later.
    pub const fn is_temporary(self) -> bool {
        matches!(self, Self::AgentUnavailable | Self::LimitExceeded | Self::Unavailable)
    }
}

/// A field of the request and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field, such as `message.parts`.
    pub field: String,
    /// One sentence.
    pub description: String,
}

/// A protocol error: a kind to branch on and a sentence to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// The kind, to branch on.
    pub kind: ErrorKind,
    /// The sentence for people. It never contains an internal cause.
    pub message: String,
    /// More for programs, when there is more.
    pub detail: Option<Box<ErrorContext>>,
}

/// Details of an error beside its kind and message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorContext {
    /// The fields at fault (`google.rpc.BadRequest`).
    pub violations: Vec<Violation>,
    /// Facts for programs (`google.rpc.ErrorInfo.metadata`).
    pub metadata: BTreeMap<Cow<'static, str>, String>,
    /// The time after which the same call may succeed (`google.rpc.RetryInfo`).
    pub retry_after: Option<Duration>,
}

impl Error {
    /// An error of `kind` that reads `message`.
    pub fn new(kind: ErrorKind, message: impl fmt::Display) -> Self {
        Self { kind, message: message.to_string(), detail: None }
    }

    /// Parameters that do not fit, because of one field.
    pub fn field(field: impl Into<String>, description: impl Into<String>) -> Self {
        let violation = Violation { field: field.into(), description: description.into() };
        Self::violations(vec![violation])
    }

    /// Parameters that do not fit, because of these fields. The list must not be empty.
    pub fn violations(violations: Vec<Violation>) -> Self {
        let message = match violations.first() {
            Some(first) if first.field.is_empty() => first.description.clone(),
            Some(first) => format!("{}: {}", first.field, first.description),
            None => "Invalid parameters".to_owned(),
        };
        let detail = ErrorContext { violations, ..ErrorContext::default() };
        Self { kind: ErrorKind::InvalidParams, message, detail: Some(Box::new(detail)) }
    }

    /// The same error with one more fact for programs.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, value: impl fmt::Display) -> Self {
        self.detail.get_or_insert_default().metadata.insert(key.into(), value.to_string());
        self
    }

    /// The same error with the time after which the same call may succeed.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.detail.get_or_insert_default().retry_after = Some(delay);
        self
    }

    /// The time after which the same call may succeed, if the error tells it.
    pub fn retry_delay(&self) -> Option<Duration> {
        self.detail.as_ref()?.retry_after
    }

    /// The message, which begins with the title of its kind.
    pub fn titled_message(&self) -> String {
        let title = self.kind.title();
        match self.message.get(..title.len()) {
            Some(start) if start.eq_ignore_ascii_case(&title) => {
                format!("{title}{}", &self.message[title.len()..])
            }
            _ => format!("{title}: {}", self.message),
        }
    }

    /// The task does not exist, or not for this caller. Both look the same.
    pub fn task_not_found() -> Self {
        Self::new(ErrorKind::TaskNotFound, "Task not found")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.codes().reason, self.message)
    }
}

impl std::error::Error for Error {}
