//! Conformance suite of [`Store`]: checks that every implementation must pass.

#![expect(clippy::unwrap_used, reason = "a broken promise is to panic")]

mod append;
mod changes;
mod feed;
mod list;
mod log;
mod members;
mod read;
mod shared;
mod sweep;
mod turns;

use std::{ops::AsyncFn, sync::Arc};

use bytes::Bytes;
use herald_protocol::{Seq, TaskState, Timestamp};

use super::{
    Actor, Append, Dedup, Header, Key, Kind, MemberId, MemberKind, Owner, Run, Snapshot, Store,
    TaskVersion,
};

/// Names the check that was running when a panic passes through.
struct Named(&'static str);

impl Drop for Named {
    #[expect(clippy::print_stderr, reason = "a failing check must be named, whatever is set up")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the store does not keep this promise: {}", self.0);
        }
    }
}

macro_rules! checks {
    ($make:ident: $($module:ident::{$($check:ident),* $(,)?}),* $(,)?) => {
        $($({
            let _named = Named(stringify!($check));
            let store: Arc<dyn Store> = Arc::new($make().await);
            join(&*store, LIVING).await;
            Box::pin($module::$check(store)).await;
        })*)*
    };
}

/// Runs every check, each on a fresh and empty store from `make`, which [`LIVING`] has joined.
///
/// # Panics
///
/// If the store breaks a promise.
pub async fn run<F, S>(make: F)
where
    F: AsyncFn() -> S,
    S: Store,
{
    checks!(make:
        append::{
            a_task_is_loaded_as_it_was_written,
            an_append_extends_the_log,
            an_append_without_events_changes_the_run,
            a_second_create_is_refused,
            a_stale_append_is_refused,
            a_change_without_an_event_moves_the_task,
            a_lost_claim_is_fenced,
            what_is_said_in_between_counts,
            a_snapshot_shortens_the_log_to_load,
            a_known_task_is_loaded_from_there_on,
            a_key_is_taken_once,
            a_refused_append_takes_no_key,
            a_later_message_has_a_key_of_its_own,
            fifty_retries_at_once_have_one_winner,
            writers_of_one_task_win_one_at_a_time,
            a_thousand_tasks_at_once_are_all_written,
            big_bodies_survive,
            odd_names_survive,
            owners_do_not_see_each_other,
            the_secret_stays_and_probing_changes_nothing,
        },
        read::{
            a_log_is_read_in_pages,
            a_log_is_closed_when_it_has_ended,
            a_direct_answer_closes_its_log,
            an_unknown_log_is_empty_and_closed,
            big_events_are_all_read,
        },
        log::{
            a_log_tells_who_caused_what_and_when,
            a_big_log_is_read_in_small_pages,
            times_and_causes_go_with_their_task,
        },
        feed::{
            a_feed_is_in_the_order_of_the_commits,
            a_feed_can_be_narrowed,
            a_feed_passes_over_what_is_others,
            a_feed_never_shows_a_hidden_log,
            a_feed_knows_its_end_also_when_events_are_gone,
            a_feed_of_big_events_comes_in_small_pages,
            a_feed_of_a_tenant_has_the_events_of_all_its_owners,
        },
        list::{
            a_list_is_what_its_filters_say,
            a_page_continues_where_the_last_one_ended,
            a_changed_task_moves_to_the_front,
            a_hidden_task_is_listed_once_it_is_shown,
            artifacts_are_left_out_unless_asked_for,
            a_running_task_is_listed_with_its_events,
            a_conversation_is_recalled_in_the_order_it_had,
            a_conversation_is_recalled_as_far_back_as_fits,
        },
        turns::{
            work_is_due_until_somebody_holds_it,
            what_a_dead_member_held_is_due,
            the_oldest_work_is_due_first,
            serial_work_is_due_by_its_message,
            a_serial_conversation_has_one_turn,
            an_agent_that_is_not_serial_has_many_turns,
            a_paused_task_is_found_after_its_time,
        },
        members::{
            only_members_can_write,
            members_know_each_other,
            a_member_that_moves_is_not_marked_dead,
            what_a_member_held_is_due_when_it_leaves,
            agents_with_work_are_unserved_until_a_member_serves_them,
        },
        changes::{
            a_member_is_told_what_others_change,
            a_member_is_told_that_work_is_free,
            a_slow_member_is_told_to_look_at_everything,
            a_store_with_two_nodes_is_shared,
        },
        sweep::{
            old_tasks_go_first,
            only_finished_tasks_go,
            too_many_tasks_go_by_tenant,
            too_many_bytes_go_by_tenant,
            keys_go_with_their_task,
            nothing_goes_without_a_limit,
            an_owner_can_come_back,
        },
    );
}

