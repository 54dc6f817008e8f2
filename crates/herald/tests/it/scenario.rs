//! One scenario through every door: each binding in each version it has.

mod door;
mod grpc;
mod session;

use door::{Binding, Door, Event, Step, Version, Watch};

use crate::{
    http::Call,
    stdio::{CONFORMANCE_FIRST, Pipe},
    support::{Herald, Options, SOON, uuid},
    wire::{Draft, Fault},
};

/// Why a call was refused, before it is put in the words of a binding and a version.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    NoSuchTask,
    NotCancelable,
    Ended,
    BadMessage,
    NoSuchOperation,
}

impl Refusal {
    /// The number and the reason that this door must give. They stand here in full, so that the
    /// server's own table is not compared with itself.
    fn at(self, door: &Door) -> (i64, &'static str) {
        let (rpc, rpc_v01, http, grpc, reason) = match self {
            Self::NoSuchTask => (-32001, -32001, 404, 5, "TASK_NOT_FOUND"),
            Self::NotCancelable => (-32002, -32002, 400, 9, "TASK_NOT_CANCELABLE"),
            Self::Ended => (-32004, -32009, 400, 9, "UNSUPPORTED_OPERATION"),
            Self::BadMessage => (-32602, -32602, 400, 3, "INVALID_PARAMS"),
            Self::NoSuchOperation => (-32601, -32601, 404, 12, "METHOD_NOT_FOUND"),
        };
        let number = match door.binding {
            Binding::JsonRpc | Binding::WebSocket | Binding::Stdio => match door.version {
                Version::V1 | Version::V03 => rpc,
                Version::V01 => rpc_v01,
            },
            Binding::Rest => http,
            Binding::Grpc => grpc,
        };
        (number, reason)
    }

    #[track_caller]
    fn check<T>(self, door: &Door, answered: Result<T, Fault>) {
        let Err(fault) = answered else { panic!("{door}: {self:?} was not refused") };
        let found = (fault.code, fault.reason.as_str());
        assert_eq!(found, self.at(door), "{door}: {self:?}: {fault:?}");
        if door.binding == Binding::Rest {
            assert_eq!(i64::from(fault.status), fault.code, "{door}: {fault:?}");
        }
        assert!(!fault.message.is_empty(), "{door}: {self:?}");
    }
}

/// A new message with these words.
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

/// The scenario. What differs between the doors is what the versions of the protocol differ in.
async fn scenario(door: &Door) {
    println!("{door}");
    sends(door).await;
    streams(door).await;
    talks(door).await;
    cancels(door).await;
    refuses(door).await;
}

async fn sends(door: &Door) {
    let done = door.send(&say("hello"), true).await.unwrap();
    assert_eq!((done.state.as_str(), &*done.texts), ("completed", &["hello".to_owned()][..]));
    assert_eq!(done.asked, ["hello"]);
    assert_eq!(door.get(&done.id).await.unwrap(), done);

    let work = "tck-long-running delay_ms=50";
    let sent = door.send(&say(work), false).await.unwrap();
    assert!(["submitted", "working"].contains(&sent.state.as_str()), "{sent:?}");
    let done = door.settled(&sent.id).await;
    assert_eq!(done.state, "completed");
    assert_eq!(done.texts, ["Long-running work is done"]);
    assert_eq!((done.id, done.context), (sent.id, sent.context));
}

async fn streams(door: &Door) {
    let begin = match door.version {
        Version::V1 | Version::V03 => Step::Task("submitted".to_owned()),
        // Its streams have no place for a task.
        Version::V01 => status("submitted", ""),
    };
    let pieces = (0..5).map(|index| Step::Piece(format!("chunk {index} ")));
    let expected: Vec<_> = [begin, status("working", "")]
        .into_iter()
        .chain(pieces)
        .chain([status("completed", "")])
        .collect();

    let work = "tck-stream-chunked chunks=5 delay_ms=20";
    let told = door.watch(Watch::Send(&say(work))).await.rest().await;
    assert_eq!(steps(&told), expected);

    // The same again, cut after the first piece and taken up where it was.
    let mut cut = door.watch(Watch::Send(&say(work))).await;
    let mut told = cut.take(3).await;
    cut.cut().await;
    let Event { task, seq, .. } = told.last().unwrap().clone();
    told.extend(door.watch(Watch::After(&task, seq)).await.rest().await);
    assert_eq!(steps(&told), expected);
    let texts = door.get(&task).await.unwrap().texts;
    assert_eq!(texts.concat(), "chunk 0 chunk 1 chunk 2 chunk 3 chunk 4 ");
}

