//! Reader of agent cards in protobuf.

use super::super::{
    filled,
    generated::{v1, v03},
    named,
    value::open,
};
use crate::{
    card::{
        self, AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface,
        AgentProvider, AgentSkill,
    },
    security::{
        ApiKeyScheme, AuthorizationCodeFlow, ClientCredentialsFlow, DeviceCodeFlow, HttpScheme,
        ImplicitFlow, MutualTlsScheme, OAuth2Scheme, OAuthFlow, OpenIdConnectScheme, PasswordFlow,
        ScopeList, SecurityRequirement, SecurityScheme,
    },
    validate::Violations,
    version::Version,
};

/// Readers of messages that both versions have under the same names.
macro_rules! common {
    ($wire:ident, $requirement:ident, $security:ident) => {
        impl From<$wire::AgentProvider> for AgentProvider {
            fn from(provider: $wire::AgentProvider) -> Self {
                Self { url: provider.url, organization: provider.organization }
            }
        }

        impl $wire::AgentExtension {
            fn read(self, at: &mut Violations<'_>) -> AgentExtension {
                AgentExtension {
                    uri: self.uri,
                    description: filled(self.description),
                    required: self.required,
                    params: open(self.params, "capabilities.extensions.params", at),
                }
            }
        }

        impl From<$wire::AgentSkill> for AgentSkill {
            fn from(skill: $wire::AgentSkill) -> Self {
                let requirements = skill.$security.into_iter();
                Self {
                    id: skill.id,
                    name: skill.name,
                    description: skill.description,
                    tags: skill.tags,
                    examples: skill.examples,
                    input_modes: skill.input_modes,
                    output_modes: skill.output_modes,
                    security_requirements: requirements.map(From::from).collect(),
                }
            }
        }

        impl $wire::AgentCardSignature {
            fn read(self, at: &mut Violations<'_>) -> AgentCardSignature {
                AgentCardSignature {
                    protected: self.protected,
                    signature: self.signature,
                    header: open(self.header, "signatures.header", at),
                }
            }
        }

        impl From<$wire::$requirement> for SecurityRequirement {
            fn from(requirement: $wire::$requirement) -> Self {
                let schemes = requirement.schemes.into_iter();
                Self {
                    schemes: schemes
                        .map(|(name, scopes)| (name, ScopeList { list: scopes.list }))
                        .collect(),
                }
            }
        }

        impl $wire::SecurityScheme {
            /// `None` for a kind that is not known: a reader without it cannot use it.
            fn read(self) -> Option<SecurityScheme> {
                use $wire::security_scheme::Scheme;
                Some(match self.scheme? {
                    Scheme::ApiKeySecurityScheme(key) => SecurityScheme::ApiKey(ApiKeyScheme {
                        description: filled(key.description),
                        location: key.location,
                        name: key.name,
                    }),
                    Scheme::HttpAuthSecurityScheme(http) => SecurityScheme::Http(HttpScheme {
                        description: filled(http.description),
                        scheme: http.scheme,
                        bearer_format: filled(http.bearer_format),
                    }),
                    Scheme::Oauth2SecurityScheme(oauth2) => SecurityScheme::OAuth2(OAuth2Scheme {
                        description: filled(oauth2.description),
                        flows: oauth2.flows.and_then($wire::OAuthFlows::read),
                        oauth2_metadata_url: filled(oauth2.oauth2_metadata_url),
                    }),
                    Scheme::OpenIdConnectSecurityScheme(id) => {
                        SecurityScheme::OpenIdConnect(OpenIdConnectScheme {
                            description: filled(id.description),
                            open_id_connect_url: id.open_id_connect_url,
                        })
                    }
                    Scheme::MtlsSecurityScheme(tls) => SecurityScheme::MutualTls(MutualTlsScheme {
                        description: filled(tls.description),
                    }),
                })
            }
        }
    };
}

common!(v1, SecurityRequirement, security_requirements);
common!(v03, Security, security);

impl v1::OAuthFlows {
    #[expect(deprecated, reason = "a card may still offer the flows that 1.0 deprecates")]
    fn read(self) -> Option<OAuthFlow> {
        use v1::o_auth_flows::Flow;
        Some(match self.flow? {
            Flow::AuthorizationCode(flow) => OAuthFlow::AuthorizationCode(AuthorizationCodeFlow {
                authorization_url: flow.authorization_url,
                token_url: flow.token_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
                pkce_required: flow.pkce_required,
            }),
            Flow::ClientCredentials(flow) => OAuthFlow::ClientCredentials(ClientCredentialsFlow {
                token_url: flow.token_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
            }),
            Flow::DeviceCode(flow) => OAuthFlow::DeviceCode(DeviceCodeFlow {
                device_authorization_url: flow.device_authorization_url,
                token_url: flow.token_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
            }),
            Flow::Implicit(flow) => OAuthFlow::Implicit(ImplicitFlow {
                authorization_url: flow.authorization_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
            }),
            Flow::Password(flow) => OAuthFlow::Password(PasswordFlow {
                token_url: flow.token_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
            }),
        })
    }
}

