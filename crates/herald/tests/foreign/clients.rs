//! Tests of the official SDK clients and google-adk against the real binary. `cargo xtask test` installs them.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::Command;

use crate::{
    http::Call,
    support::{Herald, Options, ended_within},
};

pub(crate) const CONFIG: &str = r#"
[[agents]]
name = "conformance"
kind = "conformance"
default = true
"#;

/// The time limit of one client on a busy machine.
const LIMIT: Duration = Duration::from_secs(300);

/// One client and the command that drives it.
pub(crate) struct Official {
    name: &'static str,
    program: PathBuf,
    pub(crate) script: Option<PathBuf>,
}

fn installed() -> PathBuf {
    let directory = env::var_os("HERALD_TEST_CLIENTS");
    directory.expect("the official clients are not installed; run `cargo xtask test`").into()
}

pub(crate) fn python(name: &'static str) -> Official {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
    let script = Some(sources.join(name).join("scenario.py"));
    Official { name, program: installed().join(name).join("bin/python"), script }
}

pub(crate) fn javascript(name: &'static str) -> Official {
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

pub(crate) async fn run(official: Official, arguments: &[&str]) {
    let run = Command::new(&official.program)
        .args(&official.script)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(LIMIT, run).await.expect("the client does not end").unwrap();
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

/// The members of early servers are in the card beside those of the protocol, twice under another spelling.
const EARLY_MEMBERS: &str = "[card]\nlegacy_snake_case = true\n";

/// Runs the scenario with a card that has the members of early servers.
async fn reads_early_members(official: Official) {
    let herald = Herald::start(Options::config(format!("{CONFIG}{EARLY_MEMBERS}"))).await;
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
    assert_eq!(card["capabilities"]["push_notifications"], true, "{card}");
    run(official, &[&format!("http://{}", herald.address), "--transport", "jsonrpc"]).await;
}

#[tokio::test]
async fn the_python_client_1_x_reads_a_card_with_the_members_of_early_servers() {
    reads_early_members(python("python1")).await;
}

#[tokio::test]
async fn the_javascript_client_1_x_reads_a_card_with_the_members_of_early_servers() {
    reads_early_members(javascript("js1")).await;
}

/// The gRPC client of this release sends a metadata key that gRPC refuses; later ones do not.
#[tokio::test]
async fn the_python_client_0_3_22_works() {
    for transport in ["jsonrpc", "rest"] {
        let script = python("python03").script;
        passes(Official { script, ..python("python0322") }, transport).await;
    }
}

#[tokio::test]
async fn google_adk_calls_a_server_with_default_settings() {
    let herald = Herald::start(Options::default()).await;
    run(python("adk"), &[&format!("http://{}", herald.address)]).await;
}

/// The client of selectools 1.3.0 posts to `/a2a` and reads the card of 0.2.
#[tokio::test]
async fn the_selectools_client_works() {
    let token = "canary-7c5e-selectools";
    let config = format!(
        "[auth]\ntokens = [{{ token = \"{token}\", tenant = \"acme\", principal = \"ci\" }}]\n"
    );
    let agent = "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n";
    let herald = Herald::start(Options::config(format!("{config}{agent}"))).await;
    run(python("selectools"), &[&format!("http://{}", herald.address), token]).await;
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

fn files(directory: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { [path].into() };
    entries.flat_map(below).collect()
}

#[tokio::test]
async fn installing_the_python_helper_leaves_no_files_in_its_sources() {
    let place = tempfile::tempdir().unwrap();
    // From a copy, since other tests use the sources at the same time.
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python");
    let (copy, home) = (place.path().join("python"), place.path().join("home"));
    for file in files(&sources).iter() {
        let file = file.strip_prefix(&sources).unwrap();
        fs::create_dir_all(copy.join(file).parent().unwrap()).unwrap();
        fs::copy(sources.join(file), copy.join(file)).unwrap();
    }
    let before = files(&copy);
    let mut pip = Command::new(python("python1").program);
    // The build backend is among the requirements of python1: nothing is downloaded here.
    pip.args(["-m", "pip", "install", "--no-build-isolation", "--no-index", "--no-deps"]);
    pip.arg("--disable-pip-version-check").arg("--target").arg(&home).arg(&copy);
    let installed = ended_within(pip, LIMIT).await;
    assert!(installed.status.success(), "{installed:?}");
    assert_eq!(files(&copy), before);
    assert!(home.join("herald/handler.py").exists(), "{installed:?}");
    assert!(home.join("agent_worker/worker.py").exists(), "{installed:?}");
    let mut import = Command::new(python("python1").program);
    import.args(["-c", "import agent_worker, herald; print(herald.TaskHandler.__name__)"]);
    import.env("PYTHONPATH", &home);
    let imported = ended_within(import, LIMIT).await;
    assert_eq!(imported.stdout, "TaskHandler\n", "{imported:?}");
}
