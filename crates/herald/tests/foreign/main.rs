//! Tests of the real binary with SDK clients and servers, coding agents and Python.
//!
//! The first word of a test's name is what `cargo xtask test` has to install for it: `clients`, `servers`, `coding`,
//! `python` or `install`.

#![expect(
    dead_code,
    reason = "the helpers are those of the other test binary, which uses all of them"
)]
#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they send")]
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test says what is wrong by panicking, and what it did by printing"
)]

#[path = "../../../server/tests/it/canary.rs"]
mod canary;
#[path = "../it/cli_support.rs"]
mod cli_support;
#[path = "../it/http.rs"]
mod http;
#[path = "../it/model/mod.rs"]
mod model;
#[path = "../it/upstream/passing.rs"]
mod passing;
#[path = "../it/processes.rs"]
mod processes;
#[path = "../it/conformance/report.rs"]
mod report;
#[path = "../it/support.rs"]
mod support;
#[path = "../it/tasks.rs"]
mod tasks;
#[path = "../it/wire.rs"]
mod wire;
#[path = "../it/worker_process.rs"]
mod worker_process;

mod clients;
mod clients_mcp;
mod clients_push;
mod clients_signatures;
mod clients_worker;
mod coding;
mod coding_acp;
mod coding_claude;
mod coding_codex;
mod coding_gemini;
mod coding_mcp;
mod coding_opencode;
mod install;
mod python_handler;
mod python_kit;
mod python_package;
mod python_server;
mod python_worker;
mod servers_conformance;
mod servers_other;
mod servers_upstream;
