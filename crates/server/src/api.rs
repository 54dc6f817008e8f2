//! Herald's own interface, `/api`: dispatch of a request by the route table of `herald-api`.

mod agents;
mod audit;
mod deliveries;
mod download;
mod keys;
mod log;
mod status;
mod tasks;
mod workers;

use std::sync::Arc;

use bytes::Bytes;
use herald_api::{
    ApiCall, ApiRoute, ApiScope, RouteMiss,
    agents::{
        AgentHeartbeat, AgentHeartbeatReply, AgentList, AgentsQuery, RegisterAgent, RegisteredAgent,
    },
    query,
    routes::{Nothing, calls},
    tasks::TaskLog,
};
use herald_engine::{Caller, Engine, Identity, Operator, Scopes};
use herald_protocol::{Dialect, Error, ErrorKind, TaskId, json};
use http::{Method, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    bind::{
        Exchange, jsonrpc,
        rest::{self, RestFailure},
    },
    body::{Body, JSON, respond},
    guard,
    refusal::Refusal,
    shared::Shared,
};

/// The binding of these calls, in the causes of events.
const BINDING: &str = "api";

/// The maximum number of entries on a page, and the usual one.
const MAX_PAGE: u32 = 100;
const PAGE: u32 = 50;

/// One request of `/api`.
#[derive(Debug)]
pub(crate) struct ApiRequest<'a> {
    exchange: &'a Exchange<'a>,
    caller: Caller,
    /// The parameters in the path.
    parameters: Vec<String>,
    body: Bytes,
}

