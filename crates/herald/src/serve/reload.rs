//! Reload of the configuration file on SIGHUP.

use std::{convert::Infallible, future::pending, net::IpAddr, path::Path};

use herald_server::Server;
use tokio::{signal::unix::Signal, sync::Notify};
use toml::Table;

use crate::serve::{
    config::FileConfig,
    settings::{AuthSettings, ServerSettings, check_names},
};

/// Reloads the tokens of `[auth]` on every SIGHUP, and passes the signal on to the certificate files.
pub(crate) async fn follow(
    settings: &ServerSettings,
    server: &Server,
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
        match reload(path, settings, server) {
            Ok((added, revoked)) => {
                let file = path.display();
                tracing::info!(%file, added, revoked, "received SIGHUP: reloaded the tokens of [auth]");
                needs_restart(before.as_deref(), path);
            }
            // In the message and not in a field, so that the lines of the excerpt stay lines.
            Err(error) => tracing::error!(
                "received SIGHUP: cannot reload the configuration; the tokens in use stay. Correct the \
                 file and send the signal again\n{error:#}"
            ),
        }
    }
    pending().await
}

/// Reads the tokens of the file and replaces those in use. Returns the numbers of new and of revoked ones.
fn reload(
    path: &Path,
    settings: &ServerSettings,
    server: &Server,
) -> anyhow::Result<(usize, usize)> {
    let config = FileConfig::read(path)?;
    let ip: IpAddr = settings.address.ip();
    let auth = AuthSettings::read(&config, ip, settings.server.open_to_network)?;
    check_names(&config.auth, &config.source, &settings.agents)?;
    server.replace_tokens(&auth.tokens).map_err(|fault| settings.in_file(fault))
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

/// The sections that differ, except for the tokens.
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
    fn only_tokens_change_without_a_restart() {
        let tokens = |token: &str| format!("[auth]\ntokens = [{{ token = \"{token}\" }}]\n");
        assert_eq!(changed(&tokens("a"), &tokens("b")), [""; 0]);
        assert_eq!(changed("", &tokens("b")), [""; 0]);
        assert_eq!(changed("[limits]\nbody = 1\n", "[limits]\nbody = 2\n"), ["[limits]"]);
        assert_eq!(
            changed("[auth]\nvisibility = \"owner\"\n", "[[agents]]\nname = \"a\"\n"),
            ["[[agents]]", "[auth]"]
        );
    }
}
