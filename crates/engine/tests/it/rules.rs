//! Property tests of the rules: no sequence of commands leads to an illegal history.

use herald_engine::{
    rules::{Chunk, Command, Record, TaskLimits, apply, decide, within},
    store::MemberId,
};
use herald_protocol::{TaskState, Timestamp};
use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use crate::support::{say, text};

fn receive(dead: Option<MemberId>) -> Command {
    Command::Receive {
        message: say("x").into(),
        accepted_output_modes: Vec::new(),
        metadata: None,
        trace: None,
        question: None,
        dead,
    }
}

/// The task after these commands.
fn after(commands: impl IntoIterator<Item = Command>) -> Record {
    let now = Timestamp::from_millis(0);
    let mut record = Record::new("t".into(), "c".into(), "a".into(), false, now);
    for command in commands {
        let decision = decide(&record, command, &TaskLimits::default(), now).unwrap();
        record.run = decision.run;
        if let Some(event) = decision.event {
            apply(&mut record, event, 10);
        }
    }
    record
}

const DEAD: MemberId = MemberId(1);
const LIVING: MemberId = MemberId(2);

/// A turn of this holder that has reported this state.
fn reported(holder: MemberId, state: TaskState) -> Vec<Command> {
    vec![receive(None), Command::Begin(holder), Command::Report(state, None, None)]
}

#[test]
fn an_answer_releases_the_turn_that_asked_if_its_holder_is_dead() {
    for state in [TaskState::InputRequired, TaskState::AuthRequired] {
        let asked = reported(DEAD, state);
        assert!(after(asked.clone()).is_free(Some(DEAD)));
        let answer = [receive(Some(DEAD)), Command::Begin(LIVING)];
        let record = after(asked.into_iter().chain(answer));
        let run = &record.run;
        assert_eq!((run.turn, run.attempt, run.holder), (4, 1, Some(LIVING)), "{run:?}");
        assert_eq!((record.state(), run.unread.len()), (TaskState::Working, 0));
    }
}

#[test]
fn an_answer_leaves_alone_the_turn_that_asked_if_its_holder_lives() {
    let asked = reported(LIVING, TaskState::InputRequired);
    assert!(!after(asked.clone()).is_free(None));
    let run = after(asked.into_iter().chain([receive(None), Command::Begin(LIVING)])).run;
    assert_eq!((run.turn, run.holder, run.unread), (1, Some(LIVING), vec![4]));
}

#[test]
fn a_message_does_not_release_a_turn_that_was_at_work_when_its_holder_died() {
    let at_work = reported(DEAD, TaskState::Working);
    let record = after(at_work.into_iter().chain([receive(Some(DEAD))]));
    assert!(!record.has_settled());
    assert_eq!((record.run.holder, record.run.unread), (Some(DEAD), vec![4]));
}

#[test]
fn a_turn_has_settled_if_its_answer_came_or_it_was_done_before_its_holder_died() {
    let answered = reported(DEAD, TaskState::InputRequired).into_iter().chain([receive(None)]);
    let done = Command::Report(TaskState::Completed, None, None);
    let done = [receive(None), Command::Begin(DEAD), receive(None), done];
    for commands in [answered.collect::<Vec<_>>(), done.to_vec()] {
        let record = after(commands.clone());
        assert!(record.has_settled() && !record.is_free(Some(DEAD)), "{record:?}");
        let run = after(commands.into_iter().chain([receive(Some(DEAD))])).run;
        assert_eq!((run.holder, run.unread.len()), (None, 2), "the older message comes first");
    }
}

