//! Gemini CLI, over the Agent Client Protocol.

use super::{
    acp::{Acp, Quirks},
    dialect::CodingRequest,
};

/// In its usual mode it asks before it changes anything. The mode is always chosen, also because
/// the answer shows that a loaded session has been told: Gemini CLI tells it after its answer.
///
/// It writes over a session that is loaded in the minute in which it began
/// (<https://github.com/google-gemini/gemini-cli/issues/28693>), unless its name has another
/// beginning there. A space is no part of the name when it is looked for.
const QUIRKS: Quirks = Quirks {
    arguments: &["--acp"],
    asking: &[],
    mode: Some("default"),
    sign_in: None,
    prefix: " ",
};

/// For a new session a key in its environment is enough, but before it loads one it wants to hear of
/// it. It then takes note of that for good, so nobody is signed in who has had no session yet.
pub(super) fn dialect(ask: CodingRequest) -> Acp {
    let sign_in = ask.session.is_some().then_some("gemini-api-key");
    Acp::new(ask, Quirks { sign_in, ..QUIRKS })
}
