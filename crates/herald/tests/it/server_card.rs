//! Tests of the card that its owner writes: `[card]`, a card file, flags, and mistakes in them.

use std::{fs, path::Path};

use herald_protocol::card;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    http::Call,
    support::{Ended, Herald, Options, ended},
};

const CARD: &str = "/.well-known/agent-card.json";

/// The first block of docs/configuration.md below a heading that is fenced with this language.
fn block(heading: &str, language: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let page = fs::read_to_string(page).unwrap();
    let below = page.split(&format!("\n{heading}\n")).nth(1).unwrap();
    let block = below.split(&format!("```{language}\n")).nth(1).unwrap();
    block.split("```").next().unwrap().to_owned()
}

/// A directory with a card file, and the line of `[card]` that names it.
fn card_file(text: &str) -> (TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("card.json");
    fs::write(&path, text).unwrap();
    let line = format!("file = {:?}", path.to_str().unwrap());
    (directory, line)
}

async fn doctor(config: &str) -> Ended {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("herald.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    command.args(["doctor", "--config", "herald.toml"]).current_dir(home.path()).env_clear();
    ended(command).await
}

/// The card of the first document behind docs/compatibility.md, as it is printed there.
fn first_document() -> Value {
    json!({
        "name": "CodeTether Server",
        "description": "Production A2A coordination server",
        "url": "https://api.codetether.run",
        "version": "1.0.0",
        "provider": { "organization": "CodeTether", "url": "https://codetether.run" },
        "capabilities": {
            "streaming": true,
            "push_notifications": true,
            "state_transition_history": true,
        },
        "skills": [
            {
                "id": "task-coordination",
                "name": "Task Coordination",
                "description": "Coordinate tasks between multiple agents",
            },
            {
                "id": "code-assistance",
                "name": "Code Assistance",
                "description": "AI-powered coding assistance via CodeTether",
            },
        ],
        "authentication": [{ "scheme": "bearer" }],
    })
}

#[tokio::test]
async fn the_card_file_of_the_documents_is_the_printed_card_and_is_served_as_it_is() {
    let heading = "### A card from a file";
    let (written, config) = (block(heading, "json"), block(heading, "toml"));
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), first_document());
    let (_directory, line) = card_file(&written);
    let herald =
        Herald::start(Options::config(config.replace("file = \"card.json\"", &line))).await;
    for path in [CARD, "/.well-known/agent.json"] {
        let card = herald.call(&Call::get(path)).await;
        assert_eq!((card.status, card.text()), (200, written.as_str()), "{path}");
    }
    let tag = herald.call(&Call::get(CARD)).await.headers["etag"].to_str().unwrap().to_owned();
    let known = herald.call(&Call::get(CARD).header("if-none-match", tag)).await;
    assert_eq!(known.status, 304);

    // Readers of 1.0 get a card of 1.0 with the same texts, and the agent of the file answers at its URL.
    let newest = herald.call(&Call::get(CARD).header("a2a-version", "1.0")).await.json();
    assert_eq!(card::violations(newest.to_string().as_bytes()), [], "{newest:#}");
    for member in ["name", "description", "version", "provider"] {
        assert_eq!(newest[member], first_document()[member], "{newest:#}");
    }
    assert_eq!(newest["skills"][1]["name"], "Code Assistance", "{newest:#}");
    let send = json!({
        "jsonrpc": "2.0", "id": "1", "method": "message/send",
        "params": { "message": {
            "parts": [{ "type": "text", "content": "Analyze this code" }],
            "metadata": { "skill": "code-assistance" },
        } },
    });
    let sent = herald.call(&Call::post("/", &send)).await.json();
    assert_eq!(sent["result"]["status"]["state"], "completed", "{sent:#}");
}