#[test]
fn a_turn_that_ends_with_a_question_leaves_it_to_the_unread_message() {
    let at_work = || [receive(None), Command::Begin(LIVING), receive(None)];
    for state in [TaskState::InputRequired, TaskState::AuthRequired] {
        let ends = after(at_work().into_iter().chain([Command::Report(state, None, None)]));
        assert_eq!((ends.state(), ends.has_settled()), (TaskState::Submitted, true));
        let stays = after(at_work().into_iter().chain([Command::Ask(state, None, None)]));
        assert_eq!(stays.state(), state, "the unread message has to wait for the answer");
    }
    let now = Timestamp::from_millis(0);
    for state in TaskState::ALL.into_iter().filter(|state| !state.is_interrupted()) {
        let ask = Command::Ask(state, None, None);
        decide(&after(at_work()), ask, &TaskLimits::default(), now).unwrap_err();
    }
}

#[test]
fn an_interim_question_keeps_the_turn_and_needs_no_answer() {
    let at_work = || [receive(None), Command::Begin(LIVING), receive(None)];
    for state in TaskState::ALL {
        let interim = Command::Interim(state, None, None);
        let now = Timestamp::from_millis(0);
        let decided = decide(&after(at_work()), interim.clone(), &TaskLimits::default(), now);
        assert_eq!(decided.is_ok(), state.is_interrupted(), "{state:?}");
        if decided.is_err() {
            continue;
        }
        let waits = after(at_work().into_iter().chain([interim]));
        assert_eq!((waits.state(), waits.run.holder), (state, Some(LIVING)));
        let working = Command::Report(TaskState::Working, None, None);
        let interim = Command::Interim(state, None, None);
        let goes_on = after(at_work().into_iter().chain([interim, working]));
        assert_eq!(goes_on.state(), TaskState::Working);
    }
}

#[test]
fn a_question_expires_only_if_it_is_still_the_same() {
    let expire = |since| Command::Expire {
        since: Timestamp::from_millis(since),
        queued: false,
        message: say("too late").into(),
    };
    let mut asked = reported(LIVING, TaskState::InputRequired);
    asked.push(Command::Release);
    let expired = |commands: Vec<Command>, since| {
        after(commands.into_iter().chain([expire(since)])).state() == TaskState::Failed
    };
    assert!(expired(asked.clone(), 0));
    assert!(!expired(asked.clone(), 1), "a later question");
    asked.push(receive(None));
    assert!(!expired(asked, 0), "the answer came first");
    assert!(!expired(reported(LIVING, TaskState::InputRequired), 0), "its turn still waits");
}

#[test]
fn a_returned_turn_comes_first_and_its_attempt_does_not_count() {
    let piece = |id: &str| {
        Command::Write(Chunk { artifact: text(id, "x").into(), append: false, last: false })
    };
    let begun = [receive(None), Command::Begin(DEAD), piece("half"), receive(None)];
    let returned = after(begun.iter().cloned().chain([Command::Return]));
    assert_eq!((returned.run.holder, &returned.run.unread), (None, &vec![1, 4]));
    assert!(!returned.is_free(None) && returned.run.is_active());
    let before = after(begun.iter().cloned());
    assert_eq!(returned.run.epoch, before.run.epoch + 1);
    assert_eq!(returned.head, before.head, "it has no event");
    let again = after(begun.iter().cloned().chain([Command::Return, Command::Begin(LIVING)]));
    let run = &again.run;
    assert_eq!((run.turn, run.attempt, run.holder), (1, 1, Some(LIVING)));
    assert!(run.returned);
    assert_eq!((&run.unread, run.kept), (&vec![4], 0), "the artifacts of the attempt are replaced");
    // The second attempt, returned, is still the second.
    let retry = Command::Retry { me: LIVING, from: DEAD };
    let second = [retry, Command::Return, Command::Begin(LIVING)];
    assert_eq!(after(begun.into_iter().chain(second)).run.attempt, 2);
}

