//! Runner of one test: steps, captures, assertions and the verdict.

use std::collections::BTreeMap;

use herald_protocol::Version;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    CheckOptions,
    assertion::{Assertion, Mismatch, Unmet},
    operation::{CallFailure, CallOutcome, CallRecord, ErrorResponse, OperationCall},
    raw_http::{RawBody, RawHttp, RawRequest, RawResponse, ReadLimit, text_of},
    report::{TestFailure, TestVerdict},
    stream,
    suite::{
        Action, Called, Claim, Collection, Expect, ExpectError, Method, Pattern, Raw,
        RunnerRequirement, Step, SuiteFile, Test,
    },
    target::{Interface, ServerUnderTest, get},
    variables::Variables,
};

/// The server, version and interface that a test is run against.
#[derive(Debug, Clone, Copy)]
pub(super) struct TestLocation<'a> {
    pub(super) http: &'a RawHttp,
    pub(super) target: &'a ServerUnderTest,
    pub(super) version: Version,
    /// `None` for tests of the card.
    pub(super) interface: Option<&'a Interface>,
    /// True if raw requests are sent without the token, because the test is about authentication.
    pub(super) anonymous: bool,
}

/// The reason why a test ends before its last step.
enum TestEnd {
    Failed(TestFailure),
    Skipped(String),
    /// The suite is invalid; the server is not at fault.
    Broken(String),
}

/// Runs a test.
pub(super) async fn run(
    place: TestLocation<'_>,
    document: &SuiteFile,
    test: &Test,
    options: &CheckOptions,
) -> TestVerdict {
    if let Some(reason) = inapplicable(place, test, options) {
        return TestVerdict::Skip(reason);
    }
    let base = place.target.base.as_str().trim_end_matches('/');
    let mut running =
        TestRun { place, variables: Variables::new(&document.variables, &options.variables, base) };
    match running.all(test).await {
        Ok(()) => TestVerdict::Pass,
        Err(TestEnd::Failed(failure)) => TestVerdict::Fail(failure),
        Err(TestEnd::Skipped(reason)) => TestVerdict::Skip(reason),
        Err(TestEnd::Broken(why)) => TestVerdict::Error(why),
    }
}

/// The reason why a test does not apply to this server.
fn inapplicable(place: TestLocation<'_>, test: &Test, options: &CheckOptions) -> Option<String> {
    let target = place.target;
    for (name, wanted) in &test.preconditions.capabilities {
        let said = target.capability(name);
        if said != *wanted {
            return Some(format!("the card says {name}: {said}"));
        }
    }
    let listed = |path: &[&str], key: &str, wanted: &str| {
        let list = path.iter().try_fold(&target.card, |value, name| value.get(name));
        let list = list.and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|one| one.get(key).is_some_and(|id| id == wanted)))
    };
    for skill in &test.preconditions.skills {
        if !listed(&["skills"], "id", &skill.id) {
            return Some(format!("the card does not have the skill {}", skill.id));
        }
    }
    for uri in &test.preconditions.extensions {
        if !listed(&["capabilities", "extensions"], "uri", uri) {
            return Some(format!("the card does not have the extension {uri}"));
        }
    }
    let required = &test.preconditions.transport;
    if !required.is_empty() {
        let spoken = target.speaking(place.version).map(|interface| interface.binding);
        if !spoken.into_iter().any(|binding| required.contains(&binding)) {
            return Some("the card declares none of the bindings it needs".to_owned());
        }
    }
    if let Some(prefix) = test.requires_behaviors.first().filter(|_| !options.prefixes) {
        return Some(format!(
            "it needs an agent that acts on {prefix:?}; add --sut tck if yours does"
        ));
    }
    let missing = test.runner_requirements.iter().find_map(|requirement| match requirement {
        RunnerRequirement::HeaderInspection => None,
        RunnerRequirement::AuthCredentials if options.bearer.is_some() => None,
        RunnerRequirement::AuthCredentials => Some("credentials; give a token with --bearer"),
        RunnerRequirement::WebhookEndpoint => Some("a webhook, which this runner does not have"),
        RunnerRequirement::ConcurrentStreams => {
            Some("concurrent streams, which this runner does not have")
        }
        RunnerRequirement::StreamDisconnect => {
            Some("a stream that breaks off, which this runner does not have")
        }
    });
    if let Some(missing) = missing {
        return Some(format!("it needs {missing}"));
    }
    let client = test.steps.iter().any(|step| matches!(step.action, Action::Client));
    client.then(|| "it tests a client, not a server".to_owned())
}

