//! OAuth 2.0 and OpenID Connect tokens, as the card's security scheme demands them.
//!
//! A token is fetched when a call needs one and kept until it expires; whoever comes while one is being
//! fetched waits for it. What takes a person happens in [`Client::log_in`](crate::Client::log_in)
//! alone.

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

/// A token this close to its end is renewed before it is used, in seconds.
const MARGIN: u64 = 10;

/// The OAuth client that a program is to an authorization server.
///
/// With a secret, and where the card offers client credentials, tokens are fetched without further ado.
/// Otherwise a person has to log in first, once: see [`Client::log_in`](crate::Client::log_in). The
/// server's address comes from the card; it must be of the origin that was connected to, or of one that
/// [`trust_origin`](crate::ClientBuilder::trust_origin) names. So must every address in the description
/// that such a server gives of itself.
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

/// A token that an authorization server issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The access token.
    pub access: Secret,
    /// The refresh token.
    pub refresh: Option<Secret>,
    /// Its expiry, in seconds since 1970, if the server named one.
    pub expires: Option<u64>,
    /// The address that gave it out. It is renewed there and nowhere else.
    pub from: String,
}

/// The action that a person has to take to log in.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prompt {
    /// Open `url` on any device and enter `code` there.
    Device {
        /// The page to open.
        url: String,
        /// The code to enter.
        code: String,
        /// The page that needs no code, if the server has one.
        complete: Option<String>,
    },
    /// Open `url` in a browser on this machine.
    Browser {
        /// The page to open.
        url: String,
    },
}

/// A grant type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grant {
    ClientCredentials,
    DeviceCode,
    AuthorizationCode,
}

/// The token of one client. It outlives a change of the card.
#[derive(Debug, Default)]
pub(crate) struct TokenStore {
    current: RwLock<Option<Token>>,
    /// Held by whoever fetches one.
    fetching: Mutex<()>,
}

/// The way from one card's scheme to tokens.
#[derive(Clone)]
pub(crate) struct OAuthSession {
    oauth: OAuth,
    scheme: SecurityScheme,
    /// As they go over the wire, with a space between them.
    scopes: String,
    /// The origins that may be sent secrets.
    trusted: Vec<String>,
    /// True if the card is the caller's own, so that it may name further origins.
    own_card: bool,
    http: Http,
    tokens: Arc<TokenStore>,
}

impl OAuth {
    /// A program by the name that the authorization server knows it by.
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

    /// The client secret.
    pub fn secret(mut self, secret: impl Into<String>) -> Self {
        self.secret = Some(Secret::new(secret));
        self
    }

    /// Asks for this scope. Without any, those are asked for that the card requires.
    pub fn scope(mut self, scope: impl Into<String>) -> Self {
        self.scopes.push(scope.into());
        self
    }

    /// Sends a further parameter whenever a token is asked for, such as `audience`.
    pub fn parameter(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.parameters.push((name.into(), value.into()));
        self
    }

    /// Starts with a token that was kept.
    pub fn token(mut self, token: Token) -> Self {
        self.token = Some(token);
        self
    }

    /// The client secret, and the credentials for a Basic header.
    pub(crate) fn proof(&self) -> Option<(&Secret, Secret)> {
        let secret = self.secret.as_ref()?;
        let pair = format!("{}:{}", encoded(&self.client_id), encoded(secret.expose()));
        Some((secret, Secret::new(STANDARD.encode(pair))))
    }

    /// Hands over every new token, to be kept.
    pub fn on_token(mut self, keep: impl Fn(&Token) + Send + Sync + 'static) -> Self {
        self.keep = Some(Arc::new(keep));
        self
    }
}

impl Token {
    /// True if it is valid for a while yet, as far as is known.
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

    /// The token to call with.
    pub(crate) fn token(&self) -> Option<Token> {
        self.tokens.current()
    }

    /// Sees to it that there is a token to call with.
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

    /// Sees to it that there is another token than the one that was refused.
    pub(crate) async fn renew(&self, refused: Option<&Token>) -> Result<(), Error> {
        let _one = self.tokens.fetching.lock().await;
        if self.token().as_ref() == refused {
            self.keep(self.fetch().await?);
        }
        Ok(())
    }

    /// Fetches a token, with whatever a person has to do for it.
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

    /// Forgets the token and takes it back at the server that gave it out. Whether that could be done.
    pub(crate) async fn log_out(&self) -> Result<bool, Error> {
        let _one = self.tokens.fetching.lock().await;
        let Some(token) = self.tokens.forget() else { return Ok(false) };
        self.authority().await?.revoke(&token).await
    }

    /// Fetches a token without asking anybody.
    async fn fetch(&self) -> Result<Token, Error> {
        let authority = self.authority().await?;
        if let Some(known) = self.token()
            && let Some(refresh) = &known.refresh
        {
            match authority.refresh(&known.from, refresh).await {
                Ok(token) => return Ok(token),
                Err(TokenError::Over(error)) if self.oauth.secret.is_none() => {
                    return Err(log_in(&error));
                }
                Err(TokenError::Over(_)) => {}
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
    Error::login(format!("somebody has to log in: {why}"))
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