#[test]
fn a_submitted_task_goes_straight_to_working_rejected_or_auth_required() {
    let admission = || [receive(None), Command::Admit(LIVING)];
    let held = after(admission());
    assert!(held.is_in_admission());
    assert_eq!((held.state(), held.head, &held.run.unread), (TaskState::Submitted, 1, &vec![1]));
    for (decision, state, holder) in [
        (Command::Admitted, TaskState::Working, Some(LIVING)),
        (Command::Decline(TaskState::Rejected, None), TaskState::Rejected, None),
        (Command::Decline(TaskState::AuthRequired, None), TaskState::AuthRequired, None),
    ] {
        let record = after(admission().into_iter().chain([decision]));
        assert_eq!((record.state(), record.head), (state, 2), "one event after the message");
        assert_eq!((record.run.holder, record.run.turn), (holder, 1));
        assert!(record.run.unread.is_empty() && !record.is_in_admission());
    }
    let now = Timestamp::from_millis(0);
    for state in TaskState::ALL {
        let declined = decide(&held, Command::Decline(state, None), &TaskLimits::default(), now);
        let may = matches!(state, TaskState::Rejected | TaskState::AuthRequired);
        assert_eq!(declined.is_ok(), may, "{state:?}");
    }
}

#[test]
fn an_admission_whose_holder_died_keeps_its_message() {
    let held = [receive(None), Command::Admit(DEAD)];
    for after_death in [vec![Command::Release], vec![receive(Some(DEAD))]] {
        let record = after(held.iter().cloned().chain(after_death));
        assert_eq!((record.run.holder, record.run.unread.first()), (None, Some(&1)), "{record:?}");
    }
    let again = [Command::Release, Command::Admit(LIVING)];
    let again = after(held.iter().cloned().chain(again));
    assert_eq!((again.run.attempt, again.run.turn), (2, 1), "the attempts are counted");
    let begun = after(held.into_iter().chain([Command::Admitted, receive(None)]));
    assert_eq!((begun.run.attempt, &begun.run.unread), (1, &vec![3]));
}

#[test]
fn a_declined_message_leaves_the_task_to_the_next_one() {
    let two = [receive(None), Command::Admit(LIVING), receive(None)];
    let asked = Command::Decline(TaskState::AuthRequired, None);
    let record = after(two.iter().cloned().chain([asked]));
    assert_eq!((record.state(), record.run.holder), (TaskState::Submitted, None));
    assert_eq!(record.run.unread, [2]);
    let rejected = after(two.into_iter().chain([Command::Decline(TaskState::Rejected, None)]));
    assert!(rejected.is_closed() && !rejected.run.is_active());
}

#[test]
fn a_turn_that_nobody_holds_cannot_be_returned() {
    let waits = after([receive(None)]);
    let now = Timestamp::from_millis(0);
    let decision = decide(&waits, Command::Return, &TaskLimits::default(), now).unwrap();
    assert_eq!((decision.event, decision.run), (None, waits.run));
    let ended = after(reported(LIVING, TaskState::Completed));
    decide(&ended, Command::Return, &TaskLimits::default(), now).unwrap_err();
}

#[test]
fn the_times_of_a_task_never_run_backwards() {
    let record = after(reported(LIVING, TaskState::Working));
    let at = |millis| Timestamp::from_millis(millis);
    let decision = decide(&record, receive(None), &TaskLimits::default(), at(-5_000)).unwrap();
    let mut next = record;
    apply(&mut next, decision.event.unwrap(), 10);
    assert_eq!(next.task.status.timestamp, Some(at(0)));
}

