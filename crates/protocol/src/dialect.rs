//! Dialects: the encodings of every protocol generation, to and from the same types.
//!
//! A dialect is the format of bodies. 1.0 is the serde form of the types; 0.3 has two formats, one on
//! JSON-RPC and one on REST, and 0.1 is a third, and all three share a reader and a writer. A message
//! loses in 0.3:
//!
//! - on REST a message's `referenceTaskIds` and a cancel's metadata, since the protobuf has no
//!   such fields;
//! - tenants, which came with 1.0;
//! - the page token of a JSON-RPC list of webhooks, which is a bare array;
//! - an unspecified role, which becomes `user`;
//! - in cards the device flow, the flag that PKCE is required, and signatures.
//!
//! 0.1 loses more: the ids of messages and artifacts, of which the latter become numbers, the
//! states `rejected` and `auth-required`, extensions, and the ids of webhooks.
//!
//! When 0.3 is read, a webhook keeps the first of several authentication schemes, and a file on REST
//! whose bytes are base64 text is decoded, because most SDKs write files so.
//!
//! Values without a field in 0.3 are written into the metadata of the part, under
//! [`DATA_PART_COMPAT`], [`FILENAME_COMPAT`] and [`MEDIA_TYPE_COMPAT`], and removed again when the part
//! is read. Metadata of a part must not use these keys otherwise, and metadata that is empty without
//! them is absent.

mod legacy;
mod stream;
mod v1;

pub(crate) use legacy::{
    v03_read::{lift_names, lift_value},
    v03_request::{config_of, one_task, task_of},
    v03_rest::{config_name, task_name},
    v03_write::part_metadata,
};

use self::legacy::{v01, v03, v03_read, v03_request, v03_rest, v03_write};

use crate::{
    card::{self, AgentCard},
    error::{Error, ErrorKind},
    id::TaskId,
    json,
    jsonrpc::{self, RequestId},
    push::{PushConfig, PushConfigPage},
    request::{Operation, Request},
    status,
    task::{SendResult, StreamEvent, Task, TaskPage},
    validate::Violations,
    version::Version,
};

pub use stream::{StreamItem, StreamWriter};

/// Marks a 0.3 data part whose value is under `value`, because it is not an object. The official SDKs use
/// the same key.
pub const DATA_PART_COMPAT: &str = "data_part_compat";
/// The key of the file name of a text or data part in 0.3.
pub const FILENAME_COMPAT: &str = "filename_compat";
/// The key of the media type of a text or data part in 0.3.
pub const MEDIA_TYPE_COMPAT: &str = "media_type_compat";

/// The encoding of bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Dialect {
    /// A2A 1.0, the same on JSON-RPC and REST.
    #[default]
    V1,
    /// A2A 0.3 and 0.2 on JSON-RPC: every object has a `kind`.
    V03,
    /// A2A 0.3 on REST: the JSON form of its protobuf messages. Both 0.3 shapes are read.
    V03Rest,
    /// A2A 0.1, which has JSON-RPC only: `tasks/send`, and parts with a `type`.
    V01,
}

/// Entry point of a JSON-RPC call, because some methods have the same name in 0.1 and in 0.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum EntryPoint {
    /// The entry point of 1.0 and 0.3: a shared name is the method of 0.3, and a `tasks/send` waits until the
    /// task settles.
    /// With parts that have a `kind` its reply is that of 0.3.
    #[default]
    Main,
    /// The entry points of 0.1 (`/rpc`, `/ws` and standard input): a shared name is the method of 0.1, and a
    /// `tasks/send` returns at once.
    V01,
}

/// Policy for a 1.0 method without a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum MissingVersion {
    /// As the specification says: a missing version is 0.3, which has no such method, so the call is refused.
    #[default]
    Strict,
    /// The name of the method determines the version.
    Lenient,
}

/// The JSON shapes before 1.0: the two of 0.3, and that of 0.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LegacyShape {
    Rpc,
    Rest,
    V01,
}

