//! Settings of authentication: tokens, identity providers, client certificates.

use std::net::IpAddr;

use anyhow::anyhow;
use herald_engine::{Profile, Scopes, Visibility};
use herald_protocol::{AgentName, TenantId};
use herald_server::{
    CertificateName, CertificateSettings, CertificateTenant, Jwt, JwtIssuer, JwtScopes, JwtTenant,
    Token,
};

use super::AgentSettings;
use crate::{
    serve::config::{
        AgentKind, AuthSection, CertificateNameKey, ClientAuthKey, ConfigError, ConfigText,
        FileConfig, JwtSection, ScopeKey, TenantFromKey, VisibilityKey,
    },
    spelling::near,
};

/// The callers of a server by its configuration.
#[derive(Debug, Clone)]
pub(crate) struct AuthSettings {
    pub(crate) tokens: Vec<Token>,
    pub(crate) jwt: Vec<JwtIssuer>,
    pub(crate) certificates: Option<CertificateSettings>,
    /// True if credentials are required although only API keys of the store can be used.
    pub(crate) required: bool,
    /// True if calls without credentials are accepted although the store has API keys.
    pub(crate) keys_optional: bool,
    /// True if the server may listen on any address without credentials.
    pub(crate) open: bool,
    /// True if the server must not start unless the store has API keys.
    pub(crate) needs_keys: bool,
    /// The tasks that callers see, if their credential does not say.
    pub(crate) visibility: Visibility,
}

impl AuthSettings {
    /// The settings of standard input, whose caller is the user that started this process.
    pub(crate) fn of_stdio() -> Self {
        Self {
            tokens: Vec::new(),
            jwt: Vec::new(),
            certificates: None,
            required: false,
            keys_optional: true,
            open: true,
            needs_keys: false,
            visibility: Visibility::default(),
        }
    }

    /// The settings of the file. `lenient` opens a server without credentials to the network, which is
    /// refused otherwise.
    pub(crate) fn read(config: &FileConfig, ip: IpAddr, lenient: bool) -> anyhow::Result<Self> {
        let auth = &config.auth;
        let certificates = certificates(config)?;
        let any = !auth.tokens.is_empty() || !auth.jwt.is_empty() || certificates.is_some();
        let refused = |said: &str| Err(config.source.fault_at("auth.required", said).into());
        if auth.required == Some(false) && any {
            return refused(
                "[auth] has tokens or other credentials, but required = false lets everyone in without \
                 one",
            );
        }
        // Without any credentials, API keys of the store are the only ones.
        let unprotected = !any && auth.required.is_none() && !ip.is_loopback();
        let needs_keys = unprotected && !lenient;
        Ok(Self {
            tokens: tokens(config),
            jwt: issuers(config)?,
            certificates,
            required: auth.required == Some(true) || needs_keys,
            keys_optional: auth.required == Some(false),
            open: auth.required == Some(false) || (unprotected && lenient),
            needs_keys,
            visibility: auth.visibility.into(),
        })
    }

    /// True if nobody could get in. A server in memory has neither API keys nor an operator's token.
    pub(crate) fn locks_out(&self, in_memory: bool) -> bool {
        let any = !self.tokens.is_empty() || !self.jwt.is_empty() || self.certificates.is_some();
        self.required && !any && in_memory
    }
}

/// The error for a server in memory that requires credentials and has none.
pub(crate) const NOBODY_CAN_CALL: &str = "nobody could call this server: it requires credentials, none are configured, and \
                                          without a data directory (--ephemeral) it can have no API keys. Add a \
                                          token under [auth], or use --data DIR and create a key with `herald key \
                                          create --principal NAME --data DIR`";

/// The error for a server that other machines can reach and that has no credentials.
pub(crate) fn no_credentials(ip: IpAddr) -> anyhow::Error {
    anyhow!(
        "other machines can reach {ip}, and no credentials are configured.\n\
         Export HERALD_TOKEN, a secret of your choice, and add it to herald.toml:\n\n  \
         [auth]\n  \
         tokens = [{{ token = \"env:HERALD_TOKEN\", tenant = \"acme\", principal = \"ci\" }}]\n\n\
         or create an API key: `mkdir -m 700 DIR && herald key create --principal NAME --data DIR`, \
         or, to accept calls without credentials, set `required = false` under [auth]."
    )
}

