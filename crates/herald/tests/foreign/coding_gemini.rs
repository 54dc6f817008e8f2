//! Gemini CLI, as it is installed from npm.

use crate::{coding_acp::Cli, model::Model};

const GEMINI: Cli = Cli {
    kind: "gemini",
    command: &["gemini"],
    // A named model is asked at once; its own choice would ask another model first.
    settings: "model = \"gemini-2.5-pro\"",
    environment,
    tool: "run_shell_command",
};

fn environment(model: &Model) -> Vec<(&'static str, String)> {
    vec![
        ("GEMINI_API_KEY", "scripted".to_owned()),
        ("GOOGLE_GEMINI_BASE_URL", format!("http://{}", model.address)),
    ]
}

#[tokio::test]
async fn gemini_asks_goes_on_and_remembers() {
    GEMINI.asks_goes_on_and_remembers().await;
}

#[tokio::test]
async fn what_gemini_is_not_allowed_it_does_not_do() {
    GEMINI.takes_a_no("", Some("no")).await;
}

#[tokio::test]
async fn with_force_gemini_asks_nobody() {
    GEMINI.is_forced().await;
}

#[tokio::test]
async fn gemini_leaves_no_process_when_it_is_cancelled_or_killed() {
    GEMINI.is_cut_off().await;
}

#[tokio::test]
async fn gemini_that_takes_too_long_is_ended() {
    GEMINI.is_late().await;
}

#[tokio::test]
async fn a_model_that_refuses_gemini_is_the_reason() {
    GEMINI.hears_a_refusal().await;
}
