//! Discovery: agent cards from URLs, files and programs.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use bytes::Bytes;
use herald_protocol::{
    AgentCard,
    card::{self, signature::Verdict},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use tokio::{io::AsyncReadExt, time::Instant};

use crate::{
    error::Error,
    interface::Usable,
    transport::{
        StdioProgram,
        http::{Http, read, refuse_redirect, request},
    },
};

/// The path of cards since 0.3, and that of earlier versions.
pub(crate) const WELL_KNOWN: [&str; 2] = [".well-known/agent-card.json", ".well-known/agent.json"];

/// Source of a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Below this URL, at one of the well-known paths.
    Below(Url),
    /// At this URL.
    At(Url),
    /// In this file.
    File(PathBuf),
    /// No card: the agent is this program.
    Program(StdioProgram),
}

/// A card with its source and HTTP validators.
#[derive(Debug, Clone)]
pub(crate) struct FoundCard {
    pub(crate) card: AgentCard,
    /// The bytes of the card; empty if the caller has given the card.
    pub(crate) document: Bytes,
    /// The verdict on its signatures.
    pub(crate) verdict: Verdict,
    /// The URL of the card; `None` for a file.
    pub(crate) url: Option<Url>,
    validators: HeaderMap,
    fresh_until: Instant,
}

/// A fetched document, before it is read as a card.
#[derive(Debug)]
pub(crate) struct LoadedCard {
    pub(crate) bytes: Bytes,
    /// `None` for a file.
    url: Option<Url>,
    headers: HeaderMap,
}

impl Source {
    /// Parses the address of an agent: its base URL, the URL of its card (which ends in `.json`), a `file://`
    /// URL, or `stdio:` and a command with arguments separated by spaces.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut url = match Self::exact(text)? {
            Self::At(url) if !url.path().ends_with(".json") => url,
            exact @ (Self::Below(_) | Self::At(_) | Self::File(_) | Self::Program(_)) => {
                return Ok(exact);
            }
        };
        let path = format!("{}/", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.set_query(None);
        url.set_fragment(None);
        Ok(Self::Below(url))
    }

    /// The same, except that every URL is that of a card.
    pub fn exact(text: &str) -> Result<Self, Error> {
        if let Some(command) = text.strip_prefix("stdio:") {
            let mut words = command.split_whitespace().map(OsString::from);
            let name = words.next().ok_or_else(|| Error::setup("stdio: needs a command"))?;
            return Ok(Self::Program(StdioProgram { name, arguments: words.collect() }));
        }
        // The part before `@` may be a password.
        let shown = if text.contains('@') { "this".to_owned() } else { format!("{text:?}") };
        let wrong = |why: &str| Error::setup(format!("{shown} is not the URL of an agent: {why}"));
        let url = Url::parse(text).map_err(|fault| wrong(&fault.to_string()))?;
        match url.scheme() {
            "file" => url.to_file_path().map(Self::File).map_err(|()| wrong("no such path")),
            "http" | "https" if !url.username().is_empty() || url.password().is_some() => {
                // The error leaves the URL out: it contains a secret.
                Err(Error::setup("give credentials to the builder, not in the URL"))
            }
            "http" | "https" => Ok(Self::At(url)),
            _ => Err(wrong("expected http, https, file or stdio")),
        }
    }

    /// The origin of the URL.
    pub fn origin(&self) -> Option<String> {
        match self {
            Self::Below(url) | Self::At(url) => Some(url.origin().ascii_serialization()),
            Self::File(_) | Self::Program(_) => None,
        }
    }

    /// The program that is the agent.
    pub(crate) fn program(&self) -> Option<&StdioProgram> {
        if let Self::Program(program) = self { Some(program) } else { None }
    }

    /// Fetches the card; `None` if the `known` one has not changed.
    pub(crate) async fn fetch(
        &self,
        http: &Http,
        headers: &HeaderMap,
        known: Option<&FoundCard>,
    ) -> Result<Option<FoundCard>, Error> {
        if let Self::Program(program) = self {
            return Ok(Some(FoundCard::given(unnamed(program), Verdict::Unsigned)));
        }
        self.load(http, headers, known).await?.map(LoadedCard::card).transpose()
    }

    /// Fetches the document without parsing it.
    pub(crate) async fn load(
        &self,
        http: &Http,
        headers: &HeaderMap,
        known: Option<&FoundCard>,
    ) -> Result<Option<LoadedCard>, Error> {
        let limit = http.limits.card;
        let urls: Vec<Url> = match self {
            Self::File(path) => return read_file(path, limit).await.map(Some),
            Self::Program(_) => return Err(Error::setup("a program has no documents")),
            Self::At(url) => vec![url.clone()],
            Self::Below(base) => {
                WELL_KNOWN.iter().filter_map(|path| base.join(path).ok()).collect()
            }
        };
        let mut missing = Vec::new();
        for url in urls {
            let known = known.filter(|known| known.url.as_ref() == Some(&url));
            let mut sent = headers.clone();
            sent.extend(known.map(|known| known.validators.clone()).unwrap_or_default());
            sent.insert(header::ACCEPT, HeaderValue::from_static("application/json, */*;q=0.5"));
            let response = http.send(request(Method::GET, &url, sent, Bytes::new())?).await?;
            refuse_redirect(&response)?;
            let (parts, body) = response.into_parts();
            match parts.status {
                StatusCode::NOT_MODIFIED if known.is_some() => return Ok(None),
                StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::METHOD_NOT_ALLOWED => {
                    missing.push(url.to_string());
                }
                status if status.is_success() => {
                    let bytes = read(body, limit, "the card").await?;
                    let headers = parts.headers;
                    return Ok(Some(LoadedCard { bytes, url: Some(url), headers }));
                }
                status => return Err(Error::no_document(status.as_u16(), &url, "a card")),
            }
        }
        Err(Error::setup(format!("there is no card at {}", missing.join(" or "))))
    }
}

