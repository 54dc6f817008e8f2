//! Arguments of `herald key`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use herald_engine::{Clock, Scopes};
use herald_protocol::Timestamp;

use super::{OutputArgs, ServerArgs, agent::duration};
use crate::spelling::near;

/// Verbs for API keys.
#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create an API key. Its secret is shown once
    #[command(after_help = CREATE_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Create(Box<KeyCreate>),
    /// List the API keys, without their secrets
    #[command(after_help = LIST_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    List(KeyList),
    /// Show an API key, without its secret
    #[command(after_help = NAMED_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Show(KeyNamed),
    /// Revoke an API key for ever. Its open streams end within 5 seconds
    #[command(after_help = NAMED_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Revoke(KeyNamed),
    /// Create a private key that signs agent cards, as a file
    #[command(after_help = SIGNING_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    CreateSigning(KeyCreateSigning),
}

const CREATE_EXAMPLES: &str = "\
Examples:
  herald key create --principal ci                             the scopes of a caller, without an end
  herald key create --principal me --scope admin,send,read,cancel,push   an administrator, for --server URL
  herald key create --tenant acme --principal web --scope send --scope read --agent echo --expires 90d
  herald key create --data /srv/herald --principal ci -o json  {\"id\": ..., \"key\": ...}

The first key comes from the data directory: run this as the user that runs the server, with the server
running or stopped. Send the key as `Authorization: Bearer KEY` or `X-API-Key: KEY`. A key has at most
the rights of the credential that creates it; with --data there is no such limit.";

const LIST_EXAMPLES: &str = "\
Examples:
  herald key list                                   of the server of ./herald-data
  herald key list --tenant acme --server https://agents.example.com -o json";

const NAMED_EXAMPLES: &str = "\
Examples:
  herald key show ID                                its permissions, its end and its last use
  herald key revoke ID --data /srv/herald           `herald key list` shows the ids";

const SIGNING_EXAMPLES: &str = "\
Examples:
  herald key create-signing cards-2026              writes cards-2026.pem, readable by you alone
  herald key create-signing cards-2026 --dir /etc/herald

Then name the file in herald.toml: [card] signing_keys = [\"file:cards-2026.pem\"]";

#[derive(Debug, Args)]
pub(crate) struct KeyCreateSigning {
    /// The id of the key, which signatures name: letters, digits, '.', '_' and '-'
    #[arg(value_name = "ID", value_parser = name)]
    pub(crate) id: String,

    /// The directory of the file
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyCreate {
    /// The principal for which the key acts: the name of a person or a program
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) principal: String,

    /// The tenant for which the key acts [default: that of your credential]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub(crate) tenant: Option<String>,

    /// A permission: send, read, cancel, push, register, work, work-all, inspect or admin; may be
    /// repeated
    /// [default: send, read, cancel and push, as far as your credential has them]
    // The id differs from that of --scope of logins, whose settings do not apply here.
    #[arg(id = "key_scope", long = "scope", value_name = "SCOPE", value_delimiter = ',')]
    #[arg(value_parser = scope)]
    pub(crate) scopes: Vec<String>,

    /// An agent that the key may use; may be repeated [default: all]
    #[arg(long = "agent", value_name = "NAME", value_parser = name)]
    pub(crate) agents: Vec<String>,

    /// A skill that the key may use; may be repeated [default: all]
    #[arg(long = "skill", value_name = "ID", value_parser = name)]
    pub(crate) skills: Vec<String>,

    /// The tasks that the key sees [default: the server's setting]
    #[arg(long, value_name = "WHOSE", value_enum)]
    pub(crate) visibility: Option<VisibilityArg>,

    /// The end of the key, as a length of time such as 90d or as a time [default: none]
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    pub(crate) expires: Option<Timestamp>,

    /// A name for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(crate) label: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyList {
    /// Only keys of this tenant
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct KeyNamed {
    /// The key's id, which is not the key itself
    #[arg(value_name = "ID", value_parser = key_id)]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// The tasks that a key sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum VisibilityArg {
    /// Those of its own principal
    Owner,
    /// Those of its whole tenant
    Tenant,
}

impl VisibilityArg {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Tenant => "tenant",
        }
    }
}

impl KeyCommand {
    pub(crate) fn output(&self) -> &OutputArgs {
        match self {
            Self::Create(args) => &args.server.output,
            Self::List(args) => &args.server.output,
            Self::Show(args) | Self::Revoke(args) => &args.server.output,
            Self::CreateSigning(args) => &args.output,
        }
    }
}

/// A name that is not empty.
fn name(text: &str) -> Result<String, &'static str> {
    if text.trim().is_empty() {
        return Err("it is empty; give a name, or leave the flag out");
    }
    Ok(text.to_owned())
}

