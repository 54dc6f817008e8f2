//! `[auth]`: tokens, identity providers, client certificates, scopes and visibility.

use std::{fmt, marker::PhantomData, path::PathBuf};

use herald_engine::{Scopes, Visibility};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, value::MapAccessDeserializer, value::SeqAccessDeserializer},
};

use super::{SecretValue, TimeSpan};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthSection {
    /// `false` accepts calls without credentials, also off loopback.
    pub(crate) required: Option<bool>,
    /// The tasks that callers see.
    pub(crate) visibility: VisibilityKey,
    pub(crate) tokens: Vec<TokenSection>,
    /// The issuers of JSON web tokens, one or several.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema::<JwtSection>")]
    pub(crate) jwt: Vec<JwtSection>,
    pub(crate) certificates: Option<CertificatesSection>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenSection {
    pub(crate) token: SecretValue,
    pub(crate) tenant: String,
    pub(crate) principal: String,
    /// The operations that the token allows; by default those of an ordinary caller.
    #[serde(default)]
    pub(crate) scopes: Option<Vec<ScopeKey>>,
    /// The agents that the token allows; by default all.
    #[serde(default)]
    pub(crate) agents: Option<Vec<String>>,
    /// The skills that the token allows; by default all.
    #[serde(default)]
    pub(crate) skills: Option<Vec<String>>,
    /// The tasks that the caller sees, in place of `[auth] visibility`.
    #[serde(default)]
    pub(crate) visibility: Option<VisibilityKey>,
}

/// A scope, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ScopeKey {
    Send,
    Read,
    Cancel,
    Push,
    Register,
    Work,
    Inspect,
    Admin,
}

/// The tasks that a caller sees: its own, or those of its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum VisibilityKey {
    #[default]
    Owner,
    Tenant,
}

/// An issuer of JSON web tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JwtSection {
    /// The `iss` of its tokens, an https URL.
    pub(crate) issuer: String,
    /// The `aud` that tokens for this server have; one or several.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(schema_with = "one_or_many_schema::<String>")]
    pub(crate) audience: Vec<String>,
    /// The URL of the keys; by default that of the issuer's discovery document.
    #[serde(default)]
    pub(crate) jwks_url: Option<String>,
    /// The accepted algorithms; by default RS256.
    #[serde(default)]
    pub(crate) algorithms: Option<Vec<String>>,
    /// The accepted `typ` of tokens.
    #[serde(default)]
    pub(crate) typ: Option<String>,
    /// The tenant of all tokens.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// The claim with the tenant.
    #[serde(default)]
    pub(crate) tenant_claim: Option<String>,
    /// The claim with the principal; by default `sub`.
    #[serde(default)]
    pub(crate) principal_claim: Option<String>,
    /// The scopes of all tokens.
    #[serde(default)]
    pub(crate) scopes: Option<Vec<ScopeKey>>,
    /// The claim with the scopes; by default `scope`.
    #[serde(default)]
    pub(crate) scope_claim: Option<String>,
    /// The prefix of the scopes in the claim.
    #[serde(default)]
    pub(crate) scope_prefix: Option<String>,
    /// The tasks that callers see, in place of `[auth] visibility`.
    #[serde(default)]
    pub(crate) visibility: Option<VisibilityKey>,
    /// The tolerated difference between the clocks.
    #[serde(default)]
    pub(crate) clock_skew: Option<TimeSpan>,
    /// The time for which known keys are used while the provider cannot be reached.
    #[serde(default)]
    pub(crate) keep_keys: Option<TimeSpan>,
    /// A file with certificate authorities to trust for the provider.
    #[serde(default)]
    pub(crate) ca: Option<PathBuf>,
}

/// The identities of client certificates.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificatesSection {
    /// The part of a certificate that names its holder.
    #[serde(default)]
    pub(crate) name: CertificateNameKey,
    /// The tenant of certificates without an entry in `identities`.
    #[serde(default)]
    pub(crate) tenant: Option<String>,
    /// The part of the subject that names that tenant.
    #[serde(default)]
    pub(crate) tenant_from: Option<TenantFromKey>,
    /// The scopes of certificates without an entry in `identities`.
    #[serde(default)]
    pub(crate) scopes: Option<Vec<ScopeKey>>,
    /// The tasks that callers see, in place of `[auth] visibility`.
    #[serde(default)]
    pub(crate) visibility: Option<VisibilityKey>,
    /// Certificates with permissions of their own.
    #[serde(default)]
    pub(crate) identities: Vec<CertificateSection>,
}

/// The identity of one certificate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateSection {
    pub(crate) name: String,
    pub(crate) tenant: String,
    pub(crate) principal: String,
    #[serde(default)]
    pub(crate) scopes: Option<Vec<ScopeKey>>,
    #[serde(default)]
    pub(crate) agents: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) skills: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) visibility: Option<VisibilityKey>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CertificateNameKey {
    #[default]
    Cn,
    Uri,
    Dns,
    Email,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum TenantFromKey {
    Organization,
    OrganizationalUnit,
}

/// Client certificates are requested, or demanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ClientAuthKey {
    #[default]
    Optional,
    Required,
}

impl From<ScopeKey> for Scopes {
    fn from(key: ScopeKey) -> Self {
        match key {
            ScopeKey::Send => Self::SEND,
            ScopeKey::Read => Self::READ,
            ScopeKey::Cancel => Self::CANCEL,
            ScopeKey::Push => Self::PUSH,
            ScopeKey::Register => Self::REGISTER,
            ScopeKey::Work => Self::WORK,
            ScopeKey::Inspect => Self::INSPECT,
            ScopeKey::Admin => Self::ADMIN,
        }
    }
}

impl From<VisibilityKey> for Visibility {
    fn from(key: VisibilityKey) -> Self {
        match key {
            VisibilityKey::Owner => Self::Owner,
            VisibilityKey::Tenant => Self::Tenant,
        }
    }
}

/// One value, or a list of values.
pub(super) fn one_or_many<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    struct Values<T>(PhantomData<T>);
    impl<'de, T: Deserialize<'de>> de::Visitor<'de> for Values<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("one value or a list")
        }
        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<T>, E> {
            T::deserialize(de::value::StrDeserializer::new(text)).map(|one| vec![one])
        }
        fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Vec<T>, A::Error> {
            T::deserialize(MapAccessDeserializer::new(map)).map(|one| vec![one])
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Vec<T>, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(seq))
        }
    }
    deserializer.deserialize_any(Values(PhantomData))
}

pub(super) fn one_or_many_schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let one = generator.subschema_for::<T>();
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}
