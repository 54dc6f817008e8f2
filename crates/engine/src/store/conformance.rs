//! Conformance suite of [`Store`]: checks that every implementation must pass.

#![expect(clippy::unwrap_used, reason = "a failed check panics")]

mod api_keys;
mod append;
mod audit;
mod changes;
mod feed;
mod list;
mod log;
mod members;
mod owners;
mod read;
mod registrations;
mod shared;
mod sweep;
mod turns;
mod webhooks;

use std::{ops::AsyncFn, sync::Arc};

use bytes::Bytes;
use herald_protocol::{Seq, TaskState, Timestamp};

use super::{
    Actor, Append, Dedup, DueQuery, Header, Key, Kind, MemberId, MemberKind, Owner, Run, Snapshot,
    Store, TaskVersion,
};

/// Prints the name of the running check when it panics.
struct RunningCheck(&'static str);

impl Drop for RunningCheck {
    #[expect(
        clippy::print_stderr,
        reason = "the name of a failed check must be visible without a subscriber"
    )]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this check of the store failed: {}", self.0);
        }
    }
}

macro_rules! checks {
    ($make:ident: $($module:ident::{$($check:ident),* $(,)?}),* $(,)?) => {
        $($({
            let _named = RunningCheck(stringify!($check));
            let store: Arc<dyn Store> = Arc::new($make().await);
            join(&*store, LIVING).await;
            Box::pin($module::$check(store)).await;
        })*)*
    };
}

/// Runs every check, each on a new and empty store from `make`, with [`LIVING`] as a member.
///
/// # Panics
///
/// If a check fails.
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
            a_change_without_an_event_changes_the_version,
            a_lost_claim_is_fenced,
            events_without_a_header_change_are_counted,
            a_snapshot_shortens_the_log_to_load,
            a_load_with_a_known_version_returns_only_later_events,
            an_idempotency_key_is_registered_once,
            a_refused_append_registers_no_key,
            a_later_message_has_its_own_key,
            fifty_retries_at_once_have_one_winner,
            writers_of_one_task_win_one_at_a_time,
            a_thousand_tasks_at_once_are_all_written,
            big_bodies_are_stored_unchanged,
            unusual_names_are_stored_unchanged,
            owners_do_not_see_each_other,
            the_secret_is_stable_and_a_probe_changes_nothing,
        },
        read::{
            a_log_is_read_in_pages,
            a_log_is_closed_when_it_has_ended,
            a_direct_answer_closes_its_log,
            an_unknown_log_is_empty_and_closed,
            big_events_are_all_read,
        },
        log::{
            a_log_has_the_times_and_causes_of_its_events,
            a_big_log_is_read_in_small_pages,
            times_and_causes_are_removed_with_their_task,
        },
        feed::{
            a_feed_is_in_the_order_of_the_commits,
            a_feed_can_be_filtered,
            a_feed_skips_the_events_of_other_owners,
            a_feed_never_shows_a_hidden_log,
            a_feed_keeps_its_end_after_events_are_removed,
            a_feed_of_big_events_comes_in_small_pages,
            a_feed_of_a_tenant_has_the_events_of_all_its_owners,
        },
        list::{
            a_list_matches_its_filters,
            a_page_continues_where_the_last_one_ended,
            a_changed_task_moves_to_the_front,
            a_hidden_task_is_listed_once_it_is_shown,
            artifacts_are_left_out_unless_asked_for,
            a_running_task_is_listed_with_its_events,
            a_conversation_history_is_in_the_order_of_acceptance,
            a_conversation_history_respects_its_size_limit,
        },
        turns::{
            a_task_is_due_until_a_member_holds_it,
            tasks_of_a_dead_member_are_due,
            the_oldest_task_is_due_first,
            owners_take_turns,
            a_higher_priority_is_due_first,
            a_task_is_due_for_workers_with_its_labels,
            a_task_is_due_for_workers_of_its_tenant,
            the_number_of_label_sets_is_limited,
            serial_tasks_are_due_in_the_order_of_their_messages,
            a_serial_conversation_has_one_turn,
            an_agent_that_is_not_serial_has_several_turns_per_conversation,
            a_paused_task_is_found_after_its_timeout,
            a_queued_task_is_found_after_its_deadline,
        },
        members::{
            only_members_can_write,
            a_heartbeat_returns_all_living_members,
            a_member_that_sends_heartbeats_is_not_marked_dead,
            tasks_of_a_member_are_due_when_it_leaves,
            agents_with_work_are_unserved_until_a_member_serves_them,
            a_worker_is_found_by_its_session,
            a_second_life_of_a_worker_ends_the_first,
            the_tasks_that_a_member_holds_are_found,
            a_task_of_a_holder_that_was_dead_before_its_claim_is_due,
        },
        changes::{
            a_member_is_notified_of_changes_by_others,
            a_member_is_notified_of_due_tasks,
            a_slow_member_is_notified_that_anything_may_have_changed,
            a_store_with_two_nodes_is_shared,
        },
        sweep::{
            old_tasks_are_removed_first,
            only_finished_tasks_are_removed,
            excess_tasks_are_removed_per_tenant,
            excess_bytes_are_removed_per_tenant,
            keys_are_removed_with_their_task,
            nothing_is_removed_without_a_limit,
            a_removed_owner_can_store_tasks_again,
        },
        owners::{
            owners_of_a_task_are_found_in_a_scope,
            usage_follows_the_states_of_tasks,
            owners_are_listed_in_pages,
            the_status_of_a_store_has_its_numbers,
        },
        api_keys::{
            a_key_is_found_by_its_id_and_by_its_hash,
            a_key_with_a_known_id_or_hash_is_refused,
            keys_are_listed_in_pages,
            a_key_is_revoked_once,
            the_last_use_of_a_key_is_recorded,
            all_members_are_notified_of_changed_keys,
        },
        registrations::{
            a_registration_is_found_as_it_was_stored,
            a_living_registration_is_replaced_by_its_owner_only,
            signs_of_life_are_recorded,
            unseen_workers_are_removed_and_remote_agents_stay,
            registrations_are_listed_in_pages,
            a_changed_card_is_recorded,
            all_members_are_notified_of_registrations,
        },
        audit::{
            audit_records_are_read_as_they_were_written,
            audit_records_are_filtered,
            audit_retention_keeps_the_chain,
        },
        webhooks::{
            a_webhook_is_found_as_it_was_registered,
            a_registration_with_the_same_name_replaces_or_renews,
            webhooks_have_limits,
            an_append_registers_its_webhook_or_nothing,
            a_webhook_is_claimed_once_and_released_when_it_is_done,
            an_event_during_a_claim_is_not_missed,
            a_failed_webhook_waits_for_its_time,
            a_stopped_webhook_waits_until_it_is_started_again,
            receivers_take_turns,
            webhooks_of_a_dead_member_are_ready,
            attempts_are_kept_up_to_a_number,
            a_task_with_deliveries_is_kept,
            webhooks_are_listed_in_pages,
        },
    );
}

