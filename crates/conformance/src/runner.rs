//! Runs one test and says what came of it.

use std::collections::BTreeMap;

use herald_protocol::Version;
use serde_json::Value;
use tokio::time::sleep;

use super::{
    Options,
    assertion::{Assertion, Mismatch, Unmet},
    operation::{Call, Lost, Outcome, Refusal, Seen},
    report::{Failure, Verdict},
    stream,
    suite::{
        Action, Called, Claim, Collection, Document, Expect, ExpectError, Method, Pattern, Raw,
        RunnerRequirement, Step, Test,
    },
    target::{Interface, Target, get},
    variables::Variables,
    wire::{Body, Patience, Received, Sent, Wire, text_of},
};

/// Where a test is run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) wire: &'a Wire,
    pub(super) target: &'a Target,
    pub(super) version: Version,
    /// `None` for tests of the card, which need none.
    pub(super) interface: Option<&'a Interface>,
    /// Whether raw requests come without the caller's token, because that is what is tested.
    pub(super) anonymous: bool,
}

/// Why a test stops before its end.
enum Stop {
    Failed(Failure),
    Skipped(String),
    /// The suite or this runner is at fault, not the server.
    Broken(String),
}

/// Runs a test.
pub(super) async fn run(
    place: Place<'_>,
    document: &Document,
    test: &Test,
    options: &Options,
) -> Verdict {
    if let Some(reason) = inapplicable(place, test, options) {
        return Verdict::Skip(reason);
    }
    let base = place.target.base.as_str().trim_end_matches('/');
    let mut running =
        Running { place, variables: Variables::new(&document.variables, &options.variables, base) };
    match running.all(test).await {
        Ok(()) => Verdict::Pass,
        Err(Stop::Failed(failure)) => Verdict::Fail(failure),
        Err(Stop::Skipped(reason)) => Verdict::Skip(reason),
        Err(Stop::Broken(why)) => Verdict::Error(why),
    }
}

/// Why a test says nothing about this server, if so.
fn inapplicable(place: Place<'_>, test: &Test, options: &Options) -> Option<String> {
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
            return Some(format!("the card names no skill {}", skill.id));
        }
    }
    for uri in &test.preconditions.extensions {
        if !listed(&["capabilities", "extensions"], "uri", uri) {
            return Some(format!("the card names no extension {uri}"));
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
        return Some(format!("only an agent that obeys {prefix:?} can be asked; say --sut tck"));
    }
    let missing = test.runner_requirements.iter().find_map(|requirement| match requirement {
        RunnerRequirement::HeaderInspection => None,
        RunnerRequirement::AuthCredentials if options.bearer.is_some() => None,
        RunnerRequirement::AuthCredentials => Some("no credentials; give some with --bearer"),
        RunnerRequirement::WebhookEndpoint => Some("no webhook that the server could call"),
        RunnerRequirement::ConcurrentStreams => Some("no streams side by side"),
        RunnerRequirement::StreamDisconnect => Some("no way to break a stream off"),
    });
    if let Some(missing) = missing {
        return Some(format!("this runner has {missing}"));
    }
    let client = test.steps.iter().any(|step| matches!(step.action, Action::Client));
    client.then(|| "it tests how a client reads an answer".to_owned())
}

/// A test at work.
struct Running<'a> {
    place: Place<'a>,
    variables: Variables,
}

