//! Tests of `herald config schema`.

use std::{fs, path::Path};

use jsonschema::Validator;
use serde_json::Value;

use crate::support::{Options, herald};

/// The schema, and that of one agent, which is what a manifest holds.
async fn schemas() -> (Validator, Validator) {
    let printed = herald(&["config", "schema"]).await;
    assert!(printed.status.success(), "{printed:?}");
    let mut schema: Value = serde_json::from_str(&printed.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let file = jsonschema::validator_for(&schema).unwrap();
    let definitions = schema["$defs"].take();
    let mut agent = definitions["AgentSection"].clone();
    agent["$defs"] = definitions;
    (file, jsonschema::validator_for(&agent).unwrap())
}

fn complaints(schema: &Validator, text: &str) -> Vec<String> {
    let value: Value = toml::from_str(text).unwrap();
    schema.iter_errors(&value).map(|fault| fault.to_string()).collect()
}

/// The blocks of TOML in the documents, with their files.
fn examples() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        pages.push(entry.unwrap().path());
    }
    pages.sort();
    let mut examples = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|name| name == "md")) {
        let text = fs::read_to_string(page).unwrap();
        for block in text.split("```toml\n").skip(1) {
            let block = block.split("```").next().unwrap();
            examples.push((page.display().to_string(), block.to_owned()));
        }
    }
    examples
}

#[tokio::test]
async fn every_example_of_the_documents_is_valid() {
    let (file, agent) = schemas().await;
    let examples = examples();
    assert!(examples.len() >= 10, "{}", examples.len());
    for (page, example) in examples {
        // A manifest is one agent.
        let schema = if example.starts_with("name = ") { &agent } else { &file };
        assert_eq!(complaints(schema, &example), [""; 0], "{page}:\n{example}");
    }
}

/// The schema and the server refuse the same files.
#[tokio::test]
async fn the_schema_and_the_server_refuse_the_same_keys() {
    let (file, _) = schemas().await;
    let exec = "[[agents]]\nname = \"a\"\nkind = \"exec\"\ncommand = [\"cat\"]\n";
    for config in [
        "[server]\nprot = 8000\n".to_owned(),
        "[server]\nport = \"many\"\n".to_owned(),
        "colour = 1\n".to_owned(),
        "[log]\nlevel = \"loud\"\n".to_owned(),
        "[card]\ninterfaces = []\n".to_owned(),
        "[dialects]\n\"0.9\" = true\n".to_owned(),
        "[limits]\nmax_body = 1\n".to_owned(),
        format!("{exec}colour = 1\n"),
        format!("{exec}model = \"m\"\n"),
        format!("{exec}memory = 3\n"),
        format!("{exec}concurrency = 0\n"),
        format!("{exec}extensions = [{{ url = \"urn:x\" }}]\n"),
        "[[agents]]\nname = \"A b\"\nkind = \"echo\"\n".to_owned(),
        "[[agents]]\nname = \"a\"\nkind = \"toaster\"\n".to_owned(),
        "[[agents]]\nname = \"a\"\n".to_owned(),
        "[[agents]]\nkind = \"echo\"\n".to_owned(),
        "[[agents]]\nname = \"a\"\nkind = \"echo\"\ncommand = [\"cat\"]\n".to_owned(),
        "[[agents]]\nname = \"a\"\nkind = \"a2a\"\nurl = \"http://a.example\"\nauth = { tokn = \"x\" }\n"
            .to_owned(),
    ] {
        assert_ne!(complaints(&file, &config), [""; 0], "{config}");
        let refused = Options::config(config.clone()).refused().await;
        assert!(refused.stderr.contains("herald.toml"), "{config}: {refused:?}");
    }
    let taken = format!(
        "[limits]\nmax_body_bytes = \"4MiB\"\n[store.retention]\nmax_tasks = 7\n\
         [log]\nlevel = \"INFO\"\n[dialects]\n\"0.3\" = false\n{exec}timeout = \"30s\"\n"
    );
    assert_eq!(complaints(&file, &taken), [""; 0]);
}
