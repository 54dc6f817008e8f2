//! Gemini CLI, which speaks the Agent Client Protocol.

use super::{
    acp::{Acp, Habits},
    dialect::Ask,
};

/// In its usual mode it asks before it changes anything. The mode is always chosen, also because
/// the answer shows that a loaded session has been told: Gemini CLI tells it after its answer.
///
/// Without a choice of its own it loads sessions only for who signs in, where a key is enough for
/// a new one. And it writes over a session that is loaded in the minute in which it began
/// (<https://github.com/google-gemini/gemini-cli/issues/28693>), unless its name has another
/// beginning there. A space is no part of the name when it is looked for.
const HABITS: Habits = Habits {
    arguments: &["--acp"],
    asking: &[],
    mode: Some("default"),
    sign_in: Some("gemini-api-key"),
    prefix: " ",
};

pub(super) fn dialect(ask: Ask) -> Acp {
    Acp::new(ask, HABITS)
}
