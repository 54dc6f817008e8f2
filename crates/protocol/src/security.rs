//! Security schemes and requirements of an agent card.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use crate::validate::{is_blank, null_as_default};

/// The description of each scope, by name.
pub type ScopeDescriptions = BTreeMap<String, String>;

/// A security scheme. On the wire it is an object with one member named after it; the form of 0.3, with a
/// `type`, is read too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum SecurityScheme {
    /// A key in a header, a query parameter or a cookie.
    #[serde(rename = "apiKeySecurityScheme")]
    ApiKey(ApiKeyScheme),
    /// An HTTP authentication scheme.
    #[serde(rename = "httpAuthSecurityScheme")]
    Http(HttpScheme),
    /// OAuth 2.0.
    #[serde(rename = "oauth2SecurityScheme")]
    OAuth2(OAuth2Scheme),
    /// OpenID Connect.
    #[serde(rename = "openIdConnectSecurityScheme")]
    OpenIdConnect(OpenIdConnectScheme),
    /// A client certificate.
    #[serde(rename = "mtlsSecurityScheme")]
    MutualTls(MutualTlsScheme),
}

/// A key in a header, a query parameter or a cookie.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiKeyScheme {
    /// A sentence for readers.
    #[serde(default, skip_serializing_if = "is_blank")]
    pub description: Option<String>,
    /// `query`, `header` or `cookie`.
    #[serde(default)]
    pub location: String,
    /// The name of the header, the parameter or the cookie.
    #[serde(default)]
    pub name: String,
}

/// An HTTP authentication scheme.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpScheme {
    /// A sentence for readers.
    #[serde(default, skip_serializing_if = "is_blank")]
    pub description: Option<String>,
    /// A registered scheme name such as `Bearer`.
    #[serde(default)]
    pub scheme: String,
    /// A hint about bearer tokens, such as `JWT`.
    #[serde(default, alias = "bearer_format", skip_serializing_if = "is_blank")]
    pub bearer_format: Option<String>,
}

/// OAuth 2.0.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2Scheme {
    /// A sentence for readers.
    #[serde(default, skip_serializing_if = "is_blank")]
    pub description: Option<String>,
    /// The flow. Absent only if a card of 0.3 has no known one.
    #[serde(default, deserialize_with = "read_flow", serialize_with = "write_flow")]
    pub flows: Option<OAuthFlow>,
    /// URL of the authorization server's metadata (RFC 8414).
    #[serde(default, alias = "oauth2_metadata_url", skip_serializing_if = "is_blank")]
    pub oauth2_metadata_url: Option<String>,
}

/// OpenID Connect.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenIdConnectScheme {
    /// A sentence for readers.
    #[serde(default, skip_serializing_if = "is_blank")]
    pub description: Option<String>,
    /// The discovery document.
    #[serde(default, alias = "open_id_connect_url")]
    pub open_id_connect_url: String,
}

/// A client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MutualTlsScheme {
    /// A sentence for readers.
    #[serde(default, skip_serializing_if = "is_blank")]
    pub description: Option<String>,
}

/// One OAuth flow. On the wire exactly one member named after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OAuthFlow {
    /// The authorization code flow.
    AuthorizationCode(AuthorizationCodeFlow),
    /// The client credentials flow.
    ClientCredentials(ClientCredentialsFlow),
    /// The device flow (RFC 8628).
    DeviceCode(DeviceCodeFlow),
    /// Deprecated.
    Implicit(ImplicitFlow),
    /// Deprecated.
    Password(PasswordFlow),
}

/// The authorization code flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationCodeFlow {
    /// The authorization endpoint.
    #[serde(default, alias = "authorization_url")]
    pub authorization_url: String,
    /// The token endpoint.
    #[serde(default, alias = "token_url")]
    pub token_url: String,
    /// The refresh endpoint.
    #[serde(default, alias = "refresh_url", skip_serializing_if = "is_blank")]
    pub refresh_url: Option<String>,
    /// The scopes, with their descriptions.
    #[serde(default, deserialize_with = "null_as_default")]
    pub scopes: ScopeDescriptions,
    /// True if PKCE (RFC 7636) is required.
    #[serde(default, alias = "pkce_required", skip_serializing_if = "std::ops::Not::not")]
    pub pkce_required: bool,
}

/// The client credentials flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClientCredentialsFlow {
    /// The token endpoint.
    #[serde(default, alias = "token_url")]
    pub token_url: String,
    /// The refresh endpoint.
    #[serde(default, alias = "refresh_url", skip_serializing_if = "is_blank")]
    pub refresh_url: Option<String>,
    /// The scopes, with their descriptions.
    #[serde(default, deserialize_with = "null_as_default")]
    pub scopes: ScopeDescriptions,
}

/// The device flow (RFC 8628).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCodeFlow {
    /// The device authorization endpoint.
    #[serde(default, alias = "device_authorization_url")]
    pub device_authorization_url: String,
    /// The token endpoint.
    #[serde(default, alias = "token_url")]
    pub token_url: String,
    /// The refresh endpoint.
    #[serde(default, alias = "refresh_url", skip_serializing_if = "is_blank")]
    pub refresh_url: Option<String>,
    /// The scopes, with their descriptions.
    #[serde(default, deserialize_with = "null_as_default")]
    pub scopes: ScopeDescriptions,
}

