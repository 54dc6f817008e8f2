//! Arguments of `herald listen`.

use std::net::IpAddr;

use clap::Args;
use http::StatusCode;
use reqwest::Url;

use super::{OutputArgs, SecretArg};

pub(super) const EXAMPLES: &str = "\
Examples:
  herald listen --token SECRET                      verify the token, print one line per webhook
  herald listen --jwks http://127.0.0.1:8000        verify signatures with the keys of a Herald server
  herald listen --secret whsec_…                    verify signatures with a shared secret
  herald listen --token SECRET --forward http://127.0.0.1:3000/hook    pass verified webhooks on
  herald listen --status 503 --count 3              see how the sender tries again
  herald listen --count 1 -o json                   one webhook as JSON, then end
  herald task push-config create localhost:8000 ID --url http://127.0.0.1:9100/ --token SECRET";

/// `herald listen`.
#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub(crate) host: IpAddr,

    /// Port to listen on; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 9100)]
    pub(crate) port: u16,

    /// Require this token [default: none]
    #[arg(long, value_name = "SECRET", help_heading = "Verification")]
    pub(crate) token: Option<SecretArg>,

    /// Require a signature, and accept those with this shared secret; may be repeated. The flag is
    /// visible in the process list and in the shell's history; the variable is not
    #[arg(long, value_name = "whsec_SECRET", value_delimiter = ',', help_heading = "Verification")]
    #[arg(env = "HERALD_WEBHOOK_SECRET", hide_env_values = true)]
    pub(crate) secret: Vec<SecretArg>,

    /// Require a signature, and accept those by this ed25519 key; may be repeated
    #[arg(long, value_name = "whpk_KEY", value_delimiter = ',', help_heading = "Verification")]
    pub(crate) public_key: Vec<String>,

    /// Require a signature, and accept those by the ed25519 keys that this server publishes: a JSON
    /// Web Key Set, or a server that has one at /.well-known/jwks.json. It is fetched once
    #[arg(long, value_name = "URL", help_heading = "Verification")]
    pub(crate) jwks: Option<Url>,

    /// Post verified webhooks to this URL, and answer with its status
    #[arg(long, value_name = "URL", value_parser = forward_url, help_heading = "Answer")]
    pub(crate) forward: Option<Url>,

    /// Answer verified webhooks with this status [default: 200]
    // The id differs from the name, since `status` is a setting of `task list`.
    #[arg(id = "listen_status", long = "status", value_name = "STATUS", value_parser = status)]
    #[arg(conflicts_with = "forward", help_heading = "Answer")]
    pub(crate) status: Option<StatusCode>,

    /// End after this many verified webhooks [default: run until interrupted]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,

    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

impl Listen {
    /// True if webhooks must have some proof of their sender.
    pub(crate) fn is_verified(&self) -> bool {
        let keys = !self.secret.is_empty() || !self.public_key.is_empty() || self.jwks.is_some();
        keys || self.token.is_some()
    }
}

fn forward_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    url.ok_or_else(|| "write it as http://127.0.0.1:3000/hook".to_owned())
}

fn status(text: &str) -> Result<StatusCode, String> {
    let status =
        text.parse().ok().filter(|status: &StatusCode| (200..600).contains(&status.as_u16()));
    status.ok_or_else(|| "a status is a number from 200 to 599".to_owned())
}
