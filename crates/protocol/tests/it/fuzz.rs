//! Every parser against input that nobody wrote. On stable these run as ordinary tests with
//! random input; `cargo bolero test` drives the same targets with coverage.
//!
//! Raw bytes hardly ever get past the first brace, so most targets also take the bytes as a
//! recipe for JSON made of the protocol's own member names.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use bolero::check;
use herald_protocol::{
    Dialect, Metadata, MissingVersion, Operation, Request, StreamEvent, TraceContext, Version,
    card,
    dialect::{EntryPoint, StreamWriter, resolve},
    failure,
    grpc::Service,
    jsonrpc, rest,
    sse::{self, Parser},
    version,
};
use serde_json::Value;

/// Few by default; `HERALD_FUZZ_ITERATIONS` sets a bigger number.
fn iterations() -> usize {
    let chosen = std::env::var("HERALD_FUZZ_ITERATIONS").ok();
    chosen.and_then(|number| number.parse().ok()).unwrap_or(1500)
}

/// Reads a recipe byte by byte; past its end everything is zero.
struct Recipe<'a>(&'a [u8]);

impl Recipe<'_> {
    fn next(&mut self) -> usize {
        match self.0.split_first() {
            Some((&byte, rest)) => {
                self.0 = rest;
                usize::from(byte)
            }
            None => 0,
        }
    }

    fn pick<'b>(&mut self, choices: &[&'b str]) -> &'b str {
        choices[self.next() % choices.len()]
    }

    /// An object whose members mostly have the types they should.
    fn object(&mut self, depth: usize) -> String {
        let members: Vec<_> = (0..self.next() % 6).map(|_| self.member(depth)).collect();
        format!("{{{}}}", members.join(","))
    }

    fn member(&mut self, depth: usize) -> String {
        const OBJECTS: &[&str] = &[
            "message",
            "request",
            "configuration",
            "status",
            "artifact",
            "task",
            "file",
            "metadata",
            "pushNotificationConfig",
            "pushNotification",
            "authentication",
            "config",
            "data",
            "taskPushNotificationConfig",
            "statusUpdate",
            "artifactUpdate",
            "update",
        ];
        const LISTS: &[&str] = &["parts", "content", "history", "artifacts"];
        const TEXTS: &[&str] = &[
            "id",
            "taskId",
            "task_id",
            "contextId",
            "messageId",
            "artifactId",
            "text",
            "url",
            "uri",
            "name",
            "token",
            "tenant",
            "kind",
            "type",
            "role",
            "state",
            "timestamp",
            "bytes",
            "raw",
            "parent",
            "configId",
            "scheme",
            "credentials",
            "filename",
            "mediaType",
            "value",
            "fileWithUri",
            "pageToken",
            "sessionId",
            "session_id",
            "handler",
            "filename_compat",
            "media_type_compat",
            "mimeType",
        ];
        const STRINGS: &[&str] = &["extensions", "referenceTaskIds", "schemes"];
        const BOOLS: &[&str] =
            &["blocking", "returnImmediately", "append", "lastChunk", "final", "data_part_compat"];
        const NUMBERS: &[&str] = &["historyLength", "history_length", "pageSize", "index"];
        let kind = if depth > 4 { 4 + self.next() % 5 } else { self.next() % 10 };
        let (name, value) = match kind {
            0 | 1 => (self.pick(OBJECTS), self.object(depth + 1)),
            2 | 3 => {
                let name = self.pick(LISTS);
                let items: Vec<_> =
                    (0..1 + self.next() % 2).map(|_| self.object(depth + 1)).collect();
                (name, format!("[{}]", items.join(",")))
            }
            4 | 5 => (self.pick(TEXTS), self.text()),
            6 => (self.pick(STRINGS), format!("[{}]", self.text())),
            7 => (self.pick(BOOLS), self.pick(&["true", "false", "null"]).to_owned()),
            8 => (self.pick(NUMBERS), self.pick(&["0", "1", "7", "-1", "null"]).to_owned()),
            _ => (self.pick(TEXTS), self.any()),
        };
        format!("{}:{value}", Value::from(name))
    }

    fn text(&mut self) -> String {
        Value::from(self.pick(&[
            "t",
            "u",
            "",
            "tasks/t",
            "tasks/t/pushNotificationConfigs/p",
            "text",
            "file",
            "data",
            "task",
            "message",
            "status-update",
            "user",
            "agent",
            "ROLE_USER",
            "working",
            "TASK_STATE_CANCELLED",
            "2025-04-02T16:59:25.331844",
            "AQ==",
            "-_",
            "https://x",
            "中\n",
        ]))
        .to_string()
    }

    fn any(&mut self) -> String {
        const ANY: &[&str] = &[
            "null",
            "true",
            "0",
            "-0.0",
            "1e300",
            "0.1",
            "[]",
            "{}",
            "[[{}]]",
            "\"\"",
            "\"\\ud83d\"",
            "{\"value\":1}",
            "{\"data\":{\"data\":1}}",
            "123456789012345678901234567890",
        ];
        self.pick(ANY).to_owned()
    }

    /// A document that every request could be read from, with faults here and there.
    fn request(&mut self) -> String {
        let mut members = vec![
            format!(r#""id":{}"#, self.pick(&["\"t\"", "\"t\"", "\"t\"", "7"])),
            format!(r#""url":{}"#, self.pick(&["\"https://x\"", "\"\""])),
        ];
        let mut parts =
            vec![self.pick(&[r#"{"text":"a"}"#, r#"{"kind":"text","text":""}"#]).to_owned()];
        if self.next().is_multiple_of(2) {
            parts.push(self.object(2));
        }
        let inner = match self.next() % 3 {
            0 => String::new(),
            _ => format!(",{}", self.member(2)),
        };
        members.push(format!(
            r#""message":{{"messageId":"m","role":{},"parts":[{}]{inner}}}"#,
            self.pick(&["\"ROLE_USER\"", "1", "2"]),
            parts.join(",")
        ));
        members.extend((0..self.next() % 3).map(|_| self.member(1)));
        format!("{{{}}}", members.join(","))
    }
}

/// What a dialect cannot write back, taken away before the comparison.
fn writable(dialect: Dialect, mut request: Request) -> Request {
    match &mut request {
        Request::CancelTask(cancel) => {
            cancel.return_ended = false;
            if dialect == Dialect::V03Rest {
                cancel.metadata = None;
            }
        }
        // So much is lost in 0.1 that it must be written once to see what is left.
        Request::SendMessage(_)
        | Request::SendStreamingMessage(_)
        | Request::CreateTaskPushNotificationConfig(_)
            if dialect == Dialect::V01 =>
        {
            let bytes = dialect.encode_request(&request);
            return dialect.decode(request.operation(), Some(&bytes)).unwrap();
        }
        Request::SendMessage(send) | Request::SendStreamingMessage(send)
            if dialect == Dialect::V03Rest =>
        {
            send.message.reference_task_ids.clear();
        }
        _ => {}
    }
    request
}

/// What decodes is written and decodes to the same; answers whether it did decode.
fn decodes(dialect: Dialect, operation: Operation, params: &[u8]) -> bool {
    let Ok(request) = dialect.decode(operation, Some(params)) else { return false };
    let request = writable(dialect, request);
    // Such an id cannot stand in a resource name of 0.3; the ids that servers make never do.
    if dialect == Dialect::V03Rest && format!("{request:?}").contains("/pushNotificationConfigs/") {
        return true;
    }
    let bytes = dialect.encode_request(&request);
    assert_eq!(dialect.decode(operation, Some(&bytes)).as_ref(), Ok(&request));
    true
}

fn writable_event(dialect: Dialect, mut event: StreamEvent) -> StreamEvent {
    if dialect == Dialect::V01 {
        return dialect.decode_event(&dialect.encode_event(&event, false)).unwrap();
    }
    if dialect == Dialect::V03Rest {
        let messages: Vec<&mut herald_protocol::Message> = match &mut event {
            StreamEvent::Task(task) => {
                let history = task.history.iter_mut().flatten();
                history.chain(task.status.message.as_mut()).map(Arc::make_mut).collect()
            }
            StreamEvent::Message(message) => vec![message],
            StreamEvent::StatusUpdate(update) => {
                update.status.message.iter_mut().map(Arc::make_mut).collect()
            }
            StreamEvent::ArtifactUpdate(_) => vec![],
        };
        messages.into_iter().for_each(|message| message.reference_task_ids.clear());
    }
    event
}

fn answers(dialect: Dialect, bytes: &[u8]) -> bool {
    let _ = dialect.decode_task(bytes);
    let _ = dialect.decode_send_result(bytes);
    let _ = dialect.decode_page(bytes);
    if let Ok(mut config) = dialect.decode_push_config(bytes)
        && !config.task_id.as_ref().is_some_and(|task| task.as_str().contains("/"))
    {
        let again = dialect.decode_push_config(&dialect.encode_push_config(&config));
        config.id = config.id.filter(|_| dialect != Dialect::V01);
        // A webhook without a URL may be read as 1.0 but means nothing.
        assert!(config.url.is_empty() || again.as_ref() == Ok(&config), "{config:?} {again:?}");
    }
    let Ok(event) = dialect.decode_event(bytes) else { return false };
    let event = writable_event(dialect, event);
    let again = dialect.decode_event(&dialect.encode_event(&event, false));
    assert_eq!(again.as_ref(), Ok(&event));
    let items = StreamWriter::new(dialect, Vec::new()).write(&event, true);
    assert!(!items.is_empty() && items.iter().all(|item| dialect.decode_event(&item.body).is_ok()));
    true
}

/// Runs one dialect's readers; enough of the input must get through to prove anything.
fn fuzz(dialect: Dialect) {
    let read = AtomicUsize::new(0);
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let operation = Operation::ALL[recipe.next() % Operation::ALL.len()];
        decodes(dialect, operation, bytes);
        answers(dialect, bytes);
        let request = recipe.request();
        let mut through = decodes(dialect, operation, request.as_bytes());
        through |= answers(dialect, recipe.object(0).as_bytes());
        read.fetch_add(usize::from(through), Ordering::Relaxed);
    });
    let read = read.load(Ordering::Relaxed);
    assert!(read > iterations() / 20, "only {read} inputs were valid");
}

#[test]
fn v1_decode() {
    fuzz(Dialect::V1);
}

#[test]
fn v03_decode() {
    fuzz(Dialect::V03);
}

#[test]
fn v01_decode() {
    fuzz(Dialect::V01);
}

// proves: REST-007
#[test]
fn v03_rest_decode_routes_and_queries() {
    fuzz(Dialect::V03Rest);
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let method = recipe.pick(&["GET", "POST", "DELETE", "PUT"]);
        let mut path = String::new();
        for _ in 0..1 + recipe.next() % 5 {
            path.push_str(recipe.pick(&[
                "/",
                "/v1",
                "/tasks",
                "/task",
                "/t",
                "/message:send",
                "/pushNotificationConfigs",
                "/%FF",
                "/%2",
                "/a%2Fb",
                ":cancel",
                ":subscribe",
                "%3A",
                "/card",
                "/é",
            ]));
        }
        let mut query = String::new();
        for _ in 0..recipe.next() % 4 {
            query.push_str(recipe.pick(&[
                "historyLength",
                "page_size",
                "status",
                "tenant",
                "x",
                "%",
            ]));
            query.push_str(recipe.pick(&["=", "", "=="]));
            query.push_str(recipe.pick(&["1", "-1", "working", "%zz", "%C3", "+", "a%00b"]));
            query.push('&');
        }
        let raw = String::from_utf8_lossy(bytes);
        let _ = rest::route(method, &raw);
        let Ok(route) = rest::route(method, &path) else { return };
        for body in [recipe.0, recipe.request().as_bytes(), b""] {
            for query in [query.as_str(), &raw] {
                let Ok(request) = rest::request(&route, Some(query), body) else { continue };
                assert_eq!(request.operation(), route.operation);
                if let Some(tenant) = &route.tenant {
                    assert_eq!(request.tenant(), Some(tenant), "the path wins");
                }
            }
        }
    });
}

