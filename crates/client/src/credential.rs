//! Credentials of the caller. The security schemes of a card decide where in a request they are sent.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use herald_protocol::{AgentCard, security::SecurityScheme};
use http::{HeaderName, header};

use crate::{
    error::Error,
    oauth::{OAuth, OAuthSession},
    proof::{Proof, Secret},
};

/// A credential. The card's security schemes decide where it goes in a request.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Credential {
    /// A bearer token, also one of OAuth or OpenID Connect.
    Bearer(Secret),
    /// An API key.
    ApiKey(Secret),
    /// A name and a password.
    Basic(String, Secret),
    /// A client certificate with its chain, and its key, in PEM. Every server that asks for a certificate gets it.
    Certificate(String, Secret),
    /// Tokens of an authorization server that the card names.
    OAuth(Box<OAuth>),
}

impl Credential {
    /// A bearer token.
    pub fn bearer(token: impl Into<String>) -> Self {
        Self::Bearer(Secret::new(token))
    }

    /// An API key.
    pub fn api_key(key: impl Into<String>) -> Self {
        Self::ApiKey(Secret::new(key))
    }

    /// A name and a password.
    pub fn basic(name: impl Into<String>, password: impl Into<String>) -> Self {
        Self::Basic(name.into(), Secret::new(password))
    }

    /// A client certificate with its chain, and its key, in PEM.
    pub fn certificate(chain: impl Into<String>, key: impl Into<String>) -> Self {
        Self::Certificate(chain.into(), Secret::new(key))
    }

    /// Tokens of an authorization server that the card names.
    pub fn oauth(oauth: OAuth) -> Self {
        Self::OAuth(Box::new(oauth))
    }

    fn fits(&self, scheme: &SecurityScheme) -> bool {
        match (self, scheme) {
            (Self::Bearer(_), SecurityScheme::Http(http)) => {
                http.scheme.eq_ignore_ascii_case("bearer")
            }
            (Self::Basic(..), SecurityScheme::Http(http)) => {
                http.scheme.eq_ignore_ascii_case("basic")
            }
            (
                Self::Bearer(_) | Self::OAuth(_),
                SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_),
            )
            | (Self::ApiKey(_), SecurityScheme::ApiKey(_))
            | (Self::Certificate(..), SecurityScheme::MutualTls(_)) => true,
            (
                Self::Bearer(_)
                | Self::ApiKey(_)
                | Self::Basic(..)
                | Self::Certificate(..)
                | Self::OAuth(_),
                SecurityScheme::ApiKey(_)
                | SecurityScheme::Http(_)
                | SecurityScheme::OAuth2(_)
                | SecurityScheme::OpenIdConnect(_)
                | SecurityScheme::MutualTls(_),
            ) => false,
        }
    }
}

impl Proof {
    /// Puts credentials into the places that the card declares: by the first requirement that they satisfy,
    /// else by every scheme they fit. A card without schemes gets tokens and passwords in `Authorization`.
    /// `session` is called, and its result returned, if tokens have to be fetched.
    pub(crate) fn new(
        credentials: &[Credential],
        card: &AgentCard,
        session: impl Fn(&OAuth, &SecurityScheme, &[String]) -> OAuthSession,
    ) -> Result<(Self, Option<OAuthSession>), Error> {
        let places = satisfied(credentials, card).unwrap_or_else(|| {
            let fitting = |scheme| Some((find(credentials, scheme)?, scheme, [].as_slice()));
            card.security_schemes.values().filter_map(fitting).collect()
        });
        if places.is_empty() {
            if credentials.iter().any(|one| matches!(one, Credential::ApiKey(_))) {
                return Err(Error::setup("the card has no security scheme for an API key"));
            }
            if credentials.iter().any(|one| matches!(one, Credential::OAuth(_))) {
                return Err(Error::setup("the card has no security scheme for OAuth"));
            }
            return Ok((Self::authorization(credentials)?, None));
        }
        let (mut proof, mut fetched) = (Self::default(), None);
        for (credential, scheme, scopes) in places {
            match credential {
                Credential::OAuth(oauth) => {
                    let session = session(oauth, scheme, scopes);
                    fetched = Some(session.clone());
                    let token = move || session.token().map(|token| token.access);
                    proof.token = Some(Arc::new(token));
                }
                Credential::Bearer(_)
                | Credential::ApiKey(_)
                | Credential::Basic(..)
                | Credential::Certificate(..) => proof.add(credential, Some(scheme))?,
            }
        }
        Ok((proof, fetched))
    }

    /// The proof before the card is known: tokens and passwords.
    pub(crate) fn authorization(credentials: &[Credential]) -> Result<Self, Error> {
        let mut proof = Self::default();
        for credential in credentials {
            proof.add(credential, None)?;
        }
        Ok(proof)
    }

    fn add(
        &mut self,
        credential: &Credential,
        scheme: Option<&SecurityScheme>,
    ) -> Result<(), Error> {
        let secret = match credential {
            Credential::Bearer(token) => {
                let value = format!("Bearer {}", token.expose());
                return self.header(header::AUTHORIZATION, &value);
            }
            Credential::Basic(name, password) => {
                let pair = STANDARD.encode(format!("{name}:{}", password.expose()));
                return self.header(header::AUTHORIZATION, &format!("Basic {pair}"));
            }
            Credential::ApiKey(secret) => secret,
            // It is part of the TLS connection.
            Credential::Certificate(..) => return Ok(()),
            // Tokens need the authorization server of a scheme.
            Credential::OAuth(_) => return Ok(()),
        };
        let Some(SecurityScheme::ApiKey(place)) = scheme else { return Ok(()) };
        match place.location.as_str() {
            "header" => {
                let name = HeaderName::try_from(&place.name).map_err(|_| unusable(&place.name))?;
                self.header(name, secret.expose())
            }
            "cookie" => self.header(header::COOKIE, &format!("{}={}", place.name, secret.expose())),
            "query" => {
                self.query.push((place.name.clone(), secret.clone()));
                Ok(())
            }
            _ => Err(unusable(&place.name)),
        }
    }
}

fn unusable(name: &str) -> Error {
    Error::setup(format!("the card has an API key scheme with an unknown location: {name:?}"))
}

fn find<'a>(credentials: &'a [Credential], scheme: &SecurityScheme) -> Option<&'a Credential> {
    credentials.iter().find(|credential| credential.fits(scheme))
}

/// A credential, its scheme, and the required scopes.
type SatisfiedSchemes<'a> = Vec<(&'a Credential, &'a SecurityScheme, &'a [String])>;

/// The schemes of the first requirement that the credentials satisfy as a whole.
fn satisfied<'a>(
    credentials: &'a [Credential],
    card: &'a AgentCard,
) -> Option<SatisfiedSchemes<'a>> {
    card.security_requirements.iter().find_map(|requirement| {
        let schemes = requirement.schemes.iter().map(|(name, scopes)| {
            let scheme = card.security_schemes.get(name)?;
            Some((find(credentials, scheme)?, scheme, scopes.list.as_slice()))
        });
        schemes.collect()
    })
}
