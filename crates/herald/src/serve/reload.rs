//! Reload of the configuration file on SIGHUP.

use std::{convert::Infallible, future::pending, net::IpAddr, path::Path};

use herald_server::{HttpSender, Server};
use tokio::{signal::unix::Signal, sync::Notify};
use toml::Table;

use crate::serve::{
    config::FileConfig,
    settings::{AuthSettings, ServerSettings, check_names, webhook_config, with_stored_keys},
};

/// The keys of `[push]` that need a restart: they are settings of the engine.
const ENGINE_KEYS: [&str; 3] = ["retry", "configs_per_task", "configs_per_tenant"];

/// Reloads the tokens of `[auth]` and the settings of `[push]` on every SIGHUP, and passes the signal on to the
/// certificate files.
pub(crate) async fn follow(
    settings: &ServerSettings,
    server: &Server,
    webhooks: Option<&HttpSender>,
    mut hangup: Signal,
    certificates: &Notify,
) -> Infallible {
    let before = settings.source.as_deref().and_then(|path| std::fs::read_to_string(path).ok());
    while let Some(()) = hangup.recv().await {
        certificates.notify_one();
        let Some(path) = &settings.source else {
            tracing::info!("received SIGHUP: there is no configuration file to reload");
            continue;
        };
        if settings.stdio {
            tracing::info!(
                "received SIGHUP: there are no tokens to reload on standard input and output"
            );
            continue;
        }
        match reload(path, settings, server, webhooks) {
            Ok((added, revoked)) => {
                let file = path.display();
                tracing::info!(%file, added, revoked, "received SIGHUP: reloaded the tokens of [auth] and the settings of [push]");
                needs_restart(before.as_deref(), path);
            }
            // In the message and not in a field, so that the lines of the excerpt stay lines.
            Err(error) => tracing::error!(
                "received SIGHUP: cannot reload the configuration; the tokens and settings in use stay. \
                 Correct the file and send the signal again\n{error:#}"
            ),
        }
    }
    pending().await
}

/// Reads the tokens and the settings of webhooks in the file and replaces those in use. Returns the numbers of new
/// and of revoked tokens.
fn reload(
    path: &Path,
    settings: &ServerSettings,
    server: &Server,
    webhooks: Option<&HttpSender>,
) -> anyhow::Result<(usize, usize)> {
    let config = FileConfig::read(path)?;
    let ip: IpAddr = settings.address.ip();
    let auth = AuthSettings::read(&config, ip, settings.server.open_to_network)?;
    check_names(&config.auth, &config.source, &settings.agents)?;
    // Everything is read before anything is replaced.
    let mut push = webhook_config(&config)?;
    if webhooks.is_some() {
        push = with_stored_keys(push, &settings.store)?;
    }
    let replaced = server.replace_tokens(&auth.tokens).map_err(|fault| settings.in_file(fault))?;
    if let Some(sender) = webhooks {
        if push.signing_keys.is_empty() {
            push.signing_keys = sender.signing_keys();
        }
        sender.replace(&push).map_err(|fault| settings.in_file(fault))?;
    }
    Ok(replaced)
}

/// Logs the changed settings that only a restart applies.
fn needs_restart(before: Option<&str>, path: &Path) {
    let now = std::fs::read_to_string(path).ok();
    let changed = changed(before.unwrap_or_default(), now.as_deref().unwrap_or_default());
    if !changed.is_empty() {
        let names = changed.join(", ");
        tracing::warn!("settings that changed and need a restart of the server: {names}");
    }
}

/// The sections that differ, except for the keys that are reloaded.
fn changed(before: &str, now: &str) -> Vec<String> {
    let table = |text: &str| text.parse::<Table>().unwrap_or_default();
    let (mut before, mut now) = (table(before), table(now));
    for config in [&mut before, &mut now] {
        if let Some(auth) = config.get_mut("auth").and_then(toml::Value::as_table_mut) {
            auth.remove("tokens");
            if auth.is_empty() {
                config.remove("auth");
            }
        }
        if let Some(push) = config.get_mut("push").and_then(toml::Value::as_table_mut) {
            push.retain(|key, _| ENGINE_KEYS.contains(&key));
            if push.is_empty() {
                config.remove("push");
            }
        }
    }
    let mut names: Vec<_> = before.keys().chain(now.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let differ = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
    differ
        .map(|name| if name == "agents" { "[[agents]]".to_owned() } else { format!("[{name}]") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_webhooks_change_without_a_restart() {
        let tokens = |token: &str| format!("[auth]\ntokens = [{{ token = \"{token}\" }}]\n");
        assert_eq!(changed(&tokens("a"), &tokens("b")), [""; 0]);
        assert_eq!(changed("", &tokens("b")), [""; 0]);
        assert_eq!(changed("[limits]\nbody = 1\n", "[limits]\nbody = 2\n"), ["[limits]"]);
        assert_eq!(changed("", "[push]\nhttps_only = true\n"), [""; 0]);
        assert_eq!(changed("", "[push]\nhttps_only = true\nretry = []\n"), ["[push]"]);
        assert_eq!(
            changed("[auth]\nvisibility = \"owner\"\n", "[[agents]]\nname = \"a\"\n"),
            ["[[agents]]", "[auth]"]
        );
    }
}
