//! What went wrong on the way to an agent, and what to do about it.

use herald_client::{Client, Discovered, Error, Source};
use herald_protocol::{AgentCard, ErrorKind, security::SecurityScheme};

use crate::{
    client::{
        catalog,
        contact::Contact,
        fault::{Fault, Kind},
        layers::Layers,
    },
    output::quoted,
};

impl Contact {
    /// Says where the agent's address comes from, if it is not on the command line.
    pub(super) fn with_origin(&self, fault: Fault) -> Fault {
        let config = self.args.output.config.as_deref();
        let layers = Some(()).filter(|()| self.by_setting).and_then(|()| Layers::read(config).ok());
        match layers.and_then(|layers| layers.get("agent-card")) {
            Some((_, origin)) => fault.adding(&format!(" (the agent is named by {origin})")),
            None => fault,
        }
    }

    /// Why a document that was read as a card is none.
    pub(super) fn no_card_in(&self, discovered: &Discovered) -> Option<Fault> {
        let (card, document) = (discovered.card(), discovered.document());
        if document.is_empty() || !card.supported_interfaces.is_empty() {
            return None;
        }
        if !card.name.is_empty() && catalog::entries(document).is_empty() {
            return None;
        }
        let what = &self.reference;
        let text = format!("{what} is no agent card: it has neither a name nor an interface");
        Some(Fault::new(Kind::CardInvalid, text).hint(
            "is this the address of an agent? A card's own URL and a file with one are taken too",
        ))
    }

    /// What was found names agents and is none.
    pub(super) fn is_catalog(&self, entries: &[String]) -> Fault {
        let known = catalog::listed(entries);
        let text = format!("{} is a catalog and no agent card", self.reference);
        let first = entries.first().map(|first| quoted(&format!("{}#{first}", self.reference)));
        let fault = Fault::new(Kind::CardInvalid, text);
        self.with_origin(fault)
            .hint(format!("add #NAME, such as {}; it has: {known}", first.unwrap_or_default()))
    }

    /// Why there is no card.
    pub(super) fn no_card(&self, place: &Source, error: &Error) -> Fault {
        self.with_origin(self.unfound(place, error))
    }

    fn unfound(&self, place: &Source, error: &Error) -> Fault {
        let said = crate::client::fault::sentence(error);
        if error.is_connect() || error.is_timeout() || error.is_broken() {
            let fault = Fault::from_error(error);
            return match (fault.advice(), place) {
                (None, Source::Below(url) | Source::At(url)) if url.scheme() == "https" => {
                    fault.hint("if it serves plain HTTP, write http:// in front of its name")
                }
                _ => fault,
            };
        }
        if error.is_untrusted() {
            return Fault::new(Kind::CardInvalid, said)
                .hint("name the keys you trust with --card-keys or --card-keys-from");
        }
        if matches!(error.status(), Some(401 | 403)) {
            let text = "the card itself is behind a login, and no credential is shown to whoever \
                        has not declared one";
            return Fault::new(Kind::CredentialsMissing, text)
                .hint("get the card from its owner and name the file: -a ./card.json");
        }
        if error.is_invalid() || error.is_too_large() {
            return Fault::new(Kind::CardInvalid, said).hint(
                "is this the address of an agent? It may be at another port or path; the URL of \
                 its card, which mostly ends in /.well-known/agent-card.json, is taken too",
            );
        }
        let fault = Fault::new(Kind::CardNotFound, said);
        match error.is_temporary() || error.status().is_some_and(|status| status >= 500) {
            true => fault.hint("the server is there and in trouble; try again, or tell its owner"),
            false => fault.hint("check the address; a card's own URL and a file are taken too"),
        }
    }

