//! OpenCode, which speaks the Agent Client Protocol.

use super::{
    acp::{Acp, Habits},
    dialect::Ask,
};

/// By itself it asks for next to nothing.
const HABITS: Habits = Habits {
    arguments: &["acp"],
    asking: &[("OPENCODE_PERMISSION", r#"{"edit":"ask","bash":"ask"}"#)],
    mode: None,
    sign_in: None,
    prefix: "",
};

pub(super) fn dialect(ask: Ask) -> Acp {
    Acp::new(ask, HABITS)
}
