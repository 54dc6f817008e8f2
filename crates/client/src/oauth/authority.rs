//! Authorization server: discovery, token requests and device flow.

use std::{net::IpAddr, time::Duration};

use bytes::Bytes;
use herald_protocol::{
    percent,
    security::{OAuthFlow, SecurityScheme},
};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use reqwest::Url;
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Grant, OAuthSession, Prompt, Token,
    redirect::{Redirect, Visit, random},
};
use crate::{
    error::Error,
    proof::Secret,
    signature::now,
    transport::http::{read, refuse_redirect, request},
    wire_tap::Private,
};

/// Timeout of a request to the server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer of the server, in bytes.
const MAX_ANSWER: usize = 256 << 10;
/// Time that a person has to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Path of the server metadata (RFC 8414), for an issuer without a path.
const WELL_KNOWN: &str = "/.well-known/oauth-authorization-server";
/// Longest lifetime of a token, in seconds: ten years.
const MAX_LIFETIME: u64 = 10 * 365 * 24 * 60 * 60;
const DEVICE_CODE: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// Authorization server with its endpoints, from the card and from its metadata.
pub(super) struct Authority<'a> {
    session: &'a OAuthSession,
    /// The flow of the card.
    grant: Option<Grant>,
    token: Option<String>,
    refresh: Option<String>,
    device: Option<String>,
    authorization: Option<String>,
    /// The URL of its metadata, if the card has one.
    described_at: Option<String>,
    described: Option<ServerMetadata>,
}

/// Reason why there is no token.
pub(super) enum TokenError {
    /// The grant is no longer valid, such as an expired refresh token.
    Expired(Error),
    Failed(Error),
}

/// Server metadata, common to RFC 8414 and OpenID Connect.
#[derive(Deserialize)]
struct ServerMetadata {
    issuer: String,
    token_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    authorization_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    grant_types_supported: Option<Vec<String>>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct Issued {
    access_token: String,
    token_type: String,
    expires_in: Option<u64>,
    refresh_token: Option<String>,
}

#[derive(Deserialize)]
struct OAuthErrorBody {
    error: String,
    #[serde(default)]
    error_description: String,
}

#[derive(Deserialize)]
struct Device {
    device_code: String,
    user_code: String,
    #[serde(alias = "verification_url")]
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: Option<u64>,
    interval: Option<u64>,
}

type FormFields<'a> = Vec<(&'a str, &'a str)>;

impl<'a> Authority<'a> {
    /// Finds the server's endpoints.
    pub(super) async fn find(session: &'a OAuthSession) -> Result<Self, Error> {
        let mut found = Self {
            session,
            grant: None,
            token: None,
            refresh: None,
            device: None,
            authorization: None,
            described_at: None,
            described: None,
        };
        let described_at = match &session.scheme {
            SecurityScheme::OAuth2(scheme) => {
                found.declared(scheme.flows.as_ref());
                scheme.oauth2_metadata_url.as_deref().filter(|url| !url.is_empty())
            }
            SecurityScheme::OpenIdConnect(scheme) => Some(scheme.open_id_connect_url.as_str()),
            SecurityScheme::ApiKey(_) | SecurityScheme::Http(_) | SecurityScheme::MutualTls(_) => {
                None
            }
        };
        for url in [&found.token, &found.refresh, &found.device, &found.authorization] {
            found.check(url.as_deref())?;
        }
        found.described_at = described_at.map(str::to_owned);
        // The metadata is needed only if the card does not have all endpoints.
        if let (Some(url), None) = (described_at, found.grant) {
            found.described = Some(found.describe(url).await?);
        }
        Ok(found)
    }

