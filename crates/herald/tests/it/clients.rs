//! The official SDK clients against the real binary. `cargo xtask test` installs them.

use std::{env, path::PathBuf, process::Stdio};

use tokio::process::Command;

use crate::support::{Herald, Options};

const CONFIG: &str = r#"
[[agents]]
name = "conformance"
kind = "conformance"
default = true
"#;

/// One client and the command that drives it.
struct Official {
    name: &'static str,
    program: PathBuf,
    script: Option<PathBuf>,
}

fn installed() -> PathBuf {
    let directory = env::var_os("HERALD_TEST_CLIENTS");
    directory.expect("the official clients are not installed; run `cargo xtask test`").into()
}

fn python(name: &'static str) -> Official {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
    let script = Some(sources.join(name).join("scenario.py"));
    Official { name, program: installed().join(name).join("bin/python"), script }
}

fn javascript(name: &'static str) -> Official {
    let script = Some(installed().join(name).join("scenario.mjs"));
    Official { name, program: "node".into(), script }
}

fn rust() -> Official {
    let program = installed().join("rust/official-rust-client");
    Official { name: "rust", program, script: None }
}

/// Runs every step of the scenario over one transport; each step must pass.
async fn passes(official: Official, transport: &str) {
    let herald = Herald::start(Options::config(CONFIG)).await;
    let base = format!("http://{}", herald.address);
    run(official, &[&base, "--transport", transport]).await;
}

async fn run(official: Official, arguments: &[&str]) {
    let run = Command::new(&official.program)
        .args(&official.script)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let limit = std::time::Duration::from_secs(120);
    let output = tokio::time::timeout(limit, run).await.expect("the client does not end").unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    let told = format!("{} {arguments:?}:\n{said}\n{complained}", official.name);
    assert!(output.status.success(), "{told}");
    assert!(said.contains(" passed, 0 failed"), "{told}");
}

// proves: FMT-025, EQV-001, EQV-002, CARD-005
#[tokio::test]
async fn the_python_client_1_x_works() {
    passes(python("python1"), "jsonrpc").await;
    passes(python("python1"), "rest").await;
    passes(python("python1"), "grpc").await;
}

// proves: FMT-019, EQV-004
#[tokio::test]
async fn the_python_client_0_3_works() {
    passes(python("python03"), "jsonrpc").await;
    passes(python("python03"), "rest").await;
    passes(python("python03"), "grpc").await;
}

#[tokio::test]
async fn a_tool_without_the_protobuf_files_can_call_by_reflection() {
    let config = format!("{CONFIG}\n[grpc]\nreflection = true\n");
    let herald = Herald::start(Options::config(&config)).await;
    let mut tool = python("python1");
    tool.script = tool.script.map(|script| script.with_file_name("reflection.py"));
    run(tool, &[&herald.address.to_string()]).await;
}

#[tokio::test]
async fn the_javascript_client_1_x_works() {
    passes(javascript("js1"), "jsonrpc").await;
    passes(javascript("js1"), "rest").await;
    passes(javascript("js1"), "grpc").await;
}

#[tokio::test]
async fn the_javascript_client_0_3_works() {
    passes(javascript("js03"), "jsonrpc").await;
    passes(javascript("js03"), "rest").await;
    passes(javascript("js03"), "grpc").await;
}

#[tokio::test]
async fn the_rust_client_works() {
    passes(rust(), "jsonrpc").await;
    passes(rust(), "rest").await;
}