/// The id of a key. Its secret is refused, since it would be sent in a URL, and logged there.
fn key_id(text: &str) -> Result<String, &'static str> {
    if text.starts_with(herald_engine::keys::SECRET_PREFIX) {
        return Err("this is the secret of a key; give its id, which `herald key list` shows");
    }
    name(text)
}

fn scope(text: &str) -> Result<String, String> {
    text.parse::<Scopes>().map(|_| text.to_owned()).map_err(|unknown| {
        match near(text, Scopes::ALL.names()) {
            Some(meant) => format!("{unknown}; did you mean {meant}?"),
            None => unknown.to_string(),
        }
    })
}

fn expiry(text: &str) -> Result<Timestamp, String> {
    let now = Clock::system().now();
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("write the unit too, such as {text}d for days or {text}h for hours"));
    }
    let expires = match duration(text) {
        Ok(length) => after(now, i64::try_from(length.as_millis()).unwrap_or(i64::MAX)),
        Err(_) => text.parse().map_err(|_| {
            "write it as a length of time such as 90d, or as a time such as 2027-01-31T00:00:00Z"
        })?,
    };
    if expires <= now {
        return Err(format!("{expires} is in the past; the key could never be used"));
    }
    Ok(expires)
}

fn after(now: Timestamp, millis: i64) -> Timestamp {
    Timestamp::from_millis(now.as_millis().saturating_add(millis))
}

/// A time, or a length of time before now.
pub(super) fn since(text: &str) -> Result<Timestamp, String> {
    let now = Clock::system().now();
    match duration(text) {
        Ok(length) => {
            Ok(after(now, i64::try_from(length.as_millis()).map_or(i64::MIN, |length| -length)))
        }
        Err(_) => text.parse().map_err(|_| {
            "write it as a length of time such as 1h, or as a time such as 2026-11-16T00:00:00Z"
                .to_owned()
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_scope_gets_a_suggestion() {
        assert_eq!(scope("read"), Ok("read".to_owned()));
        let error = scope("raed").unwrap_err();
        assert!(error.starts_with("unknown scope \"raed\""), "{error}");
        assert!(error.ends_with("did you mean read?"), "{error}");
        assert!(!scope("everything").unwrap_err().contains("did you mean"));
    }

    #[test]
    fn an_expiry_is_in_the_future() {
        let now = Clock::system().now();
        assert!(expiry("90d").unwrap() > now);
        assert!(expiry("9000000000d").is_err() || expiry("9000000000d").unwrap() > now);
        assert!(expiry("2999-01-31T00:00:00Z").is_ok());
        assert!(expiry("2020-01-31T00:00:00Z").unwrap_err().contains("in the past"));
        assert!(expiry("0s").unwrap_err().contains("in the past"));
        assert!(expiry("soon").unwrap_err().contains("90d"));
        assert!(expiry("90").unwrap_err().contains("90d for days"), "not 90 seconds");
    }

    #[test]
    fn a_start_is_a_time_or_a_length_of_time() {
        let now = Clock::system().now();
        let hour = since("1h").unwrap();
        assert!((3_599_000..=3_601_000).contains(&(now.as_millis() - hour.as_millis())));
        assert_eq!(since("2026-11-16T00:00:00Z").unwrap().to_string(), "2026-11-16T00:00:00.000Z");
        assert!(since("yesterday").is_err());
    }
}
