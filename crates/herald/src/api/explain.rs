//! Error messages and hints for refused calls of `/api`.

use herald_api::ApiRoute;
use herald_protocol::{Dialect, ErrorKind, failure};

use super::{ApiResponse, Carrier};
use crate::client::error::{CliError, CliErrorKind};

/// The error for a refusal, with the credentials in mind.
pub(super) fn refusal(server: &Carrier, route: ApiRoute, response: &ApiResponse) -> CliError {
    let fault = status(&server.place(), route, response);
    match server {
        Carrier::Running(server)
            if response.status.as_u16() == 401 && !server.has_credentials() =>
        {
            CliError::new(CliErrorKind::CredentialsMissing, fault.message()).hint(CREDENTIALS)
        }
        Carrier::Running(_) | Carrier::Stopped(_) => fault,
    }
}

const CREDENTIALS: &str = "give a token or an API key with A2ACLI_BEARER, or use --data DIR as the user that runs \
                           the server";

/// The error for a response that is no success.
pub(super) fn status(place: &str, route: ApiRoute, response: &ApiResponse) -> CliError {
    let status = response.status.as_u16();
    let Some(error) = failure::rest(Dialect::V1, status, &response.body) else {
        return if status == 404 || response.status.is_redirection() {
            no_api(place)
        } else {
            let text = format!("{place} answered {} {}", route.path(), response.status);
            CliError::internal(text).hint("is it a herald? Look at the log of the server")
        };
    };
    let kind = if matches!(error.kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden) {
        CliErrorKind::AuthFailed
    } else {
        CliErrorKind::Protocol(error.kind)
    };
    let fault = CliError::new(kind, error.message);
    match hint(error.kind, route) {
        Some(hint) => fault.hint(hint),
        None => fault,
    }
}

fn hint(kind: ErrorKind, route: ApiRoute) -> Option<String> {
    let hint = if kind == ErrorKind::Unauthenticated {
        "the server refused the credential; is it the right one, and is it still valid?"
    } else if kind == ErrorKind::Forbidden {
        let scope = route.scope().name()?;
        let shown = "`herald status` shows what a credential may do";
        let beside = if scope == "admin" { "" } else { ", and admin beside it for other owners" };
        return Some(format!("the verb needs the scope {scope}{beside}; {shown}"));
    } else if kind == ErrorKind::AmbiguousTask {
        "name its owner with --tenant and --principal"
    } else if kind == ErrorKind::QuestionChanged {
        "read the question that is open now with `herald task show`, and answer it by its id"
    } else if kind == ErrorKind::TaskNotFound {
        "`herald task list` with --server or --data shows the tasks; those of other owners need the scope admin"
    } else if kind == ErrorKind::ResourceNotFound
        && matches!(route, ApiRoute::GetAgent | ApiRoute::RemoveAgent)
    {
        "`herald agent list` shows the names"
    } else if kind == ErrorKind::ResourceNotFound {
        "`herald key list` shows the ids"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// The error for a server without this interface.
pub(super) fn no_api(place: &str) -> CliError {
    let text = format!("{place} has no /api: it is an older herald, or another program");
    CliError::new(CliErrorKind::Unreachable, text).hint(format!(
        "check the URL; this is herald {}, and the server needs at least the same version",
        env!("CARGO_PKG_VERSION")
    ))
}
