//! Agent card as a protobuf message: the answer to GetExtendedAgentCard.

mod read;

use super::{
    generated::{v1, v03},
    value::object,
};
use crate::{
    card::{
        AgentCard, AgentCardSignature, AgentExtension, AgentInterface, AgentProvider, AgentSkill,
    },
    security::{OAuthFlow, SecurityRequirement, SecurityScheme},
};

/// Writers of messages that both versions have under the same names.
macro_rules! common {
    ($wire:ident, $requirement:ident, $security:ident) => {
        impl From<AgentProvider> for $wire::AgentProvider {
            fn from(provider: AgentProvider) -> Self {
                Self { url: provider.url, organization: provider.organization }
            }
        }

        impl From<AgentExtension> for $wire::AgentExtension {
            fn from(extension: AgentExtension) -> Self {
                Self {
                    uri: extension.uri,
                    description: extension.description.unwrap_or_default(),
                    required: extension.required,
                    params: extension.params.as_ref().map(object),
                }
            }
        }

        impl From<AgentSkill> for $wire::AgentSkill {
            fn from(skill: AgentSkill) -> Self {
                let requirements = skill.security_requirements.into_iter();
                Self {
                    id: skill.id,
                    name: skill.name,
                    description: skill.description,
                    tags: skill.tags,
                    examples: skill.examples,
                    input_modes: skill.input_modes,
                    output_modes: skill.output_modes,
                    $security: requirements.map(From::from).collect(),
                }
            }
        }

        impl From<AgentCardSignature> for $wire::AgentCardSignature {
            fn from(signature: AgentCardSignature) -> Self {
                Self {
                    protected: signature.protected,
                    signature: signature.signature,
                    header: signature.header.as_ref().map(object),
                }
            }
        }

        impl From<SecurityRequirement> for $wire::$requirement {
            fn from(requirement: SecurityRequirement) -> Self {
                let schemes = requirement.schemes.into_iter();
                Self {
                    schemes: schemes
                        .map(|(name, scopes)| (name, $wire::StringList { list: scopes.list }))
                        .collect(),
                }
            }
        }

        impl From<SecurityScheme> for $wire::SecurityScheme {
            fn from(scheme: SecurityScheme) -> Self {
                use $wire::security_scheme::Scheme;
                Self {
                    scheme: Some(match scheme {
                        SecurityScheme::ApiKey(key) => {
                            Scheme::ApiKeySecurityScheme($wire::ApiKeySecurityScheme {
                                description: key.description.unwrap_or_default(),
                                location: key.location,
                                name: key.name,
                            })
                        }
                        SecurityScheme::Http(http) => {
                            Scheme::HttpAuthSecurityScheme($wire::HttpAuthSecurityScheme {
                                description: http.description.unwrap_or_default(),
                                scheme: http.scheme,
                                bearer_format: http.bearer_format.unwrap_or_default(),
                            })
                        }
                        SecurityScheme::OAuth2(oauth2) => {
                            Scheme::Oauth2SecurityScheme($wire::OAuth2SecurityScheme {
                                description: oauth2.description.unwrap_or_default(),
                                flows: oauth2.flows.map(From::from),
                                oauth2_metadata_url: oauth2.oauth2_metadata_url.unwrap_or_default(),
                            })
                        }
                        SecurityScheme::OpenIdConnect(id) => Scheme::OpenIdConnectSecurityScheme(
                            $wire::OpenIdConnectSecurityScheme {
                                description: id.description.unwrap_or_default(),
                                open_id_connect_url: id.open_id_connect_url,
                            },
                        ),
                        SecurityScheme::MutualTls(tls) => {
                            Scheme::MtlsSecurityScheme($wire::MutualTlsSecurityScheme {
                                description: tls.description.unwrap_or_default(),
                            })
                        }
                    }),
                }
            }
        }
    };
}

common!(v1, SecurityRequirement, security_requirements);
common!(v03, Security, security);

impl From<OAuthFlow> for v1::OAuthFlows {
    #[expect(deprecated, reason = "a card may still offer the flows that 1.0 deprecates")]
    fn from(flow: OAuthFlow) -> Self {
        use v1::o_auth_flows::Flow;
        Self {
            flow: Some(match flow {
                OAuthFlow::AuthorizationCode(flow) => {
                    Flow::AuthorizationCode(v1::AuthorizationCodeOAuthFlow {
                        authorization_url: flow.authorization_url,
                        token_url: flow.token_url,
                        refresh_url: flow.refresh_url.unwrap_or_default(),
                        scopes: flow.scopes,
                        pkce_required: flow.pkce_required,
                    })
                }
                OAuthFlow::ClientCredentials(flow) => {
                    Flow::ClientCredentials(v1::ClientCredentialsOAuthFlow {
                        token_url: flow.token_url,
                        refresh_url: flow.refresh_url.unwrap_or_default(),
                        scopes: flow.scopes,
                    })
                }
                OAuthFlow::DeviceCode(flow) => Flow::DeviceCode(v1::DeviceCodeOAuthFlow {
                    device_authorization_url: flow.device_authorization_url,
                    token_url: flow.token_url,
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                }),
                OAuthFlow::Implicit(flow) => Flow::Implicit(v1::ImplicitOAuthFlow {
                    authorization_url: flow.authorization_url,
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                }),
                OAuthFlow::Password(flow) => Flow::Password(v1::PasswordOAuthFlow {
                    token_url: flow.token_url,
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                }),
            }),
        }
    }
}