// proves: RPC-002, RPC-003
#[test]
fn json_rpc_envelope() {
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let made = format!(
            r#"{{"jsonrpc":{},"id":{},"method":{},"params":{}}}"#,
            recipe.pick(&["\"2.0\"", "\"2.0\"", "2", "\"\\u0032.0\""]),
            recipe.any(),
            recipe.text(),
            recipe.object(3)
        );
        for body in [bytes, made.as_bytes()] {
            match jsonrpc::parse(body) {
                Ok(call) => {
                    let answer = jsonrpc::result(&call.id, b"null");
                    let answer: Value = serde_json::from_slice(&answer).unwrap();
                    let id: Value = serde_json::from_str(call.id.as_json()).unwrap();
                    assert_eq!(answer["id"], id);
                    let _ = resolve(EntryPoint::V01, &call.method, None, MissingVersion::Lenient);
                }
                Err((id, error)) => {
                    let answer = Dialect::V1.encode_error(&id, &error);
                    serde_json::from_slice::<Value>(&answer).unwrap();
                }
            }
        }
    });
}

#[test]
fn session_envelope() {
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let made = format!(
            r#"{{"jsonrpc":"2.0",{}"method":{},"params":{{"id":{}}},"serviceParameters":{}}}"#,
            recipe.pick(&["", "\"id\":7,", "\"id\":null,", "\"id\":\"\\ud83d\","]),
            recipe.pick(&["\"$/cancelRequest\"", "\"GetTask\""]),
            recipe.any(),
            match recipe.next() % 3 {
                0 => format!(r#"{{"A2A-Version":{}}}"#, recipe.text()),
                1 => recipe.object(3),
                _ => recipe.any(),
            },
        );
        for body in [bytes, made.as_bytes()] {
            let Ok(call) = jsonrpc::parse(body) else { continue };
            if call.is_notification {
                assert_eq!(call.id.as_json(), "null");
            }
            if let Some(parameters) = call.service_parameters {
                let read = jsonrpc::read_service_parameters(parameters).is_ok();
                let object = serde_json::from_str::<Value>(parameters.get()).ok();
                let strings = object.as_ref().and_then(Value::as_object);
                let strings = strings.is_some_and(|all| all.values().all(Value::is_string));
                // Of a name that is given twice the value shows only the last.
                assert!(strings || !read, "{parameters}");
            }
            let id = jsonrpc::read_cancel(call.params).unwrap_or(call.id);
            let event = String::from_utf8_lossy(bytes);
            for framed in [
                jsonrpc::event(&id, &event, b"{}"),
                jsonrpc::stream_end(&id),
                jsonrpc::cancelled(&id),
                jsonrpc::notification(&event, b"{}"),
            ] {
                let framed: Value = serde_json::from_slice(&framed).unwrap();
                let id: Value = serde_json::from_str(id.as_json()).unwrap();
                let named = framed.get("id").or_else(|| framed["params"].get("id"));
                assert!(named.is_none_or(|named| *named == id), "{framed}");
            }
        }
    });
}