/// Refuses an agent or a skill in the limits of a credential that the server does not have: such a credential would
/// allow less than its author meant, without a word.
pub(crate) fn check_names(
    auth: &AuthSection,
    source: &ConfigText,
    agents: &[AgentSettings],
) -> Result<(), ConfigError> {
    let tokens = auth.tokens.iter().enumerate().map(|(index, token)| {
        let key = format!("auth.tokens.{index}");
        (
            key,
            token.agents.as_deref(),
            token.skills.as_deref(),
            serves_roles(token.scopes.as_deref()),
        )
    });
    let identities =
        auth.certificates.iter().flat_map(|section| section.identities.iter().enumerate());
    let identities = identities.map(|(index, one)| {
        let key = format!("auth.certificates.identities.{index}");
        (key, one.agents.as_deref(), one.skills.as_deref(), serves_roles(one.scopes.as_deref()))
    });
    for (key, names, skills, serves_roles) in tokens.chain(identities) {
        let known = || agents.iter().map(|agent| agent.profile.name.as_str());
        for (index, name) in names.unwrap_or_default().iter().enumerate() {
            // Workers bring roles that the file does not have.
            if !serves_roles && !known().any(|known| known == name) {
                let said = unknown("agent", name, known());
                return Err(source.fault_at(&format!("{key}.agents.{index}"), said));
            }
        }
        let allowed = |agent: &&AgentSettings| {
            names.is_none_or(|names| names.iter().any(|name| name == agent.profile.name.as_str()))
        };
        // The skills of another server and of workers are not known here.
        let has_others =
            |agent: &AgentSettings| matches!(agent.kind, AgentKind::A2a | AgentKind::Worker);
        if serves_roles || agents.iter().filter(allowed).any(has_others) {
            continue;
        }
        let known = || agents.iter().filter(allowed).flat_map(|agent| skill_ids(&agent.profile));
        for (index, skill) in skills.unwrap_or_default().iter().enumerate() {
            if !known().any(|known| known == skill) {
                let said = unknown("skill", skill, known());
                return Err(source.fault_at(&format!("{key}.skills.{index}"), said));
            }
        }
    }
    Ok(())
}

/// True if a credential with these scopes can serve roles, also those that no configuration has.
fn serves_roles(scopes: Option<&[ScopeKey]>) -> bool {
    let scopes: Scopes = scopes.unwrap_or_default().iter().copied().map(Scopes::from).collect();
    scopes.contains(Scopes::WORK) || scopes.contains(Scopes::REGISTER)
}

fn skill_ids(profile: &Profile) -> impl Iterator<Item = &str> + Clone {
    let extended = profile.extended_card.iter().flat_map(|card| &card.skills);
    profile.skills.iter().chain(extended.map(|(skill, _)| skill)).map(|skill| skill.id.as_str())
}

/// The sentence for a name that the server does not have.
fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let remedy = match near(name, known.clone()) {
        Some(meant) => format!("did you mean {meant:?}?"),
        None => format!("known are {}", known.collect::<Vec<_>>().join(", ")),
    };
    format!("the server has no {what} {name:?}; {remedy}")
}

/// The tokens of the file.
pub(crate) fn tokens(config: &FileConfig) -> Vec<Token> {
    let auth = &config.auth;
    let token = auth.tokens.iter().map(|section| Token {
        secret: section.token.0.clone(),
        tenant: TenantId::new(section.tenant.as_str()),
        principal: section.principal.clone(),
        scopes: scopes(section.scopes.as_deref()),
        agents: agents(section.agents.as_deref()),
        skills: section.skills.clone(),
        visibility: section.visibility.unwrap_or(auth.visibility).into(),
    });
    token.collect()
}

fn issuers(config: &FileConfig) -> Result<Vec<JwtIssuer>, ConfigError> {
    let mut issuers: Vec<JwtIssuer> = Vec::new();
    for (index, section) in config.auth.jwt.iter().enumerate() {
        let fault = |key: &str, said: &str| {
            let keys = [format!("auth.jwt.{index}.{key}"), format!("auth.jwt.{key}")];
            let whole = [format!("auth.jwt.{index}"), "auth.jwt".to_owned()];
            config.source.fault_at_first(keys.iter().chain(&whole), format!("[auth] jwt: {said}"))
        };
        let issuer =
            issuer(section, config.auth.visibility).map_err(|(key, said)| fault(key, &said))?;
        Jwt::check(&issuer).map_err(|error| fault(error.key, &error.to_string()))?;
        if issuers.iter().any(|earlier| earlier.issuer == issuer.issuer) {
            return Err(fault("issuer", "the same issuer is listed twice"));
        }
        issuers.push(issuer);
    }
    Ok(issuers)
}

