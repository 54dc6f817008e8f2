//! Errors of calls as messages for users, with hints.

use herald_client::{Client, Discovered, Error, Source};
use herald_protocol::{AgentCard, ErrorKind, security::SecurityScheme};

use crate::{
    client::{
        catalog,
        contact::Contact,
        error::{CliError, CliErrorKind},
        layers::Layers,
    },
    output::quoted,
};

impl Contact {
    /// Adds the source of the agent's address, if it is not the command line.
    pub(super) fn with_origin(&self, fault: CliError) -> CliError {
        let config = self.args.output.config.as_deref();
        let layers = Some(()).filter(|()| self.by_setting).and_then(|()| Layers::read(config).ok());
        match layers.and_then(|layers| layers.get("agent-card")) {
            Some((_, origin)) => fault.adding(&format!(" (the agent is named by {origin})")),
            None => fault,
        }
    }

    /// An error for a document that is not a card.
    pub(super) fn no_card_in(&self, discovered: &Discovered) -> Option<CliError> {
        let (card, document) = (discovered.card(), discovered.document());
        if document.is_empty() || card.supported_interfaces.iter().any(|one| !one.url.is_empty()) {
            return None;
        }
        if !card.name.is_empty() && catalog::entries(document).is_empty() {
            return None;
        }
        let what = &self.reference;
        let text = format!("{what} is not an agent card: it has neither a name nor an interface");
        Some(CliError::new(CliErrorKind::CardInvalid, text).hint(
            "check that this is the address of an agent; the URL or the file of a card works too",
        ))
    }

    /// An error for a catalog in place of a card.
    pub(super) fn is_catalog(&self, entries: &[String]) -> CliError {
        let known = catalog::listed(entries);
        let text = format!("{} is a catalog, not an agent card", self.reference);
        let first = entries.first().map(|first| quoted(&format!("{}#{first}", self.reference)));
        let fault = CliError::new(CliErrorKind::CardInvalid, text);
        self.with_origin(fault)
            .hint(format!("add #NAME, such as {}; its entries: {known}", first.unwrap_or_default()))
    }

    /// An error for a card that cannot be fetched.
    pub(super) fn no_card(&self, place: &Source, error: &Error) -> CliError {
        self.with_origin(self.unfound(place, error))
    }

    fn unfound(&self, place: &Source, error: &Error) -> CliError {
        let said = crate::client::error::sentence(error);
        if error.is_connect() || error.is_timeout() || error.is_broken() {
            let fault = CliError::from_error(error);
            return match (fault.advice(), place) {
                (None, Source::Below(url) | Source::At(url)) if url.scheme() == "https" => {
                    fault.hint("if the server uses plain HTTP, write http:// before its name")
                }
                _ => fault,
            };
        }
        if error.is_untrusted() {
            return CliError::new(CliErrorKind::CardInvalid, said)
                .hint("give the keys you trust with --card-keys or --card-keys-from");
        }
        if matches!(error.status(), Some(401 | 403)) {
            let text = "the server requires credentials for the card itself, and none are sent before a card \
                        declares a security scheme";
            return CliError::new(CliErrorKind::CredentialsMissing, text)
                .hint("get the card from its operator and use the file: -a ./card.json");
        }
        if error.is_invalid() || error.is_too_large() {
            return CliError::new(CliErrorKind::CardInvalid, said).hint(
                "check that this is the address of an agent, with the right port and path; the URL of its card, which usually \
                 ends in /.well-known/agent-card.json, works too",
            );
        }
        let fault = CliError::new(CliErrorKind::CardNotFound, said);
        if error.is_temporary() || error.status().is_some_and(|status| status >= 500) {
            fault.hint("the server has a fault; try again, or tell its operator")
        } else {
            match place {
                Source::File(_) => fault.hint("check the path"),
                Source::Below(_) | Source::At(_) | Source::Program(_) => {
                    fault.hint("check the address; the URL or the file of a card works too")
                }
            }
        }
    }

    /// An error for a failed call, with a hint.
    pub(crate) fn explain(&self, client: &Client, error: &Error) -> CliError {
        let fault = CliError::from_error(error);
        if error.untrusted_origin().is_some() {
            let hint = "if you trust that origin, add --trust-origin URL";
            return CliError::usage(fault.message()).hint(hint);
        }
        match fault.kind() {
            CliErrorKind::AuthFailed => self.auth_error(&client.card(), error, fault),
            CliErrorKind::Protocol(kind) => {
                let advice = self.advice(kind, error);
                fault.hint(advice)
            }
            CliErrorKind::Usage
            | CliErrorKind::CardNotFound
            | CliErrorKind::CardInvalid
            | CliErrorKind::Unreachable
            | CliErrorKind::CredentialsMissing
            | CliErrorKind::Timeout
            | CliErrorKind::Internal
            | CliErrorKind::Interrupted
            | CliErrorKind::OutputClosed => self.left(fault),
        }
    }