#[test]
fn answers_and_errors_of_others() {
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let detail = format!(
            r#"{{"reason":{},"metadata":{},"fieldViolations":[{}]}}"#,
            recipe.any(),
            recipe.object(1),
            recipe.object(1)
        );
        let error = format!(
            r#"{{"code":{},"message":{},"details":[{detail}],"data":{}}}"#,
            recipe.any(),
            recipe.any(),
            recipe.any()
        );
        let answer = format!(
            r#"{{"jsonrpc":"2.0","id":{},"result":{},"error":{}}}"#,
            recipe.any(),
            recipe.object(2),
            recipe.pick(&["null", &error])
        );
        for body in [bytes, error.as_bytes(), answer.as_bytes()] {
            let _ = jsonrpc::incoming(body);
            for dialect in Dialect::ALL {
                let _ = failure::is_error(body);
                if let Some(error) = failure::rest(dialect, 500, body) {
                    assert!(!error.message.is_empty() && error.message.len() <= 8000);
                }
                if let Ok(result) = jsonrpc::result_of(dialect, 1, body) {
                    for operation in Operation::ALL {
                        let _ = dialect.decode_reply(*operation, result);
                    }
                }
            }
        }
    });
}

// proves: STR-025
#[test]
fn sse_parser() {
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let mut made = Vec::new();
        for _ in 0..recipe.next() % 12 {
            let line = recipe.pick(&[
                "data: {}",
                "data:",
                "data",
                "id: 7",
                "id",
                "event: error",
                ": note",
                "x: y",
                "\u{feff}",
                "",
                "",
            ]);
            made.extend_from_slice(line.as_bytes());
            made.extend_from_slice(recipe.pick(&["\n", "\r\n", "\r", "\n\n"]).as_bytes());
        }
        for stream in [bytes, &made] {
            let parse = |size: usize| {
                let (mut parser, mut events) = (Parser::new(1 << 12), Vec::new());
                for piece in stream.chunks(size) {
                    parser.push(piece, &mut events)?;
                }
                Ok::<_, sse::TooLarge>(events)
            };
            let whole = parse(stream.len().max(1));
            assert_eq!(parse(1), whole, "pieces may fall anywhere");
            for event in whole.into_iter().flatten().filter(|event| !event.data.contains('\n')) {
                let mut framed = Vec::new();
                sse::frame(
                    &mut framed,
                    event.id.as_deref(),
                    event.event.as_deref(),
                    &[event.data.as_bytes()],
                );
                let (mut parser, mut again) = (Parser::new(1 << 16), Vec::new());
                parser.push(&framed, &mut again).unwrap();
                assert_eq!(again, [event]);
            }
        }
    });
}

