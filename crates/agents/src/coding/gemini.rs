//! Gemini CLI, over the Agent Client Protocol.

use super::{
    acp::{Acp, Quirks},
    dialect::CodingRequest,
};

/// In its default mode Gemini CLI asks before it changes anything. The mode is always set, also because the
/// answer to that shows that the replay of a loaded session is over: Gemini CLI answers the load before it
/// replays.
///
/// Gemini CLI overwrites a session that is loaded in the minute in which it began
/// (<https://github.com/google-gemini/gemini-cli/issues/28693>), unless its name has another prefix. It ignores
/// a space when it looks for the session.
const QUIRKS: Quirks = Quirks {
    arguments: &["--acp"],
    ask_variables: &[],
    mode: Some("default"),
    auth_method: None,
    prefix: " ",
};

/// A key in the environment is enough for a new session, but loading a session requires `authenticate`. Gemini
/// CLI stores that choice permanently, so it is not called before the first session.
pub(super) fn dialect(request: CodingRequest) -> Acp {
    let auth_method = request.session.is_some().then_some("gemini-api-key");
    Acp::new(request, Quirks { auth_method, ..QUIRKS })
}