/// Answers a request below `/api`. `is_local` is true if only the local user can have sent it.
pub(crate) async fn answer<B>(exchange: &Exchange<'_>, is_local: bool, body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
{
    match find(exchange) {
        Ok((route, parameters)) => {
            let replied = async {
                let caller = admit(exchange, route, is_local).await?;
                check_content(exchange)?;
                let (body, _reservation) = rest::read(exchange, &caller, body).await?;
                let request = ApiRequest { exchange, caller, parameters, body };
                let replied = Box::pin(dispatch(route, &request)).await;
                Ok(replied.inspect_err(|error| {
                    exchange.record_refusal(Some(&request.caller), error);
                })?)
            };
            match replied.await {
                Ok(response) => response,
                Err(RestFailure::Error(error)) => refuse(exchange, error),
                Err(RestFailure::TooSlow) => jsonrpc::too_slow(),
            }
        }
        Err(refusal) => refusal.into_response(),
    }
}

fn find(exchange: &Exchange<'_>) -> Result<(ApiRoute, Vec<String>), Refusal> {
    let (method, path) = (&exchange.parts.method, exchange.parts.uri.path());
    let method = if *method == Method::HEAD { &Method::GET } else { method };
    ApiRoute::find(method.as_str(), path).map_err(|miss| match miss {
        RouteMiss::NotFound => Refusal::no_api(),
        RouteMiss::MethodNotAllowed(allow) => Refusal::method(allow),
    })
}

/// Refuses a write whose body is not declared as JSON, also without a body: a browser sends other types to
/// another site without asking first.
fn check_content(exchange: &Exchange<'_>) -> Result<(), Error> {
    if exchange.parts.method != Method::POST {
        return Ok(());
    }
    match guard::refuse_content(&exchange.parts.headers) {
        Some(text) => Err(Error::new(ErrorKind::ContentTypeNotSupported, text)),
        None => Ok(()),
    }
}

/// The caller of a route, with the scopes that the route needs.
async fn admit(exchange: &Exchange<'_>, route: ApiRoute, is_local: bool) -> Result<Caller, Error> {
    permit(exchange, exchange.caller().await?, BINDING, route, is_local)
}

/// The caller of a route by this binding, if its credentials allow the route.
fn permit(
    exchange: &Exchange<'_>,
    caller: Caller,
    binding: &'static str,
    route: ApiRoute,
    is_local: bool,
) -> Result<Caller, Error> {
    let (id, address) = (exchange.id, exchange.ingress.client());
    // Without credentials everybody has every scope, and only the local user may administer.
    let caller = if caller.is_anonymous() && !is_local {
        Caller::new(caller.owner().tenant.clone(), "", Scopes::CALLER)
    } else {
        caller
    };
    let caller = caller.with_request(id, binding, address);
    let allowed = admit_scope(&caller, route);
    allowed.inspect_err(|error| exchange.record_refusal(Some(&caller), error))?;
    Ok(caller)
}

/// Refuses a caller without the scope of the route.
fn admit_scope(caller: &Caller, route: ApiRoute) -> Result<(), Error> {
    let needed = match route.scope() {
        ApiScope::Any => Scopes::NONE,
        ApiScope::Read => Scopes::READ,
        ApiScope::Send => Scopes::SEND,
        ApiScope::Cancel => Scopes::CANCEL,
        ApiScope::Push => Scopes::PUSH,
        ApiScope::Work => Scopes::WORK,
        // The engine requires the one that the registration needs.
        ApiScope::WorkOrRegister => {
            let scopes = caller.identity().scopes;
            let any = [Scopes::WORK, Scopes::REGISTER, Scopes::ADMIN];
            if any.iter().any(|scope| scopes.contains(*scope)) {
                Scopes::NONE
            } else {
                Scopes::WORK
            }
        }
        ApiScope::Admin => Scopes::ADMIN,
    };
    caller.require(needed, route.name())
}

/// Calls the handler of a route.
async fn dispatch<'a>(
    route: ApiRoute,
    request: &'a ApiRequest<'a>,
) -> Result<Response<Body>, Error> {
    match route {
        ApiRoute::GetStatus => request.reply::<calls::GetStatus, _, _>(status::get).await,
        ApiRoute::ListAgents => request.reply::<calls::ListAgents, _, _>(agents::list).await,
        ApiRoute::RegisterAgent => {
            request.reply::<calls::RegisterAgent, _, _>(agents::register).await
        }
        ApiRoute::HeartbeatAgent => {
            request.reply::<calls::HeartbeatAgent, _, _>(agents::heartbeat).await
        }
        ApiRoute::RemoveAgent => request.reply::<calls::RemoveAgent, _, _>(agents::remove).await,
        ApiRoute::GetAgent => request.reply::<calls::GetAgent, _, _>(agents::get).await,
        ApiRoute::GetOpenApi => {
            request.query::<calls::GetOpenApi>()?;
            request.json(&herald_api::openapi::document(env!("CARGO_PKG_VERSION")))
        }
        ApiRoute::PollWorker => request.reply::<calls::PollWorker, _, _>(workers::poll).await,
        ApiRoute::WriteTurn => request.reply::<calls::WriteTurn, _, _>(workers::write).await,
        ApiRoute::TakeTurnAnswer => {
            request.reply::<calls::TakeTurnAnswer, _, _>(workers::answer).await
        }
        ApiRoute::EndTurn => request.reply::<calls::EndTurn, _, _>(workers::end).await,
        ApiRoute::ListTasks => request.reply::<calls::ListTasks, _, _>(tasks::list).await,
        ApiRoute::AnswerTask => request.reply::<calls::AnswerTask, _, _>(tasks::answer).await,
        ApiRoute::CancelTask => request.reply::<calls::CancelTask, _, _>(tasks::cancel).await,
        ApiRoute::FailTask => request.reply::<calls::FailTask, _, _>(tasks::fail).await,
        ApiRoute::RetryTask => request.reply::<calls::RetryTask, _, _>(tasks::retry).await,
        ApiRoute::GetTask => request.reply::<calls::GetTask, _, _>(tasks::get).await,
        ApiRoute::GetTaskLog => request.reply::<calls::GetTaskLog, _, _>(log::get).await,
        ApiRoute::GetArtifactPart => {
            download::get(request, request.query::<calls::GetArtifactPart>()?).await
        }
        ApiRoute::ListDeliveries => {
            request.reply::<calls::ListDeliveries, _, _>(deliveries::list).await
        }
        ApiRoute::ReplayDelivery => {
            request.reply::<calls::ReplayDelivery, _, _>(deliveries::replay).await
        }
        ApiRoute::EnableDelivery => {
            request.reply::<calls::EnableDelivery, _, _>(deliveries::enable).await
        }
        ApiRoute::GetDelivery => request.reply::<calls::GetDelivery, _, _>(deliveries::get).await,
        ApiRoute::ListKeys => request.reply::<calls::ListKeys, _, _>(keys::list).await,
        ApiRoute::CreateKey => request.reply::<calls::CreateKey, _, _>(keys::create).await,
        ApiRoute::GetKey => request.reply::<calls::GetKey, _, _>(keys::get).await,
        ApiRoute::RevokeKey => request.reply::<calls::RevokeKey, _, _>(keys::revoke).await,
        ApiRoute::ListTenants => request.reply::<calls::ListTenants, _, _>(keys::tenants).await,
        ApiRoute::ListAudit => request.reply::<calls::ListAudit, _, _>(audit::list).await,
        ApiRoute::VerifyAudit => request.reply::<calls::VerifyAudit, _, _>(audit::verify).await,
        ApiRoute::GetStore => request.reply::<calls::GetStore, _, _>(audit::store).await,
    }
}

/// The agents, for a caller of another binding.
pub(crate) async fn list_agents(
    exchange: &Exchange<'_>,
    caller: &Caller,
    is_local: bool,
    query: AgentsQuery,
) -> Result<AgentList, Error> {
    let request = ApiRequest::of(exchange, caller, ApiRoute::ListAgents, is_local, Vec::new())?;
    agents::list(&request, query, Nothing {}).await
}

/// Registers a worker or a remote agent, for a caller of another binding.
pub(crate) async fn register_agent(
    exchange: &Exchange<'_>,
    caller: &Caller,
    is_local: bool,
    new: RegisterAgent,
) -> Result<RegisteredAgent, Error> {
    let request = ApiRequest::of(exchange, caller, ApiRoute::RegisterAgent, is_local, Vec::new())?;
    agents::register(&request, Nothing {}, new).await.inspect_err(|error| request.refused(error))
}

