//! A running server, over HTTP.

use std::time::{Duration, Instant};

use bytes::Bytes;
use herald_agents::WorkerConnection;
use herald_api::ApiRoute;
use herald_client::{Secrets, WireTap};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, header};
use reqwest::{Client, redirect::Policy};

use super::ApiResponse;
use crate::{
    args::{SecretArg, ServerArgs},
    client::{
        credentials::Logins,
        debug_tap::DebugTap,
        error::{CliError, CliErrorKind, connection_hint, sentence},
        trust::TlsTrust,
    },
    output::warn,
};

/// The most bytes of a response.
const LARGEST: usize = 64 << 20;
/// The longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A server at a URL, with the credentials for it.
#[derive(Debug)]
pub(super) struct HttpServer {
    /// Without a slash at its end.
    url: String,
    client: Client,
    credentials: HeaderMap,
    tap: Option<DebugTap>,
    version: Option<String>,
}

impl HttpServer {
    /// The server at the URL of the command line, with the user's credentials.
    pub(super) fn at(url: &str, args: &ServerArgs, secrets: &Secrets) -> Result<Self, CliError> {
        let url = normalized(url)?;
        let mut credentials = HeaderMap::new();
        if let Some(token) = &args.bearer {
            credentials.insert(header::AUTHORIZATION, bearer(&token.0)?);
        }
        if let Some(SecretArg(key)) = &args.api_key {
            let name = const { HeaderName::from_static("x-api-key") };
            credentials.insert(name, sensitive(key, "the API key")?);
        }
        if credentials.is_empty()
            && let Some(token) = stored_login(&url)?
        {
            secrets.add(&token);
            credentials.insert(header::AUTHORIZATION, bearer(&token)?);
        }
        let trust = TlsTrust::read(&args.tls)?;
        if trust.is_blind() {
            warn("certificates are not checked (--insecure): any server can impersonate this one");
            if !credentials.is_empty() {
                warn("SECURITY: a credential is sent to a server whose certificate is not checked");
            }
        }
        Self::new(url, credentials, &trust, args, secrets)
    }

    /// The server that wrote an operator file. It is on this machine, so that its certificate, which is for another
    /// name, is not checked.
    pub(super) fn own(
        url: &str,
        token: &str,
        args: &ServerArgs,
        secrets: &Secrets,
    ) -> Result<Self, CliError> {
        secrets.add(token);
        let credentials = HeaderMap::from_iter([(header::AUTHORIZATION, bearer(token)?)]);
        Self::new(normalized(url)?, credentials, &TlsTrust::any(), args, secrets)
    }

    fn new(
        url: String,
        credentials: HeaderMap,
        trust: &TlsTrust,
        args: &ServerArgs,
        secrets: &Secrets,
    ) -> Result<Self, CliError> {
        let builder = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(CONNECT)
            .user_agent(concat!("herald/", env!("CARGO_PKG_VERSION")));
        // The system's roots are read only for https.
        let builder = if url.starts_with("http://") {
            builder.tls_certs_only([])
        } else {
            trust.connections(builder)?
        };
        let client = builder.build().map_err(|error| CliError::usage(sentence(&error)))?;
        let debug = args.output.debug == Some(true);
        let tap = debug.then(|| DebugTap::new(secrets.clone()));
        Ok(Self { url, client, credentials, tap, version: None })
    }

