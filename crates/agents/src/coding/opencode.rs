//! OpenCode, which speaks the Agent Client Protocol.

use super::{
    acp::{Acp, Habits},
    dialect::Ask,
};

/// It resumes sessions as they are.
const HABITS: Habits = Habits { arguments: &["acp"], mode: None, sign_in: None, prefix: "" };

pub(super) fn dialect(ask: Ask) -> Acp {
    Acp::new(ask, HABITS)
}
