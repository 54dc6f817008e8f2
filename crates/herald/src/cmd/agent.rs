//! `herald agent`: the agents of a server.

use herald_api::{
    ApiRoute,
    routes::{
        Nothing,
        calls::{GetAgent, ListAgents},
    },
};

use crate::{api, args::AgentCommand, client::error::CliError};

/// Runs an `agent` verb.
pub(crate) async fn run(command: &AgentCommand) -> Result<(), CliError> {
    match command {
        AgentCommand::List(args) => {
            api::run(&args.server, ApiRoute::ListAgents, async |api| {
                let list = api.call::<ListAgents>(&[], &Nothing {}, &Nothing {}).await?;
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
    }
}