/// The dialect and the operation of a JSON-RPC method. An unknown method is refused before an
/// unknown version.
pub fn resolve(
    entry: EntryPoint,
    method: &str,
    version: Option<&str>,
    policy: MissingVersion,
) -> Result<(Dialect, Operation), Error> {
    if let Some(operation) = Operation::from_name(method) {
        Dialect::V1.check_version(version, policy)?;
        return Ok((Dialect::V1, operation));
    }
    let Some((dialect, operation)) = entry.find(method) else {
        return Err(unknown_method(method));
    };
    if Version::negotiate(version)? == Version::V1_0 {
        let name = operation.name();
        return Err(Error::new(
            ErrorKind::MethodNotFound,
            format!("A2A 1.0 has no method {method}; call {name} instead"),
        )
        .with("method", method)
        .with("hint", format!("call {name}; {method} belongs to an older version")));
    }
    Ok((dialect, operation))
}

impl EntryPoint {
    /// A method of the generations before 1.0.
    fn find(self, method: &str) -> Option<(Dialect, Operation)> {
        let (first, later) = (v01::operation(method), v03::operation(method));
        match (self, first, later) {
            (Self::V01, Some(operation), _) | (Self::Main, Some(operation), None) => {
                Some((Dialect::V01, operation))
            }
            (Self::V01, None, Some(operation)) | (Self::Main, _, Some(operation)) => {
                Some((Dialect::V03, operation))
            }
            (_, None, None) => None,
        }
    }

    /// The dialect of the reply to a call that was decoded as `dialect`. At the main entry point a send of 0.1
    /// whose parts have a `kind` is from a client of 0.2 or 0.3, which knows `tasks/send` as another name
    /// of `message/send`.
    pub fn reply_dialect(self, dialect: Dialect, operation: Operation, params: &[u8]) -> Dialect {
        let is_send = operation == Operation::SendMessage;
        if self == Self::Main && dialect == Dialect::V01 && is_send && v01::has_kinds(params) {
            Dialect::V03
        } else {
            dialect
        }
    }

    /// Adds to a request what its entry point implies.
    /// `reply` is the dialect of its reply.
    pub fn complete(self, dialect: Dialect, reply: Dialect, request: &mut Request) {
        let Request::SendMessage(send) = request else { return };
        if self == Self::V01 && dialect == Dialect::V01 {
            send.configuration.return_immediately = true;
        }
        // 0.1 alone has no direct answers.
        send.task_only &= reply == Dialect::V01;
    }
}

fn unknown_method(method: &str) -> Error {
    let shown: String = method.chars().filter(|c| !c.is_control()).take(64).collect();
    let hint = match (method, likely(&shown)) {
        ("tasks/list", _) => "call ListTasks with A2A-Version: 1.0".to_owned(),
        (_, Some(meant)) => format!("did you mean {meant}?"),
        (_, None) => {
            "methods look like SendMessage in 1.0, message/send in 0.3 and tasks/send in 0.1"
                .to_owned()
        }
    };
    Error::new(ErrorKind::MethodNotFound, format!("Method not found: {shown}"))
        .with("method", shown)
        .with("hint", hint)
}

