//! Settings of webhooks: `[push]`, its variables, and the keys in the data directory.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::Context;
use herald_engine::WebhookSettings;
use herald_server::{HttpSender, SecretsKey, SigningKey, WebhookConfig, WebhookSettingError};

use crate::serve::config::{ConfigError, ConfigText, FileConfig};

use super::{StoreKind, environment};

/// The files of generated keys, in the data directory.
const SECRETS_KEY: &str = "push.key";
const SIGNING_KEY: &str = "push.pem";

/// The bounds of a pause between two attempts, and the most pauses.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(7 * 24 * 3600);
const MAX_PAUSES: usize = 32;

/// Sets the limits and retries of the engine.
pub(super) fn limit(
    settings: &mut WebhookSettings,
    config: &FileConfig,
) -> Result<(), ConfigError> {
    let push = &config.push;
    if let Some(pauses) = &push.retry {
        let pauses: Vec<_> = pauses.iter().map(|pause| pause.0).collect();
        let bounds = SHORTEST_PAUSE..=LONGEST_PAUSE;
        if pauses.len() > MAX_PAUSES || !pauses.iter().all(|pause| bounds.contains(pause)) {
            let text = "[push] retry must be at most 32 pauses, each between 1s and 7d";
            return Err(config.source.fault_at("push.retry", text));
        }
        settings.retry = pauses;
    }
    settings.per_task = push.configs_per_task.unwrap_or(settings.per_task);
    settings.per_tenant = push.configs_per_tenant.unwrap_or(settings.per_tenant);
    Ok(())
}

/// The settings of webhooks, without the keys in the data directory.
pub(crate) fn webhook_config(config: &FileConfig) -> Result<WebhookConfig, ConfigError> {
    let (push, source) = (&config.push, &config.source);
    let fault = |key: &str, text: String| source.fault_at(&format!("push.{key}"), text);
    let ports = push.allowed_ports.as_ref();
    let secrets_keys = push.secrets_key.iter().map(|key| {
        SecretsKey::parse(&key.0).map_err(|error| fault("secrets_key", error.to_string()))
    });
    let defaults = WebhookConfig::default();
    let webhooks = WebhookConfig {
        allowed_hosts: with_variable(&push.allowed_hosts, "PUSH_NOTIFICATION_ALLOWED_HOSTS"),
        allowed_cidrs: with_variable(&push.allowed_cidrs, "PUSH_NOTIFICATION_ALLOWED_CIDRS"),
        allowed_ports: ports.map(|ports| ports.iter().map(|range| range.0.clone()).collect()),
        https_only: push.https_only,
        timeout: push.timeout.map_or(defaults.timeout, |span| span.0),
        signing_secrets: push.signing_secrets.iter().map(|secret| secret.0.clone()).collect(),
        signing_keys: signing_keys(&push.signing_keys, source)?,
        secrets_keys: secrets_keys.collect::<Result<_, _>>()?,
    };
    HttpSender::new(&webhooks).map_err(|error| source.fault_at(key(&error), &error))?;
    Ok(webhooks)
}

/// The key of an invalid setting.
fn key(error: &WebhookSettingError) -> &'static str {
    match error {
        WebhookSettingError::AllowedHost(_) => "push.allowed_hosts",
        WebhookSettingError::AllowedNetwork(_) => "push.allowed_cidrs",
        WebhookSettingError::SigningSecret(_) => "push.signing_secrets",
        WebhookSettingError::SigningKey(_) => "push.signing_keys",
        WebhookSettingError::SecretsKey => "push.secrets_key",
        WebhookSettingError::Timeout => "push.timeout",
    }
}

/// The same settings with the keys in the data directory, which are generated if they are missing.
pub(crate) fn with_stored_keys(
    mut webhooks: WebhookConfig,
    store: &StoreKind,
) -> anyhow::Result<WebhookConfig> {
    let StoreKind::Sqlite(database) = store else { return Ok(webhooks) };
    let path = database.with_file_name(SECRETS_KEY);
    let problem = |path: &Path| format!("the key of webhooks in {}", path.display());
    if webhooks.secrets_keys.is_empty() || path.exists() {
        // Behind the configured keys, it decrypts what was stored before they were configured.
        let key = SecretsKey::read_or_create(&path).with_context(|| problem(&path))?;
        webhooks.secrets_keys.push(key);
    }
    if webhooks.signing_keys.is_empty() {
        let path = database.with_file_name(SIGNING_KEY);
        let key = SigningKey::read_or_create_ed25519(&path).with_context(|| problem(&path))?;
        webhooks.signing_keys.push(Arc::new(key));
    }
    Ok(webhooks)
}

/// A list of the file, and the further values of a variable, separated by commas.
fn with_variable(list: &[String], name: &str) -> Vec<String> {
    let further = environment(name).unwrap_or_default();
    let further = further.split(',').map(str::trim).filter(|value| !value.is_empty());
    list.iter().cloned().chain(further.map(str::to_owned)).collect()
}

fn signing_keys(
    texts: &[String],
    source: &ConfigText,
) -> Result<Vec<Arc<SigningKey>>, ConfigError> {
    let read = |(index, text): (usize, &String)| {
        let refused = |said: &str| source.fault_at(&format!("push.signing_keys.{index}"), said);
        let key = match text.split_once(':') {
            Some(("file", path)) => SigningKey::read(Path::new(path)),
            Some(("env", name)) => {
                let Some(key) = environment(name) else {
                    return Err(refused(&format!(
                        "the environment variable {name} is not set; export it first"
                    )));
                };
                SigningKey::from_pem(key.as_bytes())
            }
            _ => {
                return Err(refused(
                    "a signing key is a file or a variable: write \"file:PATH\" or \"env:NAME\"",
                ));
            }
        };
        key.map(Arc::new).map_err(|fault| refused(&format!("the signing key {text}: {fault}")))
    };
    texts.iter().enumerate().map(read).collect()
}
