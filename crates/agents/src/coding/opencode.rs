//! OpenCode, over the Agent Client Protocol.

use super::{
    acp::{Acp, Quirks},
    dialect::CodingRequest,
};

/// By default OpenCode asks for almost no permissions.
const QUIRKS: Quirks = Quirks {
    arguments: &["acp"],
    ask_variables: &[("OPENCODE_PERMISSION", r#"{"edit":"ask","bash":"ask"}"#)],
    mode: None,
    auth_method: None,
    prefix: "",
};

pub(super) fn dialect(request: CodingRequest) -> Acp {
    Acp::new(request, QUIRKS)
}
