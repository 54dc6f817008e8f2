//! Error names of suites, and the codes of each binding for them.

use herald_protocol::{ErrorKind, Version, error::GrpcCode};

use super::{operation::ErrorResponse, suite::CheckedBinding};

/// An error as a suite names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ErrorName {
    name: String,
    /// Any of these is right.
    kinds: Vec<ErrorKind>,
}

impl ErrorName {
    pub(super) fn from_name(name: &str) -> Result<Self, String> {
        let kinds = match name {
            // Names of drafts of 1.0.
            "StreamingNotSupportedError" => vec![ErrorKind::UnsupportedOperation],
            "ExtendedCardNotSupportedError" => {
                vec![ErrorKind::UnsupportedOperation, ErrorKind::ExtendedAgentCardNotConfigured]
            }
            // The specification names every error so, and no other kind is named so.
            _ if name.ends_with("Error") => ErrorKind::from_name(name).into_iter().collect(),
            _ => Vec::new(),
        };
        if kinds.is_empty() {
            return Err(format!("there is no error {name:?}"));
        }
        Ok(Self { name: name.to_owned(), kinds })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// True if an error is this one.
    pub(super) fn is(
        &self,
        refusal: &ErrorResponse,
        binding: CheckedBinding,
        version: Version,
    ) -> bool {
        self.kinds.iter().any(|kind| matches_kind(*kind, refusal, binding, version))
    }
}

/// True if an error is of this kind. On REST and gRPC several kinds share a status, so
/// the reason decides if the error has one and the specification defines one.
fn matches_kind(
    kind: ErrorKind,
    refusal: &ErrorResponse,
    binding: CheckedBinding,
    version: Version,
) -> bool {
    let codes = kind.codes();
    let old = version != Version::V1_0;
    let statuses = match binding {
        CheckedBinding::JsonRpc => {
            return refusal.code
                == i64::from(if old { codes.json_rpc_v03 } else { codes.json_rpc });
        }
        CheckedBinding::Rest => [Some(i64::from(codes.http)), earlier_http(kind)],
        CheckedBinding::Grpc => [Some(codes.grpc as i64), earlier_grpc(kind)],
    };
    if !statuses.contains(&Some(refusal.code)) {
        return false;
    }
    match &refusal.reason {
        Some(reason) if has_reason(kind) => reason == codes.reason,
        Some(_) | None => true,
    }
}

/// True if the specification defines a reason for this kind.
fn has_reason(kind: ErrorKind) -> bool {
    matches!(kind.codes().json_rpc, -32099..=-32001)
}

/// The HTTP status in 1.0.0, if 1.0.1 changed it. Both are accepted.
fn earlier_http(kind: ErrorKind) -> Option<i64> {
    const CHANGED: [(ErrorKind, i64); 3] = [
        (ErrorKind::TaskNotCancelable, 409),
        (ErrorKind::ContentTypeNotSupported, 415),
        (ErrorKind::InvalidAgentResponse, 502),
    ];
    CHANGED.into_iter().find(|(changed, _)| *changed == kind).map(|(_, status)| status)
}

/// The gRPC status in 1.0.0, if 1.0.1 changed it.
fn earlier_grpc(kind: ErrorKind) -> Option<i64> {
    const CHANGED: [ErrorKind; 3] = [
        ErrorKind::VersionNotSupported,
        ErrorKind::UnsupportedOperation,
        ErrorKind::PushNotificationNotSupported,
    ];
    CHANGED.contains(&kind).then_some(GrpcCode::Unimplemented as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(code: i64, reason: Option<&str>) -> ErrorResponse {
        ErrorResponse { code, reason: reason.map(str::to_owned), ..ErrorResponse::default() }
    }

    #[test]
    fn a_reason_distinguishes_errors_of_one_status() {
        let name = ErrorName::from_name("UnsupportedOperationError").unwrap();
        let is = |refusal: &ErrorResponse, binding| name.is(refusal, binding, Version::V1_0);
        assert!(is(&refusal(400, Some("UNSUPPORTED_OPERATION")), CheckedBinding::Rest));
        assert!(is(&refusal(400, None), CheckedBinding::Rest));
        assert!(!is(&refusal(400, Some("TASK_NOT_CANCELABLE")), CheckedBinding::Rest));
        assert!(!is(&refusal(404, Some("UNSUPPORTED_OPERATION")), CheckedBinding::Rest));
        assert!(is(&refusal(-32004, None), CheckedBinding::JsonRpc));
        assert!(is(&refusal(9, Some("UNSUPPORTED_OPERATION")), CheckedBinding::Grpc));
        assert!(
            is(&refusal(12, Some("UNSUPPORTED_OPERATION")), CheckedBinding::Grpc),
            "as in 1.0.0"
        );
        assert!(!is(&refusal(5, None), CheckedBinding::Grpc));
    }

    #[test]
    fn errors_without_a_reason_in_the_specification_are_recognised_by_their_status() {
        let name = ErrorName::from_name("InvalidParamsError").unwrap();
        let own = refusal(400, Some("BAD_INPUT"));
        assert!(name.is(&own, CheckedBinding::Rest, Version::V1_0));
    }

    #[test]
    fn an_unknown_name_is_refused() {
        assert!(ErrorName::from_name("NoSuchError").is_err());
    }
}
