//! Tests of the verbs that operate a server: keys, tenants, the audit log and tasks of every owner.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    cli_support::{Fake, Run, cli, response},
    http::Call,
    support::{Ended, Herald, Options, SOON, eventually},
};

/// Tokens of an administrator and of a caller.
const TOKENS: &str = r#"
[[agents]]
name = "echo"
kind = "echo"
default = true

[[agents]]
name = "conformance"
kind = "conformance"

[[auth.tokens]]
token = "admin-secret"
tenant = "ops"
principal = "root"
scopes = ["admin", "send", "read", "cancel"]

[[auth.tokens]]
token = "caller-secret"
tenant = "acme"
principal = "web"
"#;

/// A data directory with this many keys, whose server never ran.
async fn directory_with_keys(count: usize) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    for number in 0..count {
        on(&data, &["key", "create", "--principal", &format!("p{number}")]).json().await;
    }
    (home, data)
}

/// A verb with `--data`.
fn on(data: &Path, arguments: &[&str]) -> Run {
    let data = data.to_str().unwrap();
    cli(arguments.iter().copied().chain(["--data", data]))
}

/// A verb with `--server` and a token.
fn at(herald: &Herald, token: &str, arguments: &[&str]) -> Run {
    let url = format!("http://{}", herald.address);
    cli(arguments.iter().copied().chain(["--server", &url])).env("A2ACLI_BEARER", token)
}

/// The status of a call with this token.
async fn status_with(herald: &Herald, token: &str) -> u16 {
    let call = Call::get("/api").header("authorization", format!("Bearer {token}"));
    herald.call(&call).await.status
}

fn data(herald: &Herald) -> PathBuf {
    herald.database().parent().unwrap().to_owned()
}

fn worked_directly(ended: &Ended) -> bool {
    ended.stderr.contains("the server is not running; worked on ")
}

#[tokio::test]
async fn the_first_key_is_created_on_a_stopped_server() {
    let (_home, data) = directory_with_keys(0).await;
    let created = on(
        &data,
        &[
            "key",
            "create",
            "--tenant",
            "acme",
            "--principal",
            "ci",
            "--scope",
            "send,read",
            "--agent",
            "echo",
            "--skill",
            "echo",
            "--visibility",
            "tenant",
            "--expires",
            "90d",
            "--label",
            "for CI",
        ],
    )
    .json()
    .await;
    let key = created["key"].as_str().unwrap();
    assert!(key.starts_with("hrld_"), "{created}");
    let id = created["id"].as_str().unwrap();
    let shown = on(&data, &["key", "show", id]).ok().await;
    assert!(worked_directly(&shown), "{shown:?}");
    assert!(!shown.stdout.contains(key), "the secret is shown once");
    for (label, value) in [
        ("ID", id),
        ("State", "active"),
        ("Label", "for CI"),
        ("Tenant", "acme"),
        ("Principal", "ci"),
        ("Scopes", "send, read"),
        ("Agents", "echo"),
        ("Skills", "echo"),
        ("Visible Tasks", "tenant"),
        ("Last Used", "never"),
    ] {
        assert_eq!(shown.field(label), value, "{label}");
    }
    let second = on(&data, &["key", "create", "--principal", "b"]).ok().await;
    assert!(second.stderr.contains("the key is shown only now"), "{second:?}");
    let list = on(&data, &["key", "list"]).json().await;
    assert_eq!(list["keys"].as_array().unwrap().len(), 2);
    let mine = on(&data, &["key", "list", "--tenant", "acme"]).json().await;
    assert_eq!(mine["keys"][0]["id"], id);
    assert_eq!(
        (&mine["keys"][0]["agents"], &mine["keys"][0]["skills"]),
        (&json!(["echo"]), &json!(["echo"]))
    );
    let table = on(&data, &["key", "list"]).ok().await;
    assert!(table.stdout.starts_with("ID"), "{table:?}");
    assert!(table.stdout.contains("acme/ci"), "{table:?}");
    assert!(table.stdout.contains("agents echo; skills echo; tasks of tenant"), "{table:?}");
    let (_other, unlimited) = directory_with_keys(1).await;
    let unlimited = on(&unlimited, &["key", "list"]).ok().await;
    assert!(!unlimited.stdout.contains("LIMITS"), "{unlimited:?}");

    let revoked = on(&data, &["key", "revoke", id]).json().await;
    assert_eq!(revoked["state"], "revoked");
    let again = on(&data, &["key", "revoke", id]).json().await;
    assert_eq!(again["revoked"], revoked["revoked"], "a second revocation changes nothing");
    let error =
        on(&data, &["key", "show", "no-such-key"]).fails(1, "HERALD_RESOURCE_NOT_FOUND").await;
    assert!(error["hint"].as_str().unwrap().contains("herald key list"), "{error}");

    let acts = on(&data, &["audit", "list", "--action", "key."]).json().await;
    let acts: Vec<_> = acts["records"].as_array().unwrap().iter().collect();
    let names: Vec<_> = acts.iter().map(|act| act["action"].as_str().unwrap()).collect();
    assert_eq!(names, ["key.revoke", "key.create", "key.create"]);
    assert!(acts.iter().all(|act| act["credential"] == "operator"), "{acts:?}");
    assert_eq!(acts[0]["subject"]["id"], id);
}