/// A running test.
struct TestRun<'a> {
    place: TestLocation<'a>,
    variables: Variables,
}

impl TestRun<'_> {
    async fn all(&mut self, test: &Test) -> Result<(), TestEnd> {
        for step in &test.steps {
            if !step.delay.is_zero() {
                sleep(step.delay).await;
            }
            self.step(step).await?;
        }
        test.assertions.iter().try_for_each(|claim| self.claim(claim)).map_err(stop(""))
    }

    async fn step(&mut self, step: &Step) -> Result<(), TestEnd> {
        if let Action::Claim(claim) = &step.action {
            return self.claim(claim).map_err(stop(&step.id));
        }
        let seen = self.repeated(step).await?;
        let root = seen.root();
        if let Some(require) = &step.require {
            self.expected(require, &seen, step).map_err(|unmet| match unmet {
                Unmet::Mismatch(mismatch) => {
                    TestEnd::Skipped(format!("inconclusive: {}: {mismatch}", step.id))
                }
                Unmet::Broken(why) => TestEnd::Broken(why),
            })?;
        }
        self.compare(step, &seen).map_err(stop(&step.id))?;
        self.variables.capture(&step.id, "response", root.clone());
        for (name, path) in &step.capture {
            let value = path.first(&root).ok_or_else(|| {
                let mismatch = Mismatch::new(name, "a value to capture", None);
                TestEnd::Failed(TestFailure::new(&step.id, mismatch))
            })?;
            self.variables.capture(&step.id, name, value.clone());
        }
        step.assertions.iter().try_for_each(|claim| self.claim(claim)).map_err(stop(&step.id))
    }

    /// Performs a step, repeatedly if it has a condition to wait for.
    async fn repeated(&self, step: &Step) -> Result<CallRecord, TestEnd> {
        let mut attempt = 1;
        loop {
            let seen = self.act(step).await.map_err(|lost| match lost {
                CallFailure::Fault(what) | CallFailure::Denied(what) => {
                    TestEnd::Failed(TestFailure::plain(&step.id, what))
                }
                CallFailure::Unsupported(why) => TestEnd::Skipped(why),
                CallFailure::Broken(why) => TestEnd::Broken(format!("{}: {why}", step.id)),
            })?;
            let Some(repeat) = &step.repeat else { return Ok(seen) };
            if repeat.until.holds(&seen.root()) {
                return Ok(seen);
            }
            if attempt == repeat.attempts {
                let what = format!("the condition was not met after {attempt} attempts");
                return Err(TestEnd::Failed(TestFailure::plain(&step.id, what)));
            }
            sleep(repeat.wait(attempt)).await;
            attempt += 1;
        }
    }

    async fn act(&self, step: &Step) -> Result<CallRecord, CallFailure> {
        let broken = CallFailure::Broken;
        let read_limit = step.expect_stream.as_ref().map_or_else(ReadLimit::default, |expect| {
            ReadLimit { stop_after: expect.stop_after, timeout: expect.timeout() }
        });
        match &step.action {
            Action::Call { operation: Called::Card, .. } => self.card().await,
            Action::Call { operation: Called::Operation(operation), params, headers } => {
                let interface = self.interface()?;
                let params = self.variables.fill(&Value::Object(params.clone())).map_err(broken)?;
                let Value::Object(params) = params else {
                    return Err(broken("the parameters are not an object".to_owned()));
                };
                let headers = self.texts(headers).map_err(broken)?;
                let call =
                    OperationCall { operation: *operation, params, headers: &headers, read_limit };
                interface.call(self.place.http, call).await
            }
            Action::Raw(raw) => {
                let received = self.place.http.exchange(self.raw(raw)?, read_limit).await?;
                match step.expect_error {
                    Some(_) => self.interface()?.read(received),
                    None => Ok(unread(received)),
                }
            }
            Action::Claim(_) | Action::Client => Err(broken("this step has no request".to_owned())),
        }
    }

    fn interface(&self) -> Result<&Interface, CallFailure> {
        let missing =
            || CallFailure::Unsupported("the card declares no interface for it".to_owned());
        self.place.interface.ok_or_else(missing)
    }

    async fn card(&self) -> Result<CallRecord, CallFailure> {
        let sent = get(&self.place.target.card_url);
        let received = self.place.http.exchange(sent, ReadLimit::default()).await?;
        Ok(unread(received))
    }

    fn raw(&self, raw: &Raw) -> Result<RawRequest, CallFailure> {
        let fill = |text: &str| self.variables.text(text).map_err(CallFailure::Broken);
        let path = fill(&raw.path)?;
        let url = match path.strip_prefix("/.well-known/") {
            Some(rest) => {
                let url = self.place.target.base.join(&format!(".well-known/{rest}"));
                url.map_err(|_| CallFailure::Broken(format!("{path:?} is not a path")))?
            }
            None => self.interface()?.below(&path),
        };
        let body = match (&raw.body, &raw.body_raw) {
            (Some(body), _) => {
                let body = self.variables.fill(body).map_err(CallFailure::Broken)?;
                body.to_string().into_bytes()
            }
            (None, Some(text)) => fill(text)?.into_bytes(),
            (None, None) => Vec::new(),
        };
        let method = match raw.method {
            Method::Get => http::Method::GET,
            Method::Post => http::Method::POST,
            Method::Put => http::Method::PUT,
            Method::Delete => http::Method::DELETE,
        };
        let mut headers = self.texts(&raw.headers).map_err(CallFailure::Broken)?;
        let mut usual = self.place.interface.map(Interface::extension_header).unwrap_or_default();
        if self.place.anonymous {
            usual.insert("authorization".to_owned(), String::new());
        }
        for (name, value) in usual {
            if !headers.keys().any(|given| given.eq_ignore_ascii_case(&name)) {
                headers.insert(name, value);
            }
        }
        Ok(RawRequest { method, url, headers, body, http2: false })
    }

    fn texts(&self, texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
        let filled =
            texts.iter().map(|(name, text)| Ok((name.clone(), self.variables.text(text)?)));
        filled.collect()
    }

    /// Compares the response of a step with its expectations.
    fn compare(&self, step: &Step, seen: &CallRecord) -> Result<(), Unmet> {
        if let Some(expect) = &step.expect_error {
            return self.error(expect, seen);
        }
        if let Some(expect) = &step.expect {
            self.expected(expect, seen, step)?;
        }
        let mut expected = [&step.expect, &step.require].into_iter().flatten();
        let excused = expected.any(|expect| expect.error.is_some());
        if let (CallOutcome::Refused(refusal), false) = (&seen.outcome, excused) {
            return Err(refused("an answer", refusal).into());
        }
        let Some(expect) = &step.expect_stream else { return Ok(()) };
        let CallOutcome::Events { events, ended } = &seen.outcome else {
            return Err(Mismatch::new("", "a stream", Some(&seen.root())).into());
        };
        stream::check(expect, events, *ended, &|pattern| self.assertion(pattern))
    }

    fn expected(&self, expect: &Expect, seen: &CallRecord, step: &Step) -> Result<(), Unmet> {
        let root = seen.root();
        let raw = matches!(step.action, Action::Raw(_));
        // A successful gRPC call counts as status 200.
        let status = match (&seen.outcome, seen.status) {
            (CallOutcome::Answer(_) | CallOutcome::Events { .. }, None) => Some(Value::from(200)),
            (
                CallOutcome::Answer(_) | CallOutcome::Events { .. } | CallOutcome::Refused(_),
                status,
            ) => status.map(Value::from),
        };
        let (body, error) = match &seen.outcome {
            CallOutcome::Refused(refusal) if expect.body.is_some() && expect.error.is_none() => {
                return Err(refused("an answer", refusal).into());
            }
            CallOutcome::Refused(_) => (None, Some(&root)),
            CallOutcome::Answer(_) if raw => (Some(&root), root.get("error")),
            CallOutcome::Answer(_) | CallOutcome::Events { .. } => (Some(&root), None),
        };
        let headers = expect.headers.as_ref().map(|_| seen.header_values());
        for (pattern, path, value) in [
            (&expect.status, "status", status.as_ref()),
            (&expect.headers, "headers", headers.as_ref()),
            (&expect.error, "error", error),
            (&expect.body, "", body),
        ] {
            self.check(pattern.as_ref(), path, value)?;
        }
        Ok(())
    }

    fn error(&self, expect: &ExpectError, seen: &CallRecord) -> Result<(), Unmet> {
        let names: Vec<_> = expect.names.iter().map(|name| name.name()).collect();
        let wanted = if names.is_empty() { "an error".to_owned() } else { names.join(" or ") };
        let CallOutcome::Refused(refusal) = &seen.outcome else {
            return Err(Mismatch::new("", wanted, Some(&seen.root())).into());
        };
        let binding = self.place.interface.map(|interface| interface.binding);
        let right = binding.is_some_and(|binding| {
            expect.names.iter().any(|name| name.is(refusal, binding, self.place.version))
        });
        if !right && !names.is_empty() {
            return Err(refused(&wanted, refusal).into());
        }
        let message = refusal.message.clone().map(Value::String);
        for (pattern, path, value) in [
            (&expect.message, "error.message", message.as_ref()),
            (&expect.details, "error.details", refusal.metadata()),
            (&expect.data, "error.data", refusal.data.as_ref()),
        ] {
            self.check(pattern.as_ref(), path, value)?;
        }
        Ok(())
    }

    fn check(
        &self,
        pattern: Option<&Pattern>,
        path: &str,
        value: Option<&Value>,
    ) -> Result<(), Unmet> {
        match pattern {
            Some(pattern) => Ok(self.assertion(&pattern.0)?.check(path, value)?),
            None => Ok(()),
        }
    }

    /// Checks an assertion about the responses so far.
    fn claim(&self, claim: &Claim) -> Result<(), Unmet> {
        let source = if claim.source.contains("{{") {
            claim.source.clone()
        } else {
            format!("{{{{{}}}}}", claim.source)
        };
        let source = self.variables.fill(&Value::String(source))?;
        let value = match &claim.path {
            Some(path) => path.first(&source),
            None => Some(&source),
        };
        self.check(claim.matches.as_ref(), "", value)?;
        type Enough = fn(usize, usize) -> bool;
        let kinds: [(&Option<Collection>, &str, Enough); 3] = [
            (&claim.any, "an element", |good, _| good > 0),
            (&claim.all, "every element", |good, of| good == of),
            (&claim.none, "no element", |good, _| good == 0),
        ];
        for (collection, which, enough) in kinds {
            let Some(collection) = collection else { continue };
            let assertion = self.assertion(&collection.matches.0)?;
            let elements = collection.path.all(&source);
            let good = elements.iter().filter(|one| assertion.check("", Some(one)).is_ok());
            let (good, of) = (good.count(), elements.len());
            if !enough(good, of) {
                let expected = format!("{which} with {assertion}");
                let actual = format!("{good} of {of} elements");
                return Err(Mismatch { path: String::new(), expected, actual }.into());
            }
        }
        Ok(())
    }

    fn assertion(&self, pattern: &Value) -> Result<Assertion, String> {
        Assertion::parse(&self.variables.fill(pattern)?)
    }
}

