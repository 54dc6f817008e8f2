//! OpenCode, over the Agent Client Protocol.

use super::{
    acp::{Acp, Quirks},
    dialect::CodingRequest,
};

/// By itself it asks for next to nothing.
const QUIRKS: Quirks = Quirks {
    arguments: &["acp"],
    asking: &[("OPENCODE_PERMISSION", r#"{"edit":"ask","bash":"ask"}"#)],
    mode: None,
    sign_in: None,
    prefix: "",
};

pub(super) fn dialect(ask: CodingRequest) -> Acp {
    Acp::new(ask, QUIRKS)
}
