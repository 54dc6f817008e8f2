//! Tests of OpenCode.

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
async fn opencode_asks_continues_and_keeps_its_session() {
    OPENCODE.asks_goes_on_and_remembers().await;
}

#[tokio::test]
async fn opencode_does_not_perform_denied_actions() {
    OPENCODE.takes_a_no("", Some("no")).await;
}

#[tokio::test]
async fn with_force_opencode_asks_no_questions() {
    OPENCODE.is_forced().await;
}

#[tokio::test]
async fn opencode_leaves_no_process_after_a_cancel_or_a_kill() {
    OPENCODE.is_cut_off().await;
}

#[tokio::test]
async fn opencode_ends_with_its_timeout() {
    OPENCODE.is_late().await;
}

#[tokio::test]
async fn a_model_that_refuses_opencode_fails_the_task_with_a_reason() {
    OPENCODE.hears_a_refusal().await;
}
