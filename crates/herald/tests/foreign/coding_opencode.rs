//! OpenCode, as it is installed from npm.

use crate::{coding_acp::Cli, model::Model};

const OPENCODE: Cli = Cli {
    kind: "opencode",
    command: &["opencode"],
    settings: "model = \"scripted/small\"",
    environment,
    tool: "bash",
};

/// A provider that asks the test's model, and nothing that asks for more than that: no titles, no
/// downloads, no list of models.
pub(crate) fn environment(model: &Model) -> Vec<(&'static str, String)> {
    let model = serde_json::json!({
        "provider": {
            "scripted": {
                "npm": "@ai-sdk/openai-compatible",
                "options": { "baseURL": model.url(), "apiKey": "scripted" },
                "models": {
                    "small": {
                        "cost": { "input": 1, "output": 2 },
                        "limit": { "context": 100_000, "output": 4096 },
                    },
                },
            },
        },
        "agent": { "title": { "disable": true } },
        "autoupdate": false,
        "share": "disabled",
    });
    vec![
        ("OPENCODE_CONFIG_CONTENT", model.to_string()),
        ("OPENCODE_DISABLE_AUTOUPDATE", "1".to_owned()),
        ("OPENCODE_DISABLE_LSP_DOWNLOAD", "1".to_owned()),
        ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
        ("npm_config_offline", "true".to_owned()),
    ]
}

#[tokio::test]
async fn opencode_asks_goes_on_and_remembers() {
    OPENCODE.asks_goes_on_and_remembers().await;
}

#[tokio::test]
async fn what_opencode_is_not_allowed_it_does_not_do() {
    OPENCODE.takes_a_no("", Some("no")).await;
}

#[tokio::test]
async fn with_force_opencode_asks_nobody() {
    OPENCODE.is_forced().await;
}

#[tokio::test]
async fn opencode_leaves_no_process_when_it_is_cancelled_or_killed() {
    OPENCODE.is_cut_off().await;
}

#[tokio::test]
async fn opencode_that_takes_too_long_is_ended() {
    OPENCODE.is_late().await;
}

#[tokio::test]
async fn a_model_that_refuses_opencode_is_the_reason() {
    OPENCODE.hears_a_refusal().await;
}