/// The card of the last document behind docs/compatibility.md, as it is printed there.
const LAST_DOCUMENT: &str = r#"{
  "protocolVersion": "0.2.6",
  "name": "researcher",
  "description": "Research agent that summarizes topics",
  "url": "",
  "version": "0.21.0",
  "capabilities": {
    "streaming": false,
    "pushNotifications": false,
    "stateTransitionHistory": false
  },
  "defaultInputModes": ["text/plain"],
  "defaultOutputModes": ["text/plain"],
  "skills": [
    {"id": "summarize", "name": "summarize", "description": "Summarize a text", "tags": ["tool"]}
  ]
}
"#;

#[tokio::test]
async fn a_card_of_0_2_is_served_as_it_is() {
    let (_directory, line) = card_file(LAST_DOCUMENT);
    let herald = Herald::start(Options::config(format!("[card]\n{line}\n"))).await;
    let card = herald.call(&Call::get("/.well-known/agent.json")).await;
    assert_eq!(card.text(), LAST_DOCUMENT);
    let own = herald.call(&Call::get(format!("/agents/echo{CARD}"))).await.json();
    let skill = json!({
        "id": "summarize", "name": "summarize", "description": "Summarize a text", "tags": ["tool"],
    });
    assert_eq!((&own["name"], &own["skills"]), (&json!("researcher"), &json!([skill])), "{own:#}");
    for modes in ["defaultInputModes", "defaultOutputModes"] {
        assert_eq!(own[modes], json!(["text/plain"]), "{own:#}");
    }
}

const SERVER: &str = r#"
[card]
title = "Word Service"
description = "Counts and sorts words"
version = "3.2.0"
icon_url = "https://example.com/icon.png"
documentation_url = "https://example.com/words"
provider = { organization = "Example", url = "https://example.com" }
input_modes = ["text/plain"]
output_modes = ["text/plain"]

[[card.skills]]
id = "count"
name = "Count words"
description = "Counts the words of a text"
tags = ["tool"]
examples = ["one two three"]

[[agents]]
name = "words"
kind = "echo"

[[agents]]
name = "other"
kind = "echo"
title = "The Other"
version = "0.9"
provider = { organization = "Other", url = "https://other.example.com" }
"#;

#[tokio::test]
async fn the_card_section_describes_the_root_and_fills_in_the_other_cards() {
    let herald = Herald::start(Options::config(SERVER)).await;
    let root = herald.call(&Call::get(CARD)).await.json();
    let expected = json!({
        "name": "Word Service",
        "description": "Counts and sorts words",
        "version": "3.2.0",
        "iconUrl": "https://example.com/icon.png",
        "documentationUrl": "https://example.com/words",
        "provider": { "organization": "Example", "url": "https://example.com" },
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{
            "id": "count",
            "name": "Count words",
            "description": "Counts the words of a text",
            "tags": ["tool"],
            "examples": ["one two three"],
        }],
    });
    for (member, value) in expected.as_object().unwrap() {
        assert_eq!(&root[member], value, "{root:#}");
    }
    let other = herald.call(&Call::get(format!("/agents/other{CARD}"))).await.json();
    assert_eq!((&other["name"], &other["version"]), (&json!("The Other"), &json!("0.9")));
    assert_eq!(other["provider"]["organization"], "Other", "{other:#}");
    assert_eq!(other["documentationUrl"], "https://example.com/words", "{other:#}");
    assert_eq!(other["skills"][0]["id"], "other", "{other:#}");
    // The media types of the card do not change which messages are accepted.
    let data = json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "parts": [{ "data": { "a": 1 } }],
    } });
    let sent = herald.call(&Call::post("/message:send", &data).header("a2a-version", "1.0")).await;
    assert_eq!(sent.status, 200, "{sent:?}");
}

