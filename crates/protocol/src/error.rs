//! Protocol errors, and their codes in each binding.

use std::{borrow::Cow, collections::BTreeMap, fmt};

/// Every way a call can fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The bytes are not JSON.
    Parse,
    /// JSON, but not a request.
    InvalidRequest,
    /// No such operation in that version.
    MethodNotFound,
    /// The parameters do not fit the operation.
    InvalidParams,
    /// Our fault; the cause is in the log under the request's id.
    Internal,
    /// No such task, or not the caller's.
    TaskNotFound,
    /// The task ended before it could be cancelled.
    TaskNotCancelable,
    /// The agent has no push notifications.
    PushNotificationNotSupported,
    /// The agent or the task's state does not allow it.
    UnsupportedOperation,
    /// The agent's tasks cannot be followed. Since 0.2 it is one of the unsupported operations.
    StreamingNotSupported,
    /// The task has ended and takes no more messages. Since 0.2 it is one of the unsupported
    /// operations.
    TaskEnded,
    /// A part's media type is not among the agent's input modes.
    ContentTypeNotSupported,
    /// The agent broke the protocol.
    InvalidAgentResponse,
    /// The card promises an extended card and there is none.
    ExtendedAgentCardNotConfigured,
    /// The agent requires an extension that the caller did not name.
    ExtensionSupportRequired,
    /// The interface does not speak that version.
    VersionNotSupported,
    /// No agent is available for the task.
    AgentUnavailable,
    /// Missing or unknown credentials.
    Unauthenticated,
    /// Credentials that do not allow this.
    Forbidden,
    /// The same idempotency key with other content.
    IdempotencyConflict,
    /// A limit of the server, named in the message.
    LimitExceeded,
    /// The body or one of its parts is larger than the server takes.
    TooLarge,
    /// The server cannot do it now and may later.
    Unavailable,
}

/// Codes of one kind of error in each binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codes {
    /// The JSON-RPC `error.code`.
    pub json_rpc: i32,
    /// The same in 0.3, which leaves numbers free that 1.0 has taken since; servers of its time use
    /// them for conditions of their own.
    pub json_rpc_v03: i32,
    /// The same in 0.1, which gave other meanings to the numbers from -32006 on.
    pub json_rpc_v01: i32,
    /// The HTTP status on the REST binding.
    pub http: u16,
    /// The gRPC status.
    pub grpc: Grpc,
    /// The `reason` of `google.rpc.ErrorInfo`: the key to branch on.
    pub reason: &'static str,
}