impl CallRecord {
    /// The value that paths are relative to: the result, the error, or the list of events.
    fn root(&self) -> Value {
        match &self.outcome {
            CallOutcome::Answer(answer) => answer.clone(),
            CallOutcome::Refused(refusal) => refusal.as_value(),
            CallOutcome::Events { events, .. } => Value::Array(events.clone()),
        }
    }

    /// The headers that are text.
    fn header_values(&self) -> Value {
        let pairs = self.headers.keys().filter_map(|name| {
            let text = text_of(&self.headers, name.as_str())?;
            Some((name.as_str().to_owned(), Value::from(text)))
        });
        Value::Object(pairs.collect())
    }
}

/// The outcome of a response without the binding's format. A body that is not JSON is null.
fn unread(received: RawResponse) -> CallRecord {
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
    let outcome = match received.body {
        RawBody::Whole(bytes) => CallOutcome::Answer(read(&bytes)),
        RawBody::Pieces { pieces, ended } => {
            CallOutcome::Events { events: pieces.iter().map(|piece| read(piece)).collect(), ended }
        }
    };
    CallRecord { status: Some(received.status), headers: received.headers, outcome }
}

/// The end of a test by an assertion that is not fulfilled.
fn stop(step: &str) -> impl Fn(Unmet) -> TestEnd {
    move |unmet| match unmet {
        Unmet::Mismatch(mismatch) => TestEnd::Failed(TestFailure::new(step, mismatch)),
        Unmet::Broken(why) => TestEnd::Broken(why),
    }
}

fn refused(expected: &str, refusal: &ErrorResponse) -> Mismatch {
    let (expected, actual) = (expected.to_owned(), refusal.to_string());
    Mismatch { path: String::new(), expected, actual }
}
