//! Push notification configs: register, read and remove the webhooks of a task.

use std::sync::Arc;

use herald_protocol::{
    Error, ErrorKind, PushConfigId, TaskId,
    push::{PushAuthentication, PushConfig, PushConfigPage},
    request::{ListPushConfigs, PushConfigRef},
};
use uuid::Uuid;

use crate::{
    agents::runtime::AgentRuntime,
    caller::{AgentRoute, Caller},
    core::Core,
    fault::{no_push, refuse},
    store::{Key, NewWebhook, Webhook, WebhookId, WebhookLimits, WebhookTarget},
    token,
    webhooks::sender::WebhookSender,
};

/// Webhooks on one page, if the caller does not say how many.
const PAGE: usize = 100;

/// Registers a webhook of a task. One with the same id is replaced.
pub(crate) async fn create(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    mut config: PushConfig,
) -> Result<PushConfig, Error> {
    let task = config.task_id.clone().unwrap_or_default();
    let key = find(core, caller, route, task).await?;
    config.id.get_or_insert_with(|| PushConfigId::from(Uuid::new_v4().to_string().as_str()));
    let new = admit(core, route, config).await?;
    let stored = core.store.put_webhook(&key, new).await.map_err(refuse)?;
    stored.map(shown).ok_or_else(Error::task_not_found)
}

/// Returns a webhook. Without an id, the only one of the task.
pub(crate) async fn get(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    wanted: PushConfigRef,
) -> Result<PushConfig, Error> {
    let key = find(core, caller, route, wanted.task_id).await?;
    let limit = core.settings.webhooks.per_task.max(2);
    let mut webhooks = core.store.webhooks_of(&key, None, limit).await.map_err(refuse)?;
    if wanted.id.as_str().is_empty() {
        if webhooks.len() > 1 {
            let text = "is required, because the task has several configs";
            return Err(Error::field("pushNotificationConfigId", text));
        }
    } else {
        webhooks.retain(|webhook| webhook.target.config == wanted.id);
    }
    webhooks.pop().map(shown).ok_or_else(|| {
        let text = "the task has no push notification config with this id";
        Error::new(ErrorKind::TaskNotFound, text)
    })
}

/// Lists the webhooks of a task, by their ids.
pub(crate) async fn list(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    list: ListPushConfigs,
) -> Result<PushConfigPage, Error> {
    let key = find(core, caller, route, list.task_id).await?;
    let name = format!("webhooks {} {} {}", key.owner.tenant, key.owner.principal, key.task);
    let after = match list.page_token.filter(|token| !token.is_empty()) {
        Some(token) => Some(PushConfigId::from(token::open(&core.secret, &name, &token)?.as_str())),
        None => None,
    };
    let size = list.page_size.and_then(|size| usize::try_from(size).ok()).filter(|size| *size > 0);
    let size = size.unwrap_or(PAGE).min(PAGE);
    let found = core.store.webhooks_of(&key, after.as_ref(), size + 1).await.map_err(refuse)?;
    let has_more = found.len() > size;
    let configs: Vec<_> = found.into_iter().take(size).map(shown).collect();
    let last = configs.last().and_then(|config| config.id.as_ref()).filter(|_| has_more);
    let next = last.map(|id| token::seal(&core.secret, &name, id.as_str()));
    Ok(PushConfigPage { configs, next_page_token: next.unwrap_or_default() })
}

/// Removes a webhook. Succeeds if there is none of this id.
pub(crate) async fn delete(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    named: PushConfigRef,
) -> Result<(), Error> {
    let key = find(core, caller, route, named.task_id).await?;
    core.store.remove_webhook(&key, &named.id).await.map_err(refuse)?;
    Ok(())
}

/// The webhook in a send. Without an id, a later message with the same URL names the same webhook: some
/// clients add their webhook to every message.
pub(crate) async fn inline(
    core: &Core,
    runtime: &AgentRuntime,
    route: &AgentRoute,
    mut config: PushConfig,
) -> Result<Box<NewWebhook>, Error> {
    sender(core, runtime)?;
    config.id.get_or_insert_with(|| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&blake3::hash(config.url.as_bytes()).as_bytes()[..16]);
        let id = uuid::Builder::from_custom_bytes(bytes).into_uuid();
        PushConfigId::from(id.to_string().as_str())
    });
    admit(core, route, config).await.map(Box::new)
}

/// The key of a task that the caller sees and whose agent supports webhooks.
async fn find(
    core: &Core,
    caller: &Caller,
    route: &AgentRoute,
    task: TaskId,
) -> Result<Key, Error> {
    // Before the task is looked for, so that the answer does not depend on it.
    let agents = core.registry.snapshot();
    if !agents.iter().any(|it| route.includes(&it.profile.name) && sender(core, it).is_ok()) {
        return Err(no_push());
    }
    let key = core.locate(caller, task).await?;
    let record = core.find(caller, route, &key).await?;
    if let Some(runtime) = core.registry.get(&record.agent) {
        sender(core, &runtime)?;
    }
    Ok(key)
}

fn sender<'a>(core: &'a Core, runtime: &AgentRuntime) -> Result<&'a Arc<dyn WebhookSender>, Error> {
    core.webhooks.sender.as_ref().filter(|_| runtime.profile.push).ok_or_else(no_push)
}

/// Checks a webhook and seals its secrets.
async fn admit(core: &Core, route: &AgentRoute, config: PushConfig) -> Result<NewWebhook, Error> {
    let sender = core.webhooks.sender.as_ref().ok_or_else(no_push)?;
    let secrets = sender.admit(&config).await?.0;
    let settings = &core.settings.webhooks;
    Ok(NewWebhook {
        id: WebhookId::random(),
        target: WebhookTarget {
            config: config.id.unwrap_or_default(),
            url: config.url,
            scheme: config.authentication.map(|authentication| authentication.scheme),
            secrets,
            dialect: route.dialect,
        },
        limits: WebhookLimits { per_task: settings.per_task, per_tenant: settings.per_tenant },
    })
}

/// A webhook as callers see it: without its secrets.
fn shown(webhook: Webhook) -> PushConfig {
    let Webhook { key, target, .. } = webhook;
    let scheme = target.scheme.filter(|scheme| !scheme.is_empty());
    PushConfig {
        tenant: None,
        id: Some(target.config),
        task_id: Some(key.task),
        url: target.url,
        token: None,
        authentication: scheme.map(|scheme| PushAuthentication { scheme, credentials: None }),
    }
}
