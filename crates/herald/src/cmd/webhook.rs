//! `herald webhook`: the webhooks of tasks, their attempts, replay and enabling.

use herald_api::{
    ApiRoute,
    deliveries::{DeliveriesQuery, DeliveryDetail, DeliveryPage, ReplayDeliveries},
    routes::{Nothing, calls},
};

use crate::{
    api::{self, Api, MOST_PAGES, PAGE},
    args::{WebhookCommand, WebhookFilter, WebhookSelected, WebhookStateArg},
    client::error::CliError,
    output::note,
};

/// Runs a `webhook` verb.
pub(crate) async fn run(command: &WebhookCommand) -> Result<(), CliError> {
    match command {
        WebhookCommand::List(args) => {
            api::run(&args.server, ApiRoute::ListDeliveries, async |api| {
                let page = list(&api, &args.filter).await?;
                api.out.show(&page)?;
                let WebhookFilter { all, state, owner } = &args.filter;
                let is_own = !all && owner.tenant.is_none() && owner.principal.is_none();
                if page.deliveries.is_empty() && is_own && state.is_none() {
                    note("Note", "you have no webhooks; --all lists those of all owners");
                }
                Ok(())
            })
            .await
        }
        WebhookCommand::Show(args) => {
            api::run(&args.server, ApiRoute::GetDelivery, async |api| {
                let id = [args.id.as_str()];
                let found = api.call::<calls::GetDelivery>(&id, &Nothing {}, &Nothing {}).await?;
                api.out.show(&found)
            })
            .await
        }
        WebhookCommand::Replay(args) => {
            let replay = ReplayDeliveries { event: args.event, from: args.from, since: args.since };
            api::run(&args.selected.server, ApiRoute::ReplayDelivery, async |api| {
                each(&api, &args.selected, async |api, id| {
                    api.call::<calls::ReplayDelivery>(&[id], &Nothing {}, &replay).await
                })
                .await
            })
            .await
        }
        WebhookCommand::Enable(args) => {
            api::run(&args.server, ApiRoute::EnableDelivery, async |api| {
                each(&api, args, async |api, id| {
                    api.call::<calls::EnableDelivery>(&[id], &Nothing {}, &Nothing {}).await
                })
                .await
            })
            .await
        }
    }
}

/// All webhooks that match the filter.
async fn list(api: &Api, filter: &WebhookFilter) -> Result<DeliveryPage, CliError> {
    let mut all = DeliveryPage { deliveries: Vec::new(), next_page_token: None };
    for _ in 0..MOST_PAGES {
        let query = DeliveriesQuery {
            owner: filter.all.then(|| "*".to_owned()),
            tenant: filter.owner.tenant.clone(),
            principal: filter.owner.principal.clone(),
            state: filter.state.map(|state| WebhookStateArg::name(state).to_owned()),
            page_size: Some(PAGE),
            page_token: all.next_page_token.take(),
        };
        let mut page = api.call::<calls::ListDeliveries>(&[], &query, &Nothing {}).await?;
        all.deliveries.append(&mut page.deliveries);
        all.next_page_token = page.next_page_token;
        if all.next_page_token.is_none() {
            break;
        }
    }
    Ok(all)
}

/// Calls a route for each selected webhook, and shows them as they are then.
async fn each(
    api: &Api,
    selected: &WebhookSelected,
    call: impl AsyncFn(&Api, &str) -> Result<DeliveryDetail, CliError>,
) -> Result<(), CliError> {
    if let [id] = &selected.ids[..] {
        return api.out.show(&call(api, id).await?);
    }
    let ids = if selected.ids.is_empty() {
        let found = list(api, &selected.filter).await?.deliveries;
        found.into_iter().map(|webhook| webhook.id).collect()
    } else {
        selected.ids.clone()
    };
    note("Note", &format!("{} webhooks", ids.len()));
    let mut done = DeliveryPage { deliveries: Vec::new(), next_page_token: None };
    for id in ids {
        done.deliveries.push(call(api, &id).await?.delivery);
    }
    api.out.show(&done)
}
