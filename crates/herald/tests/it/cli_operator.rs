//! Tests of the verbs that operate a server.

use std::path::Path;

use crate::cli_support::{Fake, Run, cli, response};

/// A verb with `--data`.
fn on(data: &Path, arguments: &[&str]) -> Run {
    let data = data.to_str().unwrap();
    cli(arguments.iter().copied().chain(["--data", data]))
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

#[tokio::test]
async fn each_mistake_has_its_own_sentence() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
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