/// The implicit flow, deprecated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ImplicitFlow {
    /// The authorization endpoint.
    #[serde(default, alias = "authorization_url", skip_serializing_if = "String::is_empty")]
    pub authorization_url: String,
    /// The refresh endpoint.
    #[serde(default, alias = "refresh_url", skip_serializing_if = "is_blank")]
    pub refresh_url: Option<String>,
    /// The scopes, with their descriptions.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub scopes: ScopeDescriptions,
}

/// The password flow, deprecated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PasswordFlow {
    /// The token endpoint.
    #[serde(default, alias = "token_url", skip_serializing_if = "String::is_empty")]
    pub token_url: String,
    /// The refresh endpoint.
    #[serde(default, alias = "refresh_url", skip_serializing_if = "is_blank")]
    pub refresh_url: Option<String>,
    /// The scopes, with their descriptions.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub scopes: ScopeDescriptions,
}

/// Schemes that must be satisfied together. A list of these is a choice between them.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecurityRequirement {
    /// The scopes needed, by the name of the scheme.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub schemes: BTreeMap<String, ScopeList>,
}

/// The scopes needed of one scheme.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScopeList {
    /// Their names; may be empty.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub list: Vec<String>,
}

impl<'de> Deserialize<'de> for SecurityScheme {
    /// A card for all versions has both forms; that of 1.0 has precedence.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct SchemeMembers {
            #[serde(alias = "api_key_security_scheme")]
            api_key_security_scheme: Option<ApiKeyScheme>,
            #[serde(alias = "http_auth_security_scheme")]
            http_auth_security_scheme: Option<HttpScheme>,
            #[serde(alias = "oauth2_security_scheme")]
            oauth2_security_scheme: Option<OAuth2Scheme>,
            #[serde(alias = "open_id_connect_security_scheme")]
            open_id_connect_security_scheme: Option<OpenIdConnectScheme>,
            #[serde(alias = "mtls_security_scheme")]
            mtls_security_scheme: Option<MutualTlsScheme>,

            r#type: Option<String>,
            description: Option<String>,
            #[serde(default, rename = "in", deserialize_with = "null_as_default")]
            location: String,
            #[serde(default, deserialize_with = "null_as_default")]
            name: String,
            #[serde(default, deserialize_with = "null_as_default")]
            scheme: String,
            #[serde(alias = "bearer_format")]
            bearer_format: Option<String>,
            #[serde(default, deserialize_with = "read_flow")]
            flows: Option<OAuthFlow>,
            #[serde(alias = "oauth2_metadata_url")]
            oauth2_metadata_url: Option<String>,
            #[serde(default, alias = "open_id_connect_url", deserialize_with = "null_as_default")]
            open_id_connect_url: String,
        }
        let wire = SchemeMembers::deserialize(deserializer)?;
        let one = wire.api_key_security_scheme.map(Self::ApiKey);
        let one = one.or(wire.http_auth_security_scheme.map(Self::Http));
        let one = one.or(wire.oauth2_security_scheme.map(Self::OAuth2));
        let one = one.or(wire.open_id_connect_security_scheme.map(Self::OpenIdConnect));
        if let Some(scheme) = one.or(wire.mtls_security_scheme.map(Self::MutualTls)) {
            return Ok(scheme);
        }
        let description = wire.description;
        match wire.r#type.as_deref() {
            Some("apiKey") => {
                let (location, name) = (wire.location, wire.name);
                Ok(Self::ApiKey(ApiKeyScheme { description, location, name }))
            }
            Some("http") => {
                let (scheme, bearer_format) = (wire.scheme, wire.bearer_format);
                Ok(Self::Http(HttpScheme { description, scheme, bearer_format }))
            }
            Some("oauth2") => {
                let (flows, oauth2_metadata_url) = (wire.flows, wire.oauth2_metadata_url);
                Ok(Self::OAuth2(OAuth2Scheme { description, flows, oauth2_metadata_url }))
            }
            Some("openIdConnect") => {
                let open_id_connect_url = wire.open_id_connect_url;
                Ok(Self::OpenIdConnect(OpenIdConnectScheme { description, open_id_connect_url }))
            }
            Some("mutualTLS") => Ok(Self::MutualTls(MutualTlsScheme { description })),
            _ => Err(de::Error::custom("expected one security scheme of a known kind")),
        }
    }
}

/// Chooses the best flow: 0.3 may have several, 1.0 has one.
fn read_flow<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<OAuthFlow>, D::Error> {
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase")]
    struct FlowMembers {
        #[serde(alias = "authorization_code")]
        authorization_code: Option<AuthorizationCodeFlow>,
        #[serde(alias = "client_credentials")]
        client_credentials: Option<ClientCredentialsFlow>,
        #[serde(alias = "device_code")]
        device_code: Option<DeviceCodeFlow>,
        implicit: Option<ImplicitFlow>,
        password: Option<PasswordFlow>,
    }
    let wire: FlowMembers = null_as_default(deserializer)?;
    let flow = wire.authorization_code.map(OAuthFlow::AuthorizationCode);
    let flow = flow.or(wire.client_credentials.map(OAuthFlow::ClientCredentials));
    let flow = flow.or(wire.device_code.map(OAuthFlow::DeviceCode));
    let flow = flow.or(wire.implicit.map(OAuthFlow::Implicit));
    Ok(flow.or(wire.password.map(OAuthFlow::Password)))
}

fn write_flow<S: Serializer>(flow: &Option<OAuthFlow>, serializer: S) -> Result<S::Ok, S::Error> {
    match flow {
        Some(flow) => flow.serialize(serializer),
        None => serializer.serialize_map(Some(0))?.end(),
    }
}
