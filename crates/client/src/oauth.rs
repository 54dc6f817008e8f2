//! OAuth 2.0 and OpenID Connect tokens for the card's security scheme.
//!
//! A token is fetched when a call needs one and kept until it expires; concurrent calls wait for the same
//! request. Flows that need a person run in [`Client::log_in`](crate::Client::log_in) only.

mod authority;
mod redirect;

use std::{
    fmt,
    sync::{Arc, RwLock},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use herald_protocol::{locks, security::SecurityScheme};
use tokio::sync::Mutex;

use self::authority::{Authority, TokenError, encoded};
use crate::{error::Error, proof::Secret, signature::now, transport::http::Http};

/// Seconds before its expiry at which a token is renewed.
const MARGIN: u64 = 10;

/// Registration of a client at an authorization server.
///
/// With a secret, and if the card has the client credentials flow, tokens are fetched automatically. Otherwise
/// a person has to log in once: see [`Client::log_in`](crate::Client::log_in). The server's address comes from
/// the card and must have the connected origin or one of
/// [`trust_origin`](crate::ClientBuilder::trust_origin), and so must every address in the server's metadata.
#[derive(Clone)]
pub struct OAuth {
    client_id: String,
    secret: Option<Secret>,
    scopes: Vec<String>,
    parameters: Vec<(String, String)>,
    token: Option<Token>,
    keep: Option<Arc<TokenListener>>,
}

type TokenListener = dyn Fn(&Token) + Send + Sync;

/// A token of an authorization server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The access token.
    pub access: Secret,
    /// The refresh token.
    pub refresh: Option<Secret>,
    /// Its expiry in seconds since 1970, if the server has told it.
    pub expires: Option<u64>,
    /// The token endpoint that issued it. It is renewed there only.
    pub from: String,
}

/// Instruction for a person who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prompt {
    /// Open `url` on any device and enter `code` there.
    Device {
        /// The address to open.
        url: String,
        /// The code to enter.
        code: String,
        /// The address that contains the code, if the server has one.
        complete: Option<String>,
    },
    /// Open `url` in a browser on this machine.
    Browser {
        /// The address to open.
        url: String,
    },
}

/// OAuth flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grant {
    ClientCredentials,
    DeviceCode,
    AuthorizationCode,
}

/// The current token of one client. It survives a change of the card.
#[derive(Debug, Default)]
pub(crate) struct TokenStore {
    current: RwLock<Option<Token>>,
    /// Held while a token is fetched.
    fetching: Mutex<()>,
}

/// Fetches tokens for one security scheme of a card.
#[derive(Clone)]
pub(crate) struct OAuthSession {
    oauth: OAuth,
    scheme: SecurityScheme,
    /// The scopes, separated by spaces.
    scopes: String,
    /// The origins that may receive secrets.
    trusted: Vec<String>,
    /// True if the caller has given the card, so that its addresses are trusted.
    own_card: bool,
    http: Http,
    tokens: Arc<TokenStore>,
}

impl OAuth {
    /// A client with this id at the authorization server.
    pub fn client(id: impl Into<String>) -> Self {
        Self {
            client_id: id.into(),
            secret: None,
            scopes: Vec::new(),
            parameters: Vec::new(),
            token: None,
            keep: None,
        }
    }

    /// Sets the client secret.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = Some(Secret::new(secret));
        self
    }

    /// Requests this scope. Without any, the scopes that the card requires are requested.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes.push(scope.into());
        self
    }

    /// Adds a parameter to token requests, such as `audience`.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// Starts with a stored token.
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// The client secret, and its form in an `Authorization` header.
    pub(crate) fn proof(&self) -> Option<(&Secret, Secret)> {
        let secret = self.secret.as_ref()?;
        let pair = format!("{}:{}", encoded(&self.client_id), encoded(secret.expose()));
        Some((secret, Secret::new(STANDARD.encode(pair))))
    }

    /// Calls `keep` with every new token, to store it.
    pub fn on_token(mut self, keep: impl Fn(&Token) + Send + Sync + 'static) -> Self {
        self.keep = Some(Arc::new(keep));
        self
    }
}

impl Token {
    /// True unless it has expired or is about to.
    pub fn is_fresh(&self) -> bool {
        self.expires.is_none_or(|end| now().as_secs() + MARGIN < end)
    }
}

impl TokenStore {
    pub(crate) fn current(&self) -> Option<Token> {
        locks::read(&self.current).clone()
    }