    fn declared(&mut self, flow: Option<&OAuthFlow>) {
        let given = |url: &str| Some(url.to_owned()).filter(|url| !url.is_empty());
        match flow {
            Some(OAuthFlow::ClientCredentials(flow)) => {
                self.grant = Some(Grant::ClientCredentials);
                self.token = given(&flow.token_url);
                self.refresh.clone_from(&flow.refresh_url);
            }
            Some(OAuthFlow::DeviceCode(flow)) => {
                self.grant = Some(Grant::DeviceCode);
                self.token = given(&flow.token_url);
                self.device = given(&flow.device_authorization_url);
                self.refresh.clone_from(&flow.refresh_url);
            }
            Some(OAuthFlow::AuthorizationCode(flow)) => {
                self.grant = Some(Grant::AuthorizationCode);
                self.token = given(&flow.token_url);
                self.authorization = given(&flow.authorization_url);
                self.refresh.clone_from(&flow.refresh_url);
            }
            // These two flows are obsolete; the server may have others.
            Some(OAuthFlow::Implicit(_) | OAuthFlow::Password(_)) | None => {}
        }
        self.refresh = self.refresh.take().filter(|url| !url.is_empty());
    }

    /// Fetches the server metadata. Endpoints at other origins than its own have to be trusted, so that secrets
    /// and codes are not sent to a third party.
    async fn describe(&self, url: &str) -> Result<ServerMetadata, Error> {
        self.check(Some(url))?;
        let url = address(url)?;
        let (status, bytes) = self.ask(Method::GET, &url, HeaderMap::new(), Bytes::new()).await?;
        if !status.is_success() {
            let text = "instead of the authorization server's description";
            return Err(Error::bad_status(status.as_u16(), text));
        }
        let described: ServerMetadata = json(&bytes, "the authorization server's metadata")?;
        if !may_describe(&url, &described.issuer) {
            return Err(Error::invalid(format!(
                "{url} is the metadata of another authorization server, {:?}",
                described.issuer
            )));
        }
        let own = url.origin().ascii_serialization();
        for endpoint in [
            &described.token_endpoint,
            &described.device_authorization_endpoint,
            &described.authorization_endpoint,
            &described.revocation_endpoint,
        ]
        .into_iter()
        .flatten()
        {
            let origin = address(endpoint)?.origin().ascii_serialization();
            if origin != own && !self.session.trusted.contains(&origin) {
                return Err(untrusted(&format!("the authorization server {own} names"), &origin));
            }
        }
        Ok(described)
    }

    /// The flow to use.
    pub(super) fn grant(&self) -> Result<Grant, Error> {
        if let Some(grant) = self.grant {
            return Ok(grant);
        }
        let described = self.described.as_ref().ok_or_else(|| {
            Error::setup("the card has only obsolete OAuth flows; ask its owner for another one")
        })?;
        let allows = |name: &str| {
            described
                .grant_types_supported
                .as_ref()
                .is_none_or(|all| all.iter().any(|one| one == name))
        };
        if self.session.oauth.secret.is_some() && allows("client_credentials") {
            return Ok(Grant::ClientCredentials);
        }
        if described.device_authorization_endpoint.is_some() {
            return Ok(Grant::DeviceCode);
        }
        match described.authorization_endpoint {
            Some(_) => Ok(Grant::AuthorizationCode),
            None => Err(Error::setup("the authorization server has no endpoint for a login")),
        }
    }

    pub(super) async fn client_credentials(&self) -> Result<Token, Error> {
        if self.session.oauth.secret.is_none() {
            return Err(Error::login("client credentials need the client's secret"));
        }
        self.token(self.token_url()?, self.scoped(vec![("grant_type", "client_credentials")]))
            .await
            .map_err(TokenError::into)
    }

    /// Renews a token at the server that issued it.
    pub(super) async fn refresh(&self, from: &str, refresh: &Secret) -> Result<Token, TokenError> {
        let url = match &self.refresh {
            Some(url) => url,
            None => self.token_url().map_err(TokenError::Failed)?,
        };
        let origin = |url: &str| Url::parse(url).ok().map(|url| url.origin());
        if origin(from) != origin(url) {
            return Err(TokenError::Expired(Error::login("the token came from another server")));
        }
        let form = vec![("grant_type", "refresh_token"), ("refresh_token", refresh.expose())];
        let mut token = self.token(url, form).await?;
        token.from = from.to_owned();
        token.refresh.get_or_insert_with(|| refresh.clone());
        Ok(token)
    }