#[tokio::test]
async fn a_key_of_a_stopped_server_works_once_it_runs() {
    let (home, data) = directory_with_keys(0).await;
    let created = on(&data, &["key", "create", "--principal", "ci"]).json().await;
    let key = created["key"].as_str().unwrap();
    let herald = Herald::start(Options::config(TOKENS).data(&data)).await;
    assert_eq!(status_with(&herald, key).await, 200);
    assert_eq!(status_with(&herald, "hrld_wrong").await, 401);
    drop((herald, home));
}

#[tokio::test]
async fn a_running_server_is_operated_through_its_data_directory() {
    let herald = Herald::start(Options::config(TOKENS)).await;
    let data = data(&herald);
    let file = data.join("operator.json");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let created = on(&data, &["key", "create", "--principal", "ci"]).json().await;
    let key = created["key"].as_str().unwrap().to_owned();
    assert_eq!(status_with(&herald, &key).await, 200, "it works at once");
    let listed = on(&data, &["key", "list"]).ok().await;
    assert!(!worked_directly(&listed), "{listed:?}");
    let status = on(&data, &["status"]).json().await;
    assert_eq!(status["identity"]["credential"], "operator");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    let agents = on(&data, &["agent", "list"]).ok().await;
    assert!(agents.stdout.contains("echo") && agents.stdout.contains("conformance"), "{agents:?}");
    assert_eq!(on(&data, &["agent", "show", "echo"]).ok().await.field("Default"), "yes");
    let error = on(&data, &["agent", "show", "ecco"]).fails(1, "HERALD_RESOURCE_NOT_FOUND").await;
    assert!(error["hint"].as_str().unwrap().contains("herald agent list"), "{error}");
    assert_eq!(on(&data, &["store", "status"]).ok().await.field("Durable"), "yes");

    let misspelt = ["key", "create", "--principal", "x", "--agent", "ecoh", "--skill", "sing"];
    let misspelt = on(&data, &misspelt).ok().await;
    assert!(misspelt.stderr.contains("no agent \"ecoh\" now"), "{misspelt:?}");
    assert!(misspelt.stderr.contains("did you mean echo?"), "{misspelt:?}");
    assert!(misspelt.stderr.contains("Note: the server has no skill \"sing\" yet"), "{misspelt:?}");
    let right = ["key", "create", "--principal", "x", "--agent", "echo", "--skill", "echo"];
    let right = on(&data, &right).ok().await;
    assert!(!right.stderr.contains("Warning"), "{right:?}");
    // A role without a worker yet is usual.
    let early = ["key", "create", "--principal", "x", "--agent", "reviewer"];
    let caller = on(&data, &early).ok().await;
    assert!(caller.stderr.contains("Note: the server has no agent \"reviewer\" yet"), "{caller:?}");
    assert!(!caller.stderr.contains("Warning"), "{caller:?}");
    let worker = on(&data, &[&early[..], &["--scope", "work,register"]].concat()).ok().await;
    assert!(!worker.stderr.contains("reviewer"), "{worker:?}");

    // Revocation closes access.
    let id = created["id"].as_str().unwrap();
    on(&data, &["key", "revoke", id]).ok().await;
    eventually(SOON, "the key is refused", async || status_with(&herald, &key).await == 401).await;
}