async fn talks(door: &Door) {
    let first = door.send(&say("tck-multi-turn"), true).await.unwrap();
    assert_eq!(first.state, "input-required");
    let second = door.send(&say("more").to(&first.id), true).await.unwrap();
    assert_eq!((&second.id, &*second.state), (&first.id, "input-required"));
    let last = door.send(&say("done").to(&first.id), true).await.unwrap();
    assert_eq!((&last.id, &last.context), (&first.id, &first.context));
    assert_eq!(last.state, "completed");
    assert_eq!(last.asked, ["tck-multi-turn", "more", "done"]);

    let listed = door.list(&first.context).await;
    match door.version {
        Version::V1 => assert_eq!(listed.unwrap(), [(first.id.clone(), last.state)]),
        Version::V03 | Version::V01 => Refusal::NoSuchOperation.check(door, listed),
    }
    Refusal::Ended.check(door, door.send(&say("once more").to(&first.id), true).await);
}

async fn cancels(door: &Door) {
    let sent = door.send(&say("tck-cancel"), false).await.unwrap();
    let cancelled = door.cancel(&sent.id).await.unwrap();
    assert_eq!((&cancelled.id, &*cancelled.state), (&sent.id, "canceled"));
    Refusal::NotCancelable.check(door, door.cancel(&sent.id).await);
    assert_eq!(door.get(&sent.id).await.unwrap().state, "canceled");
}

async fn refuses(door: &Door) {
    let nobody = uuid();
    Refusal::NoSuchTask.check(door, door.get(&nobody).await);
    Refusal::NoSuchTask.check(door, door.cancel(&nobody).await);
    Refusal::BadMessage.check(door, door.send(&say(""), true).await);
    Refusal::NoSuchOperation.check(door, door.nothing().await);
}

// proves: EQV-001, EQV-002, EQV-004, EQV-005
#[tokio::test]
async fn one_scenario_passes_through_every_door() {
    let herald = Herald::start(Options::config(CONFORMANCE_FIRST)).await;
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
    let doors = Door::network(&herald).await;
    assert_eq!(doors.len(), 10);
    for door in &doors {
        let offers = card["supportedInterfaces"].as_array().unwrap().iter();
        let mut offers = offers.map(|one| (&one["protocolBinding"], &one["protocolVersion"]));
        if let Some((binding, version)) = door.interface() {
            assert!(offers.any(|found| found == (&binding.into(), &version.into())), "{door}");
        }
        scenario(door).await;
    }
    let pipe = Pipe::with(tempfile::tempdir().unwrap(), &Options::config(CONFORMANCE_FIRST));
    for door in &Door::stdio(pipe) {
        scenario(door).await;
    }
}

// proves: EQV-003
#[tokio::test]
async fn one_task_passes_through_all_doors_and_all_tell_the_same() {
    let data = tempfile::tempdir().unwrap();
    let options = Options::config(CONFORMANCE_FIRST).data(data.path());
    let mut herald = Herald::start(options.clone()).await;
    let doors = Door::network(&herald).await;

    // It is made through the first door, followed through all, and continued through each of the
    // others in turn.
    let made = doors[0].send(&say("tck-multi-turn"), true).await.unwrap();
    let mut followed = Vec::new();
    for door in &doors {
        followed.push(door.watch(Watch::After(&made.id, 0)).await);
    }
    for (index, door) in doors.iter().enumerate().skip(1) {
        let seen = door.send(&say(&format!("turn {index}")).to(&made.id), true).await.unwrap();
        assert_eq!((&seen.context, &*seen.state), (&made.context, "input-required"), "{door}");
    }
    // Then it works, and is cancelled once something has come of it.
    let work = say("tck-stream-chunked chunks=10000 delay_ms=20").to(&made.id);
    doors[2].send(&work, false).await.unwrap();
    let mut log = Vec::new();
    while !matches!(log.last(), Some(Event { step: Step::Piece(_), .. })) {
        log.extend(followed[0].take(1).await);
    }
    assert_eq!(doors[4].cancel(&made.id).await.unwrap().state, "canceled");

    let mut followed = followed.into_iter();
    log.extend(followed.next().unwrap().rest().await);
    for (door, events) in doors[1..].iter().zip(followed) {
        assert_eq!(events.rest().await, log, "{door}");
    }
    let asks = |step: &&Step| matches!(step, Step::Status(state, _) if state == "input-required");
    let told = steps(&log);
    assert_eq!(told.iter().filter(asks).count(), doors.len(), "{told:?}");
    assert_eq!(told.last(), Some(&status("canceled", "")));
    let whole = doors[5].get(&made.id).await.unwrap();
    assert_eq!((&*whole.state, whole.asked.len()), ("canceled", doors.len() + 1));
    let pieces = told.iter().filter_map(|step| match step {
        Step::Piece(text) => Some(text),
        Step::Task(_) | Step::Status(..) => None,
    });
    assert!(pieces.eq(&whole.texts), "{told:?} {whole:?}");
    let same = async |door: &Door| {
        assert_eq!(door.get(&made.id).await.unwrap(), whole, "{door}");
        assert_eq!(door.watch(Watch::After(&made.id, 0)).await.rest().await, log, "{door}");
    };
    for door in &doors {
        same(door).await;
    }

    // The data belongs to one process at a time, so the pipe comes after the port.
    drop(doors);
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    for door in &Door::stdio(Pipe::with(tempfile::tempdir().unwrap(), &options)) {
        same(door).await;
    }
}