/// Raw bytes, and requests whose bytes were changed here and there: nothing panics, and what is read
/// is written and read again as the same.
#[test]
fn protobuf_decode() {
    let read = AtomicUsize::new(0);
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let operation = Operation::ALL[recipe.next() % Operation::ALL.len()];
        let made = Dialect::V1.decode(operation, Some(recipe.request().as_bytes()));
        for service in Service::ALL {
            let mut through = protobuf(service, operation, bytes);
            let Ok(made) = &made else { continue };
            let mut message = service.encode_request(made.clone());
            for _ in 0..recipe.next() % 4 {
                let (place, byte) = (recipe.next(), recipe.next());
                if let Some(changed) = message.get_mut(place) {
                    *changed = u8::try_from(byte).unwrap();
                }
            }
            through |= protobuf(service, operation, &message);
            read.fetch_add(usize::from(through), Ordering::Relaxed);
        }
    });
    let read = read.load(Ordering::Relaxed);
    assert!(read > iterations() / 20, "only {read} inputs were valid");
}

fn protobuf(service: Service, operation: Operation, bytes: &[u8]) -> bool {
    for operation in Operation::ALL {
        let _ = service.decode_reply(*operation, bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    assert!(!failure::grpc(operation, 2, Some(&text), Some(&text)).message.is_empty());
    if let Ok(event) = service.decode_event(bytes) {
        let again = service.decode_event(&service.encode_event(event.clone(), false));
        assert_eq!(again.as_ref(), Ok(&event));
    }
    let Ok(request) = service.decode(operation, bytes) else { return false };
    // 0.3 has no list, and such an id cannot stand in a resource name of it.
    let nameless = format!("{request:?}").contains("/pushNotificationConfigs/");
    if service == Service::V03 && (operation == Operation::ListTasks || nameless) {
        return true;
    }
    let message = service.encode_request(request.clone());
    assert_eq!(service.decode(operation, &message).as_ref(), Ok(&request));
    true
}

// proves: VER-003
#[test]
fn version_header() {
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let mut made = String::new();
        for _ in 0..recipe.next() % 6 {
            made.push_str(recipe.pick(&["0", "1", "3", ".", "65536", " ", "-", "v", "٣", "\u{0}"]));
        }
        for text in [String::from_utf8_lossy(bytes).as_ref(), &made] {
            match Version::negotiate(Some(text)) {
                Ok(found) => assert!(Version::SUPPORTED.contains(&found)),
                Err(error) => assert_eq!(error.kind.codes().json_rpc, -32009),
            }
            if let Ok(parsed) = text.parse::<Version>() {
                assert_eq!(parsed.to_string().parse(), Ok(parsed));
            }
            for dialect in Dialect::ALL {
                let _ = dialect.check_version(Some(text), MissingVersion::Lenient);
            }
            version::extensions([text]);
            let _ = resolve(EntryPoint::Main, text, Some(text), MissingVersion::Strict);
        }
    });
}