    fn forget(&self) -> Option<Token> {
        locks::write(&self.current).take()
    }

    fn set(&self, token: Token) {
        *locks::write(&self.current) = Some(token);
    }
}

impl OAuthSession {
    pub(crate) fn new(
        oauth: &OAuth,
        scheme: &SecurityScheme,
        required: &[String],
        (trusted, own_card): (Vec<String>, bool),
        http: Http,
        tokens: Arc<TokenStore>,
    ) -> Self {
        let mut scopes = if oauth.scopes.is_empty() { required } else { &oauth.scopes }.join(" ");
        let is_openid = matches!(scheme, SecurityScheme::OpenIdConnect(_));
        if is_openid && oauth.secret.is_none() && !scopes.split(' ').any(|one| one == "openid") {
            scopes = format!("openid {scopes}").trim_end().to_owned();
        }
        if let (None, Some(token)) = (tokens.current(), &oauth.token) {
            tokens.set(token.clone());
        }
        let (oauth, scheme) = (oauth.clone(), scheme.clone());
        Self { oauth, scheme, scopes, trusted, own_card, http, tokens }
    }

    /// The current token.
    pub(crate) fn token(&self) -> Option<Token> {
        self.tokens.current()
    }

    /// Fetches a token unless there is a fresh one.
    pub(crate) async fn ready(&self) -> Result<(), Error> {
        let fresh = || self.token().is_some_and(|token| token.is_fresh());
        if fresh() {
            return Ok(());
        }
        let _one = self.tokens.fetching.lock().await;
        if !fresh() {
            self.keep(self.fetch().await?);
        }
        Ok(())
    }

    /// Replaces a refused token, unless another call has done so.
    pub(crate) async fn renew(&self, refused: Option<&Token>) -> Result<(), Error> {
        let _one = self.tokens.fetching.lock().await;
        if self.token().as_ref() == refused {
            self.keep(self.fetch().await?);
        }
        Ok(())
    }

    /// Fetches a token by any flow, also one that needs a person.
    pub(crate) async fn log_in(
        &self,
        ask: &(dyn Fn(Prompt) + Send + Sync),
    ) -> Result<Token, Error> {
        let _one = self.tokens.fetching.lock().await;
        let authority = self.authority().await?;
        let token = match authority.grant()? {
            Grant::ClientCredentials => authority.client_credentials().await?,
            Grant::DeviceCode => authority.device_code(ask).await?,
            Grant::AuthorizationCode => authority.authorization_code(ask).await?,
        };
        self.keep(token.clone());
        Ok(token)
    }

    /// Drops the token and revokes it. Returns `false` if the server has no revocation endpoint.
    pub(crate) async fn log_out(&self) -> Result<bool, Error> {
        let _one = self.tokens.fetching.lock().await;
        let Some(token) = self.tokens.forget() else { return Ok(false) };
        self.authority().await?.revoke(&token).await
    }

    /// Fetches a token without a person.
    async fn fetch(&self) -> Result<Token, Error> {
        let authority = self.authority().await?;
        if let Some(known) = self.token()
            && let Some(refresh) = &known.refresh
        {
            match authority.refresh(&known.from, refresh).await {
                Ok(token) => return Ok(token),
                Err(TokenError::Expired(error)) if self.oauth.secret.is_none() => {
                    return Err(log_in(&error));
                }
                Err(TokenError::Expired(_)) => {}
                Err(TokenError::Failed(error)) => return Err(error),
            }
        }
        match authority.grant()? {
            Grant::ClientCredentials => authority.client_credentials().await,
            Grant::DeviceCode | Grant::AuthorizationCode => {
                Err(log_in(&Error::login("there is no token, or it has expired")))
            }
        }
    }

    fn keep(&self, token: Token) {
        if let Some(keep) = &self.oauth.keep {
            keep(&token);
        }
        self.tokens.set(token);
    }

    async fn authority(&self) -> Result<Authority<'_>, Error> {
        Authority::find(self).await
    }
}

fn log_in(why: &Error) -> Error {
    Error::login(format!("a login is needed: {why}"))
}

impl fmt::Debug for OAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuth")
            .field("client_id", &self.client_id)
            .field("secret", &self.secret)
            .field("scopes", &self.scopes)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OAuthSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthSession").field("oauth", &self.oauth).finish_non_exhaustive()
    }
}