fn command() -> impl Strategy<Value = Command> {
    let state = proptest::sample::select(TaskState::ALL.to_vec());
    prop_oneof![
        proptest::option::of(0..3_u128).prop_map(|dead| receive(dead.map(MemberId))),
        any::<bool>().prop_map(|_| Command::Cancel { metadata: None }),
        (0..3_u128).prop_map(|holder| Command::Begin(MemberId(holder))),
        ((0..3_u128), (0..3_u128))
            .prop_map(|(me, from)| Command::Retry { me: MemberId(me), from: MemberId(from) }),
        (0..3_u128).prop_map(|holder| Command::Admit(MemberId(holder))),
        any::<bool>().prop_map(|_| Command::Admitted),
        proptest::sample::select(TaskState::ALL.to_vec())
            .prop_map(|state| Command::Decline(state, None)),
        (0..8_u64).prop_map(Command::Take),
        (state, 0..3_u8).prop_map(|(state, way)| match way {
            0 => Command::Ask(state, None, None),
            1 => Command::Interim(state, None, None),
            _ => Command::Report(state, None, None),
        }),
        (any::<bool>(), 0..3_u8).prop_map(|(append, id)| {
            Command::Write(Chunk {
                artifact: text(&id.to_string(), "x").into(),
                append,
                last: false,
            })
        }),
        any::<bool>().prop_map(|_| Command::Reply(say("x").into())),
        any::<bool>().prop_map(|_| Command::Release),
        any::<bool>().prop_map(|_| Command::Return),
        (0..2_i64, any::<bool>()).prop_map(|(at, queued)| Command::Expire {
            since: Timestamp::from_millis(at),
            queued,
            message: say("x").into(),
        }),
    ]
}

proptest! {
    // proves: IMM-001, FMT-024
    #[test]
    fn no_sequence_of_commands_leads_to_an_illegal_history(
        commands in proptest::collection::vec(command(), 1..60),
        hidden in any::<bool>(),
    ) {
        let limits = TaskLimits { events: 40, bytes: 4_000, unread: 4 };
        let now = Timestamp::from_millis(0);
        let mut record = Record::new("t".into(), "c".into(), "a".into(), hidden, now);
        let mut ended = None;
        for command in commands {
            let before = record.clone();
            let Ok(decision) = decide(&record, command.clone(), &limits, now) else {
                continue;
            };
            assert!(ended.is_none(), "{command:?} after the end");
            if decision.limited && within(&record, 10, &limits).is_err() {
                continue;
            }
            assert!(decision.run.epoch >= record.run.epoch, "the epoch never decreases");
            if decision.event.is_none() && decision.run != record.run {
                assert!(decision.run.epoch > record.run.epoch, "{command:?} keeps the version");
            }
            if let Command::Retry { from, .. } = &command
                && before.run.holder != Some(*from)
            {
                assert_eq!(decision.run, before.run, "a turn was taken from a living member");
            }
            if let Command::Admit(_) | Command::Return | Command::Release = &command {
                assert!(before.run.unread.iter().all(|seq| decision.run.unread.contains(seq)));
            }
            if let Command::Receive { dead, .. } = &command {
                let (held, kept) = (before.run.holder, decision.run.holder);
                let released = held.is_some() && kept.is_none();
                assert_eq!(released, before.has_settled() && held == *dead, "{before:?}");
                assert!(released || held == kept, "a message claims nothing");
            }
            record.run = decision.run;
            record.hidden &= !decision.unhide;
            if let Some(event) = decision.event {
                apply(&mut record, event, 10);
                assert_eq!(record.head, before.head + 1);
            }
            if record.is_closed() {
                ended = Some(record.state());
                assert!(!record.run.is_active(), "nothing is left to do");
            }
            // A returned turn waits beside as many messages as may wait.
            assert!(record.run.unread.len() <= limits.unread + 1);
            if command == Command::Return && before.run.holder.is_some() && !before.is_in_admission() {
                assert_eq!(record.run.unread.first(), Some(&before.run.turn));
                assert_eq!(record.run.unread.len(), before.run.unread.len() + 1);
                assert!(record.run.holder.is_none() && record.run.attempt < before.run.attempt.max(1));
            }
            assert!(record.head <= limits.events + 2, "only events that end a task exceed the limit");
            let ids: Vec<_> = record.task.artifacts.iter().flatten().map(|a| &a.artifact_id).collect();
            let unique: std::collections::HashSet<_> = ids.iter().collect();
            assert_eq!(ids.len(), unique.len());
            if record.reply.is_some() {
                assert!(record.hidden && record.is_closed());
            }
        }
    }
}