    /// Why a call failed, and what to do.
    pub(crate) fn explain(&self, client: &Client, error: &Error) -> Fault {
        let fault = Fault::from_error(error);
        if error.untrusted_origin().is_some() {
            let hint = "if you trust it, name it with --trust-origin URL";
            return Fault::usage(fault.message()).hint(hint);
        }
        match fault.kind() {
            Kind::AuthFailed => self.not_let_in(&client.card(), error, fault),
            Kind::Protocol(kind) => {
                let advice = self.advice(kind, error);
                fault.hint(advice)
            }
            Kind::Usage
            | Kind::CardNotFound
            | Kind::CardInvalid
            | Kind::Unreachable
            | Kind::CredentialsMissing
            | Kind::Timeout
            | Kind::Internal
            | Kind::Interrupted
            | Kind::Unread => self.left(fault),
        }
    }

    /// A credential is missing, or is not enough.
    fn not_let_in(&self, card: &AgentCard, error: &Error, fault: Fault) -> Fault {
        let schemes = || card.security_schemes.values();
        if error.kind() == Some(ErrorKind::Forbidden) {
            let detail = error.protocol().and_then(|refusal| refusal.detail.as_ref());
            return match detail.and_then(|detail| detail.metadata.get("scope")) {
                Some(scope) => fault.hint(format!("the credential needs the scope {scope:?}")),
                None => fault.hint("the credential does not allow this; is it the right one?"),
            };
        }
        let given = self.args.bearer.is_some() || self.args.api_key.is_some();
        let fits = schemes().next().is_none() || schemes().any(|scheme| self.has_for(scheme));
        if given && fits {
            return fault.hint("the credential was not accepted for this; is it the right one?");
        }
        let by_login = schemes().any(|scheme| {
            matches!(scheme, SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_))
        });
        let kind = match given || by_login && self.can_log_in {
            true => Kind::AuthFailed,
            false => Kind::CredentialsMissing,
        };
        Fault::new(kind, fault.message()).hint(self.remedy(card))
    }

    /// What to do about a refusal.
    fn advice(&self, kind: ErrorKind, error: &Error) -> String {
        let card = self.command("card get", "");
        match kind {
            ErrorKind::Parse
            | ErrorKind::InvalidRequest
            | ErrorKind::MethodNotFound
            | ErrorKind::InvalidParams
            | ErrorKind::Internal
            | ErrorKind::InvalidAgentResponse => {
                "add --debug to see what went over the wire".to_owned()
            }
            ErrorKind::TaskNotFound => {
                let list = self.command("task list", "");
                format!("see which tasks there are with: {list}; add --debug to see the refusal")
            }
            ErrorKind::TaskNotCancelable => {
                let seen = self.seen.borrow();
                let id = seen.as_ref().map_or("ID".to_owned(), |id| quoted(id.as_str()));
                format!("it has ended; see how with: {}", self.command("task get", &id))
            }
            ErrorKind::PushNotificationNotSupported => {
                "follow the task with `herald task subscribe`, or wait with `herald task get --wait`"
                    .to_owned()
            }
            ErrorKind::UnsupportedOperation
            | ErrorKind::StreamingNotSupported
            | ErrorKind::TaskEnded
            | ErrorKind::ExtendedAgentCardNotConfigured => {
                format!("see what the agent offers with: {card}")
            }
            ErrorKind::ContentTypeNotSupported => {
                format!("see which media types it takes with: {card}")
            }
            ErrorKind::ExtensionSupportRequired => {
                format!("name the extension with --extension URI; the card lists them: {card}")
            }
            ErrorKind::VersionNotSupported => {
                format!("choose another with --a2a-version; the card lists them: {card}")
            }
            ErrorKind::AgentUnavailable | ErrorKind::LimitExceeded | ErrorKind::Unavailable => {
                match error.retry_after() {
                    Some(pause) => {
                        format!("try again in {}", humantime::format_duration(pause))
                    }
                    None => "try again a little later".to_owned(),
                }
            }
            ErrorKind::Unauthenticated | ErrorKind::Forbidden => {
                "the credential was not accepted for this; is it the right one?".to_owned()
            }
            ErrorKind::IdempotencyConflict => "send it again as a message of its own".to_owned(),
            ErrorKind::TooLarge => {
                "put it where the agent can fetch it, and give --file its URL".to_owned()
            }
        }
    }
}
