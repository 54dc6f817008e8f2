//! Why a client verb failed: one object for programs, one sentence and a hint for people, one exit
//! status for shells.

use std::process::ExitCode;

use herald_client::Secrets;
use herald_protocol::ErrorKind;
use serde::Serialize;

/// A failure of a client verb.
#[derive(Debug)]
pub(crate) struct Fault {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

/// What went wrong. The protocol's own refusals keep their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Usage,
    CardNotFound,
    CardInvalid,
    Unreachable,
    CredentialsMissing,
    AuthFailed,
    Timeout,
    Internal,
    Interrupted,
    /// Whoever read the output has gone; there is nobody to tell.
    Unread,
    Protocol(ErrorKind),
}

/// The error object of the A2A CLI specification.
#[derive(Debug, Serialize)]
pub(crate) struct Envelope<'a> {
    error: Body<'a>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    code: &'static str,
    message: &'a str,
    hint: Option<&'a str>,
    a2a_code: Option<i32>,
}

impl Kind {
    /// The name to branch on.
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
            Self::Unread => "HERALD_OUTPUT_CLOSED",
            Self::Protocol(kind) => kind.codes().name,
        }
    }

    /// The exit status, as the specification's appendix D has it. What is not there is what a shell
    /// expects of a program that a signal ended.
    pub(crate) const fn status(self) -> u8 {
        match self {
            Self::CardInvalid | Self::Internal | Self::Protocol(_) => 1,
            Self::Usage => 2,
            Self::CardNotFound | Self::Unreachable => 3,
            Self::CredentialsMissing | Self::AuthFailed => 4,
            Self::Timeout => 5,
            Self::Interrupted => 130,
            Self::Unread => 141,
        }
    }
}

impl Fault {
    pub(crate) fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// Arguments that are wrong.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// Something on this machine that did not work.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// What to do about it, unless that was already said.
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// The same with more about what happened.
    #[must_use]
    pub(crate) fn adding(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// The same with other advice.
    #[must_use]
    pub(crate) fn advising(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same without what must not be shown.
    #[must_use]
    pub(crate) fn without(self, secrets: &Secrets) -> Self {
        let hint = self.hint.map(|hint| secrets.redact_sentence(&hint));
        Self { message: secrets.redact_sentence(&self.message), hint, ..self }
    }

    pub(crate) fn kind(&self) -> Kind {
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
            Kind::Protocol(kind) => Some(kind.codes().json_rpc),
            Kind::Usage
            | Kind::CardNotFound
            | Kind::CardInvalid
            | Kind::Unreachable
            | Kind::CredentialsMissing
            | Kind::AuthFailed
            | Kind::Timeout
            | Kind::Internal
            | Kind::Interrupted
            | Kind::Unread => None,
        };
        let hint = self.hint.as_deref();
        Envelope { error: Body { code: self.kind.code(), message: &self.message, hint, a2a_code } }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        self.kind.status().into()
    }
}

impl Fault {
    /// A call that failed. Whether credentials were given is for the caller to say.
    pub(crate) fn from_error(error: &herald_client::Error) -> Self {
        let kind = match error.kind() {
            Some(ErrorKind::Unauthenticated | ErrorKind::Forbidden) => Kind::AuthFailed,
            Some(kind) => Kind::Protocol(kind),
            None if matches!(error.status(), Some(401 | 403)) => Kind::AuthFailed,
            None if error.is_login() => Kind::AuthFailed,
            None if error.is_timeout() => Kind::Timeout,
            None if error.is_connect() || error.is_broken() || error.is_lost() => Kind::Unreachable,
            None if error.is_setup() || error.is_untrusted() => Kind::Usage,
            // Whatever else the agent answers is not of the protocol.
            None => Kind::Protocol(ErrorKind::InvalidAgentResponse),
        };
        let said = match error.protocol() {
            Some(refusal) => refusal.message.clone(),
            None => sentence(error),
        };
        let fault = Self::new(kind, said);
        match kind {
            Kind::Unreachable => match connection_hint(&sentence(error)) {
                Some(hint) => fault.hint(hint),
                None => fault,
            },
            Kind::Usage
            | Kind::CardNotFound
            | Kind::CardInvalid
            | Kind::CredentialsMissing
            | Kind::AuthFailed
            | Kind::Timeout
            | Kind::Internal
            | Kind::Interrupted
            | Kind::Unread
            | Kind::Protocol(_) => fault,
        }
    }
}

/// An error and what caused it, in one line that says nothing twice.
pub(crate) fn sentence(error: &(dyn std::error::Error + 'static)) -> String {
    let mut said = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        // The words of transports in between say no more than that something failed.
        let empty = ["error sending request", "client error (Connect)", "request or response body"];
        if !said.contains(&words) && !empty.iter().any(|empty| words.starts_with(empty)) {
            said = format!("{said}: {words}");
        }
        next = cause.source();
    }
    said
}

/// What may be wrong with a connection, from the words of whoever failed to make it.
pub(crate) fn connection_hint(words: &str) -> Option<&'static str> {
    let words = words.to_ascii_lowercase();
    let any = |signs: &[&str]| signs.iter().any(|sign| words.contains(sign));
    if any(&["dns", "lookup address", "name or service", "no such host"]) {
        Some("no host has that name; check how it is written")
    } else if any(&["refused"]) {
        Some("nothing listens there; is the agent running, and is the port right?")
    } else if any(&["corrupt message", "invalidcontenttype", "wrong version number"]) {
        Some("the server seems to speak plain HTTP there; write http:// instead of https://")
    } else if any(&["certificate", "unknownissuer"]) {
        Some("its certificate is not trusted here; for a test server of your own, use --insecure")
    } else if any(&["tls", "handshake"]) {
        Some("it hung up while the connection was being secured; is the port right?")
    } else {
        None
    }
}
