//! Client of `/api` for one verb: over the network, or on the data directory of a stopped server.

mod explain;
mod http;
mod place;
mod stopped;

use std::{future::Future, time::Duration};

use ::http::{Request, Response, StatusCode, header};
use bytes::Bytes;
use herald_agents::WorkerConnection;
use herald_api::{ApiCall, ApiRoute, status::ServerStatus};
use herald_client::Secrets;
use serde::de::DeserializeOwned;
use tokio::{signal, time::sleep};

use crate::{
    args::ServerArgs,
    client::error::{CliError, CliErrorKind},
    output::{Output, note},
};
use http::HttpServer;
use stopped::StoppedServer;

/// The most pages of one list.
pub(crate) const MOST_PAGES: usize = 10_000;
/// The entries of one page.
pub(crate) const PAGE: u32 = 100;

/// The interface of one server.
#[derive(Debug)]
pub(crate) struct Api {
    server: Carrier,
    pub(crate) out: Output,
}

/// The way to a server.
#[derive(Debug)]
enum Carrier {
    Running(HttpServer),
    Stopped(StoppedServer),
}

/// A response with its whole body.
#[derive(Debug)]
struct ApiResponse {
    status: StatusCode,
    body: Bytes,
}

/// Opens the interface for a verb that needs this route, runs it within the time limit, and says where it worked.
/// Secrets are redacted in its error.
pub(crate) async fn run<T, F>(
    args: &ServerArgs,
    route: ApiRoute,
    verb: impl FnOnce(Api) -> F,
) -> Result<T, CliError>
where
    F: Future<Output = Result<T, CliError>>,
{
    let secrets = Secrets::default();
    for secret in [&args.bearer, &args.api_key].into_iter().flatten() {
        secrets.add(&secret.0);
    }
    let work = async {
        let server = place::open(args, route, &secrets).await?;
        let directory = match &server {
            Carrier::Running(_) => None,
            Carrier::Stopped(server) => Some(server.directory().display().to_string()),
        };
        let done = verb(Api { server, out: Output::new(&args.output) }).await?;
        if let Some(directory) = directory {
            note("Note", &format!("the server is not running; worked on {directory} directly"));
        }
        Ok(done)
    };
    within(args.timeout, work).await.map_err(|fault: CliError| fault.redacted(&secrets))
}

/// The connection of a worker to the server that the arguments name.
pub(crate) fn worker_connection(args: &ServerArgs) -> Result<WorkerConnection, CliError> {
    let url = args.place.server.as_deref().unwrap_or_default();
    HttpServer::at(url, args, &Secrets::default()).map(HttpServer::into_worker_connection)
}

/// Runs `work` until it ends, `--timeout` expires or Ctrl-C interrupts it.
async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, CliError>>,
) -> Result<T, CliError> {
    let late =
        async { if limit.is_zero() { std::future::pending().await } else { sleep(limit).await } };
    tokio::select! {
        done = work => done,
        () = late => {
            let text = format!("--timeout expired after {}", humantime::format_duration(limit));
            Err(CliError::new(CliErrorKind::Timeout, text))
        }
        _ = signal::ctrl_c() => Err(CliError::new(CliErrorKind::Interrupted, "interrupted")),
    }
}

impl Api {
    /// Calls a route, with the parameters of its path.
    pub(crate) async fn call<C>(
        &self,
        parameters: &[&str],
        query: &C::Query,
        body: &C::Body,
    ) -> Result<C::Reply, CliError>
    where
        C: ApiCall,
        C::Reply: DeserializeOwned,
    {
        let response = self.server.send(request::<C>(parameters, query, body), C::ROUTE).await?;
        if !response.status.is_success() {
            return Err(explain::refusal(&self.server, C::ROUTE, &response));
        }
        serde_json::from_slice(&response.body).map_err(|fault| self.server.unread(&fault))
    }

    /// Sends a request to another path of the server, and returns whatever it answers.
    pub(crate) async fn forward(
        &self,
        request: Request<Bytes>,
    ) -> Result<Response<Bytes>, CliError> {
        let Carrier::Running(server) = &self.server else {
            let text = format!("the server of {} is not running", self.place());
            return Err(CliError::new(CliErrorKind::Unreachable, text)
                .hint("start it with `herald serve`, or name another one with --server"));
        };
        let ApiResponse { status, body } = server.send(request, ApiRoute::GetStatus).await?;
        let mut response = Response::new(body);
        *response.status_mut() = status;
        Ok(response)
    }

    /// True if the server runs, and not only its store is at hand.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.server, Carrier::Running(_))
    }

    /// The address of the server, or its directory.
    pub(crate) fn place(&self) -> String {
        self.server.place()
    }
}

impl Carrier {
    async fn send(
        &self,
        request: Request<Bytes>,
        route: ApiRoute,
    ) -> Result<ApiResponse, CliError> {
        match self {
            Self::Running(server) => server.send(request, route).await,
            Self::Stopped(server) => server.send(request).await,
        }
    }

    fn place(&self) -> String {
        match self {
            Self::Running(server) => server.url().to_owned(),
            Self::Stopped(server) => server.directory().display().to_string(),
        }
    }

    /// The error for a reply of another form.
    fn unread(&self, fault: &serde_json::Error) -> CliError {
        let text = format!("the reply of {} cannot be read: {fault}", self.place());
        let own = env!("CARGO_PKG_VERSION");
        CliError::internal(text).hint(match self.known_version() {
            Some(version) if version != own => {
                format!("the server is herald {version}, this is {own}: use the same version")
            }
            Some(_) | None => format!("is it a herald {own}? Use the version of the server"),
        })
    }

    /// The version of the server, if it is known.
    fn known_version(&self) -> Option<&str> {
        match self {
            Self::Running(server) => server.version(),
            Self::Stopped(_) => Some(env!("CARGO_PKG_VERSION")),
        }
    }
}

/// The request for a route. Its URI has no scheme and no host.
fn request<C: ApiCall>(parameters: &[&str], query: &C::Query, body: &C::Body) -> Request<Bytes> {
    let target = C::ROUTE.target(parameters, query);
    let request = Request::builder().method(C::ROUTE.method()).uri(target);
    let request = if C::ROUTE.method() == "POST" {
        let body = serde_json::to_vec(body).expect("the types of bodies have string keys");
        request.header(header::CONTENT_TYPE, "application/json").body(body.into())
    } else {
        request.body(Bytes::new())
    };
    request.expect("the route table has valid methods and paths")
}

/// Asks a server for its status.
async fn status(server: &HttpServer) -> Result<ServerStatus, CliError> {
    use herald_api::routes::{Nothing, calls::GetStatus};
    let request = request::<GetStatus>(&[], &Nothing {}, &Nothing {});
    let response = server.send(request, ApiRoute::GetStatus).await?;
    if !response.status.is_success() {
        return Err(explain::status(server.url(), ApiRoute::GetStatus, &response));
    }
    serde_json::from_slice(&response.body).map_err(|_| explain::no_api(server.url()))
}
