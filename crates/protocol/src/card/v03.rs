//! The card of A2A 0.3: alone, or merged into the one of 1.0.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeMap};

use super::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface,
    AgentProvider, AgentSkill,
};
use crate::{
    error::Error,
    json,
    security::{
        HttpScheme, OAuthFlow, ScopeDescriptions, ScopeList, SecurityRequirement, SecurityScheme,
    },
    validate::null_as_default,
    version::Version,
};

const JSON_RPC: &str = "JSONRPC";

/// The versions whose members a document has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CardMembers {
    Legacy,
    Both,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CardForm<'a> {
    protocol_version: &'static str,
    name: &'a str,
    description: &'a str,
    url: &'a str,
    preferred_transport: &'a str,
    additional_interfaces: Vec<InterfaceForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supported_interfaces: Option<&'a [AgentInterface]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<&'a AgentProvider>,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<&'a str>,
    capabilities: CapabilitiesForm<'a>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    security_schemes: BTreeMap<&'a str, SchemeForm<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<RequirementForm<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    security_requirements: &'a [SecurityRequirement],
    default_input_modes: &'a [String],
    default_output_modes: &'a [String],
    skills: Vec<SkillForm<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    supports_authenticated_extended_card: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    signatures: &'a [AgentCardSignature],
    /// The schemes as early servers list them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    authentication: Vec<AuthenticationForm>,
}

/// A security scheme in the card of early servers.
#[derive(Serialize, PartialEq)]
struct AuthenticationForm {
    scheme: String,
}

#[derive(Serialize)]
struct InterfaceForm<'a> {
    url: &'a str,
    transport: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CapabilitiesForm<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notifications: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_transition_history: Option<bool>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [AgentExtension],
    #[serde(skip_serializing_if = "Option::is_none")]
    extended_agent_card: Option<bool>,
    #[serde(rename = "push_notifications", skip_serializing_if = "Option::is_none")]
    snake_push_notifications: Option<bool>,
    #[serde(rename = "state_transition_history", skip_serializing_if = "Option::is_none")]
    snake_state_transition_history: Option<bool>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SkillForm<'a> {
    id: &'a str,
    name: &'a str,
    description: &'a str,
    tags: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    examples: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    input_modes: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    output_modes: &'a [String],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    security: Vec<RequirementForm<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    security_requirements: &'a [SecurityRequirement],
}

/// Scopes by scheme, without the wrappers of 1.0.
type RequirementForm<'a> = BTreeMap<&'a str, &'a [String]>;

struct SchemeForm<'a>(&'a SecurityScheme, CardMembers);

struct Flows<'a>(Option<&'a OAuthFlow>);

impl<'a> CardForm<'a> {
    pub(super) fn new(card: &'a AgentCard, members: CardMembers) -> Self {
        let both = members == CardMembers::Both;
        let mut interfaces: Vec<_> =
            card.supported_interfaces.iter().filter(|one| one.is_legacy()).collect();
        if interfaces.is_empty() {
            // A 0.3 reader needs a URL; the endpoints distinguish the versions.
            interfaces = card.supported_interfaces.iter().collect();
        }
        let main = interfaces.iter().find(|one| one.protocol_binding == JSON_RPC);
        let main = main.or(interfaces.first()).copied();
        Self {
            protocol_version: "0.3.0",
            name: &card.name,
            description: &card.description,
            url: main.map_or("", |main| &main.url),
            preferred_transport: main.map_or(JSON_RPC, |main| &main.protocol_binding),
            additional_interfaces: interfaces
                .into_iter()
                .map(|one| InterfaceForm { url: &one.url, transport: &one.protocol_binding })
                .collect(),
            supported_interfaces: Some(&*card.supported_interfaces).filter(|_| both),
            icon_url: card.icon_url.as_deref(),
            provider: card.provider.as_ref(),
            version: &card.version,
            documentation_url: card.documentation_url.as_deref(),
            capabilities: CapabilitiesForm::new(&card.capabilities, both),
            security_schemes: card
                .security_schemes
                .iter()
                .map(|(name, scheme)| (name.as_str(), SchemeForm(scheme, members)))
                .collect(),
            security: requirements(&card.security_requirements),
            security_requirements: if both { &card.security_requirements } else { &[] },
            default_input_modes: &card.default_input_modes,
            default_output_modes: &card.default_output_modes,
            skills: card.skills.iter().map(|skill| SkillForm::new(skill, both)).collect(),
            supports_authenticated_extended_card: card.capabilities.extended_agent_card,
            // Signatures are left out, because they are over the members of 1.0.
            signatures: if both { &card.signatures } else { &[] },
            authentication: Vec::new(),
        }
    }