    /// Revokes a token at the server that issued it (RFC 7009). Returns `false` if it has no endpoint for that.
    pub(super) async fn revoke(&self, token: &Token) -> Result<bool, Error> {
        let given_by = address(self.token_url()?)?;
        if Url::parse(&token.from).ok().map(|url| url.origin()) != Some(given_by.origin()) {
            return Err(Error::login("the token came from another server"));
        }
        let read;
        let described = match &self.described {
            Some(described) => described,
            None => {
                let usual = given_by.join(WELL_KNOWN).ok().map(|url| url.to_string());
                let Some(url) = self.described_at.clone().or(usual) else { return Ok(false) };
                read = match self.describe(&url).await {
                    Ok(described) => described,
                    // Metadata is optional.
                    Err(error) if error.status().is_some() => return Ok(false),
                    Err(error) => return Err(error),
                };
                &read
            }
        };
        let Some(url) = described.revocation_endpoint.as_deref() else { return Ok(false) };
        let refresh = token.refresh.as_ref().map(|secret| ("refresh_token", secret));
        // The refresh token first: without it the access token expires by itself.
        for (hint, secret) in refresh.into_iter().chain([("access_token", &token.access)]) {
            let form = vec![("token", secret.expose()), ("token_type_hint", hint)];
            match self.try_send(url, form).await? {
                Err(refused) if refused.error == "unsupported_token_type" => {}
                Err(refused) => return Err(self.refusal(&refused).into()),
                Ok(_) => {}
            }
        }
        Ok(true)
    }

    /// Lets a person log in on any device (RFC 8628).
    pub(super) async fn device_code(
        &self,
        ask: &(dyn Fn(Prompt) + Send + Sync),
    ) -> Result<Token, Error> {
        let described =
            self.described.as_ref().and_then(|all| all.device_authorization_endpoint.as_deref());
        let url = self.device.as_deref().or(described);
        let url = url.ok_or_else(|| missing("an endpoint for device codes"))?;
        let form = self.scoped(Vec::new());
        let device: Device = self.post(url, form).await?;
        // A person will open it.
        address(&device.verification_uri)?;
        let complete = device.verification_uri_complete.filter(|url| address(url).is_ok());
        ask(Prompt::Device { url: device.verification_uri, code: device.user_code, complete });
        let limit = device.expires_in.map_or(LOGIN_TIMEOUT, Duration::from_secs).min(LOGIN_TIMEOUT);
        let end = Instant::now() + limit;
        let mut pause = Duration::from_secs(device.interval.unwrap_or(5).clamp(1, 60));
        let token_url = self.token_url()?;
        loop {
            if Instant::now() + pause >= end {
                return Err(Error::timeout("nobody logged in", limit));
            }
            sleep(pause).await;
            let form = vec![("grant_type", DEVICE_CODE), ("device_code", &*device.device_code)];
            match self.try_token(token_url, form).await {
                Ok(Ok(token)) => return Ok(token),
                Ok(Err(refused)) if refused.error == "authorization_pending" => {}
                Ok(Err(refused)) if refused.error == "slow_down" => {
                    pause += Duration::from_secs(5);
                }
                Ok(Err(refused)) => return Err(self.refusal(&refused).into()),
                // RFC 8628 asks to continue after a timeout.
                Err(error) if error.is_temporary() => pause *= 2,
                Err(error) => return Err(error),
            }
        }
    }

