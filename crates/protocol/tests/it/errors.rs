//! Errors as each binding shows them.

use herald_protocol::{
    Dialect, Error, ErrorKind,
    error::Codes,
    jsonrpc::{self, RequestId},
};

use crate::support::value;

// part of: ERR-074
// proves: ERR-001, ERR-002, ERR-003, ERR-004, ERR-005, ERR-006, ERR-007, ERR-008, ERR-009
// proves: ERR-021, ERR-022, ERR-023, ERR-024, ERR-025, ERR-026, ERR-027, ERR-028, ERR-029
// proves: ERR-041, ERR-042, ERR-043, ERR-044, ERR-045, ERR-046, ERR-047, ERR-048, ERR-049
#[test]
fn the_table_is_that_of_1_0_1() {
    let table = [
        (ErrorKind::TaskNotFound, -32001, 404, "NOT_FOUND", "TASK_NOT_FOUND"),
        (ErrorKind::TaskNotCancelable, -32002, 400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE"),
        (
            ErrorKind::PushNotificationNotSupported,
            -32003,
            400,
            "FAILED_PRECONDITION",
            "PUSH_NOTIFICATION_NOT_SUPPORTED",
        ),
        (
            ErrorKind::UnsupportedOperation,
            -32004,
            400,
            "FAILED_PRECONDITION",
            "UNSUPPORTED_OPERATION",
        ),
        (
            ErrorKind::ContentTypeNotSupported,
            -32005,
            400,
            "INVALID_ARGUMENT",
            "CONTENT_TYPE_NOT_SUPPORTED",
        ),
        (ErrorKind::InvalidAgentResponse, -32006, 500, "INTERNAL", "INVALID_AGENT_RESPONSE"),
        (
            ErrorKind::ExtendedAgentCardNotConfigured,
            -32007,
            400,
            "FAILED_PRECONDITION",
            "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        ),
        (
            ErrorKind::ExtensionSupportRequired,
            -32008,
            400,
            "FAILED_PRECONDITION",
            "EXTENSION_SUPPORT_REQUIRED",
        ),
        (
            ErrorKind::VersionNotSupported,
            -32009,
            400,
            "FAILED_PRECONDITION",
            "VERSION_NOT_SUPPORTED",
        ),
    ];
    for (kind, json_rpc, http, grpc, reason) in table {
        let codes = kind.codes();
        let found = (codes.json_rpc, codes.http, codes.grpc.name(), codes.reason);
        assert_eq!(found, (json_rpc, http, grpc, reason));
    }
}

// proves: ERR-060, ERR-061, ERR-062, ERR-063, ERR-065, ERR-066, RPC-001
#[test]
fn every_error_says_the_same_on_json_rpc_and_on_rest() {
    for &kind in ErrorKind::ALL {
        let error = Error::new(kind, "a sentence").with("taskId", "t");
        let codes = kind.codes();
        let rpc = value(Dialect::V1.encode_error(&RequestId::null(), &error));
        assert_eq!(rpc["jsonrpc"], "2.0");
        assert_eq!(rpc["error"]["code"], codes.json_rpc);
        let rest = value(Dialect::V1.encode_status(&error));
        assert_eq!(rest["error"]["code"], codes.http);
        assert_eq!(rest["error"]["status"], codes.grpc.name());
        assert_eq!(rpc["error"]["message"], format!("{}: a sentence", kind.title()));
        assert_eq!(rest["error"]["message"], "a sentence");
        for details in [&rpc["error"]["data"], &rest["error"]["details"]] {
            assert_eq!(details[0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
            assert_eq!(details[0]["reason"], codes.reason);
            assert_eq!(details[0]["domain"], "a2a-protocol.org");
            assert_eq!(details[0]["metadata"]["taskId"], "t");
        }
    }
}

// proves: ERR-062, ERR-064
#[test]
fn fields_at_fault_are_a_bad_request() {
    let error = Error::field("message.parts", "must hold at least one part");
    for details in [
        &value(Dialect::V1.encode_error(&RequestId::null(), &error))["error"]["data"],
        &value(Dialect::V1.encode_status(&error))["error"]["details"],
    ] {
        assert_eq!(details[1]["@type"], "type.googleapis.com/google.rpc.BadRequest");
        assert_eq!(details[1]["fieldViolations"][0]["field"], "message.parts");
    }
}

// proves: ERR-065
#[test]
fn our_own_codes_stay_out_of_the_reserved_range_and_reasons_are_unique() {
    // Only 0.1 tells these from any other unsupported operation.
    let merged = [ErrorKind::StreamingNotSupported, ErrorKind::TaskEnded];
    let kinds = ErrorKind::ALL.iter().filter(|kind| !merged.contains(kind));
    let mut reasons: Vec<_> = kinds.map(|kind| kind.codes().reason).collect();
    reasons.sort_unstable();
    reasons.dedup();
    assert_eq!(reasons.len(), ErrorKind::ALL.len() - merged.len());
    for kind in merged {
        let (one, other) = (kind.codes(), ErrorKind::UnsupportedOperation.codes());
        assert_eq!(Codes { json_rpc_v01: other.json_rpc_v01, ..one }, other);
    }
    for kind in [
        ErrorKind::AgentUnavailable,
        ErrorKind::Unauthenticated,
        ErrorKind::Forbidden,
        ErrorKind::IdempotencyConflict,
        ErrorKind::LimitExceeded,
        ErrorKind::ResourceNotFound,
        ErrorKind::AmbiguousTask,
        ErrorKind::QuestionChanged,
        ErrorKind::WorkerUnknown,
        ErrorKind::WorkerExpired,
        ErrorKind::WorkerNameTaken,
        ErrorKind::TurnOver,
        ErrorKind::WriteRefused,
    ] {
        assert!(!(-32099..=-32001).contains(&kind.codes().json_rpc));
    }
}

// proves: RPC-001, RPC-002, RPC-004
#[test]
fn an_answer_has_a_result_or_an_error_and_the_callers_id() {
    for id in [r#""a\"b""#, "7", "-1", "null"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"X"}}"#);
        let call = jsonrpc::parse(body.as_bytes()).unwrap();
        for result in ["null", "{}", "[1]"] {
            let answer = value(jsonrpc::result(&call.id, result.as_bytes()));
            let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["id", "jsonrpc", "result"]);
            assert_eq!(answer["id"], value(id));
        }
        let error = Error::task_not_found();
        let answer = value(Dialect::V1.encode_error(&call.id, &error));
        let keys: Vec<_> = answer.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["error", "id", "jsonrpc"]);
    }
}

#[test]
fn the_page_about_errors_has_the_one_table() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows = page.lines().filter_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [head @ .., meaning] = &cells[..] else { return None };
        (head.len() == 6 && head[0].starts_with('`')).then(|| {
            assert!(!meaning.is_empty(), "{line}");
            head.join(" ").replace('`', "")
        })
    });
    let table = ErrorKind::ALL.iter().map(|kind| {
        let Codes { json_rpc, json_rpc_v03, json_rpc_v01, http, grpc, reason, .. } = kind.codes();
        format!("{reason} {json_rpc} {json_rpc_v03} {json_rpc_v01} {http} {}", grpc.name())
    });
    assert_eq!(rows.collect::<Vec<_>>(), table.collect::<Vec<_>>());
}