    /// The card with the members that early servers spell in snake_case, and their list of schemes. Readers by the
    /// JSON rules of protobuf, such as the official clients of 1.0, read both spellings of a member and refuse a card
    /// that has both. Therefore the old spelling replaces the usual one of the member that 1.0 has.
    pub(super) fn with_snake_case(mut self, card: &AgentCard) -> Self {
        let AgentCapabilities { push_notifications, state_transition_history, .. } =
            card.capabilities;
        self.capabilities.snake_push_notifications = push_notifications;
        self.capabilities.push_notifications = None;
        self.capabilities.snake_state_transition_history = state_transition_history;
        for scheme in card.security_schemes.values() {
            let scheme = match scheme {
                SecurityScheme::ApiKey(_) => "apiKey".to_owned(),
                SecurityScheme::Http(http) => http.scheme.to_ascii_lowercase(),
                SecurityScheme::OAuth2(_) => "oauth2".to_owned(),
                SecurityScheme::OpenIdConnect(_) => "openIdConnect".to_owned(),
                SecurityScheme::MutualTls(_) => "mutualTLS".to_owned(),
            };
            let entry = AuthenticationForm { scheme };
            if !self.authentication.contains(&entry) {
                self.authentication.push(entry);
            }
        }
        self
    }
}

impl<'a> CapabilitiesForm<'a> {
    fn new(capabilities: &'a AgentCapabilities, both: bool) -> Self {
        Self {
            streaming: capabilities.streaming,
            push_notifications: capabilities.push_notifications,
            state_transition_history: capabilities.state_transition_history,
            extensions: &capabilities.extensions,
            extended_agent_card: capabilities.extended_agent_card.filter(|_| both),
            snake_push_notifications: None,
            snake_state_transition_history: None,
        }
    }
}

impl<'a> SkillForm<'a> {
    fn new(skill: &'a AgentSkill, both: bool) -> Self {
        Self {
            id: &skill.id,
            name: &skill.name,
            description: &skill.description,
            tags: &skill.tags,
            examples: &skill.examples,
            input_modes: &skill.input_modes,
            output_modes: &skill.output_modes,
            security: requirements(&skill.security_requirements),
            security_requirements: if both { &skill.security_requirements } else { &[] },
        }
    }
}

fn requirements(all: &[SecurityRequirement]) -> Vec<RequirementForm<'_>> {
    all.iter()
        .map(|requirement| {
            let schemes = requirement.schemes.iter();
            schemes.map(|(name, scopes)| (name.as_str(), scopes.list.as_slice())).collect()
        })
        .collect()
}

impl Serialize for SchemeForm<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        match self.0 {
            SecurityScheme::ApiKey(key) => {
                map.serialize_entry("type", "apiKey")?;
                map.serialize_entry("in", &key.location)?;
                map.serialize_entry("name", &key.name)?;
                self.rest(&mut map, key.description.as_deref(), "apiKeySecurityScheme", key)?;
            }
            SecurityScheme::Http(http) => {
                map.serialize_entry("type", "http")?;
                map.serialize_entry("scheme", &http.scheme)?;
                if let Some(format) = &http.bearer_format {
                    map.serialize_entry("bearerFormat", format)?;
                }
                self.rest(&mut map, http.description.as_deref(), "httpAuthSecurityScheme", http)?;
            }
            SecurityScheme::OAuth2(oauth2) => {
                map.serialize_entry("type", "oauth2")?;
                map.serialize_entry("flows", &Flows(oauth2.flows.as_ref()))?;
                if let Some(url) = &oauth2.oauth2_metadata_url {
                    map.serialize_entry("oauth2MetadataUrl", url)?;
                }
                self.rest(&mut map, oauth2.description.as_deref(), "oauth2SecurityScheme", oauth2)?;
            }
            SecurityScheme::OpenIdConnect(id) => {
                map.serialize_entry("type", "openIdConnect")?;
                map.serialize_entry("openIdConnectUrl", &id.open_id_connect_url)?;
                self.rest(&mut map, id.description.as_deref(), "openIdConnectSecurityScheme", id)?;
            }
            SecurityScheme::MutualTls(tls) => {
                map.serialize_entry("type", "mutualTLS")?;
                self.rest(&mut map, tls.description.as_deref(), "mtlsSecurityScheme", tls)?;
            }
        }
        map.end()
    }
}

impl SchemeForm<'_> {
    fn rest<M: SerializeMap>(
        &self,
        map: &mut M,
        description: Option<&str>,
        member: &str,
        v1: &impl Serialize,
    ) -> Result<(), M::Error> {
        if let Some(description) = description {
            map.serialize_entry("description", description)?;
        }
        match self.1 {
            CardMembers::Legacy => Ok(()),
            CardMembers::Both => map.serialize_entry(member, v1),
        }
    }
}

