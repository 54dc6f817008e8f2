//! Tests of the card fields of `[[agents]]`.

use serde_json::{Value, json};

use crate::{
    http::Call,
    support::{Herald, Options},
};

const AGENT: &str = r#"
[[agents]]
name = "translator"
kind = "echo"
title = "Translator"
description = "Translates texts"
version = "2.1.0"
input_modes = ["text/plain"]
output_modes = ["text/plain", "text/html"]
icon_url = "https://example.com/icon.png"
documentation_url = "https://example.com/translator"
provider = { organization = "Example", url = "https://example.com" }

[[agents.skills]]
id = "de-en"
name = "German to English"
description = "Translates a German text"
tags = ["translation"]
examples = ["Guten Morgen"]
input_modes = ["text/markdown"]
output_modes = ["text/html"]

[[agents.skills]]
id = "spell"
description = "Checks the spelling"
"#;

fn shows_it_all(card: &Value) {
    assert_eq!(card["version"], "2.1.0", "{card:#}");
    assert_eq!(card["name"], "Translator");
    assert_eq!(card["defaultInputModes"], json!(["text/plain"]));
    assert_eq!(card["defaultOutputModes"], json!(["text/plain", "text/html"]));
    assert_eq!(card["description"], "Translates texts");
    assert_eq!(card["iconUrl"], "https://example.com/icon.png");
    assert_eq!(card["documentationUrl"], "https://example.com/translator");
    let provider = json!({ "organization": "Example", "url": "https://example.com" });
    assert_eq!(card["provider"], provider);
    let skills = json!([
        {
            "id": "de-en",
            "name": "German to English",
            "description": "Translates a German text",
            "tags": ["translation"],
            "examples": ["Guten Morgen"],
            "inputModes": ["text/markdown"],
            "outputModes": ["text/html"],
        },
        {
            "id": "spell",
            "name": "spell",
            "description": "Checks the spelling",
            "tags": ["spell"],
        },
    ]);
    assert_eq!(card["skills"], skills, "{card:#}");
}

#[tokio::test]
async fn the_cards_of_all_versions_have_the_fields_of_the_entry() {
    let herald = Herald::start(Options::config(AGENT)).await;
    for path in ["", "/agents/translator"] {
        for name in ["agent-card.json", "agent.json"] {
            let get = Call::get(format!("{path}/.well-known/{name}"));
            let both = herald.call(&get).await.json();
            assert_eq!(both["protocolVersion"], "0.3.0", "{both:#}");
            shows_it_all(&both);
            let newest = herald.call(&get.header("a2a-version", "1.0")).await.json();
            assert_eq!(newest.get("protocolVersion"), None, "{newest:#}");
            shows_it_all(&newest);
        }
    }
}

