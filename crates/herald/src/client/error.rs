//! Error of a client verb: code, message, hint and exit status.

use std::process::ExitCode;

use herald_client::{ConnectFailure, Secrets};
use herald_protocol::ErrorKind;
use serde::Serialize;

/// A failure of a client verb.
#[derive(Debug)]
pub(crate) struct CliError {
    kind: CliErrorKind,
    message: String,
    hint: Option<String>,
}

/// The kind of an error. Errors of the protocol keep their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CliErrorKind {
    Usage,
    CardNotFound,
    CardInvalid,
    Unreachable,
    CredentialsMissing,
    AuthFailed,
    Timeout,
    Internal,
    Interrupted,
    /// Standard output was closed, so nothing is printed.
    OutputClosed,
    Protocol(ErrorKind),
}

/// The error object of the A2A CLI specification.
#[derive(Debug, Serialize)]
pub(crate) struct Envelope<'a> {
    error: CliErrorBody<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CliErrorBody<'a> {
    code: &'static str,
    message: &'a str,
    hint: Option<&'a str>,
    a2a_code: Option<i32>,
}

impl CliErrorKind {
    /// The code, for programs.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Self::Usage => "A2ACLI_ERR_USAGE",
            Self::CardNotFound => "A2ACLI_ERR_CARD_NOT_FOUND",
            Self::CardInvalid => "A2ACLI_ERR_CARD_INVALID",
            Self::Unreachable => "A2ACLI_ERR_UNREACHABLE",
            Self::CredentialsMissing => "A2ACLI_ERR_CREDENTIALS_MISSING",
            Self::AuthFailed => "A2ACLI_ERR_AUTH_FAILED",
            Self::Timeout => "A2ACLI_ERR_TIMEOUT",
            Self::Internal => "A2ACLI_ERR_INTERNAL",
            Self::Interrupted => "HERALD_INTERRUPTED",
            Self::OutputClosed => "HERALD_OUTPUT_CLOSED",
            Self::Protocol(kind) => kind.codes().name,
        }
    }

    /// The exit status, as in appendix D of the specification. The others are those that shells use for a program
    /// that was ended by a signal.
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::CardInvalid | Self::Internal | Self::Protocol(_) => 1,
            Self::Usage => 2,
            Self::CardNotFound | Self::Unreachable => 3,
            Self::CredentialsMissing | Self::AuthFailed => 4,
            Self::Timeout => 5,
            Self::Interrupted => 130,
            Self::OutputClosed => 141,
        }
    }
}

impl CliError {
    pub(crate) fn new(kind: CliErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// An error in arguments or settings.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(CliErrorKind::Usage, message)
    }

    /// A failure on this machine.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(CliErrorKind::Internal, message)
    }

    /// Adds a hint, unless there is one.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Appends to the message.
    #[must_use]
    pub(crate) fn adding(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// Replaces the hint.
    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Redacts secrets in the message and the hint.
    #[must_use]
    pub(crate) fn redacted(self, secrets: &Secrets) -> Self {
        let hint = self.hint.map(|hint| secrets.redact_sentence(&hint));
        Self { message: secrets.redact_sentence(&self.message), hint, ..self }
    }

    pub(crate) fn kind(&self) -> CliErrorKind {
        self.kind
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    pub(crate) fn envelope(&self) -> Envelope<'_> {
        let a2a_code = match self.kind {
            // The same number over every binding.
            CliErrorKind::Protocol(kind) => Some(kind.codes().json_rpc),
            CliErrorKind::Usage
            | CliErrorKind::CardNotFound
            | CliErrorKind::CardInvalid
            | CliErrorKind::Unreachable
            | CliErrorKind::CredentialsMissing
            | CliErrorKind::AuthFailed
            | CliErrorKind::Timeout
            | CliErrorKind::Internal
            | CliErrorKind::Interrupted
            | CliErrorKind::OutputClosed => None,
        };
        let hint = self.hint.as_deref();
        Envelope {
            error: CliErrorBody { code: self.kind.code(), message: &self.message, hint, a2a_code },
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.kind.status().into()
    }
}

impl CliError {
    /// The error of a failed call. Its caller distinguishes missing from refused credentials.
    pub(crate) fn from_error(error: &herald_client::Error) -> Self {
        let kind = match error.kind() {
            Some(ErrorKind::Unauthenticated | ErrorKind::Forbidden) => CliErrorKind::AuthFailed,
            Some(kind) => CliErrorKind::Protocol(kind),
            None if matches!(error.status(), Some(401 | 403)) => CliErrorKind::AuthFailed,
            None if error.is_login() => CliErrorKind::AuthFailed,
            None if error.is_timeout() => CliErrorKind::Timeout,
            None if error.is_connect() || error.is_broken() || error.is_lost() => {
                CliErrorKind::Unreachable
            }
            None if error.is_setup() || error.is_untrusted() => CliErrorKind::Usage,
            // Any other response violates the protocol.
            None => CliErrorKind::Protocol(ErrorKind::InvalidAgentResponse),
        };
        let said = match error.protocol() {
            Some(refusal) => refusal.message.clone(),
            None => sentence(error),
        };
        let fault = Self::new(kind, said);
        match kind {
            CliErrorKind::Unreachable => match connection_hint(error) {
                Some(hint) => fault.hint(hint),
                None => fault,
            },
            CliErrorKind::Usage
            | CliErrorKind::CardNotFound
            | CliErrorKind::CardInvalid
            | CliErrorKind::CredentialsMissing
            | CliErrorKind::AuthFailed
            | CliErrorKind::Timeout
            | CliErrorKind::Internal
            | CliErrorKind::Interrupted
            | CliErrorKind::OutputClosed
            | CliErrorKind::Protocol(_) => fault,
        }
    }
}

/// An error and its causes in one line, without repetitions.
pub(crate) fn sentence(error: &(dyn std::error::Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        // These messages of the transport only say that something failed.
        let empty = ["error sending request", "client error (Connect)", "request or response body"];
        if !said.contains(&words) && !empty.iter().any(|empty| words.starts_with(empty)) {
            said = format!("{said}: {words}");
        }
        next = cause.source();
    }
    said
}

/// Advice for a failed connection.
pub(crate) fn connection_hint(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    match ConnectFailure::of(error)? {
        ConnectFailure::UnknownHost => Some("the host name was not found; check its spelling"),
        ConnectFailure::Refused => {
            Some("no program listens on that port; is the agent running, and is the port right?")
        }
        ConnectFailure::NotTls => {
            Some("the server does not use TLS on that port; write http:// instead of https://")
        }
        ConnectFailure::Certificate => Some(
            "its certificate is not trusted; give its authority with --ca-cert, or use --insecure for a test server of your own",
        ),
        ConnectFailure::Handshake => Some("the TLS handshake failed; is the port right?"),
        _ => None,
    }
}
