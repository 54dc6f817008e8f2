//! One scenario over every binding and version.

mod grpc;
mod route;
mod session;

use route::{Binding, Event, Route, Step, Version, Watch};

use crate::{
    http::Call,
    stdio::{CONFORMANCE_FIRST, Pipe},
    support::{Herald, Options, SOON, uuid},
    wire::{Draft, Fault},
};

/// The kind of a refusal, independent of binding and version.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    NoSuchTask,
    NotCancelable,
    Ended,
    BadMessage,
    NoSuchOperation,
}

impl Refusal {
    /// The code and the reason over this route. They are written out, so that the
    /// server's own table is not compared with itself.
    fn at(self, route: &Route) -> (i64, &'static str) {
        let (rpc, rpc_v01, http, grpc, reason) = match self {
            Self::NoSuchTask => (-32001, -32001, 404, 5, "TASK_NOT_FOUND"),
            Self::NotCancelable => (-32002, -32002, 400, 9, "TASK_NOT_CANCELABLE"),
            Self::Ended => (-32004, -32009, 400, 9, "UNSUPPORTED_OPERATION"),
            Self::BadMessage => (-32602, -32602, 400, 3, "INVALID_PARAMS"),
            Self::NoSuchOperation => (-32601, -32601, 404, 12, "METHOD_NOT_FOUND"),
        };
        let number = match route.binding {
            Binding::JsonRpc | Binding::WebSocket | Binding::Stdio => match route.version {
                Version::V1 | Version::V03 => rpc,
                Version::V01 => rpc_v01,
            },
            Binding::Rest => http,
            Binding::Grpc => grpc,
        };
        (number, reason)
    }

    #[track_caller]
    fn check<T>(self, route: &Route, answered: Result<T, Fault>) {
        let Err(fault) = answered else { panic!("{route}: {self:?} was not refused") };
        let found = (fault.code, fault.reason.as_str());
        assert_eq!(found, self.at(route), "{route}: {self:?}: {fault:?}");
        if route.binding == Binding::Rest {
            assert_eq!(i64::from(fault.status), fault.code, "{route}: {fault:?}");
        }
        assert!(!fault.message.is_empty(), "{route}: {self:?}");
    }
}

/// A new message with this text.
fn say(text: &str) -> Draft {
    Draft::new(uuid(), text)
}

fn status(state: &str, said: &str) -> Step {
    Step::Status(state.to_owned(), said.to_owned())
}

/// The steps of a list of events, which must be all there are from the first on.
#[track_caller]
fn steps(events: &[Event]) -> Vec<Step> {
    let numbers: Vec<_> = events.iter().map(|event| event.seq).collect();
    let expected: Vec<_> = (1..).take(events.len()).collect();
    assert_eq!(numbers, expected, "{events:?}");
    events.iter().map(|event| event.step.clone()).collect()
}

/// The scenario. Differences between routes are those of the protocol versions.
async fn scenario(route: &Route) {
    println!("{route}");
    sends(route).await;
    streams(route).await;
    talks(route).await;
    cancels(route).await;
    refuses(route).await;
}

async fn sends(route: &Route) {
    let done = route.send(&say("hello"), true).await.unwrap();
    assert_eq!((done.state.as_str(), &*done.texts), ("completed", &["hello".to_owned()][..]));
    assert_eq!(done.asked, ["hello"]);
    assert_eq!(route.get(&done.id).await.unwrap(), done);

    let work = "tck-long-running delay_ms=50";
    let sent = route.send(&say(work), false).await.unwrap();
    assert!(["submitted", "working"].contains(&sent.state.as_str()), "{sent:?}");
    let done = route.settled(&sent.id).await;
    assert_eq!(done.state, "completed");
    assert_eq!(done.texts, ["Long-running work is done"]);
    assert_eq!((done.id, done.context), (sent.id, sent.context));
}

async fn streams(route: &Route) {
    let begin = match route.version {
        Version::V1 | Version::V03 => Step::Task("submitted".to_owned()),
        // Streams of 0.1 have no task.
        Version::V01 => status("submitted", ""),
    };
    let pieces = (0..5).map(|index| Step::Piece(format!("chunk {index} ")));
    let expected: Vec<_> = [begin, status("working", "")]
        .into_iter()
        .chain(pieces)
        .chain([status("completed", "")])
        .collect();

    let work = "tck-stream-chunked chunks=5 delay_ms=20";
    let told = route.watch(Watch::Send(&say(work))).await.rest().await;
    assert_eq!(steps(&told), expected);

    // The same again, disconnected after the first chunk and resumed.
    let mut cut = route.watch(Watch::Send(&say(work))).await;
    let mut told = cut.take(3).await;
    cut.cut().await;
    let Event { task, seq, .. } = told.last().unwrap().clone();
    told.extend(route.watch(Watch::After(&task, seq)).await.rest().await);
    assert_eq!(steps(&told), expected);
    let texts = route.get(&task).await.unwrap().texts;
    assert_eq!(texts.concat(), "chunk 0 chunk 1 chunk 2 chunk 3 chunk 4 ");
}