    /// Lets a person log in with a browser on this machine (RFC 8252, RFC 7636).
    pub(super) async fn authorization_code(
        &self,
        ask: &(dyn Fn(Prompt) + Send + Sync),
    ) -> Result<Token, Error> {
        let described =
            self.described.as_ref().and_then(|all| all.authorization_endpoint.as_deref());
        let url = self.authorization.as_deref().or(described);
        let url = url.ok_or_else(|| missing("an endpoint for a login"))?;
        let redirect = Redirect::listen().await?;
        let (state, verifier) = (random(), random());
        let mut url = address(url)?;
        let mut form = self.scoped(vec![
            ("response_type", "code"),
            ("client_id", &self.session.oauth.client_id),
            ("redirect_uri", &redirect.url),
            ("state", &state),
            ("code_challenge_method", "S256"),
        ]);
        let challenge = super::redirect::challenge(&verifier);
        form.push(("code_challenge", &challenge));
        url.query_pairs_mut().extend_pairs(form);
        ask(Prompt::Browser { url: url.to_string() });
        let answer = timeout(LOGIN_TIMEOUT, redirect.answer(&state)).await;
        let answer = answer.map_err(|_| Error::timeout("nobody logged in", LOGIN_TIMEOUT))?;
        let Visit { code, issuer } = answer?;
        self.check_issuer(issuer.as_deref())?;
        let form = vec![
            ("grant_type", "authorization_code"),
            ("code", code.expose()),
            ("redirect_uri", &redirect.url),
            ("code_verifier", &verifier),
        ];
        self.token(self.token_url()?, form).await.map_err(TokenError::into)
    }

    /// Refuses a code of another server than the requested one (RFC 9207).
    fn check_issuer(&self, issuer: Option<&str>) -> Result<(), Error> {
        let Some(described) = &self.described else { return Ok(()) };
        match issuer {
            Some(issuer) if issuer == described.issuer => Ok(()),
            None if !described.authorization_response_iss_parameter_supported => Ok(()),
            Some(_) | None => {
                Err(Error::login("the login was answered by another server than the requested one"))
            }
        }
    }

    fn token_url(&self) -> Result<&str, Error> {
        let described = self.described.as_ref().and_then(|all| all.token_endpoint.as_deref());
        self.token.as_deref().or(described).ok_or_else(|| missing("a token endpoint"))
    }