#[tokio::test]
async fn a_killed_server_leaves_a_directory_that_can_be_worked_on() {
    let mut herald = Herald::start(Options::config(TOKENS)).await;
    let data = data(&herald);
    on(&data, &["key", "create", "--principal", "ci"]).ok().await;
    herald.kill9().await;
    let listed = on(&data, &["key", "list"]).ok().await;
    assert!(worked_directly(&listed), "{listed:?}");
    let error = on(&data, &["status"]).fails(3, "A2ACLI_ERR_UNREACHABLE").await;
    assert!(error["hint"].as_str().unwrap().contains("herald serve --data"), "{error}");
    herald.restart().await;
    assert_eq!(on(&data, &["status"]).ok().await.field("Credential"), "operator");
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    assert!(!data.join("operator.json").exists(), "a stopped server removes its token");
}

#[tokio::test]
async fn an_administrator_operates_a_server_by_its_url() {
    let herald = Herald::start(Options::config(TOKENS)).await;
    let created =
        at(&herald, "admin-secret", &["key", "create", "--principal", "b", "--scope", "admin"]);
    let created = created.json().await;
    let (id, key) = (created["id"].as_str().unwrap(), created["key"].as_str().unwrap());
    let status = at(&herald, key, &["status"]).ok().await;
    assert_eq!(status.field("Credential"), format!("key {id}"));
    assert_eq!(status.field("Scopes"), "admin");
    assert_eq!(status.field("Server"), format!("http://{}", herald.address));
    let url = format!("http://{}", herald.address);
    let by_key = cli(["key", "list", "--server", &url]).env("A2ACLI_API_KEY", key).json().await;
    assert_eq!(by_key["keys"][0]["id"], id);
    at(&herald, key, &["key", "revoke", id]).ok().await;
    eventually(SOON, "the key is refused", async || status_with(&herald, key).await == 401).await;

    let error = cli(["key", "list", "--server", &url]).fails(4, "A2ACLI_ERR_CREDENTIALS_MISSING");
    assert!(error.await["hint"].as_str().unwrap().contains("A2ACLI_BEARER"));
    let error = at(&herald, "wrong", &["key", "list"]).fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    assert!(error["hint"].as_str().unwrap().contains("refused the credential"), "{error}");
    let error = at(&herald, "caller-secret", &["key", "list"]).fails(4, "A2ACLI_ERR_AUTH_FAILED");
    assert!(error.await["hint"].as_str().unwrap().contains("the scope admin"));
    let debug = at(&herald, "admin-secret", &["key", "create", "--principal", "c", "--debug"]);
    let debug = debug.ok().await;
    let secret = debug.field("Key");
    assert!(debug.stderr.contains("POST"), "{debug:?}");
    assert!(!debug.stderr.contains(secret) && !debug.stderr.contains("admin-secret"), "{debug:?}");
}

#[tokio::test]
async fn tasks_of_other_owners_are_listed_read_and_cancelled() {
    let herald = Herald::start(Options::config(TOKENS)).await;
    let url = format!("http://{}/agents/conformance", herald.address);
    let sent = cli(["send", &url, "tck-multi-turn"]).env("A2ACLI_BEARER", "caller-secret");
    let task = sent.json().await;
    let id = task["task"]["id"].as_str().unwrap();
    let data = data(&herald);

    let own = at(&herald, "admin-secret", &["task", "list"]).json().await;
    assert_eq!(own["tasks"], json!([]));
    let all = on(&data, &["task", "list", "--all-owners"]).ok().await;
    assert!(all.stdout.contains(id) && all.stdout.contains("acme/web"), "{all:?}");
    let error = at(&herald, "caller-secret", &["task", "list", "--all-owners"]);
    error.fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    let tenants = on(&data, &["tenant", "list"]).json().await;
    assert_eq!(tenants["tenants"][0]["tenant"], "acme");
    assert_eq!(tenants["tenants"][0]["tasks"], 1);

    let log = on(&data, &["task", "log", id]).json().await;
    let entries = log["entries"].as_array().unwrap();
    assert_eq!(entries[0]["kind"], "message");
    assert_eq!(entries[0]["cause"]["actor"], "caller");
    assert!(entries.iter().all(|entry| entry["at"].is_string()), "{log}");
    assert_eq!(log["is_complete"], false);
    let shown = on(&data, &["task", "show", id]).ok().await;
    assert_eq!(shown.field("Owner"), "acme/web");
    assert_eq!(shown.field("State"), "INPUT_REQUIRED");
    let question = shown.field("Question").to_owned();

    let follower = on(&data, &["task", "log", id, "--follow"]).spawn();
    let stale = on(&data, &["task", "answer", id, "--question", "another", "--text", "x"]);
    let error = stale.fails(1, "HERALD_QUESTION_CHANGED").await;
    assert!(error["hint"].as_str().unwrap().contains("herald task show"), "{error}");
    let text = ["task", "answer", id, "--question", &question, "--text", "more"];
    on(&data, &text).ok().await;
    let cancelled = on(&data, &["task", "cancel", id]).end().await;
    let followed = tokio::time::timeout(SOON, follower.wait_with_output()).await.unwrap().unwrap();
    let followed = String::from_utf8(followed.stdout).unwrap();
    assert!(followed.starts_with("SEQ"), "{followed}");
    assert!(followed.contains("operator"), "the cause of the answer: {followed}\n{cancelled:?}");

    let acts = on(&data, &["audit", "list", "--action", "task."]).json().await;
    let subjects: Vec<_> =
        acts["records"].as_array().unwrap().iter().map(|act| &act["subject"]["id"]).collect();
    assert!(subjects.contains(&&json!(id)), "{acts}");
}

