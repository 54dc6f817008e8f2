//! Random commands against the rules: no sequence of them leads to an illegal history.

use herald_engine::{
    rules::{Chunk, Command, Limits, Record, apply, decide, within},
    store::Holder,
};
use herald_protocol::{TaskState, Timestamp};
use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use crate::support::{say, text};

fn command() -> impl Strategy<Value = Command> {
    let state = proptest::sample::select(TaskState::ALL.to_vec());
    prop_oneof![
        any::<bool>().prop_map(|_| Command::Receive {
            message: say("x"),
            accepted_output_modes: Vec::new(),
            metadata: None,
            trace: None,
        }),
        any::<bool>().prop_map(|_| Command::Cancel { metadata: None }),
        (0..3_u128).prop_map(|holder| Command::Begin(Holder(holder))),
        (0..3_u128).prop_map(|holder| Command::Retry(Holder(holder))),
        (0..8_u64).prop_map(Command::Take),
        state.prop_map(|state| Command::Report(state, None, None)),
        (any::<bool>(), 0..3_u8).prop_map(|(append, id)| {
            Command::Write(Chunk { artifact: text(&id.to_string(), "x"), append, last: false })
        }),
        any::<bool>().prop_map(|_| Command::Reply(say("x"))),
        any::<bool>().prop_map(|_| Command::Release),
    ]
}

proptest! {
    // proves: IMM-001, FMT-024
    #[test]
    fn no_sequence_of_commands_leads_to_an_illegal_history(
        commands in proptest::collection::vec(command(), 1..60),
        hidden in any::<bool>(),
    ) {
        let limits = Limits { events: 40, bytes: 4_000, unread: 4 };
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
            assert!(decision.run.epoch >= record.run.epoch, "a claim never goes back");
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
            assert!(record.run.unread.len() <= limits.unread);
            assert!(record.head <= limits.events + 2, "only words that end a task go past it");
            let ids: Vec<_> = record.task.artifacts.iter().flatten().map(|a| &a.artifact_id).collect();
            let unique: std::collections::HashSet<_> = ids.iter().collect();
            assert_eq!(ids.len(), unique.len());
            if record.reply.is_some() {
                assert!(record.hidden && record.is_closed());
            }
        }
    }
}