    /// An error for a missing or insufficient credential.
    fn auth_error(&self, card: &AgentCard, error: &Error, fault: CliError) -> CliError {
        let schemes = || card.security_schemes.values();
        if error.kind() == Some(ErrorKind::Forbidden) {
            let detail = error.protocol().and_then(|refusal| refusal.detail.as_ref());
            return match detail.and_then(|detail| detail.metadata.get("scope")) {
                Some(scope) => fault.hint(format!("the credential needs the scope {scope:?}")),
                None => fault.hint("the credential does not permit this; is it the right one?"),
            };
        }
        let given = self.args.bearer.is_some() || self.args.api_key.is_some();
        let fits = schemes().next().is_none() || schemes().any(|scheme| self.has_for(scheme));
        if given && fits {
            return fault.hint("the agent refused the credential; is it the right one?");
        }
        let by_login = schemes().any(|scheme| {
            matches!(scheme, SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_))
        });
        let kind = if given || by_login && self.can_log_in {
            CliErrorKind::AuthFailed
        } else {
            CliErrorKind::CredentialsMissing
        };
        CliError::new(kind, fault.message()).hint(self.remedy(card))
    }

    /// Advice for an error of the protocol.
    fn advice(&self, kind: ErrorKind, error: &Error) -> String {
        let card = self.command("card get", "");
        match kind {
            ErrorKind::Parse
            | ErrorKind::InvalidRequest
            | ErrorKind::MethodNotFound
            | ErrorKind::InvalidParams
            | ErrorKind::Internal
            | ErrorKind::InvalidAgentResponse => {
                "add --debug to see the request and the response".to_owned()
            }
            ErrorKind::TaskNotFound => {
                let list = self.command("task list", "");
                format!("list the tasks with: {list}; add --debug to see the agent's error")
            }
            ErrorKind::TaskNotCancelable => {
                let seen = self.seen.borrow();
                let id = seen.as_ref().map_or("ID".to_owned(), |id| quoted(id.as_str()));
                format!("the task has ended; look at it with: {}", self.command("task get", &id))
            }
            ErrorKind::PushNotificationNotSupported => {
                "follow the task with `herald task subscribe`, or wait with `herald task get --wait`"
                    .to_owned()
            }
            ErrorKind::UnsupportedOperation
            | ErrorKind::StreamingNotSupported
            | ErrorKind::TaskEnded
            | ErrorKind::ExtendedAgentCardNotConfigured => {
                format!("see the agent's capabilities with: {card}")
            }
            ErrorKind::ContentTypeNotSupported => {
                format!("see the media types that the agent accepts with: {card}")
            }
            ErrorKind::ExtensionSupportRequired => {
                format!("give the extension with --extension URI; the card lists them: {card}")
            }
            ErrorKind::VersionNotSupported => {
                format!("choose another version with --a2a-version; the card lists them: {card}")
            }
            ErrorKind::AgentUnavailable | ErrorKind::LimitExceeded | ErrorKind::Unavailable => {
                match error.retry_after() {
                    Some(pause) => {
                        format!("try again in {}", humantime::format_duration(pause))
                    }
                    None => "try again later".to_owned(),
                }
            }
            ErrorKind::Unauthenticated | ErrorKind::Forbidden => {
                "the agent refused the credential; is it the right one?".to_owned()
            }
            ErrorKind::IdempotencyConflict => "send it again as a new message".to_owned(),
            ErrorKind::ResourceNotFound => "check the name or the id".to_owned(),
            ErrorKind::AmbiguousTask => "name its owner with --tenant and --principal".to_owned(),
            ErrorKind::QuestionChanged => {
                "read the question that is open now, and answer it by its id".to_owned()
            }
            ErrorKind::WorkerUnknown | ErrorKind::WorkerExpired => {
                "register the worker again".to_owned()
            }
            ErrorKind::WorkerNameTaken => "choose another instance id".to_owned(),
            ErrorKind::TurnOver => "stop the turn: another worker has it, or it ended".to_owned(),
            ErrorKind::WriteRefused => "correct the write; nothing of it was stored".to_owned(),
            ErrorKind::TooLarge => {
                "upload it where the agent can fetch it, and give its URL with --file".to_owned()
            }
        }
    }
}
