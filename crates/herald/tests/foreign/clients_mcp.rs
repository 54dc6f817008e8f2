//! Tests of the official Python MCP SDK, over HTTP and over `herald mcp`. `cargo xtask test` installs it.

use crate::{
    clients::{python, run},
    support::{Herald, Options},
};

/// Runs every step with one version of the SDK.
async fn passes(name: &'static str) {
    let herald = Herald::start(Options::default()).await;
    let base = format!("http://{}", herald.address);
    run(python(name), &[&base, env!("CARGO_BIN_EXE_herald")]).await;
}

#[tokio::test]
async fn the_python_mcp_client_2_x_completes_tasks_over_http_and_standard_io() {
    passes("mcp2").await;
}

#[tokio::test]
async fn the_python_mcp_client_1_x_completes_tasks_over_http_and_standard_io() {
    passes("mcp1").await;
}
