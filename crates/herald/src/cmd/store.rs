//! `herald store` and `herald tenant`: the store of a server, and its content by tenant.

use herald_api::{
    ApiRoute,
    keys::{TenantPage, TenantsQuery},
    routes::{
        Nothing,
        calls::{GetStore, ListTenants},
    },
};

use crate::{
    api::{self, MOST_PAGES, PAGE},
    args::{StoreCommand, TenantCommand},
    client::error::CliError,
};

/// Runs a `store` verb.
pub(crate) async fn run(command: &StoreCommand) -> Result<(), CliError> {
    let StoreCommand::Status(args) = command;
    api::run(&args.server, ApiRoute::GetStore, async |api| {
        let store = api.call::<GetStore>(&[], &Nothing {}, &Nothing {}).await?;
        api.out.show(&store)
    })
    .await
}

/// Runs a `tenant` verb.
pub(crate) async fn tenants(command: &TenantCommand) -> Result<(), CliError> {
    let TenantCommand::List(args) = command;
    api::run(&args.server, ApiRoute::ListTenants, async |api| {
        let mut all = TenantPage { tenants: Vec::new(), next_page_token: None };
        for _ in 0..MOST_PAGES {
            let page_token = all.next_page_token.take();
            let query = TenantsQuery { page_size: Some(PAGE), page_token };
            let mut page = api.call::<ListTenants>(&[], &query, &Nothing {}).await?;
            all.tenants.append(&mut page.tenants);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_none() {
                break;
            }
        }
        api.out.show(&all)
    })
    .await
}