/// The gRPC statuses in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are gRPC's")]
pub enum Grpc {
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

impl Grpc {
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
    /// The one error table. It has no wildcard arm, so a new kind does not compile until every
    /// binding has an answer for it. The numbers are those of A2A 1.0.1; our own kinds stay
    /// outside the range the protocol reserves (-32001 to -32099).
    pub const fn codes(self) -> Codes {
        use Grpc as G;
        let (json_rpc, json_rpc_v03, json_rpc_v01, http, grpc, reason) = match self {
            Self::Parse => (-32700, -32700, -32700, 400, G::InvalidArgument, "PARSE_ERROR"),
            Self::InvalidRequest => {
                (-32600, -32600, -32600, 400, G::InvalidArgument, "INVALID_REQUEST")
            }
            Self::MethodNotFound => {
                (-32601, -32601, -32601, 404, G::Unimplemented, "METHOD_NOT_FOUND")
            }
            Self::InvalidParams => {
                (-32602, -32602, -32602, 400, G::InvalidArgument, "INVALID_PARAMS")
            }
            Self::Internal => (-32603, -32603, -32603, 500, G::Internal, "INTERNAL_ERROR"),
            Self::TaskNotFound => (-32001, -32001, -32001, 404, G::NotFound, "TASK_NOT_FOUND"),
            Self::TaskNotCancelable => {
                (-32002, -32002, -32002, 400, G::FailedPrecondition, "TASK_NOT_CANCELABLE")
            }
            Self::PushNotificationNotSupported => (
                -32003,
                -32003,
                -32003,
                400,
                G::FailedPrecondition,
                "PUSH_NOTIFICATION_NOT_SUPPORTED",
            ),
            Self::UnsupportedOperation => {
                (-32004, -32004, -32004, 400, G::FailedPrecondition, "UNSUPPORTED_OPERATION")
            }
            Self::StreamingNotSupported => {
                (-32004, -32004, -32006, 400, G::FailedPrecondition, "UNSUPPORTED_OPERATION")
            }
            Self::TaskEnded => {
                (-32004, -32004, -32009, 400, G::FailedPrecondition, "UNSUPPORTED_OPERATION")
            }
            Self::ContentTypeNotSupported => {
                (-32005, -32005, -32005, 400, G::InvalidArgument, "CONTENT_TYPE_NOT_SUPPORTED")
            }
            Self::InvalidAgentResponse => {
                (-32006, -32006, -32603, 500, G::Internal, "INVALID_AGENT_RESPONSE")
            }
            Self::ExtendedAgentCardNotConfigured => (
                -32007,
                -32007,
                -32004,
                400,
                G::FailedPrecondition,
                "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
            ),
            Self::ExtensionSupportRequired => {
                (-32008, -32600, -32600, 400, G::FailedPrecondition, "EXTENSION_SUPPORT_REQUIRED")
            }
            Self::VersionNotSupported => {
                (-32009, -32009, -32600, 400, G::FailedPrecondition, "VERSION_NOT_SUPPORTED")
            }
            Self::AgentUnavailable => {
                (-31010, -32007, -32011, 503, G::Unavailable, "AGENT_UNAVAILABLE")
            }
            Self::Unauthenticated => {
                (-31011, -32008, -32007, 401, G::Unauthenticated, "AUTHENTICATION_REQUIRED")
            }
            Self::Forbidden => {
                (-31012, -32009, -32008, 403, G::PermissionDenied, "AUTHORIZATION_FAILED")
            }
            Self::IdempotencyConflict => {
                (-31013, -31013, -31013, 409, G::AlreadyExists, "IDEMPOTENCY_CONFLICT")
            }
            Self::LimitExceeded => {
                (-31014, -31014, -32010, 429, G::ResourceExhausted, "LIMIT_EXCEEDED")
            }
            Self::TooLarge => (-32600, -32600, -32600, 413, G::ResourceExhausted, "TOO_LARGE"),
            Self::Unavailable => (-32603, -32603, -32011, 503, G::Unavailable, "UNAVAILABLE"),
        };
        Codes { json_rpc, json_rpc_v03, json_rpc_v01, http, grpc, reason }
    }

    /// The kind of a `reason`.
    pub fn from_reason(reason: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.codes().reason == reason)
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
    /// The message for people.
    pub kind: ErrorKind,
    /// The sentence a person reads. It never holds an internal cause.
    pub message: String,
    /// More for programs, when there is more.
    pub detail: Option<Box<Detail>>,
}

/// Details of an error beside its kind and message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Detail {
    /// The fields at fault (`google.rpc.BadRequest`).
    pub violations: Vec<Violation>,
    /// Facts for programs (`google.rpc.ErrorInfo.metadata`).
    pub metadata: BTreeMap<Cow<'static, str>, String>,
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
        let detail = Detail { violations, metadata: BTreeMap::new() };
        Self { kind: ErrorKind::InvalidParams, message, detail: Some(Box::new(detail)) }
    }

    /// The same error with one more fact for programs.
    #[must_use]
    pub fn with(mut self, key: impl Into<Cow<'static, str>>, value: impl fmt::Display) -> Self {
        self.detail.get_or_insert_default().metadata.insert(key.into(), value.to_string());
        self
    }

    /// The task does not exist, or not for this caller. Both look the same.
    pub fn task_not_found() -> Self {
        Self::new(ErrorKind::TaskNotFound, "task not found")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.codes().reason, self.message)
    }
}

impl std::error::Error for Error {}
