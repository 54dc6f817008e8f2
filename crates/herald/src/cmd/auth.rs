//! `herald auth`.

use std::time::{Duration, SystemTime};

use herald_client::Prompt;
use herald_protocol::{AgentCard, security::SecurityScheme};
use serde::Serialize;

use crate::{
    args::{AgentArgs, AuthCommand, AuthLogin, AuthLogout, AuthStatus},
    client::{
        contact::{Contact, owner},
        credentials::{Login, Logins},
        fault::Fault,
        reference,
    },
    output::{Output, Page, Show, describe, note, warn},
};

/// How long an agent and its authorization server may take to let somebody go.
const FAREWELL: Duration = Duration::from_secs(30);

/// Runs a verb of logins.
pub(crate) async fn run(command: &AuthCommand) -> Result<(), Fault> {
    match command {
        AuthCommand::Login(args) => login(args).await,
        AuthCommand::Status(args) => status(args),
        AuthCommand::Logout(args) => logout(args).await,
    }
}

async fn login(args: &AuthLogin) -> Result<(), Fault> {
    let mut given = args.agent.clone();
    // What is wanted is a login, whatever else would do for a call.
    (given.bearer, given.api_key) = (None, None);
    let contact = Contact::new(&given, args.reference.as_deref())?;
    contact
        .within(async {
            let discovered = contact.discover().await?;
            needs_login(&contact, discovered.card())?;
            let client_id = given.login.client_id.as_deref().ok_or_else(|| {
                Fault::usage("an authorization server wants to know which program asks")
                    .hint("add --client-id ID, which you get from whoever runs that server")
            })?;
            let agent = contact.owner(&discovered);
            let client = contact.call(discovered)?;
            let token = client.log_in(tell).await;
            let token = token.map_err(|error| contact.explain(&client, &error))?;
            contact.out.show(&Row::new(&agent, &Login::new(&given.login, client_id, &token)))
        })
        .await
}

/// Refuses to log in where nobody gives out tokens.
fn needs_login(contact: &Contact, card: &AgentCard) -> Result<(), Fault> {
    let schemes = || card.security_schemes.values();
    let gives_tokens = |scheme: &SecurityScheme| {
        matches!(scheme, SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_))
    };
    if schemes().any(gives_tokens) {
        return Ok(());
    }
    let wanted: Vec<_> = schemes().map(describe).collect();
    Err(match wanted.is_empty() {
        true => Fault::usage("there is nothing to log in to: the card asks for no credential")
            .hint("call the agent as it is"),
        false => {
            let text =
                format!("there is nothing to log in to: the agent takes {}", wanted.join(" or "));
            Fault::usage(text).hint(contact.remedy(card))
        }
    })
}

/// Tells a person what to do. It is no result, so it goes to standard error.
fn tell(prompt: Prompt) {
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

fn status(args: &AuthStatus) -> Result<(), Fault> {
    let kept = Logins::of_user()?.read()?;
    let logins = kept.iter().map(|(agent, login)| Row::new(agent, login)).collect();
    Output::new(&args.output).show(&Status { logins })
}

async fn logout(args: &AuthLogout) -> Result<(), Fault> {
    let logins = Logins::of_user()?;
    let named = args.reference.as_ref().or(args.agent.agent_card.as_ref()).filter(|_| !args.all);
    let owners: Vec<String> = match named {
        Some(reference) => reference::places(reference)?.iter().map(owner).collect(),
        None if args.all => logins.read()?.into_keys().collect(),
        None => return Err(Fault::usage("no agent is named").hint("name it, or say --all")),
    };
    let kept = logins.read()?;
    let mut forgotten = Vec::new();
    for (agent, login) in kept.iter().filter(|(agent, _)| owners.contains(agent)) {
        let revoked = revoke(&args.agent, agent).await.unwrap_or_else(|fault| {
            warn(&format!("the login is not taken back: {}", fault.message()));
            false
        });
        let client_id = login.client_id.clone();
        forgotten.push(Gone { agent: agent.clone(), client_id, revoked });
    }
    if forgotten.is_empty() && !args.all {
        return Err(Fault::usage("there is no login for that agent").hint("herald auth status"));
    }
    logins
        .change(|kept| kept.retain(|agent, _| forgotten.iter().all(|one| one.agent != *agent)))?;
    Output::new(&args.agent.output).show(&Forgotten { forgotten })
}

/// Has the authorization server take a login back, if the agent still says where it is.
async fn revoke(args: &AgentArgs, agent: &str) -> Result<bool, Fault> {
    let mut args = args.clone();
    (args.bearer, args.api_key, args.login.client_id) = (None, None, None);
    args.timeout = FAREWELL;
    let mut contact = Contact::new(&args, Some(agent))?;
    contact.takes_any_login = true;
    contact
        .within(async {
            let client = contact.connect().await?;
            client.log_out().await.map_err(|error| contact.explain(&client, &error))
        })
        .await
}

/// The logins that are no longer kept.
#[derive(Serialize)]
struct Forgotten {
    forgotten: Vec<Gone>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Gone {
    agent: String,
    client_id: String,
    /// Whether the server has taken it back.
    revoked: bool,
}

#[derive(Serialize)]
struct Status {
    logins: Vec<Row>,
}

/// A login without its secrets.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    agent: String,
    client_id: String,
    /// When the token ends, if that is known.
    expires: Option<String>,
    /// Whether calls can be made with it now.
    valid: bool,
    /// Whether it is renewed by itself.
    renewable: bool,
}

impl Row {
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

impl Show for Row {
    fn show(&self, page: &mut Page) {
        page.field("Agent", &self.agent);
        page.field("Client", &self.client_id);
        page.optional("Expires", self.expires.as_ref());
        page.field("Valid", if self.valid { "yes" } else { "no" });
        page.field("Renewed by itself", if self.renewable { "yes" } else { "no" });
    }
}

impl Show for Forgotten {
    fn show(&self, page: &mut Page) {
        page.field("Forgotten", self.forgotten.len());
        for login in &self.forgotten {
            page.gap();
            page.field("Agent", &login.agent);
            page.field("Client", &login.client_id);
            page.field("Taken back by the server", if login.revoked { "yes" } else { "no" });
        }
    }
}

impl Show for Status {
    fn show(&self, page: &mut Page) {
        page.field("Logins", self.logins.len());
        for row in &self.logins {
            page.gap();
            row.show(page);
        }
    }
}
