//! Checks of credentials: identity providers can be reached, and somebody can call the server.

use std::time::Duration;

use herald_server::JwtIssuer;
use reqwest::{Certificate, Client, redirect::Policy};
use serde::{Deserialize, de::IgnoredAny};

use crate::{
    client::error::sentence,
    serve::settings::{AuthSettings, ServerSettings},
};

use super::Finding;

const CHECK: &str = "auth";
const KEYS: &str = "jwks";

/// The most bytes of a document of a provider.
const LARGEST: usize = 256 << 10;

#[derive(Deserialize)]
struct ProviderDocument {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<IgnoredAny>,
}

/// Checks the credentials that the settings name, if there are any.
pub(super) async fn check(settings: &ServerSettings, limit: Duration) -> Vec<Finding> {
    let auth = &settings.auth;
    let mut findings: Vec<_> = describe(auth).into_iter().collect();
    for issuer in &auth.jwt {
        findings.push(match tokio::time::timeout(limit, keys(issuer, limit)).await {
            Ok(Ok(0)) => unreachable(issuer, "its key set is empty"),
            Ok(Ok(count)) => Finding::ok(KEYS, format!("{} has {count} keys", issuer.issuer)),
            Ok(Err(fault)) => unreachable(issuer, &fault),
            Err(_) => unreachable(issuer, "it does not answer in time"),
        });
    }
    findings
}

fn describe(auth: &AuthSettings) -> Option<Finding> {
    if auth.needs_keys {
        let seen = "other machines can reach the server, and API keys are its only credentials";
        let remedy = "the server starts once there is one: herald key create --principal NAME";
        return Some(Finding::warn(CHECK, seen, remedy));
    }
    let count = |count: usize, name: &str| match count {
        0 => None,
        1 => Some(format!("1 {name}")),
        count => Some(format!("{count} {name}s")),
    };
    let parts = [
        count(auth.tokens.len(), "token"),
        count(auth.jwt.len(), "identity provider"),
        auth.certificates.as_ref().map(|_| "client certificates".to_owned()),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty())
        .then(|| Finding::ok(CHECK, format!("accepts {} and API keys", parts.join(", "))))
}

fn unreachable(issuer: &JwtIssuer, fault: &str) -> Finding {
    let seen = format!("the keys of {} cannot be fetched: {fault}", issuer.issuer);
    let remedy = "its tokens are answered with 503 until then; check issuer, jwks_url and ca under [auth] jwt, and \
                  the network";
    Finding::warn(KEYS, seen, remedy)
}

/// The number of keys that an issuer publishes.
async fn keys(issuer: &JwtIssuer, limit: Duration) -> Result<usize, String> {
    let client = client(issuer, limit).map_err(|error| sentence(&error))?;
    let url = match &issuer.jwks_url {
        Some(url) => url.clone(),
        None => {
            let base = issuer.issuer.trim_end_matches('/');
            let url = format!("{base}/.well-known/openid-configuration");
            let document: ProviderDocument = fetch(&client, &url).await?;
            if document.issuer != issuer.issuer {
                return Err(format!("its discovery document names the issuer {}", document.issuer));
            }
            document.jwks_uri
        }
    };
    let set: KeySet = fetch(&client, &url).await?;
    Ok(set.keys.len())
}

fn client(issuer: &JwtIssuer, limit: Duration) -> Result<Client, reqwest::Error> {
    let builder = Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(limit);
    let builder = match &issuer.roots {
        Some(pem) => builder.tls_certs_merge(Certificate::from_pem_bundle(pem)?),
        None => builder,
    };
    builder.build()
}

async fn fetch<T: for<'de> Deserialize<'de>>(client: &Client, url: &str) -> Result<T, String> {
    let lost = |error: reqwest::Error| format!("{url}: {}", sentence(&error.without_url()));
    let mut response = client.get(url).send().await.map_err(lost)?;
    if !response.status().is_success() {
        return Err(format!("{url}: the response is {}", response.status()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(lost)? {
        body.extend_from_slice(&chunk);
        if body.len() > LARGEST {
            return Err(format!("{url}: the response is larger than 256 KiB"));
        }
    }
    serde_json::from_slice(&body).map_err(|fault| format!("{url}: {fault}"))
}
