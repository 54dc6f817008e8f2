//! `herald auth`.

use std::time::{Duration, SystemTime};

use herald_client::Prompt;
use serde::Serialize;

use crate::{
    args::{AgentArgs, AuthCommand, AuthLogin, AuthLogout, AuthStatus},
    contact::{Contact, owner},
    credentials::{Login, Logins},
    fault::Fault,
    output::{Output, Page, Show, inline, note, warn},
    reference,
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
    let client_id = given.login.client_id.as_deref().ok_or_else(|| {
        Fault::usage("an authorization server wants to know which program asks")
            .hint("add --client-id ID, which you get from whoever runs that server")
    })?;
    contact
        .within(async {
            let discovered = contact.discover().await?;
            let agent = contact.owner(&discovered);
            let client = contact.call(discovered)?;
            let token = client.log_in(tell).await;
            let token = token.map_err(|error| contact.explain(&client, &error))?;
            contact.out.show(&Row::new(&agent, &Login::new(client_id, &token)))
        })
        .await
}

/// Tells a person what to do. It is no result, so it goes to standard error.
fn tell(prompt: Prompt) {
    match prompt {
        Prompt::Device { url, code, complete } => {
            note("Login", &inline(&format!("open {url} on any device and enter the code {code}")));
            if let Some(complete) = complete {
                note("Login", &inline(&format!("or open {complete}")));
            }
        }
        Prompt::Browser { url } => {
            note("Login", &inline(&format!("open this page in a browser on this machine: {url}")));
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
    let mut gone = Vec::new();
    for (agent, login) in kept.iter().filter(|(agent, _)| owners.contains(agent)) {
        let revoked = revoke(&args.agent, agent).await.unwrap_or_else(|fault| {
            warn(&inline(&format!("the login is not taken back: {}", fault.message())));
            false
        });
        gone.push(Row { revoked: Some(revoked), ..Row::new(agent, login) });
    }
    if gone.is_empty() && !args.all {
        return Err(Fault::usage("there is no login for that agent").hint("herald auth status"));
    }
    logins.change(|kept| kept.retain(|agent, _| gone.iter().all(|row| row.agent != *agent)))?;
    Output::new(&args.agent.output).show(&Status { logins: gone })
}

/// Has the authorization server take a login back, if the agent still says where it is.
async fn revoke(args: &AgentArgs, agent: &str) -> Result<bool, Fault> {
    let mut args = args.clone();
    (args.bearer, args.api_key, args.login.client_id) = (None, None, None);
    args.timeout = FAREWELL;
    let contact = Contact::new(&args, Some(agent))?;
    contact
        .within(async {
            let client = contact.connect().await?;
            client.log_out().await.map_err(|error| contact.explain(&client, &error))
        })
        .await
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
    /// Whether the server has taken it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<bool>,
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
            revoked: None,
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
        let revoked = |revoked| if revoked { "yes" } else { "no" };
        page.optional("Taken back by the server", self.revoked.map(revoked));
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