/// Keeps the registration of a worker alive, for a caller of another binding.
pub(crate) async fn refresh_agent(
    exchange: &Exchange<'_>,
    caller: &Caller,
    is_local: bool,
    name: &str,
    heartbeat: AgentHeartbeat,
) -> Result<AgentHeartbeatReply, Error> {
    let (route, parameters) = (ApiRoute::HeartbeatAgent, vec![name.to_owned()]);
    let request = ApiRequest::of(exchange, caller, route, is_local, parameters)?;
    let refreshed = agents::heartbeat(&request, Nothing {}, heartbeat).await;
    refreshed.inspect_err(|error| request.refused(error))
}

/// A part of the log of one of the caller's tasks, for a caller of another binding.
pub(crate) async fn task_log(
    exchange: &Exchange<'_>,
    caller: &Caller,
    is_local: bool,
    task: &str,
    after: u64,
    limit: u32,
) -> Result<TaskLog, Error> {
    let request = ApiRequest::of(exchange, caller, ApiRoute::GetTaskLog, is_local, Vec::new())?;
    let read = async {
        let key = request.operator().locate(None, TaskId::from(task)).await?;
        log::read(&request, &key, Some(after), Some(limit)).await
    };
    read.await.inspect_err(|error| request.refused(error))
}

impl<'a> ApiRequest<'a> {
    /// A request of another binding, if its caller may use the route.
    fn of(
        exchange: &'a Exchange<'a>,
        caller: &Caller,
        route: ApiRoute,
        is_local: bool,
        parameters: Vec<String>,
    ) -> Result<Self, Error> {
        let binding = exchange.binding.name();
        let caller = permit(exchange, caller.clone(), binding, route, is_local)?;
        Ok(Self { exchange, caller, parameters, body: Bytes::new() })
    }

    /// Records missing permissions in the audit log.
    fn refused(&self, error: &Error) {
        self.exchange.record_refusal(Some(&self.caller), error);
    }

    /// Decodes the request, calls the handler and encodes its reply.
    async fn reply<C, H, F>(&'a self, handler: H) -> Result<Response<Body>, Error>
    where
        C: ApiCall,
        C::Reply: Serialize,
        H: FnOnce(&'a Self, C::Query, C::Body) -> F,
        F: Future<Output = Result<C::Reply, Error>>,
    {
        let query = self.query::<C>()?;
        // A body that is absent is that of a route without one, or lacks a member.
        let body = if self.body.is_empty() { b"{}" } else { &self.body[..] };
        let reply = handler(self, query, json::read(body)?).await?;
        let mut response = self.json(&reply)?;
        *response.status_mut() =
            StatusCode::from_u16(C::ROUTE.status()).expect("the route table has valid statuses");
        Ok(response)
    }

    fn query<C: ApiCall>(&self) -> Result<C::Query, Error> {
        query::read(self.exchange.parts.uri.query())
    }

    /// A response with this value.
    fn json(&self, value: &impl Serialize) -> Result<Response<Body>, Error> {
        let bytes = serde_json::to_vec(value).expect("replies have string keys");
        let bytes = self.exchange.hold(bytes, &self.caller)?;
        Ok(respond(StatusCode::OK, JSON, bytes))
    }

    /// Reads and writes beyond the protocol, for the caller.
    fn operator(&self) -> Operator<'_> {
        self.engine().operator(&self.caller)
    }

    /// The caller with the scope `read`, for the result of its own write.
    fn reader(&self) -> Caller {
        let identity = &**self.caller.identity();
        let scopes = identity.scopes.with(Scopes::READ);
        let caller = Caller::from(Arc::new(Identity { scopes, ..identity.clone() }));
        caller.with_request(self.exchange.id, BINDING, self.exchange.ingress.client())
    }

    fn shared(&self) -> &'a Shared {
        self.exchange.shared
    }

    fn engine(&self) -> &'a Engine {
        &self.exchange.shared.engine
    }

    /// A parameter in the path, by its position.
    fn parameter(&self, position: usize) -> &str {
        self.parameters.get(position).map(String::as_str).unwrap_or_default()
    }
}

/// The number of entries on a page.
fn page_size(given: Option<u32>) -> Result<usize, Error> {
    bounded("page_size", given, PAGE)
}

/// A number of entries, by default `usual`.
fn bounded(field: &str, given: Option<u32>, usual: u32) -> Result<usize, Error> {
    let size = given.unwrap_or(usual);
    if (1..=MAX_PAGE).contains(&size) {
        return Ok(size as usize);
    }
    Err(Error::field(field, format!("must be 1 to {MAX_PAGE}")))
}

/// An error in the form of REST.
fn refuse(exchange: &Exchange<'_>, error: Error) -> Response<Body> {
    let mut response = rest::refuse(exchange, Dialect::V1, error);
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}