macro_rules! shared_checks {
    ($make:ident: $($check:ident),* $(,)?) => {
        $({
            let _named = Named(stringify!($check));
            let (first, second) = $make().await;
            Box::pin(shared::$check(shared::nodes(first, second).await)).await;
        })*
    };
}

/// Runs every check of two nodes on one store. `make` opens a fresh and empty store and returns a handle
/// for each node: two clones of one, or two that were opened apart.
///
/// # Panics
///
/// If the store breaks a promise.
pub async fn run_shared<F>(make: F)
where
    F: AsyncFn() -> (Arc<dyn Store>, Arc<dyn Store>),
{
    shared_checks!(make:
        each_task_is_taken_by_one_node,
        a_turn_of_a_living_node_is_not_due,
        one_node_takes_over_from_a_dead_one,
        a_node_that_is_marked_dead_writes_no_more,
        a_conversation_has_one_turn_on_both_nodes,
        a_node_follows_what_the_other_writes,
        both_nodes_write_one_log,
        a_send_to_both_nodes_is_taken_once,
        agents_of_the_other_node_are_served,
        a_feed_misses_no_event_of_either_node,
        a_paused_task_tells_when_it_paused,
    );
}

fn owner(tenant: &str, principal: &str) -> Owner {
    Owner { tenant: tenant.into(), principal: principal.into() }
}

fn key(task: &str) -> Key {
    Key { owner: owner("acme", "ann"), task: task.into() }
}

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

fn header(state: TaskState, changed: i64) -> Header {
    Header {
        agent: "echo".into(),
        context: "chat".into(),
        state,
        changed: at(changed),
        created: at(changed),
        hidden: false,
        bytes: 0,
        run: Run::default(),
    }
}

fn body(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// A first message, not taken up yet.
fn create(key: Key, now: i64) -> Append {
    let run = Run { unread: vec![1], ..Run::default() };
    let header = Header { bytes: 5, run, ..header(TaskState::Submitted, now) };
    let events = vec![(Kind::Received(TaskState::Submitted), body("hello"))];
    Append {
        key,
        expect: TaskVersion::default(),
        fence: None,
        writer: LIVING,
        header,
        events,
        snapshot: None,
        dedup: None,
        cause: Actor::Caller.into(),
    }
}

/// The end of a task that [`create`] began.
fn finish(key: Key, now: i64) -> Append {
    let events = vec![
        (Kind::Status(TaskState::Working), body("working")),
        (Kind::Artifact, body("result")),
        (Kind::Status(TaskState::Completed), body("completed")),
    ];
    let run = Run { turn: 1, attempt: 1, epoch: 1, ..Run::default() };
    let header = Header { bytes: 27, run, ..header(TaskState::Completed, now) };
    let snapshot = Some(snapshot(4));
    Append {
        key,
        expect: TaskVersion::new(1, 0),
        fence: None,
        writer: LIVING,
        header,
        events,
        snapshot,
        dedup: None,
        cause: Actor::Agent.into(),
    }
}

fn snapshot(seq: Seq) -> Snapshot {
    Snapshot {
        seq,
        status: body("{\"state\":3}"),
        history: body("[1]"),
        metadata: Bytes::new(),
        artifacts: body("[\"a\"]"),
    }
}

fn dedup(key: u8, content: u8) -> Dedup {
    Dedup { key: [key; 32], content: [content; 32] }
}

/// A task that began and ended then.
async fn finished(store: &dyn Store, key: Key, now: i64) {
    store.append(create(key.clone(), now)).await.unwrap();
    store.append(finish(key, now)).await.unwrap();
}

/// Takes up the message of [`create`].
fn claim(key: Key, holder: MemberId) -> Append {
    let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(holder), ..Run::default() };
    let header = Header { run, ..header(TaskState::Working, 1) };
    Append { expect: TaskVersion::new(1, 0), header, events: vec![], ..create(key, 1) }
}

async fn due(store: &dyn Store, agent: &str, limit: usize) -> Vec<String> {
    let due = store.due(&agent.into(), limit).await.unwrap();
    due.into_iter().map(|due| due.key.task.to_string()).collect()
}

async fn join(store: &dyn Store, member: MemberId) {
    store.join(member, MemberKind::Node, "node").await.unwrap();
}

/// The death of a member that has sent no heartbeat.
async fn die(store: &dyn Store, member: MemberId) {
    assert_eq!(store.mark_dead(member, 0).await, Ok(true));
}

/// The member that writes, and two that join where a check needs them.
const LIVING: MemberId = MemberId(0x11);
const OTHER: MemberId = MemberId(0x22);
const DEAD: MemberId = MemberId(0x99);
