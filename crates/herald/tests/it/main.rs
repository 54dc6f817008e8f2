//! End-to-end tests of the real binary.
//!
//! The long versions are the same code with bigger numbers: `HERALD_CRASH_ROUNDS` and
//! `HERALD_RACES`. What is random is printed and can be set: `HERALD_CRASH_SEED` and the like.
//! `TMPDIR` chooses the disk.

#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they send")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test says what is wrong by panicking, and what it did by printing"
)]

mod auth;
mod authority;
// The same canaries that the server is tested with.
#[path = "../../../server/tests/it/canary.rs"]
#[expect(dead_code, reason = "the tests of the server use the rest")]
mod canary;
mod http;
#[expect(dead_code, reason = "the other test binary uses the rest of it")]
mod model;
mod processes;
// The same receiver of webhooks that the server is tested with.
#[path = "../../../server/tests/it/receiver.rs"]
#[expect(dead_code, reason = "the tests of the server use the rest")]
mod receiver;
mod support;
mod tasks;
mod wire;
mod worker_process;

mod a2a_server;
mod adapter;
mod adapter_examples;
mod admission;
mod agent_card;
mod agents;
mod cli;
mod cli_agent;
mod cli_auth;
mod cli_card;
mod cli_hostile;
mod cli_listen;
mod cli_mcp;
mod cli_operator;
mod cli_output;
mod cli_send;
mod cli_settings;
mod cli_support;
mod cli_task;
mod cli_tools;
mod cli_trust;
mod cli_webhook;
mod coding;
mod coding_changes;
mod coding_worktrees;
mod config_schema;
mod conformance;
mod conversation;
mod crash;
mod crash_asking;
mod disk;
mod doctor;
mod drain;
mod exec;
mod faults;
mod llm;
mod logs;
mod memory;
mod pages;
mod pages_workers;
mod push;
mod push_crash;
mod push_servers;
mod resume;
mod roles;
mod scenario;
mod seeds;
mod server_card;
mod stdio;
mod tls;
mod traces;
mod upstream;
mod worker;
mod worker_crash;