impl FoundCard {
    /// True if the card may be used without revalidation.
    pub(crate) fn is_fresh(&self) -> bool {
        Instant::now() < self.fresh_until
    }

    /// Another card of the same agent from the same source.
    pub(crate) fn with(&self, card: AgentCard) -> Self {
        Self { card, document: Bytes::new(), verdict: Verdict::Unsigned, ..self.clone() }
    }

    /// A card that the caller has given.
    pub(crate) fn given(card: AgentCard, verdict: Verdict) -> Self {
        Self {
            card,
            document: Bytes::new(),
            verdict,
            url: None,
            validators: HeaderMap::new(),
            fresh_until: Instant::now(),
        }
    }
}

/// A minimal card for an agent that has none.
pub(crate) fn unnamed(program: &StdioProgram) -> AgentCard {
    let mut card = AgentCard {
        name: program.name.to_string_lossy().into_owned(),
        supported_interfaces: vec![Usable::stdio().interface],
        ..AgentCard::default()
    };
    card.capabilities.streaming = Some(true);
    card
}

async fn read_file(path: &PathBuf, limit: usize) -> Result<LoadedCard, Error> {
    let fault = |error| Error::setup(format!("cannot read {}: {error}", path.display()));
    let file = tokio::fs::File::open(path).await.map_err(fault)?;
    let mut bytes = Vec::new();
    file.take(limit as u64 + 1).read_to_end(&mut bytes).await.map_err(fault)?;
    if bytes.len() > limit {
        return Err(Error::too_large("the card", limit));
    }
    Ok(LoadedCard { bytes: bytes.into(), url: None, headers: HeaderMap::new() })
}

impl LoadedCard {
    fn card(self) -> Result<FoundCard, Error> {
        let Self { bytes: document, url, headers } = self;
        let card = card::read(&document).map_err(|error| {
            let what = url.as_ref().map_or("what was found", Url::as_str);
            let why = if is_page(&headers, &document) {
                "it is a web page (HTML)"
            } else {
                error.message.as_str()
            };
            Error::invalid(format!("{what} is not an agent card: {why}"))
        })?;
        let mut validators = HeaderMap::new();
        for (sent, known) in [
            (header::IF_NONE_MATCH, header::ETAG),
            (header::IF_MODIFIED_SINCE, header::LAST_MODIFIED),
        ] {
            if let Some(value) = headers.get(known) {
                validators.insert(sent, value.clone());
            }
        }
        let fresh_until = Instant::now() + max_age(&headers);
        Ok(FoundCard { card, document, verdict: Verdict::Unsigned, url, validators, fresh_until })
    }
}

/// True if the response is a web page.
fn is_page(headers: &HeaderMap, document: &[u8]) -> bool {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    declared.is_some_and(|kind| kind.starts_with("text/html"))
        || document.trim_ascii_start().first() == Some(&b'<')
}

/// Time for which a card is fresh, at most a day.
fn max_age(headers: &HeaderMap) -> Duration {
    let values =
        headers.get_all(header::CACHE_CONTROL).iter().filter_map(|value| value.to_str().ok());
    let directives: Vec<_> = values.flat_map(|value| value.split(',')).map(str::trim).collect();
    if directives.iter().any(|one| matches!(*one, "no-store" | "no-cache")) {
        return Duration::ZERO;
    }
    let seconds = directives.iter().find_map(|one| one.strip_prefix("max-age=")?.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0).min(24 * 60 * 60))
}
