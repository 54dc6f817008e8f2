//! `herald status`: the server, and the caller as the server sees it.

use herald_api::{
    ApiRoute,
    routes::{Nothing, calls::GetStatus},
};

use crate::{api, args::StatusArgs, client::error::CliError};

/// Runs `herald status`.
pub(crate) async fn run(args: &StatusArgs) -> Result<(), CliError> {
    api::run(&args.server, ApiRoute::GetStatus, async |api| {
        let status = api.call::<GetStatus>(&[], &Nothing {}, &Nothing {}).await?;
        api.out.show_with(&status, |page| page.field("Server", api.place()))
    })
    .await
}
