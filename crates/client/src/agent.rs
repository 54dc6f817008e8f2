//! Remote agent: its card, and a transport for each interface that can be called.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use crate::{
    call::Outgoing,
    candidates::choose,
    discover::{FoundCard, Source},
    error::{Error, TriedInterface},
    interface::{Binding, Usable},
    oauth::OAuthSession,
    proof::Proof,
    settings::ClientSettings,
    transport::{
        Answered, Grpc, HttpEndpoint, JsonRpc, Lasting, Pipe, Rest, Transport, WebSocket,
        http::Http,
    },
};

/// One agent.
#[derive(Debug)]
pub(crate) struct RemoteAgent {
    pub(crate) found: FoundCard,
    channels: Vec<Channel>,
    /// Index of the channel that answered last.
    current: AtomicUsize,
    /// True once a call has succeeded, so that the address and the version are no longer in doubt.
    is_confirmed: AtomicBool,
    /// The source of tokens, if they have to be fetched.
    pub(crate) session: Option<OAuthSession>,
}

/// One interface of the agent with its transport.
#[derive(Debug)]
struct Channel {
    usable: Usable,
    transport: Box<dyn Transport>,
}

impl RemoteAgent {
    /// `source` is the source of the card, unless the caller has given the card itself.
    pub(crate) fn new(
        settings: &ClientSettings,
        http: &Http,
        source: Option<&Source>,
        found: FoundCard,
    ) -> Result<Self, Error> {
        let card = &found.card;
        let program = source.and_then(Source::program);
        let (usable, (proof, session)) = match program {
            // The program runs as the user who starts it, so it needs no credentials.
            Some(_) => (vec![Usable::stdio()], (Proof::default(), None)),
            None => {
                let pinned = settings.version;
                let usable = choose(card, found.url.as_ref(), &settings.preferred, pinned)?;
                let origin = source.and_then(Source::origin);
                let usable = trusted(settings, origin.as_deref(), usable)?;
                let own_card = origin.is_none();
                let mut named = settings.trusted.clone();
                named.extend(origin);
                let proof = Proof::new(&settings.credentials, card, |oauth, scheme, scopes| {
                    let (trusted, tokens) = (named.clone(), Arc::clone(&settings.tokens));
                    OAuthSession::new(
                        oauth,
                        scheme,
                        scopes,
                        (trusted, own_card),
                        http.clone(),
                        tokens,
                    )
                })?;
                (usable, proof)
            }
        };
        let channel = |usable: Usable| {
            let tenant = usable.interface.tenant.clone().filter(|tenant| !tenant.is_empty());
            let endpoint = HttpEndpoint::new(
                http.clone(),
                usable.url.clone(),
                usable.dialect,
                tenant.or_else(|| settings.tenant.clone()),
                proof.clone(),
                &settings.extensions,
            )?;
            let transport: Box<dyn Transport> = match usable.binding {
                Binding::JsonRpc => Box::new(JsonRpc::new(endpoint)),
                Binding::Rest => Box::new(Rest::new(endpoint)),
                Binding::Grpc => Box::new(Grpc::new(endpoint)),
                Binding::WebSocket => {
                    Box::new(Lasting::new(endpoint.clone(), WebSocket::new(endpoint)))
                }
                Binding::Stdio => {
                    let program = program.cloned().ok_or_else(|| Error::setup("no program"))?;
                    let limit = settings.limits.event.max(settings.limits.response);
                    Box::new(Lasting::new(endpoint, Pipe { program, limit }))
                }
            };
            Ok(Channel { usable, transport })
        };
        let channels = usable.into_iter().map(channel).collect::<Result<_, Error>>()?;
        let (current, is_confirmed) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self { found, channels, current, is_confirmed, session })
    }

    /// The interface that is being called.
    pub(crate) fn interface(&self) -> &Usable {
        &self.channels[self.current.load(Ordering::Relaxed)].usable
    }

    /// Makes a call once, or twice if its token is refused and replaced: the agent has done nothing by then.
    pub(crate) async fn call(&self, call: &Outgoing) -> Result<Answered, Error> {
        let Some(session) = &self.session else { return self.call_any(call).await };
        // Boxed, so that calls without a session stay small.
        Box::pin(session.ready()).await?;
        let shown = session.token();
        match self.call_any(call).await {
            Err(error) if error.is_unauthenticated() => {
                Box::pin(session.renew(shown.as_ref())).await?;
                self.call_any(call).await
            }
            answer => answer,
        }
    }

    /// Makes a call at the first interface that can be reached and has the method. The others have not received the
    /// call, or their answers prove that they have not acted on it, so that no message arrives twice.
    async fn call_any(&self, call: &Outgoing) -> Result<Answered, Error> {
        let first = self.current.load(Ordering::Relaxed);
        let mut tried: Vec<(&Usable, Error)> = Vec::new();
        // Paths that do not exist, and origins that cannot be reached, each over one binding.
        let (mut absent, mut unreachable) = (Vec::new(), Vec::new());
        for step in 0..self.channels.len() {
            let index = (first + step) % self.channels.len();
            let Channel { usable, transport } = &self.channels[index];
            let (binding, url) = (usable.binding, &usable.url);
            if absent.contains(&(binding, url)) || unreachable.contains(&(binding, url.origin())) {
                continue;
            }
            let error = match transport.call(call).await {
                Ok(answer) => {
                    self.current.store(index, Ordering::Relaxed);
                    self.is_confirmed.store(true, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => error,
            };
            let is_wrong = !self.is_confirmed.load(Ordering::Relaxed) && error.proves_no_effect();
            if !error.is_connect() && !is_wrong {
                self.current.store(index, Ordering::Relaxed);
                return Err(error);
            }
            if error.is_connect() {
                unreachable.push((binding, url.origin()));
            } else if error.status().is_some() {
                absent.push((binding, url));
            }
            tracing::debug!(%url, %error, "an interface cannot be used; trying the next one");
            tried.push((usable, error));
        }
        Err(summary(tried))
    }
}

/// The error after all interfaces were tried: the one that tells most about the agent, with the list of attempts.
fn summary(mut tried: Vec<(&Usable, Error)>) -> Error {
    let attempts = tried.iter().map(|(usable, error)| TriedInterface {
        binding: usable.interface.protocol_binding.clone(),
        version: usable.dialect.version(),
        url: usable.url.to_string(),
        outcome: match (error.status(), error.protocol()) {
            (Some(status), _) => format!("HTTP status {status}"),
            (None, Some(refusal)) => refusal.message.clone(),
            (None, None) => error.to_string(),
        },
    });
    let attempts: Vec<_> = attempts.collect();
    let answered = |(_, error): &(&Usable, Error)| error.protocol().is_some();
    let reached = |(_, error): &(&Usable, Error)| !error.is_connect();
    let told = tried.iter().position(answered).or_else(|| tried.iter().position(reached));
    let told = told.unwrap_or(tried.len() - 1);
    let (_, error) = tried.swap_remove(told);
    if attempts.len() > 1 && !error.is_connect() { error.after(attempts) } else { error }
}

/// The interfaces that calls with secrets may use: a card from the network may not direct them to other
/// origins.
fn trusted(
    settings: &ClientSettings,
    origin: Option<&str>,
    mut usable: Vec<Usable>,
) -> Result<Vec<Usable>, Error> {
    let secrets = settings.confined || !settings.credentials.is_empty();
    let Some(origin) = origin.filter(|_| secrets) else { return Ok(usable) };
    let of = |usable: &Usable| usable.url.origin().ascii_serialization();
    let first = usable.first().map(of).unwrap_or_default();
    usable.retain(|usable| {
        let named = of(usable);
        named == origin || settings.trusted.contains(&named)
    });
    if usable.is_empty() {
        let text = format!(
            "the card of {origin} names {first}, and credentials for one origin are not sent to \
             another that is not trusted"
        );
        Err(Error::untrusted_origin_of(text, &first))
    } else {
        Ok(usable)
    }
}