    /// The same server for a worker, whose requests are not those of a verb.
    pub(super) fn into_worker_connection(self) -> WorkerConnection {
        WorkerConnection::new(self.url, self.client, self.credentials)
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Adds the version, once it is known.
    pub(super) fn of_version(self, version: String) -> Self {
        Self { version: Some(version), ..self }
    }

    pub(super) fn version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// True if requests have a credential.
    pub(super) fn has_credentials(&self) -> bool {
        !self.credentials.is_empty()
    }

    pub(super) async fn send(
        &self,
        mut request: Request<Bytes>,
        route: ApiRoute,
    ) -> Result<ApiResponse, CliError> {
        let uri = format!("{}{}", self.url, request.uri());
        *request.uri_mut() = uri.parse().map_err(|_| CliError::internal("the URL is too long"))?;
        request.headers_mut().extend(self.credentials.clone());
        if let Some(tap) = &self.tap {
            tap.request(&request);
        }
        let begun = Instant::now();
        let request = reqwest::Request::try_from(request).map_err(|error| self.lost(error))?;
        let response = self.client.execute(request).await.map_err(|error| self.lost(error))?;
        let (head, body) = Response::<reqwest::Body>::from(response).into_parts();
        if let Some(tap) = &self.tap {
            tap.response(&head, begun.elapsed());
        }
        let mut response = reqwest::Response::from(Response::from_parts(head, body));
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.lost(error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > LARGEST {
                let text = format!("the reply of {} is larger than 64 MiB", self.url);
                return Err(CliError::internal(text).hint("narrow the request with its filters"));
            }
        }
        match &self.tap {
            // This reply contains a secret.
            Some(_) if route == ApiRoute::CreateKey => {}
            Some(tap) => tap.data(&bytes),
            None => {}
        }
        Ok(ApiResponse { status: response.status(), body: bytes.into() })
    }

    /// The error for a request that got no response.
    fn lost(&self, error: reqwest::Error) -> CliError {
        let error = error.without_url();
        if let Some(tap) = &self.tap {
            tap.failed(&error);
        }
        let kind = if error.is_timeout() && !error.is_connect() {
            CliErrorKind::Timeout
        } else {
            CliErrorKind::Unreachable
        };
        let text = format!("{} does not answer: {}", self.url, sentence(&error));
        let hint =
            connection_hint(&error).unwrap_or("is the server running, and is the URL right?");
        CliError::new(kind, text).hint(hint)
    }
}

/// The URL with its scheme and without a slash at its end. A bare host of this machine means http.
fn normalized(text: &str) -> Result<String, CliError> {
    let refused = |why: &str| {
        CliError::usage(format!("{text:?} is not the URL of a server: {why}"))
            .hint("write it as https://agents.example.com or http://127.0.0.1:8000")
    };
    let url = crate::client::reference::with_scheme(text).map_err(refused)?;
    let parsed: http::Uri = url.parse().map_err(|_| refused("it cannot be read"))?;
    let authority = parsed.authority().ok_or_else(|| refused("it has no host"))?;
    if authority.as_str().contains('@') {
        return Err(refused("a password does not belong into a URL; use A2ACLI_BEARER"));
    }
    if parsed.query().is_some() || text.contains('#') {
        return Err(refused("it has more than a host and a path"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// The token of a login at this origin, while it is valid.
fn stored_login(url: &str) -> Result<Option<String>, CliError> {
    let Ok(logins) = Logins::of_user() else { return Ok(None) };
    let uri: http::Uri = url.parse().map_err(|_| CliError::internal("the URL was read before"))?;
    let origin = match (uri.scheme_str(), uri.authority()) {
        (Some(scheme), Some(authority)) => format!("{scheme}://{authority}"),
        (_, _) => return Ok(None),
    };
    let token = logins.read()?.remove(&origin).map(|login| login.token());
    Ok(token.filter(|token| token.is_fresh()).map(|token| token.access.expose().to_owned()))
}

fn bearer(token: &str) -> Result<HeaderValue, CliError> {
    sensitive(&format!("Bearer {token}"), "the token")
}

fn sensitive(text: &str, what: &str) -> Result<HeaderValue, CliError> {
    let value = HeaderValue::from_str(text);
    let mut value = value.map_err(|_| {
        CliError::usage(format!("{what} has characters that are not allowed in a header"))
            .hint("check that it was copied whole, without line ends")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_its_host_or_its_url() {
        for (given, url) in [
            ("localhost:8000", "http://localhost:8000"),
            ("agents.example.com", "https://agents.example.com"),
            ("https://a.example/herald/", "https://a.example/herald"),
        ] {
            assert_eq!(normalized(given).unwrap(), url);
        }
        for given in ["ftp://a", "http://u:p@a.example", "http://a/?x=1", "", "http://"] {
            let fault = normalized(given).unwrap_err();
            assert_eq!(fault.kind(), CliErrorKind::Usage, "{given}");
        }
    }
}