#[tokio::test]
async fn an_invalid_card_field_is_refused_with_its_line() {
    let skill = "{ id = \"a\", description = \"b\" }";
    for (key, words) in [
        ("version = \" \"".to_owned(), "version is empty"),
        ("title = \"\"".to_owned(), "title is empty"),
        ("title = 1".to_owned(), "title = \"Word Counter\""),
        ("input_modes = [\"video/mp4\"]".to_owned(), "does not take \"video/mp4\""),
        ("output_modes = [\"imagine/png\"]".to_owned(), "did you mean \"image/png\"?"),
        (
            "skills = [{ id = \"a\", name = \"\", description = \"b\" }]".to_owned(),
            "write one such as name = \"Count words\"",
        ),
        ("version = 2".to_owned(), "version = \"1.2.0\""),
        ("icon_url = \"icon.png\"".to_owned(), "icon_url: \"icon.png\" is not a URL"),
        ("documentation_url = \"ftp://x\"".to_owned(), "it must begin with https://"),
        ("provider = { organization = \"x\", url = \"y\" }".to_owned(), "\"y\" is not a URL"),
        ("provider = { organization = \"x\" }".to_owned(), "missing key `url`"),
        (format!("skills = [{skill}, {skill}]"), "the id \"a\" is used twice"),
        ("skills = [{ id = \"\", description = \"b\" }]".to_owned(), "the id of a skill is empty"),
        ("skills = [{ id = \"a\" }]".to_owned(), "missing key `description`"),
        ("skills = [\"a\"]".to_owned(), "skills = [{ id = "),
        (
            "skills = [{ id = \"a\", description = \"b\", output_modes = [\"text\"] }]".to_owned(),
            "\"text\" is not a media type",
        ),
        (
            format!("skills = [{}]", skill.replace(" }", ", only_for = { tenants = [\"x\"] } }")),
            "only_for belongs to the skills of extended_card",
        ),
        ("extended_card = {}".to_owned(), "it adds nothing to the public card"),
        (format!("extended_card = {{ skills = [{skill}, {skill}] }}"), "is used twice"),
        (
            "extended_card = { interfaces = [{ url = \"\", binding = \"GRPC\", version = \"1.0\" }] }"
                .to_owned(),
            "the url or the binding of an interface is empty",
        ),
        ("skill = []".to_owned(), "did you mean `skills`?"),
        ("a2a_version = \"1.0\"".to_owned(), "`a2a_version` belongs to kind = \"a2a\""),
    ] {
        let config = format!("[[agents]]\nname = \"a\"\nkind = \"echo\"\n{key}\n");
        let refused = Options::config(config).refused().await;
        assert!(refused.stderr.contains("herald.toml, line 4: "), "{key}: {}", refused.stderr);
        assert!(refused.stderr.contains(words), "{key}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn a_protocol_version_under_its_former_key_is_refused_with_the_new_one() {
    let agent = "[[agents]]\nname = \"a\"\nkind = \"a2a\"\nurl = \"http://127.0.0.1:1\"\n";
    for version in ["1.0", "0.3", "0.2", "0.1", "1.0.0"] {
        let refused = Options::config(format!("{agent}version = \"{version}\"\n")).refused().await;
        let key = format!("a2a_version = \"{version}\"");
        assert!(refused.stderr.contains("herald.toml, line 5: "), "{}", refused.stderr);
        assert!(refused.stderr.contains(&key), "{}", refused.stderr);
    }
    let both = format!("{agent}version = \"1.0\"\na2a_version = \"0.3\"\n");
    let herald = Herald::start(Options::config(both)).await;
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
    assert_eq!(card["version"], "1.0", "{card:#}");
}

const EXTENDED: &str = r#"
[auth]
tokens = [
  { token = "alice-token", tenant = "acme", principal = "alice", scopes = ["read", "admin"] },
  { token = "bob-token", tenant = "other", principal = "bob" },
]

[card]
signing_keys = ["file:KEYS/cards.pem"]

[[agents]]
name = "shop"
kind = "echo"

[agents.extended_card]
description = "Takes things back"

[[agents.extended_card.skills]]
id = "refund"
description = "Takes a thing back"

[[agents.extended_card.skills]]
id = "audit"
description = "Shows the books"
scopes = ["admin"]
only_for = { scopes = ["admin"], tenants = ["acme"], principals = ["alice"] }

[[agents.extended_card.interfaces]]
url = "https://internal.example.com/a2a/jsonrpc"
binding = "JSONRPC"
version = "1.0"
only_for = { tenants = ["acme"] }
"#;

#[tokio::test]
async fn the_file_configures_extended_cards_and_their_signatures() {
    let keys = tempfile::tempdir().unwrap();
    herald_server::SigningKey::create(keys.path(), "cards").unwrap();
    let config = EXTENDED.replace("KEYS", keys.path().to_str().unwrap());
    let herald = Herald::start(Options::config(config)).await;
    let get = |token: &str| {
        let get = Call::get("/extendedAgentCard").header("a2a-version", "1.0");
        get.header("authorization", format!("Bearer {token}"))
    };
    for (token, skills, interfaces) in [
        ("alice-token", &["shop", "refund", "audit"][..], 5),
        ("bob-token", &["shop", "refund"], 4),
    ] {
        let card = herald.call(&get(token)).await.json();
        assert_eq!(card["description"], "Takes things back", "{card:#}");
        let found: Vec<_> =
            card["skills"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
        assert_eq!(found, skills, "{card:#}");
        assert_eq!(card["supportedInterfaces"].as_array().unwrap().len(), interfaces);
        assert!(!card["signatures"].as_array().unwrap().is_empty());
    }
    let refused = herald.call(&get("wrong")).await;
    assert_eq!(refused.status, 401);
    let public = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
    assert_eq!(public["capabilities"]["extendedAgentCard"], true);
    assert_eq!(public["skills"].as_array().unwrap().len(), 1);
    assert!(!public.to_string().contains("internal.example.com"));
    let keys = herald.call(&Call::get("/.well-known/jwks.json")).await.json();
    assert_eq!(keys["keys"][0]["kid"], "cards");
}