/// The method of any version that was probably meant: one at an edit distance of at most two, whatever the
/// case.
fn likely(called: &str) -> Option<&'static str> {
    let called = called.to_ascii_lowercase();
    let slips = |name: &str| strsim::damerau_levenshtein(&called, &name.to_ascii_lowercase());
    Dialect::ALL
        .iter()
        .flat_map(|dialect| Operation::ALL.iter().filter_map(|one| dialect.method(*one)))
        .map(|name| (slips(name), name))
        .filter(|(slips, _)| *slips <= 2)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, name)| name)
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 4] = [Self::V1, Self::V03, Self::V03Rest, Self::V01];

    /// A JSON-RPC error, to the call of this id.
    pub fn encode_error(self, call: &RequestId, error: &Error) -> Vec<u8> {
        jsonrpc::error(call, self.json_rpc_code(error.kind), error)
    }

    /// The JSON-RPC `error.code` of a kind of error.
    pub(crate) const fn json_rpc_code(self, kind: ErrorKind) -> i32 {
        let codes = kind.codes();
        match self {
            Self::V1 => codes.json_rpc,
            Self::V03 | Self::V03Rest => codes.json_rpc_v03,
            Self::V01 => codes.json_rpc_v01,
        }
    }

    /// The REST body of an error.
    pub fn encode_status(self, error: &Error) -> Vec<u8> {
        match self {
            Self::V1 => status::body(error, false),
            Self::V03 | Self::V03Rest | Self::V01 => status::body(error, true),
        }
    }

    /// True if a message may lack an id, which the server then generates.
    pub const fn mints_message_id(self) -> bool {
        match self {
            Self::V1 => false,
            Self::V03 | Self::V03Rest | Self::V01 => true,
        }
    }

    /// The protocol version it belongs to.
    pub const fn version(self) -> Version {
        match self {
            Self::V1 => Version::V1_0,
            Self::V03 | Self::V03Rest => Version::V0_3,
            Self::V01 => Version::V0_1,
        }
    }

    /// The JSON-RPC method of an operation; `None` where the dialect has none.
    pub const fn method(self, operation: Operation) -> Option<&'static str> {
        match self {
            Self::V1 => Some(operation.name()),
            Self::V03 => v03::method(operation),
            Self::V03Rest => None,
            Self::V01 => v01::method(operation),
        }
    }

    /// Refuses a request whose version is not that of the dialect. For REST, where the path determines the
    /// dialect; [`resolve`] has its own check for 0.3 methods.
    pub fn check_version(self, version: Option<&str>, policy: MissingVersion) -> Result<(), Error> {
        let missing = version.is_none_or(|version| version.trim().is_empty());
        if missing && self == Self::V1 && policy == MissingVersion::Lenient {
            return Ok(());
        }
        let named = Version::negotiate(version)?;
        if named == self.version() {
            return Ok(());
        }
        let (message, hint) = match self {
            Self::V1 if missing => (
                "a request without a version is an A2A 0.3 request: send A2A-Version: 1.0",
                "add the header A2A-Version: 1.0",
            ),
            Self::V1 => (
                "this belongs to A2A 1.0 and the request says 0.3: send A2A-Version: 1.0",
                "set the header A2A-Version to 1.0",
            ),
            Self::V03 | Self::V03Rest | Self::V01 => (
                "this belongs to A2A 0.3 and the request says 1.0: send A2A-Version: 0.3",
                "the paths of 1.0 do not begin with /v1",
            ),
        };
        let supported = Version::SUPPORTED.map(|version| version.to_string()).join(", ");
        Err(Error::new(ErrorKind::VersionNotSupported, message)
            .with("requestedVersion", if missing { String::new() } else { named.to_string() })
            .with("supportedVersions", supported)
            .with("hint", hint))
    }

    /// Reads the parameters of an operation and checks its required fields. Absent parameters
    /// are an empty object.
    ///
    /// Two things that 1.0 requires may be absent in 0.3 and are then empty: a message's id (see
    /// [`mints_message_id`](Self::mints_message_id)) and, when a webhook is looked up, its id,
    /// which then means the task's only one.
    pub fn decode(self, operation: Operation, params: Option<&[u8]>) -> Result<Request, Error> {
        self.decode_at(None, operation, params.unwrap_or(b"{}"))
    }

    /// Reads parameters. A task that is named outside of them, in a path, has precedence.
    pub(crate) fn decode_at(
        self,
        task: Option<&TaskId>,
        operation: Operation,
        params: &[u8],
    ) -> Result<Request, Error> {
        if !json::is_object(params) {
            return Err(Error::field("", "the parameters must be an object"));
        }
        match self.shape() {
            None => v1::decode(task, operation, params).map_err(|error| in_older(error, params)),
            Some(shape) => v03_request::decode(shape, task, operation, params),
        }
    }

    /// Number of history messages that the request asks for.
    pub(crate) fn history_length(self, length: Option<i32>) -> Option<i32> {
        self.shape().map_or(length, |shape| shape.history_length(length))
    }

    /// Writes the parameters of an operation, for clients.
    pub fn encode_request(self, request: &Request) -> Vec<u8> {
        match self {
            Self::V1 => v1::encode_request(request),
            Self::V03 => v03::encode_request(request),
            Self::V03Rest => v03_rest::encode_request(request),
            Self::V01 => v01::encode_request(request),
        }
    }

    /// Writes the reply to a send.
    pub fn encode_send_result(self, result: &SendResult) -> Vec<u8> {
        match self {
            Self::V1 => json::write(result),
            Self::V03 => v03::encode_send_result(result),
            Self::V03Rest => v03_rest::encode_send_result(result),
            Self::V01 => v01::encode_send_result(result),
        }
    }

    /// Writes a task.
    pub fn encode_task(self, task: &Task) -> Vec<u8> {
        match self.shape() {
            None => json::write(task),
            Some(shape) => json::write(&v03_write::LegacyForm(shape, task)),
        }
    }

    /// Writes a page of tasks. Only 1.0 lists tasks, so every dialect writes it as 1.0 does.
    pub fn encode_page(self, page: &TaskPage) -> Vec<u8> {
        json::write(page)
    }

    /// Writes one item of a stream on its own, as webhooks do. `closing` says that the stream ends
    /// with it, which 0.3 puts into status updates as `final`.
    ///
    /// In 0.1 an item is more than its event, so that streams need a [`StreamWriter`]; here every
    /// artifact is the first of its task.
    pub fn encode_event(self, event: &StreamEvent, closing: bool) -> Vec<u8> {
        match self {
            Self::V1 => json::write(event),
            Self::V03 => v03::encode_event(event, closing),
            Self::V03Rest => v03_rest::encode_event(event, closing),
            Self::V01 => v01::encode_event(event, closing),
        }
    }

    /// Writes a webhook.
    pub fn encode_push_config(self, config: &PushConfig) -> Vec<u8> {
        match self {
            Self::V1 => json::write(config),
            Self::V03 => v03::encode_push_config(config),
            Self::V03Rest => v03_rest::encode_push_config(config),
            Self::V01 => v01::encode_push_config(config),
        }
    }

    /// Writes a page of webhooks.
    pub fn encode_push_page(self, page: &PushConfigPage) -> Vec<u8> {
        match self {
            Self::V1 => json::write(page),
            Self::V03 => v03::encode_push_page(page),
            Self::V03Rest => v03_rest::encode_push_page(page),
            Self::V01 => v01::encode_push_page(page),
        }
    }

    /// Writes the reply to a deletion.
    pub fn encode_deleted(self) -> Vec<u8> {
        match self {
            Self::V1 => b"{}".to_vec(),
            Self::V03 | Self::V03Rest | Self::V01 => b"null".to_vec(),
        }
    }

    /// Writes a card. On 0.3 REST, too, it has the JSON-RPC shape: that is what clients read. It
    /// holds all that a reader of 0.1 looks for.
    pub fn encode_card(self, card: &AgentCard) -> Vec<u8> {
        match self {
            Self::V1 => json::write(card),
            Self::V03 | Self::V03Rest | Self::V01 => card::v03(card),
        }
    }

    /// Reads the reply to a send.
    pub fn decode_send_result(self, bytes: &[u8]) -> Result<SendResult, Error> {
        reply(match self.shape() {
            None => v1::send_result(bytes),
            Some(shape) => read_item(bytes, |item, at| item.send_result(shape, at)),
        })
    }

    /// Reads a task.
    pub fn decode_task(self, bytes: &[u8]) -> Result<Task, Error> {
        reply(match self.shape() {
            None => json::read(bytes),
            Some(shape) => json::read::<v03_read::LegacyTask>(bytes)
                .and_then(|task| Violations::collect(|at| task.read(shape, at))),
        })
    }

    /// Reads a page of tasks.
    pub fn decode_page(self, bytes: &[u8]) -> Result<TaskPage, Error> {
        reply(json::read(bytes))
    }

    /// Reads one item of a stream, or the body of a webhook.
    pub fn decode_event(self, bytes: &[u8]) -> Result<StreamEvent, Error> {
        reply(match self.shape() {
            None => v1::event(bytes),
            Some(shape) => read_item(bytes, |item, at| item.event(shape, at)),
        })
    }

    /// Reads a webhook.
    pub fn decode_push_config(self, bytes: &[u8]) -> Result<PushConfig, Error> {
        reply(match self {
            Self::V1 => json::read(bytes),
            Self::V03 | Self::V03Rest | Self::V01 => v03_request::push_config(bytes),
        })
    }

    /// Reads a page of webhooks.
    pub fn decode_push_page(self, bytes: &[u8]) -> Result<PushConfigPage, Error> {
        reply(match self {
            Self::V1 => json::read(bytes),
            Self::V03 | Self::V03Rest | Self::V01 => v03_request::push_page(bytes),
        })
    }

    /// Reads a card of any generation.
    pub fn decode_card(self, bytes: &[u8]) -> Result<AgentCard, Error> {
        reply(card::read(bytes))
    }

    const fn shape(self) -> Option<LegacyShape> {
        match self {
            Self::V1 => None,
            Self::V03 => Some(LegacyShape::Rpc),
            Self::V03Rest => Some(LegacyShape::Rest),
            Self::V01 => Some(LegacyShape::V01),
        }
    }
}