impl Running<'_> {
    async fn all(&mut self, test: &Test) -> Result<(), Stop> {
        for step in &test.steps {
            if !step.delay.is_zero() {
                sleep(step.delay).await;
            }
            self.step(step).await?;
        }
        test.assertions.iter().try_for_each(|claim| self.claim(claim)).map_err(stop(""))
    }

    async fn step(&mut self, step: &Step) -> Result<(), Stop> {
        if let Action::Claim(claim) = &step.action {
            return self.claim(claim).map_err(stop(&step.id));
        }
        let seen = self.repeated(step).await?;
        let root = seen.root();
        if let Some(require) = &step.require {
            self.expected(require, &seen, step).map_err(|unmet| match unmet {
                Unmet::Mismatch(mismatch) => {
                    Stop::Skipped(format!("inconclusive: {}: {mismatch}", step.id))
                }
                Unmet::Broken(why) => Stop::Broken(why),
            })?;
        }
        self.compare(step, &seen).map_err(stop(&step.id))?;
        self.variables.capture(&step.id, "response", root.clone());
        for (name, path) in &step.capture {
            let value = path.first(&root).ok_or_else(|| {
                let mismatch = Mismatch::new(name, "something to capture", None);
                Stop::Failed(Failure::new(&step.id, mismatch))
            })?;
            self.variables.capture(&step.id, name, value.clone());
        }
        step.assertions.iter().try_for_each(|claim| self.claim(claim)).map_err(stop(&step.id))
    }

    /// Does a step, again and again if it says so.
    async fn repeated(&self, step: &Step) -> Result<Seen, Stop> {
        let mut attempt = 1;
        loop {
            let seen = self.act(step).await.map_err(|lost| match lost {
                Lost::Fault(what) | Lost::Denied(what) => {
                    Stop::Failed(Failure::plain(&step.id, what))
                }
                Lost::Unspeakable(why) => Stop::Skipped(why),
                Lost::Broken(why) => Stop::Broken(format!("{}: {why}", step.id)),
            })?;
            let Some(repeat) = &step.repeat else { return Ok(seen) };
            if repeat.until.holds(&seen.root()) {
                return Ok(seen);
            }
            if attempt == repeat.attempts {
                let what = format!("it was not as waited for after {attempt} attempts");
                return Err(Stop::Failed(Failure::plain(&step.id, what)));
            }
            sleep(repeat.wait(attempt)).await;
            attempt += 1;
        }
    }

    async fn act(&self, step: &Step) -> Result<Seen, Lost> {
        let broken = Lost::Broken;
        let patience = step.expect_stream.as_ref().map_or_else(Patience::default, |expect| {
            Patience { stop_after: expect.stop_after, timeout: expect.timeout() }
        });
        match &step.action {
            Action::Call { operation: Called::Card, .. } => self.card().await,
            Action::Call { operation: Called::Operation(operation), params, headers } => {
                let interface = self.interface()?;
                let params = self.variables.fill(&Value::Object(params.clone())).map_err(broken)?;
                let Value::Object(params) = params else {
                    return Err(broken("the parameters are no object".to_owned()));
                };
                let headers = self.texts(headers).map_err(broken)?;
                let call = Call { operation: *operation, params, headers: &headers, patience };
                interface.call(self.place.wire, call).await
            }
            Action::Raw(raw) => {
                let received = self.place.wire.exchange(self.raw(raw)?, patience).await;
                let received = received.map_err(Lost::Fault)?;
                match step.expect_error {
                    Some(_) => self.interface()?.read(received),
                    None => Ok(as_it_stands(received)),
                }
            }
            Action::Claim(_) | Action::Client => {
                Err(broken("there is nothing to do in this step".to_owned()))
            }
        }
    }

    fn interface(&self) -> Result<&Interface, Lost> {
        let missing = || Lost::Unspeakable("the card declares no interface for it".to_owned());
        self.place.interface.ok_or_else(missing)
    }

    async fn card(&self) -> Result<Seen, Lost> {
        let sent = get(&self.place.target.card_url);
        let received = self.place.wire.exchange(sent, Patience::default()).await;
        received.map(as_it_stands).map_err(Lost::Fault)
    }

    fn raw(&self, raw: &Raw) -> Result<Sent, Lost> {
        let fill = |text: &str| self.variables.text(text).map_err(Lost::Broken);
        let path = fill(&raw.path)?;
        let url = match path.strip_prefix("/.well-known/") {
            Some(rest) => {
                let url = self.place.target.base.join(&format!(".well-known/{rest}"));
                url.map_err(|_| Lost::Broken(format!("{path:?} is no path")))?
            }
            None => self.interface()?.below(&path),
        };
        let body = match (&raw.body, &raw.body_raw) {
            (Some(body), _) => {
                let body = self.variables.fill(body).map_err(Lost::Broken)?;
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
        let mut headers = self.texts(&raw.headers).map_err(Lost::Broken)?;
        let mut usual = self.place.interface.map(Interface::extension_header).unwrap_or_default();
        if self.place.anonymous {
            usual.insert("authorization".to_owned(), String::new());
        }
        for (name, value) in usual {
            if !headers.keys().any(|given| given.eq_ignore_ascii_case(&name)) {
                headers.insert(name, value);
            }
        }
        Ok(Sent { method, url, headers, body, http2: false })
    }

    fn texts(&self, texts: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
        let filled =
            texts.iter().map(|(name, text)| Ok((name.clone(), self.variables.text(text)?)));
        filled.collect()
    }

    /// Whether a step's answer is as the step expects.
    fn compare(&self, step: &Step, seen: &Seen) -> Result<(), Unmet> {
        if let Some(expect) = &step.expect_error {
            return self.error(expect, seen);
        }
        if let Some(expect) = &step.expect {
            self.expected(expect, seen, step)?;
        }
        let mut expected = [&step.expect, &step.require].into_iter().flatten();
        let excused = expected.any(|expect| expect.error.is_some());
        if let (Outcome::Refused(refusal), false) = (&seen.outcome, excused) {
            return Err(refused("an answer", refusal).into());
        }
        let Some(expect) = &step.expect_stream else { return Ok(()) };
        let Outcome::Events { events, ended } = &seen.outcome else {
            return Err(Mismatch::new("", "a stream", Some(&seen.root())).into());
        };
        stream::check(expect, events, *ended, &|pattern| self.assertion(pattern))
    }

    fn expected(&self, expect: &Expect, seen: &Seen, step: &Step) -> Result<(), Unmet> {
        let root = seen.root();
        let raw = matches!(step.action, Action::Raw(_));
        // gRPC has no HTTP status of its own; there a call that succeeds is what 200 means.
        let status = match (&seen.outcome, seen.status) {
            (Outcome::Answer(_) | Outcome::Events { .. }, None) => Some(Value::from(200)),
            (Outcome::Answer(_) | Outcome::Events { .. } | Outcome::Refused(_), status) => {
                status.map(Value::from)
            }
        };
        let (body, error) = match &seen.outcome {
            Outcome::Refused(refusal) if expect.body.is_some() && expect.error.is_none() => {
                return Err(refused("an answer", refusal).into());
            }
            Outcome::Refused(_) => (None, Some(&root)),
            Outcome::Answer(_) if raw => (Some(&root), root.get("error")),
            Outcome::Answer(_) | Outcome::Events { .. } => (Some(&root), None),
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

    fn error(&self, expect: &ExpectError, seen: &Seen) -> Result<(), Unmet> {
        let names: Vec<_> = expect.names.iter().map(|name| name.name()).collect();
        let wanted = if names.is_empty() { "an error".to_owned() } else { names.join(" or ") };
        let Outcome::Refused(refusal) = &seen.outcome else {
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

    /// Whether a claim holds about what was seen so far.
    fn claim(&self, claim: &Claim) -> Result<(), Unmet> {
        let source = match claim.source.contains("{{") {
            true => claim.source.clone(),
            false => format!("{{{{{}}}}}", claim.source),
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

impl Seen {
    /// What paths start at: the answer, the error, or the list of events.
    fn root(&self) -> Value {
        match &self.outcome {
            Outcome::Answer(answer) => answer.clone(),
            Outcome::Refused(refusal) => refusal.as_value(),
            Outcome::Events { events, .. } => Value::Array(events.clone()),
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

/// A response whose body is looked at as it is; what is no JSON is null.
fn as_it_stands(received: Received) -> Seen {
    let read = |bytes: &[u8]| serde_json::from_slice(bytes).unwrap_or(Value::Null);
    let outcome = match received.body {
        Body::Whole(bytes) => Outcome::Answer(read(&bytes)),
        Body::Pieces { pieces, ended } => {
            Outcome::Events { events: pieces.iter().map(|piece| read(piece)).collect(), ended }
        }
    };
    Seen { status: Some(received.status), headers: received.headers, outcome }
}

/// What an unmet assertion means for a test.
fn stop(step: &str) -> impl Fn(Unmet) -> Stop {
    move |unmet| match unmet {
        Unmet::Mismatch(mismatch) => Stop::Failed(Failure::new(step, mismatch)),
        Unmet::Broken(why) => Stop::Broken(why),
    }
}

fn refused(expected: &str, refusal: &Refusal) -> Mismatch {
    let (expected, actual) = (expected.to_owned(), refusal.to_string());
    Mismatch { path: String::new(), expected, actual }
}