#[tokio::test]
async fn the_version_is_that_of_herald_unless_the_owner_has_one() {
    let herald = Herald::start(Options::default()).await;
    let card = herald.call(&Call::get(CARD)).await.json();
    assert_eq!(card["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(card["capabilities"]["streaming"], true);
    let program = Options::default().arguments(["--exec", "wc -w", "--card-version", "0.21.0"]);
    let program = program.arguments(["--card-title", "Counter"]);
    let program = program.environment("HERALD_CARD_DESCRIPTION", "Counts words");
    let herald = Herald::start(program).await;
    let card = herald.call(&Call::get(CARD)).await.json();
    assert_eq!(card["version"], "0.21.0", "{card:#}");
    assert_eq!(card["name"], "Counter", "{card:#}");
    assert_eq!(card["description"], "Counts words", "{card:#}");
}

#[tokio::test]
async fn the_members_of_early_servers_are_added_on_request() {
    let auth =
        "[auth]\ntokens = [{ token = \"canary-7c5e-card\", tenant = \"t\", principal = \"p\" }]\n";
    for (config, is_added) in [("", false), ("[card]\nlegacy_snake_case = true\n", true)] {
        let herald = Herald::start(Options::config(format!("{config}{auth}"))).await;
        let answer = herald.call(&Call::get(CARD)).await;
        let card = answer.json();
        let capabilities = &card["capabilities"];
        assert_eq!(capabilities["stateTransitionHistory"], true, "{card:#}");
        let (expected, usual) =
            if is_added { (json!(true), Value::Null) } else { (Value::Null, json!(true)) };
        assert_eq!(capabilities["pushNotifications"], usual, "one spelling: {card:#}");
        for member in ["push_notifications", "state_transition_history"] {
            assert_eq!(capabilities[member], expected, "{card:#}");
        }
        let schemes = card.get("authentication").and_then(Value::as_array);
        let has_bearer = schemes.is_some_and(|all| all.contains(&json!({ "scheme": "bearer" })));
        assert_eq!(has_bearer, is_added, "{card:#}");
        // Our own client reads either spelling of a member.
        let read = card::read(answer.text().as_bytes()).unwrap();
        assert_eq!(read.capabilities.push_notifications, Some(true));
        let pure =
            herald.call(&Call::get(CARD).header("a2a-version", "1.0")).await.text().to_owned();
        assert!(!pure.contains("push_notifications") && !pure.contains("\"authentication\""));
    }
}

#[tokio::test]
async fn an_invalid_card_file_is_refused_with_its_line_and_an_example() {
    let valid = LAST_DOCUMENT;
    for (given, wrong, line, words) in [
        (
            "\"name\": \"summarize\", ",
            "",
            15,
            "skills[0].name is missing; write it like \"name\": \"Count words\"",
        ),
        ("\"id\": \"summarize\"", "\"id\": \" \"", 15, "skills[0].id is missing"),
        (
            "  \"version\": \"0.21.0\",\n",
            "",
            1,
            "version is missing; write it like \"version\": \"1.0.0\"",
        ),
        (
            "\"url\": \"\"",
            "\"url\": \"/a2a\"",
            5,
            "url: \"/a2a\" is not a URL; it must begin with https://",
        ),
        ("  \"url\": \"\",\n", "", 1, "the card has no address: write \"url\""),
        (
            "[\"text/plain\"],\n  \"skills\"",
            "[\"text\"],\n  \"skills\"",
            13,
            "defaultOutputModes: \"text\" is not a media type; write one such as \"text/plain\"",
        ),
        (
            "Modes\": [\"text/plain\"],\n  \"defaultO",
            "Modes\": [\"txt/plain\"],\n  \"defaultO",
            12,
            "did you mean \"text/plain\"?",
        ),
        ("\"tags\": [\"tool\"]", "\"tags\": \"tool\"", 15, "skills[0].tags"),
        ("\"streaming\": false", "\"streaming\": \"no\"", 8, "capabilities"),
        (
            "\"capabilities\": {",
            "\"iconUrl\": \"icon.png\", \"capabilities\": {",
            7,
            "iconUrl: \"icon.png\" is not a URL",
        ),
        ("]\n}", "]\n", 18, "the card is not JSON"),
    ] {
        assert!(valid.contains(given), "{given}");
        let (_directory, file) = card_file(&valid.replacen(given, wrong, 1));
        let config = format!("[card]\n{file}\n");
        let refused = Options::config(config.clone()).refused().await.stderr;
        assert!(refused.contains(&format!("card.json, line {line}: ")), "{wrong}: {refused}");
        assert!(refused.contains(words), "{wrong}: {refused}");
        let checked = doctor(&config).await;
        assert!(checked.stdout.contains(words), "{wrong}: {checked:?}");
    }
}

#[tokio::test]
async fn a_card_that_is_described_twice_or_promises_too_much_is_refused() {
    let (_directory, file) = card_file(LAST_DOCUMENT);
    let promising = LAST_DOCUMENT.replace("\"streaming\": false", "\"streaming\": true");
    let (_other, promising) = card_file(&promising);
    let images = LAST_DOCUMENT.replace(
        "Modes\": [\"text/plain\"],\n  \"defaultO",
        "Modes\": [\"video/mp4\"],\n  \"defaultO",
    );
    let (_third, images) = card_file(&images);
    let echo = "[[agents]]\nname = \"a\"\nkind = \"echo\"\n";
    let skill = "{ id = \"a\", name = \"\", description = \"b\" }";
    for (config, words) in [
        (
            format!("[card]\n{file}\ntitle = \"x\"\n"),
            &["herald.toml, line 3", "remove one of the two"][..],
        ),
        (
            format!("[card]\n{file}\n{echo}version = \"1\"\n"),
            &["herald.toml, line 2", "a version of its own"],
        ),
        (
            format!("[card]\n{promising}\n{echo}streaming = false\n"),
            &["card.json, line 8", "capabilities.streaming", "switched off"],
        ),
        (
            format!("[card]\n{images}\n"),
            &["card.json, line 12", "does not take \"video/mp4\"; it takes \"text/plain\""],
        ),
        ("[card]\nfile = \"no-such.json\"\n".to_owned(), &["herald.toml, line 2", "no-such.json"]),
        ("[card]\nfile = 3\n".to_owned(), &["herald.toml, line 2", "file = \"card.json\""]),
        (
            format!("[card]\ntitle = \"x\"\n{echo}title = \"y\"\n"),
            &["herald.toml, line 2", "remove one of the two"],
        ),
        ("[card]\ntitle = \" \"\n".to_owned(), &["herald.toml, line 2", "title is empty"]),
        (
            "[card]\nicon_url = \"icon.png\"\n".to_owned(),
            &["herald.toml, line 2", "https://example.com/about"],
        ),
        (
            "[card]\ninput_modes = [\"text\"]\n".to_owned(),
            &["herald.toml, line 2", "such as \"text/plain\""],
        ),
        (
            "[card]\ninput_modes = [\"video/mp4\"]\n".to_owned(),
            &["herald.toml, line 2", "does not take \"video/mp4\""],
        ),
        (
            format!("[card]\nversion = \"1\"\nskills = [{skill}]\n"),
            &["herald.toml, line 3", "name = \"Count words\""],
        ),
        (
            "[card]\n[[card.skills]]\nid = \"a\"\n".to_owned(),
            &["herald.toml, line 2", "missing key `description`"],
        ),
        (
            "[card]\nlegacy_snake_case = 1\n".to_owned(),
            &["herald.toml, line 2", "expected a boolean"],
        ),
    ] {
        let refused = Options::config(config.clone()).refused().await.stderr;
        let checked = doctor(&config).await.stdout;
        for word in words {
            assert!(refused.contains(word), "{config}: {refused}");
            assert!(checked.contains(word), "{config}: {checked}");
        }
    }
    let empty = Options::default().arguments(["--card-title", ""]).refused().await;
    assert!(empty.stderr.contains("--card-title is empty"), "{empty:?}");
    let flag = Options::config(format!("[card]\n{file}\n")).arguments(["--card-title", "x"]);
    let flag = flag.refused().await;
    assert!(flag.stderr.contains("--card-title cannot change the card"), "{flag:?}");
}
