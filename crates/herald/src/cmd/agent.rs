//! `herald agent`: the agents of a server, their workers, and remote agents.

use herald_api::{
    ApiRoute,
    agents::{AgentList, AgentsQuery, RegisterAgent as NewAgent},
    routes::{
        Nothing,
        calls::{GetAgent, ListAgents, RegisterAgent, RemoveAgent},
    },
};

use crate::{
    api::{self, Api, MOST_PAGES},
    args::AgentCommand,
    client::error::CliError,
};

/// Runs an `agent` verb.
pub(crate) async fn run(command: &AgentCommand) -> Result<(), CliError> {
    match command {
        AgentCommand::List(args) => {
            let query = AgentsQuery {
                role: args.role.clone(),
                skill: args.skill.clone(),
                tag: args.tag.clone(),
                text: args.text.clone(),
                ..AgentsQuery::default()
            };
            api::run(&args.server, ApiRoute::ListAgents, async |api| {
                api.out.show(&all(&api, query).await?)
            })
            .await
        }
        AgentCommand::Show(args) => {
            api::run(&args.server, ApiRoute::GetAgent, async |api| {
                let agent = api.call::<GetAgent>(&[&args.name], &Nothing {}, &Nothing {}).await?;
                api.out.show(&agent)
            })
            .await
        }
        AgentCommand::Register(args) => {
            let new = NewAgent {
                role: args.role.clone(),
                card_url: Some(args.card_url.clone()),
                ..NewAgent::default()
            };
            api::run(&args.server, ApiRoute::RegisterAgent, async |api| {
                let registered = api.call::<RegisterAgent>(&[], &Nothing {}, &new).await?;
                api.out.show(&registered)
            })
            .await
        }
        AgentCommand::Remove(args) => {
            api::run(&args.server, ApiRoute::RemoveAgent, async |api| {
                let removed =
                    api.call::<RemoveAgent>(&[&args.name], &Nothing {}, &Nothing {}).await?;
                api.out.show(&removed)
            })
            .await
        }
    }
}

/// All pages of a list. Their size is that of the server.
pub(super) async fn all(api: &Api, mut query: AgentsQuery) -> Result<AgentList, CliError> {
    let mut all = api.call::<ListAgents>(&[], &query, &Nothing {}).await?;
    for _ in 1..MOST_PAGES {
        query.page_token = all.next_page_token.take();
        if query.page_token.is_none() {
            break;
        }
        let mut page = api.call::<ListAgents>(&[], &query, &Nothing {}).await?;
        all.agents.append(&mut page.agents);
        all.next_page_token = page.next_page_token;
    }
    Ok(all)
}