macro_rules! shared_checks {
    ($make:ident: $($check:ident),* $(,)?) => {
        $({
            let _named = RunningCheck(stringify!($check));
            let (first, second) = $make().await;
            Box::pin(shared::$check(shared::nodes(first, second).await)).await;
        })*
    };
}

/// Runs every check of two nodes on one store. `make` opens a new and empty store and returns a
/// handle for each node: two clones of one handle, or two handles that were opened separately.
///
/// # Panics
///
/// If a check fails.
pub async fn run_shared<F>(make: F)
where
    F: AsyncFn() -> (Arc<dyn Store>, Arc<dyn Store>),
{
    shared_checks!(make:
        each_task_is_claimed_by_one_node,
        a_turn_of_a_living_node_is_not_due,
        one_node_takes_over_from_a_dead_one,
        a_node_that_is_marked_dead_cannot_write,
        a_conversation_has_one_turn_on_both_nodes,
        a_node_follows_what_the_other_writes,
        both_nodes_write_one_log,
        a_send_to_both_nodes_is_stored_once,
        agents_of_the_other_node_are_served,
        a_feed_misses_no_event_of_either_node,
        a_paused_task_has_the_time_of_its_pause,
        a_key_that_one_node_revokes_is_revoked_on_both,
        both_nodes_write_one_audit_log,
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

/// The first message of a task, not claimed yet.
fn create(key: Key, now: i64) -> Append {
    let run = Run { unread: vec![1], ..Run::default() };
    let header = Header { bytes: 5, run, ..header(TaskState::Submitted, now) };
    let events = vec![(Kind::Received(TaskState::Submitted), body("hello"))];
    Append {
        key,
        expect: TaskVersion::default(),
        fence: None,
        writer: LIVING,
        node: None,
        header,
        events,
        snapshot: None,
        dedup: None,
        webhook: None,
        cause: Actor::Caller.into(),
        demands: None,
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
        node: None,
        header,
        events,
        snapshot,
        dedup: None,
        webhook: None,
        cause: Actor::Agent.into(),
        demands: None,
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

/// A task that began and ended at this time.
async fn finished(store: &dyn Store, key: Key, now: i64) {
    store.append(create(key.clone(), now)).await.unwrap();
    store.append(finish(key, now)).await.unwrap();
}

/// The claim of the task of [`create`].
fn claim(key: Key, holder: MemberId) -> Append {
    let run = Run { turn: 1, attempt: 1, epoch: 1, holder: Some(holder), ..Run::default() };
    let header = Header { run, ..header(TaskState::Working, 1) };
    Append { expect: TaskVersion::new(1, 0), header, events: vec![], ..create(key, 1) }
}

async fn due(store: &dyn Store, agent: &str, limit: usize) -> Vec<String> {
    let due = store.due(DueQuery::new(&agent.into(), limit)).await.unwrap();
    due.into_iter().map(|due| due.key.task.to_string()).collect()
}

async fn join(store: &dyn Store, member: MemberId) {
    store.join(member, MemberKind::Node, "node").await.unwrap();
}

/// Declares a member dead that has sent no heartbeat.
async fn die(store: &dyn Store, member: MemberId) {
    assert_eq!(store.mark_dead(member, 0).await, Ok(true));
}

/// The member that writes, and two that join in some checks.
const LIVING: MemberId = MemberId(0x11);
const OTHER: MemberId = MemberId(0x22);
const DEAD: MemberId = MemberId(0x99);
