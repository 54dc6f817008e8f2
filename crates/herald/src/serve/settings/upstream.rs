//! Other A2A agents as agents.

use std::{path::Path, sync::Arc};

use anyhow::{Context, bail};
use herald_agents::Upstream;
use herald_client::{Client, ClientBuilder, Credential, OAuth, Secrets, Source};
use herald_engine::{Agent, Profile};
use reqwest::Url;

use crate::serve::config::{
    A2aSection, AgentSection, KeyError, UpstreamAuthSection, UpstreamTlsSection,
};

use super::program::error_detail;

/// Builds the agent of a section. Its card is fetched with the first message.
pub(super) fn agent(
    section: &AgentSection,
    keys: &A2aSection,
) -> Result<(Profile, Arc<dyn Agent>), KeyError> {
    let Some(url) = &keys.url else {
        let said = "kind = \"a2a\" needs a url, such as url = \"https://agents.example.com\"";
        return Err(KeyError::new("url", said));
    };
    let elsewhere = || KeyError::of("url", "it must begin with http:// or https://");
    if !url.contains("://") {
        return Err(elsewhere());
    }
    let source = Source::parse(url).map_err(|fault| KeyError::of("url", fault))?;
    source.origin().ok_or_else(elsewhere)?;
    let secrets = Secrets::default();
    // The query of a URL may contain a secret.
    if let Ok(url) = Url::parse(url) {
        url.query_pairs().for_each(|(_, value)| secrets.add(&value));
    }
    let builder = builder(section, keys, &secrets);
    let builder = builder.map_err(|fault| KeyError::of("tls", format!("{fault:#}")))?;
    let mut upstream = Upstream::new(&section.common.name, url, builder);
    upstream.secrets = secrets;
    upstream.idempotent = keys.idempotent.unwrap_or(upstream.idempotent);
    upstream.retries = keys.retries.unwrap_or(upstream.retries);
    upstream.error_detail = error_detail(keys.error_detail, upstream.error_detail);
    let mut profile = upstream.profile();
    profile.memory = keys.memory.unwrap_or(profile.memory);
    Ok((profile, Arc::new(upstream)))
}

/// The client for the agent. The credentials of callers are never used.
fn builder(
    section: &AgentSection,
    keys: &A2aSection,
    secrets: &Secrets,
) -> anyhow::Result<ClientBuilder> {
    let mut builder = Client::builder().prefer(keys.binding.map(Into::into));
    if let Some(version) = keys.a2a_version {
        builder = builder.version(version.0);
    }
    for credential in keys.auth.iter().flat_map(|auth| credentials(auth, secrets)) {
        secrets.add_credential(&credential);
        builder = builder.credential(credential);
    }
    for origin in &keys.trusted_origins {
        builder = builder.trust_origin(origin);
    }
    // Callers have to declare required extensions to us, so we declare them to the agent.
    for extension in section.common.extensions.iter().filter(|extension| extension.required) {
        builder = builder.extension(&extension.uri);
    }
    let Some(UpstreamTlsSection { ca, certificate, key }) = &keys.tls else {
        return Ok(builder);
    };
    let read = |path: &Path| {
        let path = section.base.join(path);
        let text = std::fs::read_to_string(&path);
        text.with_context(|| format!("cannot read the file {}", path.display()))
    };
    if let Some(ca) = ca {
        builder = builder.root_certificate(read(ca)?);
    }
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            let certificate = Credential::certificate(read(certificate)?, read(key)?);
            Ok(builder.credential(certificate))
        }
        (None, None) => Ok(builder),
        (Some(_), None) | (None, Some(_)) => bail!("both `certificate` and `key` are needed"),
    }
}

fn credentials(auth: &UpstreamAuthSection, secrets: &Secrets) -> Vec<Credential> {
    let UpstreamAuthSection { token, api_key, basic, oauth } = auth;
    let token = token.as_ref().map(|token| Credential::bearer(&token.0));
    let api_key = api_key.as_ref().map(|key| Credential::api_key(&key.0));
    let basic = basic.as_ref().map(|basic| Credential::basic(&basic.name, &basic.password.0));
    let oauth = oauth.as_ref().map(|section| {
        let secrets = secrets.clone();
        let oauth = OAuth::client(&section.client_id)
            .secret(&section.client_secret.0)
            .on_token(move |token| secrets.add_token(token));
        Credential::oauth(section.scopes.iter().fold(oauth, |oauth, scope| oauth.scope(scope)))
    });
    [token, api_key, basic, oauth].into_iter().flatten().collect()
}