/// Adds a hint for a caller who mixes versions: only objects before 1.0 have a kind.
fn in_older(error: Error, params: &[u8]) -> Error {
    const KIND: &[u8] = b"\"kind\"";
    if !params.windows(KIND.len()).any(|window| window == KIND) {
        return error;
    }
    error.with(
        "hint",
        "`kind` is a member of A2A 0.3: remove it, or call a method of 0.3 without A2A-Version: 1.0",
    )
}

fn read_item<T>(
    bytes: &[u8],
    read: impl FnOnce(v03_read::LegacyItem, &mut Violations<'_>) -> Option<T>,
) -> Result<T, Error> {
    let item = json::read(bytes)?;
    // A violation comes with every `None`, so there is a value here.
    let read = Violations::collect(|at| read(item, at))?;
    read.ok_or_else(|| Error::field("", "expected a task or a message"))
}

/// Makes an error in a reply an error of the agent, not of the caller.
fn reply<T>(read: Result<T, Error>) -> Result<T, Error> {
    read.map_err(|error| Error { kind: ErrorKind::InvalidAgentResponse, ..error })
}

impl LegacyShape {
    /// The member of a message that holds its parts.
    const fn parts(self) -> &'static str {
        match self {
            Self::Rpc | Self::V01 => "parts",
            Self::Rest => "content",
        }
    }

    /// The member of a file that holds its bytes.
    const fn bytes(self) -> &'static str {
        match self {
            Self::Rpc | Self::V01 => "bytes",
            Self::Rest => "fileWithBytes",
        }
    }

    /// The member of a file that says where its bytes are.
    const fn uri(self) -> &'static str {
        match self {
            Self::Rpc | Self::V01 => "uri",
            Self::Rest => "fileWithUri",
        }
    }

    /// The member of a send's configuration that holds a webhook.
    const fn push(self) -> &'static str {
        match self {
            Self::Rpc => "pushNotificationConfig",
            Self::Rest | Self::V01 => "pushNotification",
        }
    }

    /// The protobuf cannot tell zero from unset, so there zero sets no limit.
    fn history_length(self, length: Option<i32>) -> Option<i32> {
        match self {
            Self::Rpc | Self::V01 => length,
            Self::Rest => length.filter(|length| *length != 0),
        }
    }
}
