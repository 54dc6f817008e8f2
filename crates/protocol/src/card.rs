//! Agent card, in the forms of every protocol generation.

mod schema;
pub mod signature;
mod v03;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use v03::legacy_interfaces;

use crate::{
    error::Error,
    id::TenantId,
    json,
    open::Metadata,
    security::{SecurityRequirement, SecurityScheme},
    validate::{is_blank, null_as_default},
};

pub use schema::violations;

/// The card of an agent. Its serde form is the 1.0 document: required members are always present, optional
/// ones if they were given, and the others if they are not empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    /// A name for people.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Its description.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// Its interfaces, the preferred one first.
    #[serde(default, alias = "supported_interfaces", deserialize_with = "null_as_default")]
    pub supported_interfaces: Vec<AgentInterface>,
    /// Its provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<AgentProvider>,
    /// The agent's own version.
    #[serde(default, deserialize_with = "null_as_default")]
    pub version: String,
    /// URL of its documentation.
    #[serde(default, alias = "documentation_url", skip_serializing_if = "Option::is_none")]
    pub documentation_url: Option<String>,
    /// Its optional capabilities.
    #[serde(default, deserialize_with = "null_as_default")]
    pub capabilities: AgentCapabilities,
    /// Security schemes, by name.
    #[serde(
        default,
        alias = "security_schemes",
        deserialize_with = "null_as_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    /// The alternatives of schemes that a caller must satisfy.
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
    /// Media types of input.
    #[serde(default, alias = "default_input_modes", deserialize_with = "null_as_default")]
    pub default_input_modes: Vec<String>,
    /// Media types of output.
    #[serde(default, alias = "default_output_modes", deserialize_with = "null_as_default")]
    pub default_output_modes: Vec<String>,
    /// Its skills.
    #[serde(default, deserialize_with = "null_as_default")]
    pub skills: Vec<AgentSkill>,
    /// Signatures over the 1.0 form.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub signatures: Vec<AgentCardSignature>,
    /// A picture.
    #[serde(default, alias = "icon_url", skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
}

/// One address of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentInterface {
    /// URL; `host:port` for gRPC.
    #[serde(default, deserialize_with = "null_as_default")]
    pub url: String,
    /// Binding: `JSONRPC`, `HTTP+JSON`, `GRPC` or a URI.
    #[serde(default, alias = "protocol_binding", deserialize_with = "null_as_default")]
    pub protocol_binding: String,
    /// The tenant to name in every request to it.
    #[serde(default, skip_serializing_if = "is_blank")]
    pub tenant: Option<TenantId>,
    /// The protocol version, such as `1.0`.
    #[serde(default, alias = "protocol_version", deserialize_with = "null_as_default")]
    pub protocol_version: String,
}

/// Provider of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentProvider {
    /// Their site.
    #[serde(default, deserialize_with = "null_as_default")]
    pub url: String,
    /// Their name.
    #[serde(default, deserialize_with = "null_as_default")]
    pub organization: String,
}

/// Optional capabilities of an agent. Absent means no.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", from = "CapabilityMembers")]
pub struct AgentCapabilities {
    /// Streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub push_notifications: Option<bool>,
    /// Protocol extensions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<AgentExtension>,
    /// A fuller card for authenticated callers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_agent_card: Option<bool>,
    /// True if the history of states can be read. Only cards before 1.0 have it.
    #[serde(skip)]
    pub state_transition_history: Option<bool>,
}

/// Capabilities as they are read. A card may have a member in both spellings, which serde refuses for an alias.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct CapabilityMembers {
    streaming: Option<bool>,
    push_notifications: Option<bool>,
    #[serde(rename = "push_notifications")]
    snake_push_notifications: Option<bool>,
    #[serde(deserialize_with = "null_as_default")]
    extensions: Vec<AgentExtension>,
    extended_agent_card: Option<bool>,
    #[serde(rename = "extended_agent_card")]
    snake_extended_agent_card: Option<bool>,
}

impl From<CapabilityMembers> for AgentCapabilities {
    fn from(read: CapabilityMembers) -> Self {
        Self {
            streaming: read.streaming,
            push_notifications: read.push_notifications.or(read.snake_push_notifications),
            extensions: read.extensions,
            extended_agent_card: read.extended_agent_card.or(read.snake_extended_agent_card),
            state_transition_history: None,
        }
    }
}

/// A protocol extension.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentExtension {
    /// Its name.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub uri: String,
    /// The use that this agent makes of it.
    #[serde(default, skip_serializing_if = "is_blank")]
    pub description: Option<String>,
    /// True if callers must support it.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub required: bool,
    /// Settings it defines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Metadata>,
}

/// A skill of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSkill {
    /// Unique within the card.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: String,
    /// A name for people.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Its description.
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    /// Keywords.
    #[serde(default, deserialize_with = "null_as_default")]
    pub tags: Vec<String>,
    /// Example messages.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<String>,
    /// Media types of input, instead of the agent's.
    #[serde(
        default,
        alias = "input_modes",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub input_modes: Vec<String>,
    /// Media types of output, instead of the agent's.
    #[serde(
        default,
        alias = "output_modes",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub output_modes: Vec<String>,
    /// Security requirements for callers of it.
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
}

/// A detached JWS over the card's canonical form.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCardSignature {
    /// The protected header, base64url.
    #[serde(default, deserialize_with = "null_as_default")]
    pub protected: String,
    /// The signature, base64url.
    #[serde(default, deserialize_with = "null_as_default")]
    pub signature: String,
    /// The unprotected header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Metadata>,
}

/// One document for readers of 0.2, 0.3 and 1.0: the members of 1.0 and of 0.3. A card without a 0.3
/// interface stays a 1.0 card.
///
/// Signatures are over the 1.0 members alone, so a verifier has to drop the others first.
pub fn hybrid(card: &AgentCard) -> Vec<u8> {
    if card.supported_interfaces.iter().any(AgentInterface::is_legacy) {
        json::write(&v03::CardForm::new(card, v03::CardMembers::Both))
    } else {
        json::write(card)
    }
}

/// As [`hybrid`], with the members of the card of early servers beside them: `push_notifications`,
/// `state_transition_history` and `authentication`.
pub fn hybrid_with_snake_case(card: &AgentCard) -> Vec<u8> {
    if card.supported_interfaces.iter().any(AgentInterface::is_legacy) {
        json::write(&v03::CardForm::new(card, v03::CardMembers::Both).with_snake_case(card))
    } else {
        json::write(card)
    }
}

/// The card in the format of 0.3.
pub(crate) fn v03(card: &AgentCard) -> Vec<u8> {
    json::write(&v03::CardForm::new(card, v03::CardMembers::Legacy))
}

/// Reads a card of any generation. One without `supportedInterfaces` is from before 1.0.
pub fn read(bytes: &[u8]) -> Result<AgentCard, Error> {
    let mut card: AgentCard = json::read(bytes)?;
    if card.supported_interfaces.is_empty() {
        v03::complete(&mut card, bytes)?;
    }
    Ok(card)
}

impl AgentInterface {
    /// True if the interface serves a generation before 1.0.
    pub fn is_legacy(&self) -> bool {
        self.protocol_version.split('.').next() == Some("0")
    }
}