#[tokio::test]
async fn an_agent_of_a_server_is_not_confused_with_the_server() {
    let error =
        cli(["task", "list", "localhost:1", "--tenant", "acme"]).fails(2, "A2ACLI_ERR_USAGE");
    assert!(error.await["hint"].as_str().unwrap().contains("--server URL"));
    let words = ["task", "cancel", "localhost:1", "ID", "--server", "http://127.0.0.1:1"];
    let error = cli(words).fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(error["message"].as_str().unwrap().contains("its id alone"), "{error}");
}

/// Changes the database of a stopped server.
fn change(data: &Path, sql: &str) {
    let database = Connection::open(data.join("herald.db")).unwrap();
    database.execute_batch(sql).unwrap();
}

async fn verify(data: &Path) -> (Option<i32>, Value) {
    let ended = on(data, &["audit", "verify", "-o", "json"]).end().await;
    (ended.status.code(), serde_json::from_str(&ended.stdout).unwrap())
}

#[tokio::test]
async fn a_verification_names_the_record_that_was_changed_removed_or_moved() {
    for (sql, said) in [
        ("UPDATE audit SET principal = 'mallory' WHERE number = 3", "record 3 was changed"),
        ("UPDATE audit SET at = at + 1 WHERE number = 3", "record 3 was changed"),
        ("DELETE FROM audit WHERE number = 3", "record 3 is missing"),
        ("DELETE FROM audit WHERE number > 3", "record 4 and all later ones are missing"),
        (
            "UPDATE audit SET number = -1 WHERE number = 3; UPDATE audit SET number = 3 WHERE number = 5;
             UPDATE audit SET number = 5 WHERE number = -1",
            "record 3 was moved: it was written as record 5",
        ),
    ] {
        let (_home, data) = directory_with_keys(6).await;
        let (code, whole) = verify(&data).await;
        assert_eq!((code, &whole["ok"], &whole["records"]), (Some(0), &json!(true), &json!(6)));
        change(&data, sql);
        let (code, found) = verify(&data).await;
        assert_eq!((code, &found["ok"]), (Some(1), &json!(false)), "{sql}: {found}");
        let message = found["fault"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{sql}: {message}");
        assert_eq!(found["fault"]["number"], if said.contains('4') { 4 } else { 3 }, "{found}");
        let text = on(&data, &["audit", "verify"]).end().await;
        assert_eq!(text.status.code(), Some(1));
        assert_eq!(text.field("Intact"), "no");
        assert!(text.field("Fault").contains(said), "{text:?}");
        let export = on(&data, &["audit", "export"]).end().await;
        assert_eq!(export.status.code(), Some(1), "{export:?}");
        assert!(export.stderr.contains(said), "{export:?}");
    }
}

#[tokio::test]
async fn a_log_that_was_written_anew_differs_from_a_record_that_was_kept() {
    let (_home, data) = directory_with_keys(3).await;
    let kept = verify(&data).await.1;
    let (number, hash) = (kept["last"].to_string(), kept["hash"].as_str().unwrap());
    on(&data, &["key", "create", "--principal", "later"]).ok().await;
    let words = ["audit", "verify", "--number", &number, "--hash", hash];
    assert_eq!(on(&data, &words).ok().await.field("Intact"), "yes");
    let (_other_home, other) = directory_with_keys(4).await;
    let found = on(&other, &words).end().await;
    assert_eq!(found.status.code(), Some(1), "{found:?}");
    assert_eq!(found.field("Fault at Record"), number);
    on(&data, &["audit", "verify", "--hash", hash]).fails(2, "A2ACLI_ERR_USAGE").await;
}

#[tokio::test]
async fn an_export_has_every_record_and_ends_with_the_head() {
    let mut herald = Herald::start(Options::config(TOKENS)).await;
    let data = data(&herald);
    let mut client = herald.client().await;
    for number in 0..120 {
        let body = json!({ "principal": format!("p{number}") });
        let call = Call::post("/api/keys", &body).header("authorization", "Bearer admin-secret");
        assert_eq!(client.call(&call).await.unwrap().status, 200);
    }
    drop(client);
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    let export = on(&data, &["audit", "export"]).ok().await;
    let mut lines = export.lines();
    let end = lines.pop().unwrap();
    assert_eq!((lines.len(), &end["records"], &end["ok"]), (120, &json!(120), &json!(true)));
    let head = lines.iter().max_by_key(|line| line["number"].as_u64()).unwrap();
    assert_eq!(end["head"], json!({ "number": head["number"], "hash": head["hash"] }));
    for pair in lines.windows(2) {
        assert_eq!(pair[0]["previous"], pair[1]["hash"], "the chain can be followed");
    }
    let some = on(&data, &["audit", "export", "--principal", "nobody"]).ok().await;
    assert_eq!(some.lines()[0]["records"], 0);
    let list = on(&data, &["audit", "list", "--limit", "110", "--since", "1h"]).json().await;
    assert_eq!(list["records"].as_array().unwrap().len(), 110);
    let newest = on(&data, &["audit", "list", "--limit", "2"]).ok().await;
    assert!(newest.stdout.contains("raise --limit"), "{newest:?}");
    assert!(!newest.stdout.contains("hrld_"), "{newest:?}");
}

#[tokio::test]
async fn each_mistake_has_its_own_sentence() {
    let (_home, data) = directory_with_keys(0).await;
    let create = ["key", "create", "--principal", "p"];
    for (more, said) in [
        (["--scope", "raed"], "did you mean read?"),
        (["--scope", "everything"], "the scopes are send, read"),
        (["--expires", "2020-01-01T00:00:00Z"], "is in the past"),
        (["--expires", "soon"], "such as 90d"),
        (["--tenant", ""], "it is empty"),
        (["--visibility", "all"], "owner, tenant"),
    ] {
        let words: Vec<_> = create.iter().copied().chain(more).collect();
        let error = on(&data, &words).fails(2, "A2ACLI_ERR_USAGE").await;
        assert!(error["message"].as_str().unwrap().contains(said), "{more:?}: {error}");
    }
    let usage = |words: Vec<String>| async move {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        cli(words).fails(2, "A2ACLI_ERR_USAGE").await["message"].as_str().unwrap().to_owned()
    };
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let said = usage(words(&["key", "list", "--data", "/no/such/directory"])).await;
    assert!(said.ends_with("/no/such/directory does not exist"), "{said}");
    let said = usage(words(&["key", "list", "--data", data.to_str().unwrap()])).await;
    assert!(said.ends_with("it has no herald.db"), "{said}");
    std::fs::write(data.join("herald.db"), "this is no database, only a text of some length")
        .unwrap();
    on(&data, &["key", "list"]).fails(1, "A2ACLI_ERR_INTERNAL").await;
    let said = usage(words(&["key", "show", "hrld_secret", "--server", "localhost:1"])).await;
    assert!(said.contains("this is the secret of a key"), "{said}");
    let said = usage(words(&["status", "--server", "ftp://a"])).await;
    assert!(said.contains("is not the URL of a server"), "{said}");
    let both = ["status", "--server", "http://127.0.0.1:1", "--data", "x"];
    usage(words(&both)).await;
    let error =
        cli(["status", "--server", "http://127.0.0.1:1"]).fails(3, "A2ACLI_ERR_UNREACHABLE");
    assert!(
        error.await["message"].as_str().unwrap().contains("http://127.0.0.1:1 does not answer")
    );

    // A server without /api: an older one, or another program.
    let fake = Fake::start(|_, _| response(404, "application/json", "{}")).await;
    let error = cli(["status", "--server", &fake.url]).fails(3, "A2ACLI_ERR_UNREACHABLE").await;
    assert!(error["message"].as_str().unwrap().contains("has no /api"), "{error}");
    let fake = Fake::start(|_, _| response(200, "application/json", r#"{"hello":"world"}"#)).await;
    let error =
        cli(["store", "status", "--server", &fake.url]).fails(1, "A2ACLI_ERR_INTERNAL").await;
    assert!(error["message"].as_str().unwrap().contains("cannot be read"), "{error}");
}

#[tokio::test]
async fn settings_of_other_verbs_do_not_become_permissions() {
    let (_home, data) = directory_with_keys(0).await;
    let created = on(&data, &["key", "create", "--principal", "p"])
        .env("A2ACLI_SCOPE", "admin")
        .env("A2ACLI_TENANT", "acme");
    let created = created.json().await;
    assert_eq!(created["scopes"], json!(["send", "read", "cancel", "push"]));
    assert_eq!(created["tenant"], "");
}

#[tokio::test]
async fn the_directory_comes_from_the_variable_of_the_server_or_from_this_directory() {
    let (home, data) = directory_with_keys(1).await;
    let by_variable = cli(["key", "list"]).env("HERALD_DATA", data.to_str().unwrap()).json().await;
    assert_eq!(by_variable["keys"].as_array().unwrap().len(), 1);
    std::fs::rename(&data, home.path().join("herald-data")).unwrap();
    let here = cli(["key", "list"]).at(home.path()).json().await;
    assert_eq!(here, by_variable);
}

#[tokio::test]
async fn a_given_credential_or_server_wins_over_the_directory_and_the_output_says_so() {
    let herald = Herald::start(Options::config(TOKENS).no_data()).await;
    let here = |arguments: &[&'static str]| cli(arguments.iter().copied()).at(herald.home());
    let status = here(&["status"]).ok().await;
    assert_eq!(status.field("Credential"), "operator");
    assert!(status.stderr.contains("used the operator's token of ./herald-data"), "{status:?}");
    for given in ["A2ACLI_BEARER", "A2ACLI_API_KEY"] {
        // Some server may run at the default address.
        let status = here(&["status"]).env(given, "caller-secret").end().await;
        let said = format!("--server http://{} or --data herald-data", herald.address);
        assert!(status.stderr.contains(&said), "{status:?}");
        assert!(!status.stdout.contains("Credential: operator"), "{status:?}");
    }
    let url = format!("http://{}", herald.address);
    let by_url = cli(["status", "--server", &url]).at(herald.home());
    let by_url = by_url.env("A2ACLI_BEARER", "caller-secret").ok().await;
    assert_eq!(by_url.field("Principal"), "web");
    assert_eq!(by_url.stderr, "");
    let by_data =
        here(&["status", "--data", "herald-data", "--bearer", "caller-secret"]).ok().await;
    assert_eq!(by_data.field("Credential"), "operator");
    assert!(by_data.stderr.contains("not with the given credential"), "{by_data:?}");
}

#[tokio::test]
async fn a_missing_data_directory_is_not_created_by_mistake() {
    let home = tempfile::tempdir().unwrap();
    let create = ["key", "create", "--principal", "ci", "--data", "new data"];
    let error = cli(create).at(home.path()).fails(2, "A2ACLI_ERR_USAGE").await;
    let hint = error["hint"].as_str().unwrap();
    let line = hint.split_once("create it with: ").unwrap().1;
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    let made =
        std::process::Command::new("sh").args(["-c", line]).current_dir(home.path()).status();
    assert!(made.unwrap().success(), "{line}");
    cli(create).at(home.path()).ok().await;
}

#[tokio::test]
async fn a_signing_key_is_a_file_that_only_its_owner_can_read() {
    let home = tempfile::tempdir().unwrap();
    let create = ["key", "create-signing", "cards-2026"];
    let created = cli(create).at(home.path()).json().await;
    assert_eq!(created["setting"], r#"[card] signing_keys = ["file:./cards-2026.pem"]"#);
    let file = home.path().join("cards-2026.pem");
    let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let before = std::fs::read(&file).unwrap();
    let error = cli(create).at(home.path()).fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(error["message"].as_str().unwrap().ends_with("was not changed"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), before);
    cli(["key", "create-signing", "../up"]).fails(2, "A2ACLI_ERR_USAGE").await;
    let missing = ["key", "create-signing", "k", "--dir", "/no/such"];
    let error = cli(missing).fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(
        error["message"].as_str().unwrap().contains("cannot be written into /no/such"),
        "{error}"
    );
}
