//! API keys and tenants.

use herald_api::{
    keys::{
        CreateKey, CreatedKey, KeyPage, KeyView, KeysQuery, TenantPage, TenantView, TenantsQuery,
    },
    routes::Nothing,
};
use herald_engine::{
    Clock, NewApiKey, Scopes, Visibility,
    store::{ApiKey, ApiKeyQuery, Owner, OwnerQuery},
};
use herald_protocol::{AgentName, Error, ErrorKind, TenantId};

use super::{ApiRequest, page_size};

pub(super) async fn list(
    request: &ApiRequest<'_>,
    query: KeysQuery,
    _: Nothing,
) -> Result<KeyPage, Error> {
    let (limit, operator) = (page_size(query.page_size)?, request.operator());
    let list = format!("keys {:?}", query.tenant);
    let after = operator.open_token(&list, query.page_token.as_deref())?.map(Into::into);
    let tenant = query.tenant.as_deref().map(TenantId::from);
    let mut keys = operator.keys(ApiKeyQuery { tenant, after, limit: limit + 1 }).await?;
    let more = keys.len() > limit;
    keys.truncate(limit);
    let last = keys.last().filter(|_| more);
    let next_page_token = last.map(|last| operator.token(&list, &last.id));
    Ok(KeyPage { keys: keys.iter().map(view).collect(), next_page_token })
}

pub(super) async fn create(
    request: &ApiRequest<'_>,
    _: Nothing,
    new: CreateKey,
) -> Result<CreatedKey, Error> {
    let scopes = match &new.scopes {
        Some(names) => names.iter().try_fold(Scopes::NONE, |scopes, name| {
            let scope = name.parse::<Scopes>();
            let scope = scope.map_err(|fault| Error::field("scopes", fault.to_string()))?;
            Ok::<_, Error>(scopes.with(scope))
        })?,
        None => request.caller.identity().scopes.within(Scopes::CALLER),
    };
    if scopes == Scopes::NONE {
        return Err(Error::field("scopes", "must name a scope that your credentials have"));
    }
    // A credential of a tenant creates keys of that tenant only.
    let tenant = match new.tenant.as_str() {
        "" => request.caller.identity().owner.tenant.clone(),
        tenant => TenantId::from(tenant),
    };
    let visibility = match new.visibility.as_deref() {
        None => None,
        Some("owner") => Some(Visibility::Owner),
        Some("tenant") => Some(Visibility::Tenant),
        Some(_) => return Err(Error::field("visibility", "must be owner or tenant")),
    };
    let agents =
        new.agents.map(|names| names.iter().map(|name| AgentName::from(&**name)).collect());
    let (key, secret) = request
        .operator()
        .create_key(NewApiKey {
            owner: Owner { tenant, principal: new.principal.into() },
            scopes,
            agents,
            skills: new.skills,
            visibility,
            expires: new.expires,
            label: new.label,
        })
        .await?;
    Ok(CreatedKey { key: secret.reveal().to_owned(), view: view(&key) })
}

pub(super) async fn get(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<KeyView, Error> {
    let key = request.operator().key(request.parameter(0)).await?;
    key.as_ref().map(view).ok_or_else(no_key)
}

pub(super) async fn revoke(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<KeyView, Error> {
    let key = request.operator().revoke_key(request.parameter(0)).await?;
    key.as_ref().map(view).ok_or_else(no_key)
}

pub(super) async fn tenants(
    request: &ApiRequest<'_>,
    query: TenantsQuery,
    _: Nothing,
) -> Result<TenantPage, Error> {
    const LIST: &str = "tenants";
    let (limit, operator) = (page_size(query.page_size)?, request.operator());
    let after = operator.open_token(LIST, query.page_token.as_deref())?;
    let after = after.as_deref().and_then(|cursor| cursor.split_once('\0'));
    let after = after.map(|(tenant, principal)| Owner {
        tenant: TenantId::from(tenant),
        principal: principal.into(),
    });
    let query = OwnerQuery { tenant: None, after, limit: limit + 1 };
    let mut owners = operator.owners(query).await?;
    let more = owners.len() > limit;
    owners.truncate(limit);
    let last = owners.last().filter(|_| more);
    let next_page_token = last.map(|(Owner { tenant, principal }, _)| {
        operator.token(LIST, &format!("{tenant}\0{principal}"))
    });
    let tenants = owners.into_iter().map(|(owner, usage)| TenantView {
        tenant: owner.tenant.to_string(),
        principal: owner.principal.to_string(),
        tasks: usage.tasks,
        active: usage.active,
        queued: usage.queued,
        bytes: usage.bytes,
    });
    Ok(TenantPage { tenants: tenants.collect(), next_page_token })
}

fn view(key: &ApiKey) -> KeyView {
    let state = if key.revoked.is_some() {
        "revoked"
    } else if key.is_valid(Clock::system().now()) {
        "active"
    } else {
        "expired"
    };
    let names = |agents: &Vec<AgentName>| agents.iter().map(AgentName::to_string).collect();
    KeyView {
        id: key.id.to_string(),
        label: key.label.clone(),
        tenant: key.owner.tenant.to_string(),
        principal: key.owner.principal.to_string(),
        scopes: key.scopes.names().map(str::to_owned).collect(),
        agents: key.agents.as_ref().map(names),
        skills: key.skills.clone(),
        visibility: key.visibility.map(|visibility| match visibility {
            Visibility::Owner => "owner".to_owned(),
            Visibility::Tenant => "tenant".to_owned(),
        }),
        state: state.to_owned(),
        created: key.created,
        created_by: key.created_by.to_string(),
        expires: key.expires,
        last_used: key.last_used,
        revoked: key.revoked,
    }
}

fn no_key() -> Error {
    Error::new(ErrorKind::ResourceNotFound, "no API key has this id")
}
