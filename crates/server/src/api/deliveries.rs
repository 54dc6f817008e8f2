//! Deliveries: webhooks with their attempts, replay and enabling.

use herald_api::{
    deliveries::{
        AttemptView, DeliveriesQuery, DeliveryDetail, DeliveryPage, DeliveryView, ReplayDeliveries,
    },
    routes::Nothing,
};
use herald_engine::{
    Replay,
    store::{DeliveryAttempt, Scope, Webhook, WebhookId, WebhookState},
};
use herald_protocol::{Error, ErrorKind};

use super::{ApiRequest, page_size};

pub(super) async fn list(
    request: &ApiRequest<'_>,
    query: DeliveriesQuery,
    _: Nothing,
) -> Result<DeliveryPage, Error> {
    let DeliveriesQuery { owner, tenant, principal, state, page_size: size, page_token } = query;
    let name = format!("deliveries {owner:?} {tenant:?} {principal:?} {state:?}");
    let scope = match (owner.as_deref(), tenant, principal) {
        (None, None, None) => None,
        (Some("*"), None, None) => Some(Scope::All),
        (None, tenant, principal) => Some(request.scope(tenant, principal)),
        (Some(_), _, _) => {
            return Err(Error::field("owner", "must be *, without tenant and principal"));
        }
    };
    let state = match state {
        Some(name) => Some(WebhookState::from_name(&name).ok_or_else(|| {
            let names = WebhookState::ALL.map(WebhookState::name).join(", ");
            Error::field("state", format!("must be one of: {names}"))
        })?),
        None => None,
    };
    let operator = request.operator();
    let before = operator.open_token(&name, page_token.as_deref())?;
    let before = before.and_then(|cursor| cursor.parse().ok());
    let page = operator.webhooks(scope, state, before, page_size(size)?).await?;
    let next_page_token = page.next.map(|next| operator.token(&name, &next.to_string()));
    Ok(DeliveryPage { deliveries: page.webhooks.iter().map(view).collect(), next_page_token })
}

pub(super) async fn get(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<DeliveryDetail, Error> {
    detail(request).await
}

pub(super) async fn replay(
    request: &ApiRequest<'_>,
    _: Nothing,
    replay: ReplayDeliveries,
) -> Result<DeliveryDetail, Error> {
    let (id, operator) = (id(request)?, request.operator());
    match (replay.event, replay.from, replay.since) {
        (Some(event), None, None) => {
            operator.deliver_again(id, event).await?;
        }
        (None, Some(from), None) => {
            operator.restart_webhook(id, Some(Replay::From(from))).await?;
        }
        (None, None, Some(since)) => {
            operator.restart_webhook(id, Some(Replay::Since(since))).await?;
        }
        (_, _, _) => {
            return Err(Error::field("event", "name one of event, from and since"));
        }
    }
    changed(request).await
}

pub(super) async fn enable(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<DeliveryDetail, Error> {
    request.operator().restart_webhook(id(request)?, None).await?;
    changed(request).await
}

async fn detail(request: &ApiRequest<'_>) -> Result<DeliveryDetail, Error> {
    let operator = request.operator();
    let (webhook, attempts) = operator.webhook(id(request)?).await?;
    Ok(shown(&webhook, &attempts, operator.sees_causes()))
}

/// A webhook after a change by this caller, who may see the result also without the scope `read`.
async fn changed(request: &ApiRequest<'_>) -> Result<DeliveryDetail, Error> {
    let reader = request.reader();
    let operator = request.engine().operator(&reader);
    let (webhook, attempts) = operator.webhook(id(request)?).await?;
    Ok(shown(&webhook, &attempts, operator.sees_causes()))
}

fn shown(webhook: &Webhook, attempts: &[DeliveryAttempt], causes: bool) -> DeliveryDetail {
    let attempts = attempts.iter().map(|attempt| self::attempt(attempt, causes)).collect();
    DeliveryDetail { delivery: view(webhook), attempts }
}

fn id(request: &ApiRequest<'_>) -> Result<WebhookId, Error> {
    WebhookId::parse(request.parameter(0))
        .ok_or_else(|| Error::new(ErrorKind::ResourceNotFound, "no webhook has this id"))
}

fn view(webhook: &Webhook) -> DeliveryView {
    DeliveryView {
        id: webhook.id.to_string(),
        task: webhook.key.task.to_string(),
        tenant: webhook.key.owner.tenant.to_string(),
        principal: webhook.key.owner.principal.to_string(),
        config: webhook.target.config.to_string(),
        url: webhook.target.url.clone(),
        state: webhook.state.name().to_owned(),
        cursor: webhook.cursor,
        failures: webhook.failures,
        attempts: webhook.attempts,
        created: webhook.created,
        next_attempt: (webhook.state == WebhookState::Waiting).then_some(webhook.due),
    }
}

/// An attempt. Without `causes` a receiver that does not answer looks the same for every cause, so that
/// attempts tell a caller nothing about the network of the server.
fn attempt(attempt: &DeliveryAttempt, causes: bool) -> AttemptView {
    let outcome = match (attempt.delivered, attempt.status) {
        (true, _) => "delivered",
        (false, Some(_)) => "refused",
        (false, None) => "unreachable",
    };
    AttemptView {
        event: attempt.seq,
        at: attempt.at,
        outcome: outcome.to_owned(),
        status: attempt.status,
        millis: causes.then_some(attempt.millis),
        detail: Some(attempt.detail.clone()).filter(|detail| causes && !detail.is_empty()),
        next: attempt.next,
    }
}