impl From<OAuthFlow> for v03::OAuthFlows {
    /// 0.3 has neither the device flow nor the flag that PKCE is required.
    fn from(flow: OAuthFlow) -> Self {
        use v03::o_auth_flows::Flow;
        Self {
            flow: match flow {
                OAuthFlow::AuthorizationCode(flow) => {
                    Some(Flow::AuthorizationCode(v03::AuthorizationCodeOAuthFlow {
                        authorization_url: flow.authorization_url,
                        token_url: flow.token_url,
                        refresh_url: flow.refresh_url.unwrap_or_default(),
                        scopes: flow.scopes,
                    }))
                }
                OAuthFlow::ClientCredentials(flow) => {
                    Some(Flow::ClientCredentials(v03::ClientCredentialsOAuthFlow {
                        token_url: flow.token_url,
                        refresh_url: flow.refresh_url.unwrap_or_default(),
                        scopes: flow.scopes,
                    }))
                }
                OAuthFlow::Implicit(flow) => Some(Flow::Implicit(v03::ImplicitOAuthFlow {
                    authorization_url: flow.authorization_url,
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                })),
                OAuthFlow::Password(flow) => Some(Flow::Password(v03::PasswordOAuthFlow {
                    token_url: flow.token_url,
                    refresh_url: flow.refresh_url.unwrap_or_default(),
                    scopes: flow.scopes,
                })),
                OAuthFlow::DeviceCode(_) => None,
            },
        }
    }
}

impl From<AgentCard> for v1::AgentCard {
    fn from(card: AgentCard) -> Self {
        let schemes = card.security_schemes.into_iter();
        let requirements = card.security_requirements.into_iter();
        let capabilities = card.capabilities;
        Self {
            name: card.name,
            description: card.description,
            supported_interfaces: card
                .supported_interfaces
                .into_iter()
                .map(|one| v1::AgentInterface {
                    url: one.url,
                    protocol_binding: one.protocol_binding,
                    tenant: one.tenant.map(|tenant| tenant.to_string()).unwrap_or_default(),
                    protocol_version: one.protocol_version,
                })
                .collect(),
            provider: card.provider.map(From::from),
            version: card.version,
            documentation_url: card.documentation_url,
            capabilities: Some(v1::AgentCapabilities {
                streaming: capabilities.streaming,
                push_notifications: capabilities.push_notifications,
                extensions: capabilities.extensions.into_iter().map(From::from).collect(),
                extended_agent_card: capabilities.extended_agent_card,
            }),
            security_schemes: schemes.map(|(name, scheme)| (name, scheme.into())).collect(),
            security_requirements: requirements.map(From::from).collect(),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(From::from).collect(),
            signatures: card.signatures.into_iter().map(From::from).collect(),
            icon_url: card.icon_url,
        }
    }
}

impl From<AgentCard> for v03::AgentCard {
    /// Like the JSON card of 0.3. Signatures are left out, because they are over the members of 1.0.
    fn from(card: AgentCard) -> Self {
        let schemes = card.security_schemes.into_iter();
        let requirements = card.security_requirements.into_iter();
        let capabilities = card.capabilities;
        let (main, interfaces) = legacy(card.supported_interfaces);
        Self {
            protocol_version: "0.3.0".to_owned(),
            name: card.name,
            description: card.description,
            url: main.url,
            preferred_transport: main.protocol_binding,
            additional_interfaces: interfaces
                .into_iter()
                .map(|one| v03::AgentInterface { url: one.url, transport: one.protocol_binding })
                .collect(),
            provider: card.provider.map(From::from),
            version: card.version,
            documentation_url: card.documentation_url.unwrap_or_default(),
            capabilities: Some(v03::AgentCapabilities {
                streaming: capabilities.streaming.unwrap_or_default(),
                push_notifications: capabilities.push_notifications.unwrap_or_default(),
                extensions: capabilities.extensions.into_iter().map(From::from).collect(),
            }),
            security_schemes: schemes.map(|(name, scheme)| (name, scheme.into())).collect(),
            security: requirements.map(From::from).collect(),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(From::from).collect(),
            supports_authenticated_extended_card: capabilities
                .extended_agent_card
                .unwrap_or_default(),
            signatures: Vec::new(),
            icon_url: card.icon_url.unwrap_or_default(),
        }
    }
}

/// The interfaces of 0.3, and the main one.
fn legacy(all: Vec<AgentInterface>) -> (AgentInterface, Vec<AgentInterface>) {
    let old: Vec<_> = all.iter().filter(|one| one.is_legacy()).cloned().collect();
    let known = if old.is_empty() { all } else { old };
    let main = known.iter().find(|one| one.protocol_binding == "JSONRPC").or(known.first());
    (main.cloned().unwrap_or_default(), known)
}
