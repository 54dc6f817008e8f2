//! `herald agent`: the agents of a server, their workers, and remote agents.

use herald_api::{
    ApiRoute,
    agents::{AgentsQuery, RegisterAgent as NewAgent},
    routes::{
        Nothing,
        calls::{GetAgent, ListAgents, RegisterAgent, RemoveAgent},
    },
};

use crate::{api, args::AgentCommand, client::error::CliError};

/// Runs an `agent` verb.
pub(crate) async fn run(command: &AgentCommand) -> Result<(), CliError> {
    match command {
        AgentCommand::List(args) => {
            let query = AgentsQuery {
                role: args.role.clone(),
                skill: args.skill.clone(),
                tag: args.tag.clone(),
                text: args.text.clone(),
            };
            api::run(&args.server, ApiRoute::ListAgents, async |api| {
                let list = api.call::<ListAgents>(&[], &query, &Nothing {}).await?;
                api.out.show(&list)
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