impl v03::OAuthFlows {
    fn read(self) -> Option<OAuthFlow> {
        use v03::o_auth_flows::Flow;
        Some(match self.flow? {
            Flow::AuthorizationCode(flow) => OAuthFlow::AuthorizationCode(AuthorizationCodeFlow {
                authorization_url: flow.authorization_url,
                token_url: flow.token_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
                pkce_required: false,
            }),
            Flow::ClientCredentials(flow) => OAuthFlow::ClientCredentials(ClientCredentialsFlow {
                token_url: flow.token_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
            }),
            Flow::Implicit(flow) => OAuthFlow::Implicit(ImplicitFlow {
                authorization_url: flow.authorization_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
            }),
            Flow::Password(flow) => OAuthFlow::Password(PasswordFlow {
                token_url: flow.token_url,
                refresh_url: filled(flow.refresh_url),
                scopes: flow.scopes,
            }),
        })
    }
}

impl v1::AgentCard {
    pub(in super::super) fn read(self, at: &mut Violations<'_>) -> AgentCard {
        let capabilities = self.capabilities.unwrap_or_default();
        let interface = |one: v1::AgentInterface| AgentInterface {
            url: one.url,
            protocol_binding: one.protocol_binding,
            tenant: named(one.tenant),
            protocol_version: one.protocol_version,
        };
        let schemes = self.security_schemes.into_iter();
        let requirements = self.security_requirements.into_iter();
        AgentCard {
            name: self.name,
            description: self.description,
            supported_interfaces: self.supported_interfaces.into_iter().map(interface).collect(),
            provider: self.provider.map(From::from),
            version: self.version,
            documentation_url: self.documentation_url,
            capabilities: AgentCapabilities {
                streaming: capabilities.streaming,
                push_notifications: capabilities.push_notifications,
                extensions: capabilities.extensions.into_iter().map(|one| one.read(at)).collect(),
                extended_agent_card: capabilities.extended_agent_card,
                state_transition_history: None,
            },
            security_schemes: schemes
                .filter_map(|(name, scheme)| Some((name, scheme.read()?)))
                .collect(),
            security_requirements: requirements.map(From::from).collect(),
            default_input_modes: self.default_input_modes,
            default_output_modes: self.default_output_modes,
            skills: self.skills.into_iter().map(From::from).collect(),
            signatures: self.signatures.into_iter().map(|one| one.read(at)).collect(),
            icon_url: self.icon_url,
        }
    }
}

impl v03::AgentCard {
    pub(in super::super) fn read(self, at: &mut Violations<'_>) -> AgentCard {
        let capabilities = self.capabilities.unwrap_or_default();
        let others = self.additional_interfaces.into_iter();
        let schemes = self.security_schemes.into_iter();
        let requirements = self.security.into_iter();
        AgentCard {
            name: self.name,
            description: self.description,
            supported_interfaces: card::legacy_interfaces(
                self.protocol_version.parse().unwrap_or(Version::V0_3),
                self.url,
                filled(self.preferred_transport),
                others.map(|one| (one.url, one.transport)),
            ),
            provider: self.provider.map(From::from),
            version: self.version,
            documentation_url: filled(self.documentation_url),
            capabilities: AgentCapabilities {
                streaming: Some(capabilities.streaming),
                push_notifications: Some(capabilities.push_notifications),
                extensions: capabilities.extensions.into_iter().map(|one| one.read(at)).collect(),
                extended_agent_card: Some(self.supports_authenticated_extended_card),
                state_transition_history: None,
            },
            security_schemes: schemes
                .filter_map(|(name, scheme)| Some((name, scheme.read()?)))
                .collect(),
            security_requirements: requirements.map(From::from).collect(),
            default_input_modes: self.default_input_modes,
            default_output_modes: self.default_output_modes,
            skills: self.skills.into_iter().map(From::from).collect(),
            signatures: self.signatures.into_iter().map(|one| one.read(at)).collect(),
            icon_url: filled(self.icon_url),
        }
    }
}