#[test]
fn traces() {
    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let mut made = PARENT.to_owned();
        let from = recipe.next() % PARENT.len();
        made.truncate(from);
        made.push_str(recipe.pick(&["", "-", "0", "f", "F", "ff", "é", "\u{0}", "+"]));
        made.push_str(&PARENT[from..]);
        for text in [String::from_utf8_lossy(bytes).as_ref(), &made] {
            if let Some(found) = TraceContext::read(text, Some(text)) {
                assert_eq!(found.to_string().len(), PARENT.len());
                assert_eq!(
                    TraceContext::read(&found.to_string(), found.state.as_deref()),
                    Some(found)
                );
            }
            let ids = [("traceId", text), ("spanId", text)];
            let ids = ids.into_iter().map(|(name, id)| (name.to_owned(), Value::from(id)));
            let metadata =
                Metadata::from_iter([("a2a.trace".to_owned(), Value::Object(ids.collect()))]);
            let _ = TraceContext::from_metadata(&metadata);
        }
    });
}

#[test]
fn cards() {
    check!().with_iterations(iterations()).for_each(|bytes: &[u8]| {
        let mut recipe = Recipe(bytes);
        let mut members = Vec::new();
        for _ in 0..recipe.next() % 6 {
            let name = recipe.pick(&[
                "name",
                "url",
                "supportedInterfaces",
                "additionalInterfaces",
                "securitySchemes",
                "security",
                "skills",
                "capabilities",
                "protocolVersion",
                "preferredTransport",
            ]);
            let value = recipe.pick(&[
                "\"x\"",
                "null",
                "[]",
                "{}",
                r#"[{"url":"u","transport":"GRPC"}]"#,
                "\"1.0\"",
                r#"[{"url":"u","protocolBinding":"JSONRPC","protocolVersion":"0.3"}]"#,
                r#"{"b":{"type":"oauth2","flows":{"implicit":{}}}}"#,
                r#"[{"b":["s"]}]"#,
                r#"{"b":{"mtlsSecurityScheme":{},"type":"http"}}"#,
                r#"[{"id":"s","security":[]}]"#,
            ]);
            members.push(format!("\"{name}\":{value}"));
        }
        let made = format!("{{{}}}", members.join(","));
        for bytes in [bytes, made.as_bytes()] {
            let Ok(mut card) = card::read(bytes) else { continue };
            let _ = Dialect::V03.encode_card(&card);
            let _ = card::hybrid(&card);
            // 1.0 cannot say this one.
            card.capabilities.state_transition_history = None;
            assert_eq!(card::read(&Dialect::V1.encode_card(&card)).as_ref(), Ok(&card));
        }
    });
}