impl Serialize for Flows<'_> {
    /// 0.3 has neither the device flow nor the flag that PKCE is required.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize, Default)]
        #[serde(rename_all = "camelCase")]
        struct FlowForm<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            authorization_url: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            token_url: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            refresh_url: Option<&'a str>,
            scopes: Option<&'a ScopeDescriptions>,
        }
        let known = match self.0 {
            Some(OAuthFlow::AuthorizationCode(flow)) => Some((
                "authorizationCode",
                FlowForm {
                    authorization_url: Some(&flow.authorization_url),
                    token_url: Some(&flow.token_url),
                    refresh_url: flow.refresh_url.as_deref(),
                    scopes: Some(&flow.scopes),
                },
            )),
            Some(OAuthFlow::ClientCredentials(flow)) => Some((
                "clientCredentials",
                FlowForm {
                    authorization_url: None,
                    token_url: Some(&flow.token_url),
                    refresh_url: flow.refresh_url.as_deref(),
                    scopes: Some(&flow.scopes),
                },
            )),
            Some(OAuthFlow::Implicit(flow)) => Some((
                "implicit",
                FlowForm {
                    authorization_url: Some(&flow.authorization_url),
                    token_url: None,
                    refresh_url: flow.refresh_url.as_deref(),
                    scopes: Some(&flow.scopes),
                },
            )),
            Some(OAuthFlow::Password(flow)) => Some((
                "password",
                FlowForm {
                    authorization_url: None,
                    token_url: Some(&flow.token_url),
                    refresh_url: flow.refresh_url.as_deref(),
                    scopes: Some(&flow.scopes),
                },
            )),
            Some(OAuthFlow::DeviceCode(_)) | None => None,
        };
        serializer.collect_map(known)
    }
}

/// Adds to a card the values that only members of older versions have.
pub(super) fn complete(card: &mut AgentCard, bytes: &[u8]) -> Result<(), Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LegacyMembers {
        #[serde(default, alias = "protocol_version", deserialize_with = "null_as_default")]
        protocol_version: String,
        #[serde(default, deserialize_with = "present")]
        url: Option<String>,
        #[serde(alias = "preferred_transport")]
        preferred_transport: Option<String>,
        #[serde(default, alias = "additional_interfaces", deserialize_with = "null_as_default")]
        additional_interfaces: Vec<InterfaceMembers>,
        #[serde(default, deserialize_with = "null_as_default")]
        security: Vec<BTreeMap<String, Scoped>>,
        authentication: Option<LegacyAuthentication>,
        #[serde(alias = "supports_authenticated_extended_card")]
        supports_authenticated_extended_card: Option<bool>,
        #[serde(default, deserialize_with = "null_as_default")]
        capabilities: States,
        #[serde(default, deserialize_with = "null_as_default")]
        skills: Vec<Secured>,
    }
    #[derive(Deserialize)]
    struct InterfaceMembers {
        #[serde(default, deserialize_with = "null_as_default")]
        url: String,
        #[serde(default, deserialize_with = "null_as_default")]
        transport: String,
    }
    #[derive(Deserialize, Default)]
    #[serde(rename_all = "camelCase")]
    struct States {
        #[serde(alias = "state_transition_history")]
        state_transition_history: Option<bool>,
        /// The SDKs of 0.3 have this name in their types, and some servers write it to the wire.
        #[serde(rename = "push_notifications")]
        snake_case: Option<de::IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct Secured {
        #[serde(default, deserialize_with = "null_as_default")]
        security: Vec<BTreeMap<String, Scoped>>,
    }
    let wire: LegacyMembers = json::read(bytes)?;
    let others = wire.additional_interfaces.into_iter();
    // Cards name their version since 0.2.5. The object `authentication` was gone with 0.2; a list under that name
    // and names in snake case come from servers that write the types of an SDK of 0.3.
    let version = match (&*wire.protocol_version, &wire.authentication) {
        ("", Some(LegacyAuthentication::Listed(_))) => Version::V0_3,
        ("", Some(LegacyAuthentication::Named { .. } | LegacyAuthentication::Other(_))) => {
            Version::V0_1
        }
        ("", None) if wire.capabilities.snake_case.is_some() => Version::V0_3,
        ("", None) => Version::V0_2,
        (text, _) => text.parse().unwrap_or(Version::V0_3),
    };
    let is_card =
        wire.url.is_some() || !wire.protocol_version.is_empty() || !card.skills.is_empty();
    let transport = wire.preferred_transport;
    card.supported_interfaces = legacy_interfaces(
        version,
        wire.url.unwrap_or_default(),
        transport.clone(),
        others.map(|InterfaceMembers { url, transport }| (url, transport)),
    );
    if card.supported_interfaces.is_empty() && is_card {
        // Without a URL the agent is at the origin of its card, which its reader knows.
        card.supported_interfaces.push(AgentInterface {
            url: String::new(),
            protocol_binding: transport.unwrap_or_else(|| JSON_RPC.to_owned()),
            tenant: None,
            protocol_version: version.to_string(),
        });
    }
    if card.security_schemes.is_empty() {
        for scheme in wire.authentication.into_iter().flat_map(LegacyAuthentication::schemes) {
            require(card, &scheme);
        }
    }
    card.security_requirements.extend(wire.security.into_iter().map(requirement));
    for (skill, secured) in card.skills.iter_mut().zip(wire.skills) {
        skill.security_requirements.extend(secured.security.into_iter().map(requirement));
    }
    card.capabilities.state_transition_history = wire.capabilities.state_transition_history;
    if let Some(extended) = wire.supports_authenticated_extended_card {
        card.capabilities.extended_agent_card = Some(extended);
    }
    Ok(())
}

