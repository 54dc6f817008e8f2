//! `herald auth`: logins by OAuth 2.0 and OpenID Connect.

use std::time::{Duration, SystemTime};

use herald_client::Prompt;
use herald_protocol::{AgentCard, security::SecurityScheme};
use serde::Serialize;

use crate::{
    args::{AgentArgs, AuthCommand, AuthLogin, AuthLogout, AuthStatus},
    client::{
        contact::{Contact, owner},
        credentials::{Login, Logins},
        error::CliError,
        reference,
    },
    output::{Output, Show, TextPage, describe, note, warn},
};

/// The time limit of a logout.
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs an `auth` verb.
pub(crate) async fn run(command: &AuthCommand) -> Result<(), CliError> {
    match command {
        AuthCommand::Login(args) => login(args).await,
        AuthCommand::Status(args) => status(args),
        AuthCommand::Logout(args) => logout(args).await,
    }
}

async fn login(args: &AuthLogin) -> Result<(), CliError> {
    let mut given = args.agent.clone();
    // Other credentials would be used in place of a login.
    (given.bearer, given.api_key) = (None, None);
    let contact = Contact::new(&given, args.reference.as_deref())?;
    contact
        .within(async {
            let discovered = contact.discover().await?;
            needs_login(&contact, discovered.card())?;
            let client_id = given.login.client_id.as_deref().ok_or_else(|| {
                CliError::usage("the authorization server needs a client id")
                    .hint("add --client-id ID, which the operator of that server gives you")
            })?;
            let agent = contact.owner(&discovered);
            let client = contact.call(discovered)?;
            let token = client.log_in(print_prompt).await;
            let token = token.map_err(|error| contact.explain(&client, &error))?;
            contact.out.show(&LoginRow::new(&agent, &Login::new(&given.login, client_id, &token)))
        })
        .await
}

/// An error if the card names no authorization server.
fn needs_login(contact: &Contact, card: &AgentCard) -> Result<(), CliError> {
    let schemes = || card.security_schemes.values();
    let gives_tokens = |scheme: &SecurityScheme| {
        matches!(scheme, SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_))
    };
    if schemes().any(gives_tokens) {
        return Ok(());
    }
    let wanted: Vec<_> = schemes().map(describe).collect();
    Err(if wanted.is_empty() {
        CliError::usage("a login is not needed: the card requires no credential")
            .hint("call the agent without a login")
    } else {
        let text = format!("a login is not possible: the agent requires {}", wanted.join(" or "));
        CliError::usage(text).hint(contact.remedy(card))
    })
}

/// Prints the steps of a login for the user. They are not a result, so they go to standard error.
fn print_prompt(prompt: Prompt) {
    match prompt {
        Prompt::Device { url, code, complete } => {
            note("Login", &format!("open {url} on any device and enter the code {code}"));
            if let Some(complete) = complete {
                note("Login", &format!("or open {complete}"));
            }
        }
        Prompt::Browser { url } => {
            note("Login", &format!("open this page in a browser on this machine: {url}"));
        }
        _ => {}
    }
}

fn status(args: &AuthStatus) -> Result<(), CliError> {
    let kept = Logins::of_user()?.read()?;
    let logins = kept.iter().map(|(agent, login)| LoginRow::new(agent, login)).collect();
    Output::new(&args.output).show(&LoginList { logins })
}

async fn logout(args: &AuthLogout) -> Result<(), CliError> {
    let logins = Logins::of_user()?;
    let named = args.reference.as_ref().or(args.agent.agent_card.as_ref()).filter(|_| !args.all);
    let owners: Vec<String> = match named {
        Some(reference) => reference::places(reference)?.iter().map(owner).collect(),
        None if args.all => logins.read()?.into_keys().collect(),
        None => return Err(CliError::usage("no agent is given").hint("give one, or --all")),
    };
    let kept = logins.read()?;
    let mut forgotten = Vec::new();
    for (agent, login) in kept.iter().filter(|(agent, _)| owners.contains(agent)) {
        let revoked = revoke(&args.agent, agent).await.unwrap_or_else(|fault| {
            warn(&format!("the login was not revoked at the server: {}", fault.message()));
            false
        });
        let client_id = login.client_id.clone();
        forgotten.push(RemovedLogin { agent: agent.clone(), client_id, revoked });
    }
    if forgotten.is_empty() && !args.all {
        return Err(CliError::usage("there is no login for that agent").hint("herald auth status"));
    }
    logins
        .change(|kept| kept.retain(|agent, _| forgotten.iter().all(|one| one.agent != *agent)))?;
    Output::new(&args.agent.output).show(&RemovedLogins { forgotten })
}

/// Revokes a login at the authorization server, if the agent's card still names one.
async fn revoke(args: &AgentArgs, agent: &str) -> Result<bool, CliError> {
    let mut args = args.clone();
    (args.bearer, args.api_key, args.login.client_id) = (None, None, None);
    args.timeout = LOGOUT_TIMEOUT;
    let mut contact = Contact::new(&args, Some(agent))?;
    contact.takes_any_login = true;
    contact
        .within(async {
            let client = contact.connect().await?;
            client.log_out().await.map_err(|error| contact.explain(&client, &error))
        })
        .await
}

/// The logins that were deleted.
#[derive(Serialize)]
struct RemovedLogins {
    forgotten: Vec<RemovedLogin>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RemovedLogin {
    agent: String,
    client_id: String,
    /// True if the server has revoked it.
    revoked: bool,
}

#[derive(Serialize)]
struct LoginList {
    logins: Vec<LoginRow>,
}

/// A login without its secrets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LoginRow {
    agent: String,
    client_id: String,
    /// The expiry of the token, if it is known.
    expires: Option<String>,
    /// True if the token is valid now.
    valid: bool,
    /// True if it is renewed automatically.
    renewable: bool,
}

impl LoginRow {
    fn new(agent: &str, login: &Login) -> Self {
        let token = login.token();
        let end = |seconds| SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
        let end = token.expires.and_then(end);
        Self {
            agent: agent.to_owned(),
            client_id: login.client_id.clone(),
            expires: end.map(|end| humantime::format_rfc3339_seconds(end).to_string()),
            valid: token.is_fresh(),
            renewable: token.refresh.is_some(),
        }
    }
}

impl Show for LoginRow {
    fn show(&self, page: &mut TextPage) {
        page.field("Agent", &self.agent);
        page.field("Client", &self.client_id);
        page.optional("Expires", self.expires.as_ref());
        page.field("Valid", if self.valid { "yes" } else { "no" });
        page.field("Renewed automatically", if self.renewable { "yes" } else { "no" });
    }
}

impl Show for RemovedLogins {
    fn show(&self, page: &mut TextPage) {
        page.field("Forgotten", self.forgotten.len());
        for login in &self.forgotten {
            page.gap();
            page.field("Agent", &login.agent);
            page.field("Client", &login.client_id);
            page.field("Revoked by the server", if login.revoked { "yes" } else { "no" });
        }
    }
}

impl Show for LoginList {
    fn show(&self, page: &mut TextPage) {
        page.field("Logins", self.logins.len());
        for row in &self.logins {
            page.gap();
            row.show(page);
        }
    }
}