    /// The form with the scopes and the configured parameters.
    fn scoped<'f>(&'f self, mut form: FormFields<'f>) -> FormFields<'f> {
        let oauth = &self.session.oauth;
        if !self.session.scopes.is_empty() {
            form.push(("scope", &self.session.scopes));
        }
        form.extend(oauth.parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        form
    }

    async fn token(&self, url: &str, form: FormFields<'_>) -> Result<Token, TokenError> {
        match self.try_token(url, form).await {
            Ok(Ok(token)) => Ok(token),
            Ok(Err(refused)) => Err(self.refusal(&refused)),
            Err(error) => Err(TokenError::Failed(error)),
        }
    }

    async fn try_token(
        &self,
        url: &str,
        form: FormFields<'_>,
    ) -> Result<Result<Token, OAuthErrorBody>, Error> {
        let issued: Issued = match self.try_post(url, form).await? {
            Ok(issued) => issued,
            Err(refused) => return Ok(Err(refused)),
        };
        if HeaderValue::try_from(&issued.access_token).is_err() {
            return Err(Error::invalid(
                "the authorization server's token contains characters that a header cannot have",
            ));
        }
        if !issued.token_type.eq_ignore_ascii_case("bearer") {
            let kind: String = issued.token_type.chars().take(20).collect();
            let text =
                format!("the authorization server issues tokens of an unknown type: {kind:?}");
            return Err(Error::invalid(text));
        }
        Ok(Ok(Token {
            access: Secret::new(issued.access_token),
            refresh: issued.refresh_token.map(Secret::new),
            expires: issued.expires_in.map(|seconds| now().as_secs() + seconds.min(MAX_LIFETIME)),
            from: url.to_owned(),
        }))
    }

    async fn post<T: DeserializeOwned>(&self, url: &str, form: FormFields<'_>) -> Result<T, Error> {
        self.try_post(url, form).await?.map_err(|refused| self.refusal(&refused).into())
    }

    async fn try_post<T: DeserializeOwned>(
        &self,
        url: &str,
        form: FormFields<'_>,
    ) -> Result<Result<T, OAuthErrorBody>, Error> {
        match self.try_send(url, form).await? {
            Ok(bytes) => json(&bytes, "the authorization server's answer").map(Ok),
            Err(refused) => Ok(Err(refused)),
        }
    }

    /// Posts a form with the client's id and secret.
    async fn try_send(
        &self,
        url: &str,
        mut form: FormFields<'_>,
    ) -> Result<Result<Bytes, OAuthErrorBody>, Error> {
        let oauth = &self.session.oauth;
        let url = address(url)?;
        let mut headers = HeaderMap::new();
        match oauth.proof() {
            Some((_, pair)) if !self.wants_secret_in_form() => {
                let value = format!("Basic {}", pair.expose());
                let mut value = HeaderValue::try_from(value).expect("base64 is valid in a header");
                value.set_sensitive(true);
                headers.insert(header::AUTHORIZATION, value);
            }
            Some((secret, _)) => {
                form.push(("client_id", &oauth.client_id));
                form.push(("client_secret", secret.expose()));
            }
            None => form.push(("client_id", &oauth.client_id)),
        }
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(header::CONTENT_TYPE, kind);
        let pairs =
            form.iter().map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        let body = pairs.collect::<Vec<_>>().join("&");
        let (status, bytes) = self.ask(Method::POST, &url, headers, body.into()).await?;
        if status.is_success() {
            return Ok(Ok(bytes));
        }
        match serde_json::from_slice(&bytes) {
            Ok(refused) => Ok(Err(refused)),
            Err(_) => Err(Error::bad_status(status.as_u16(), "from the authorization server")),
        }
    }

    /// True if the secret goes in a header, which RFC 6749 prefers; some servers accept only the form.
    fn wants_secret_in_form(&self) -> bool {
        let described = self.described.as_ref();
        let methods = described.and_then(|all| all.token_endpoint_auth_methods_supported.as_ref());
        methods.is_some_and(|all| {
            let has = |name: &str| all.iter().any(|one| one == name);
            has("client_secret_post") && !has("client_secret_basic")
        })
    }

    async fn ask(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Error> {
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let exchange = async {
            let mut request = request(method, url, headers, body)?;
            request.extensions_mut().insert(Private);
            let sent = self.session.http.send(request).await;
            let response = sent.map_err(|error| error.at("the authorization server"))?;
            refuse_redirect(&response)?;
            let status = response.status();
            let bytes = read(response.into_body(), MAX_ANSWER, "the authorization server's answer");
            Ok((status, bytes.await?))
        };
        let answer = timeout(REQUEST_TIMEOUT, exchange).await;
        answer.unwrap_or_else(|_| {
            Err(Error::timeout("the authorization server did not answer", REQUEST_TIMEOUT))
        })
    }

    /// Refuses an untrusted endpoint of a card from the network.
    fn check(&self, url: Option<&str>) -> Result<(), Error> {
        let Some(url) = url.filter(|_| !self.session.own_card) else { return Ok(()) };
        let origin = address(url)?.origin().ascii_serialization();
        if self.session.trusted.contains(&origin) {
            Ok(())
        } else {
            Err(untrusted("the card wants tokens from", &origin))
        }
    }

    fn refusal(&self, refused: &OAuthErrorBody) -> TokenError {
        let shown =
            |text: &str| -> String { text.chars().filter(|c| !c.is_control()).take(200).collect() };
        let mut text =
            format!("the authorization server refused the request: {}", shown(&refused.error));
        let secret = self.session.oauth.secret.as_ref();
        let echoes =
            secret.is_some_and(|secret| refused.error_description.contains(secret.expose()));
        if !refused.error_description.is_empty() && !echoes {
            text = format!("{text} ({})", shown(&refused.error_description));
        }
        match refused.error.as_str() {
            "invalid_grant" => TokenError::Expired(Error::login(text)),
            "invalid_client" | "unauthorized_client" => TokenError::Failed(Error::login(format!(
                "{text}; check the client's id and its secret"
            ))),
            "invalid_scope" => {
                TokenError::Failed(Error::login(format!("{text}; check the scopes")))
            }
            "access_denied" => {
                TokenError::Failed(Error::login(format!("{text}; the login was declined")))
            }
            "expired_token" => TokenError::Failed(Error::login(format!("{text}; log in again"))),
            _ => TokenError::Failed(Error::login(text)),
        }
    }
}

impl From<TokenError> for Error {
    fn from(refusal: TokenError) -> Self {
        let (TokenError::Expired(error) | TokenError::Failed(error)) = refusal;
        error
    }
}

fn untrusted(who: &str, origin: &str) -> Error {
    Error::untrusted_origin_of(
        format!("{who} {origin}, which is not a trusted origin for credentials"),
        origin,
    )
}

/// True if metadata at `url` may describe `issuer`: it has the same origin and, at a well-known path, the
/// issuer's path (RFC 8414 and OpenID Connect Discovery).
fn may_describe(url: &Url, issuer: &str) -> bool {
    let Ok(issuer) = Url::parse(issuer) else { return false };
    let place = match url.path().split_once("/.well-known/") {
        // The document's name is one segment; the rest belongs to the issuer's path.
        Some((before, after)) => {
            let after = after.split_once('/').map_or("", |(_, after)| after);
            format!("{before}/{after}")
        }
        None => issuer.path().to_owned(),
    };
    let path = |path: &str| path.trim_matches('/').to_owned();
    issuer.origin() == url.origin()
        && issuer.query().is_none()
        && path(issuer.path()) == path(&place)
}

fn missing(what: &str) -> Error {
    Error::setup(format!("neither the card nor the authorization server has {what}"))
}

pub(super) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    percent::encode(&mut out, text);
    out
}

fn json<T: DeserializeOwned>(bytes: &[u8], what: &str) -> Result<T, Error> {
    serde_json::from_slice(bytes).map_err(|_| Error::invalid(format!("{what} cannot be read")))
}

/// The address of a server that may receive secrets: over TLS, or on this machine.
fn address(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| {
        Error::setup(format!("{text:?} cannot be the address of an authorization server: {why}"))
    };
    let url = Url::parse(text).map_err(|fault| wrong(&fault.to_string()))?;
    let host = url.host_str().unwrap_or_default();
    let local = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    match url.scheme() {
        "https" => Ok(url),
        "http" if local => Ok(url),
        _ => Err(wrong("it has to be https")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_may_describe_only_the_issuer_of_its_url() {
        for (url, issuer, expected) in [
            ("https://a.b/.well-known/openid-configuration", "https://a.b", true),
            ("https://a.b/x/.well-known/openid-configuration", "https://a.b/x", true),
            ("https://a.b/.well-known/oauth-authorization-server/x", "https://a.b/x/", true),
            ("https://a.b/.well-known/oauth-authorization-server/x", "https://a.b/y", false),
            ("https://a.b/x/.well-known/openid-configuration", "https://a.b", false),
            ("https://a.b/.well-known/openid-configuration", "https://c.b", false),
            ("https://a.b/.well-known/openid-configuration", "http://a.b", false),
            ("https://a.b/metadata.json", "https://a.b/x", true),
            ("https://a.b/metadata.json", "https://c.b/x", false),
            ("https://a.b/metadata.json", "a.b", false),
        ] {
            let place = Url::parse(url).unwrap();
            assert_eq!(may_describe(&place, issuer), expected, "{url} for {issuer}");
        }
    }
}
