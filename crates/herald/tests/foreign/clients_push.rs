//! Webhooks that the official SDK clients register, and deliveries that their types accept. `cargo xtask test`
//! installs them.

use crate::{
    clients::{CONFIG, Official, javascript, python, run},
    support::{Herald, Options},
};

/// Runs the script of an SDK over every transport; each step must pass.
async fn passes(official: fn() -> Official) {
    let config = format!("{CONFIG}\n[push]\nallowed_hosts = [\"127.0.0.1\"]\n");
    let herald = Herald::start(Options::config(config)).await;
    let base = format!("http://{}", herald.address);
    for transport in ["jsonrpc", "rest", "grpc"] {
        let mut client = official();
        client.script = client.script.map(|script| {
            let extension = script.extension().unwrap_or_default().to_owned();
            script.with_file_name("push").with_extension(extension)
        });
        run(client, &[&base, "--transport", transport]).await;
    }
}

// proves: PUSH-002, PUSH-004, PUSH-005, PUSH-006, PUSH-008, PUSH-009, PUSH-010, PUSH-014, PUSH-023
#[tokio::test]
async fn the_python_sdk_1_x_registers_webhooks_and_reads_their_deliveries() {
    passes(|| python("python1")).await;
}

// proves: PUSH-015, PUSH-016, PUSH-026
#[tokio::test]
async fn the_python_sdk_0_3_registers_webhooks_and_reads_their_deliveries() {
    passes(|| python("python03")).await;
}

// proves: PUSH-002, PUSH-004, PUSH-005, PUSH-006, PUSH-008, PUSH-009, PUSH-010, PUSH-014, PUSH-023
#[tokio::test]
async fn the_javascript_sdk_1_x_registers_webhooks_and_reads_their_deliveries() {
    passes(|| javascript("js1")).await;
}

// proves: PUSH-015, PUSH-016, PUSH-026
#[tokio::test]
async fn the_javascript_sdk_0_3_registers_webhooks_and_reads_their_deliveries() {
    passes(|| javascript("js03")).await;
}