/// `authentication` of cards without a version: the names of schemes in 0.1, a list of schemes elsewhere.
#[derive(Deserialize)]
#[serde(untagged)]
enum LegacyAuthentication {
    Named { schemes: Vec<String> },
    Listed(Vec<ListedScheme>),
    Other(de::IgnoredAny),
}

#[derive(Deserialize)]
struct ListedScheme {
    #[serde(default, deserialize_with = "null_as_default")]
    scheme: String,
}

impl LegacyAuthentication {
    fn schemes(self) -> Vec<String> {
        match self {
            Self::Named { schemes } => schemes,
            Self::Listed(schemes) => schemes.into_iter().map(|one| one.scheme).collect(),
            Self::Other(_) => Vec::new(),
        }
    }
}

/// Adds a scheme of HTTP as one more way to authenticate. Other schemes are left out: `authentication` does not say
/// where in a request their credentials are.
fn require(card: &mut AgentCard, scheme: &str) {
    let name = scheme.to_ascii_lowercase();
    if !matches!(name.as_str(), "bearer" | "basic") || card.security_schemes.contains_key(&name) {
        return;
    }
    let http = HttpScheme { scheme: name.clone(), ..HttpScheme::default() };
    card.security_schemes.insert(name.clone(), SecurityScheme::Http(http));
    let mut requirement = SecurityRequirement::default();
    requirement.schemes.insert(name, ScopeList::default());
    card.security_requirements.push(requirement);
}

/// A member that is there: `null` is an empty text.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    null_as_default(deserializer).map(Some)
}

/// The interfaces of a card before 1.0: the main one and the additional ones.
pub(crate) fn legacy_interfaces(
    version: Version,
    url: String,
    transport: Option<String>,
    others: impl Iterator<Item = (String, String)>,
) -> Vec<AgentInterface> {
    let main = (url, transport.unwrap_or_else(|| JSON_RPC.to_owned()));
    let mut interfaces = Vec::new();
    for (url, transport) in std::iter::once(main).chain(others) {
        let interface = AgentInterface {
            url,
            protocol_binding: transport,
            tenant: None,
            protocol_version: version.to_string(),
        };
        if !interface.url.is_empty() && !interfaces.contains(&interface) {
            interfaces.push(interface);
        }
    }
    interfaces
}

/// The value of a requirement: scopes in JSON, schemes with their scopes in protobuf.
enum Scoped {
    Scopes(Vec<String>),
    Schemes(BTreeMap<String, ScopeList>),
}

impl<'de> Deserialize<'de> for Scoped {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> de::Visitor<'de> for Either {
            type Value = Scoped;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of scopes")
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Scoped, A::Error> {
                Vec::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Scoped::Scopes)
            }
            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Scoped, A::Error> {
                let map = de::value::MapAccessDeserializer::new(map);
                BTreeMap::deserialize(map).map(Scoped::Schemes)
            }
        }
        deserializer.deserialize_any(Either)
    }
}

fn requirement(entries: BTreeMap<String, Scoped>) -> SecurityRequirement {
    let mut requirement = SecurityRequirement::default();
    for (name, entry) in entries {
        match entry {
            Scoped::Scopes(list) => {
                requirement.schemes.insert(name, ScopeList { list });
            }
            Scoped::Schemes(schemes) => requirement.schemes.extend(schemes),
        }
    }
    requirement
}