/// The settings of one issuer. An error names its key.
fn issuer(
    section: &JwtSection,
    visibility: VisibilityKey,
) -> Result<JwtIssuer, (&'static str, String)> {
    let tenant = match (&section.tenant, &section.tenant_claim) {
        (Some(tenant), None) => JwtTenant::Fixed(TenantId::new(tenant.as_str())),
        (None, Some(claim)) => JwtTenant::Claim(claim.clone()),
        (None, None) => {
            let said =
                "name the tenant of its tokens with tenant, or their claim with tenant_claim";
            return Err(("issuer", said.to_owned()));
        }
        (Some(_), Some(_)) => {
            return Err(("tenant_claim", "tenant and tenant_claim exclude each other".to_owned()));
        }
    };
    let mut issuer = JwtIssuer::new(section.issuer.as_str(), "", tenant);
    issuer.scopes = match (&section.scopes, &section.scope_claim) {
        (Some(_), Some(_)) => {
            return Err(("scope_claim", "scopes and scope_claim exclude each other".to_owned()));
        }
        (Some(given), None) => JwtScopes::Fixed(scopes(Some(given))),
        (None, claim) => JwtScopes::Claim {
            name: claim.clone().unwrap_or_else(|| "scope".to_owned()),
            prefix: section.scope_prefix.clone().unwrap_or_default(),
        },
    };
    issuer.audience.clone_from(&section.audience);
    issuer.jwks_url.clone_from(&section.jwks_url);
    issuer.typ.clone_from(&section.typ);
    issuer.visibility = section.visibility.unwrap_or(visibility).into();
    if let Some(algorithms) = &section.algorithms {
        issuer.algorithms.clone_from(algorithms);
    }
    if let Some(claim) = &section.principal_claim {
        issuer.principal_claim.clone_from(claim);
    }
    issuer.clock_skew = section.clock_skew.map_or(issuer.clock_skew, |span| span.0);
    issuer.keep_keys = section.keep_keys.map_or(issuer.keep_keys, |span| span.0);
    if let Some(path) = &section.ca {
        let read = std::fs::read(path);
        let read = read.map_err(|error| ("ca", format!("cannot read {}: {error}", path.display())));
        issuer.roots = Some(read?);
    }
    Ok(issuer)
}

fn certificates(config: &FileConfig) -> Result<Option<CertificateSettings>, ConfigError> {
    let asks = config.server.tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
    if !asks && let Some(tls) = &config.server.tls {
        let given = [
            ("client_auth", tls.client_auth == ClientAuthKey::Required),
            ("client_crl", tls.client_crl.is_some()),
        ];
        if let Some((key, _)) = given.into_iter().find(|(_, given)| *given) {
            let said = format!("{key} needs client_ca, the authorities of client certificates");
            return Err(config.source.fault_at(&format!("server.tls.{key}"), said));
        }
    }
    let Some(section) = &config.auth.certificates else {
        if asks {
            let said = "client_ca needs [auth.certificates], which says who the holders of the \
                        certificates are; add tenant = \"…\" there";
            return Err(config.source.fault_at("server.tls.client_ca", said));
        }
        return Ok(None);
    };
    let fault = |said: &str| config.source.fault_at("auth.certificates", said);
    if !asks {
        return Err(fault("[auth.certificates] needs client_ca under [server.tls]"));
    }
    let tenant = match (&section.tenant, section.tenant_from) {
        (Some(tenant), None) => Some(CertificateTenant::Fixed(TenantId::new(tenant.as_str()))),
        (None, Some(TenantFromKey::Organization)) => Some(CertificateTenant::Organization),
        (None, Some(TenantFromKey::OrganizationalUnit)) => {
            Some(CertificateTenant::OrganizationalUnit)
        }
        (None, None) => None,
        (Some(_), Some(_)) => return Err(fault("tenant and tenant_from exclude each other")),
    };
    if tenant.is_none() && section.identities.is_empty() {
        return Err(fault("[auth.certificates] needs tenant, tenant_from or identities"));
    }
    let visibility = section.visibility.unwrap_or(config.auth.visibility);
    let identities = section.identities.iter().map(|one| Token {
        secret: one.name.clone(),
        tenant: TenantId::new(one.tenant.as_str()),
        principal: one.principal.clone(),
        scopes: scopes(one.scopes.as_deref()),
        agents: agents(one.agents.as_deref()),
        skills: one.skills.clone(),
        visibility: one.visibility.unwrap_or(visibility).into(),
    });
    Ok(Some(CertificateSettings {
        name: match section.name {
            CertificateNameKey::Cn => CertificateName::CommonName,
            CertificateNameKey::Uri => CertificateName::Uri,
            CertificateNameKey::Dns => CertificateName::Dns,
            CertificateNameKey::Email => CertificateName::Email,
        },
        identities: identities.collect(),
        tenant,
        scopes: scopes(section.scopes.as_deref()),
        visibility: visibility.into(),
    }))
}

fn scopes(keys: Option<&[ScopeKey]>) -> Scopes {
    match keys {
        Some(keys) => keys.iter().copied().map(Scopes::from).collect(),
        None => Scopes::CALLER,
    }
}

fn agents(names: Option<&[String]>) -> Option<Vec<AgentName>> {
    names.map(|names| names.iter().map(|name| AgentName::new(name.as_str())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_client_certificates_need_their_authorities() {
        for key in ["client_auth = \"required\"", "client_crl = \"crl.pem\""] {
            let text = format!("[server.tls]\ncertificate = \"c.pem\"\nkey = \"k.pem\"\n{key}\n");
            let config = FileConfig::parse(ConfigText::new("herald.toml", text)).unwrap();
            let refused = certificates(&config).unwrap_err().to_string();
            assert!(refused.contains("needs client_ca"), "{refused}");
            assert!(refused.contains("line 4"), "{refused}");
        }
    }
}
