//! `[push]`: webhooks.

use std::{fmt, ops::RangeInclusive};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::{
    SecretValue, TimeSpan,
    auth::{one_or_many, one_or_many_schema},
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PushSection {
    /// Hosts of receivers that are allowed although they are not public, also with a port or as `*.example.com`.
    pub(crate) allowed_hosts: Vec<String>,
    /// Networks of receivers that are allowed although they are not public.
    pub(crate) allowed_cidrs: Vec<String>,
    /// The only ports of receivers, such as `443` or `"8000-8999"`.
    pub(crate) allowed_ports: Option<Vec<PortRange>>,
    /// True if URLs of receivers must begin with `https://`.
    pub(crate) https_only: bool,
    /// The time for one attempt.
    pub(crate) timeout: Option<TimeSpan>,
    /// The pauses between the attempts at one delivery.
    pub(crate) retry: Option<Vec<TimeSpan>>,
    /// Secrets that sign deliveries with HMAC, each `whsec_` and base64.
    pub(crate) signing_secrets: Vec<SecretValue>,
    /// Ed25519 keys in PEM that sign deliveries, each `file:PATH` or `env:NAME`.
    pub(crate) signing_keys: Vec<String>,
    /// Keys that encrypt stored tokens and credentials, one or several: 32 bytes in base64. The first one encrypts.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema::<SecretValue>")]
    pub(crate) secrets_key: Vec<SecretValue>,
    /// The maximum number of webhooks of one task.
    pub(crate) configs_per_task: Option<usize>,
    /// The maximum number of webhooks of one tenant.
    pub(crate) configs_per_tenant: Option<u64>,
}

/// A port, or the first and the last one of a range.
#[derive(Debug, Clone)]
pub(crate) struct PortRange(pub(crate) RangeInclusive<u16>);

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ports;
        impl de::Visitor<'_> for Ports {
            type Value = PortRange;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port such as 443, or a range such as \"8000-8999\"")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<PortRange, E> {
                let port = u16::try_from(number).ok().filter(|port| *port > 0);
                let port =
                    port.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(number), &self))?;
                Ok(PortRange(port..=port))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PortRange, E> {
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
                let range = port(first).zip(port(last)).filter(|(first, last)| first <= last);
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                range.map(|(first, last)| PortRange(first..=last)).ok_or_else(wrong)
            }
        }
        deserializer.deserialize_any(Ports)
    }
}
