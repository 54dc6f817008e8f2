//! Tests of Gemini CLI.

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
async fn gemini_asks_continues_and_keeps_its_session() {
    GEMINI.asks_goes_on_and_remembers().await;
}

#[tokio::test]
async fn gemini_does_not_perform_denied_actions() {
    GEMINI.takes_a_no("", Some("no")).await;
}

#[tokio::test]
async fn with_force_gemini_asks_no_questions() {
    GEMINI.is_forced().await;
}

#[tokio::test]
async fn gemini_leaves_no_process_after_a_cancel_or_a_kill() {
    GEMINI.is_cut_off().await;
}

#[tokio::test]
async fn gemini_ends_with_its_timeout() {
    GEMINI.is_late().await;
}

#[tokio::test]
async fn a_model_that_refuses_gemini_fails_the_task_with_a_reason() {
    GEMINI.hears_a_refusal().await;
}