async fn talks(route: &Route) {
    let first = route.send(&say("tck-multi-turn"), true).await.unwrap();
    assert_eq!(first.state, "input-required");
    let second = route.send(&say("more").to(&first.id), true).await.unwrap();
    assert_eq!((&second.id, &*second.state), (&first.id, "input-required"));
    let last = route.send(&say("done").to(&first.id), true).await.unwrap();
    assert_eq!((&last.id, &last.context), (&first.id, &first.context));
    assert_eq!(last.state, "completed");
    assert_eq!(last.asked, ["tck-multi-turn", "more", "done"]);

    let listed = route.list(&first.context).await;
    match route.version {
        Version::V1 => assert_eq!(listed.unwrap(), [(first.id.clone(), last.state)]),
        Version::V03 | Version::V01 => Refusal::NoSuchOperation.check(route, listed),
    }
    Refusal::Ended.check(route, route.send(&say("once more").to(&first.id), true).await);
}

async fn cancels(route: &Route) {
    let sent = route.send(&say("tck-cancel"), false).await.unwrap();
    let cancelled = route.cancel(&sent.id).await.unwrap();
    assert_eq!((&cancelled.id, &*cancelled.state), (&sent.id, "canceled"));
    Refusal::NotCancelable.check(route, route.cancel(&sent.id).await);
    assert_eq!(route.get(&sent.id).await.unwrap().state, "canceled");
}

async fn refuses(route: &Route) {
    let nobody = uuid();
    Refusal::NoSuchTask.check(route, route.get(&nobody).await);
    Refusal::NoSuchTask.check(route, route.cancel(&nobody).await);
    Refusal::BadMessage.check(route, route.send(&say(""), true).await);
    Refusal::NoSuchOperation.check(route, route.nothing().await);
}

// proves: EQV-001, EQV-002, EQV-004, EQV-005
#[tokio::test]
async fn one_scenario_works_over_every_binding_and_version() {
    let herald = Herald::start(Options::config(CONFORMANCE_FIRST)).await;
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
    let routes = Route::network(&herald).await;
    assert_eq!(routes.len(), 10);
    for route in &routes {
        let offers = card["supportedInterfaces"].as_array().unwrap().iter();
        let mut offers = offers.map(|one| (&one["protocolBinding"], &one["protocolVersion"]));
        if let Some((binding, version)) = route.interface() {
            assert!(offers.any(|found| found == (&binding.into(), &version.into())), "{route}");
        }
        scenario(route).await;
    }
    let pipe = Pipe::with(tempfile::tempdir().unwrap(), &Options::config(CONFORMANCE_FIRST));
    for route in &Route::stdio(pipe) {
        scenario(route).await;
    }
}

// proves: EQV-003
#[tokio::test]
async fn one_task_is_the_same_over_every_binding_and_version() {
    let data = tempfile::tempdir().unwrap();
    let options = Options::config(CONFORMANCE_FIRST).data(data.path());
    let mut herald = Herald::start(options.clone()).await;
    let routes = Route::network(&herald).await;

    // The task is created over the first route, followed over all, and continued over each of the
    // others in turn.
    let made = routes[0].send(&say("tck-multi-turn"), true).await.unwrap();
    let mut followed = Vec::new();
    for route in &routes {
        followed.push(route.watch(Watch::After(&made.id, 0)).await);
    }
    for (index, route) in routes.iter().enumerate().skip(1) {
        let seen = route.send(&say(&format!("turn {index}")).to(&made.id), true).await.unwrap();
        assert_eq!((&seen.context, &*seen.state), (&made.context, "input-required"), "{route}");
    }
    // Then it works, and is cancelled after its first output.
    let work = say("tck-stream-chunked chunks=10000 delay_ms=20").to(&made.id);
    routes[2].send(&work, false).await.unwrap();
    let mut log = Vec::new();
    while !matches!(log.last(), Some(Event { step: Step::Piece(_), .. })) {
        log.extend(followed[0].take(1).await);
    }
    assert_eq!(routes[4].cancel(&made.id).await.unwrap().state, "canceled");

    let mut followed = followed.into_iter();
    log.extend(followed.next().unwrap().rest().await);
    for (route, events) in routes[1..].iter().zip(followed) {
        assert_eq!(events.rest().await, log, "{route}");
    }
    let asks = |step: &&Step| matches!(step, Step::Status(state, _) if state == "input-required");
    let told = steps(&log);
    assert_eq!(told.iter().filter(asks).count(), routes.len(), "{told:?}");
    assert_eq!(told.last(), Some(&status("canceled", "")));
    let whole = routes[5].get(&made.id).await.unwrap();
    assert_eq!((&*whole.state, whole.asked.len()), ("canceled", routes.len() + 1));
    let pieces = told.iter().filter_map(|step| match step {
        Step::Piece(text) => Some(text),
        Step::Task(_) | Step::Status(..) => None,
    });
    assert!(pieces.eq(&whole.texts), "{told:?} {whole:?}");
    let same = async |route: &Route| {
        assert_eq!(route.get(&made.id).await.unwrap(), whole, "{route}");
        assert_eq!(route.watch(Watch::After(&made.id, 0)).await.rest().await, log, "{route}");
    };
    for route in &routes {
        same(route).await;
    }

    // The data belongs to one process at a time, so the pipe comes after the port.
    drop(routes);
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    for route in &Route::stdio(Pipe::with(tempfile::tempdir().unwrap(), &options)) {
        same(route).await;
    }
}
