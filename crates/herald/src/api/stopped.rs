//! The data directory of a stopped server: its own `/api`, called within this process.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use herald_agents::Echo;
use herald_api::ApiRoute;
use herald_engine::{
    Engine,
    keys::ApiKeySecret,
    store::sqlite::{OpenError, Options, Sqlite},
};
use herald_server::Server;
use http::{HeaderValue, Request, header};
use http_body_util::{BodyExt, Full};
use tower::ServiceExt;

use super::ApiResponse;
use crate::{
    client::error::{CliError, CliErrorKind},
    output::quoted,
};

/// The database in a data directory.
pub(super) const DATABASE: &str = "herald.db";

/// A server that is not started: its routes work on the store, its agents do not run.
#[derive(Debug)]
pub(super) struct StoppedServer {
    directory: PathBuf,
    server: Server,
    /// The operator token, as the `Authorization` of each request.
    authorization: HeaderValue,
}

impl StoppedServer {
    /// Opens the store, under its lock, for a verb that needs this route.
    pub(super) fn open(directory: &Path, route: ApiRoute) -> Result<Self, CliError> {
        if !works_on_a_stopped_server(route) {
            let shown = quoted(&directory.display().to_string());
            let text = format!("the server of {} is not running", directory.display());
            let start = format!("start it with: herald serve --data {shown}");
            return Err(CliError::new(CliErrorKind::Unreachable, text).hint(start));
        }
        let opened = Sqlite::open(&directory.join(DATABASE), Options::default());
        let store = opened.map_err(|fault| unusable(&fault))?;
        let token = ApiKeySecret::generate();
        let authorization = HeaderValue::try_from(format!("Bearer {}", token.reveal()));
        let authorization = authorization.expect("a token is visible ASCII");
        let build = || -> anyhow::Result<Server> {
            let engine = Engine::builder(Arc::new(store));
            let engine = engine.agent(Echo::profile("echo"), Echo).build()?;
            Ok(Server::builder(engine).operator(token).build()?)
        };
        let server = build().map_err(|fault| CliError::internal(format!("{fault:#}")))?;
        Ok(Self { directory: directory.to_owned(), server, authorization })
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) async fn send(&self, mut request: Request<Bytes>) -> Result<ApiResponse, CliError> {
        let host = const { HeaderValue::from_static("localhost") };
        request.headers_mut().insert(header::HOST, host);
        request.headers_mut().insert(header::AUTHORIZATION, self.authorization.clone());
        let response = self.server.clone().oneshot(request.map(Full::new)).await;
        let (head, body) = response.expect("a server answers every request").into_parts();
        let body = body.collect().await.map_err(|fault| CliError::internal(fault.to_string()))?;
        Ok(ApiResponse { status: head.status, body: body.to_bytes() })
    }
}

/// True for routes that need the store only.
const fn works_on_a_stopped_server(route: ApiRoute) -> bool {
    match route {
        ApiRoute::ListDeliveries
        | ApiRoute::GetDelivery
        | ApiRoute::ListKeys
        | ApiRoute::CreateKey
        | ApiRoute::GetKey
        | ApiRoute::RevokeKey
        | ApiRoute::ListTenants
        | ApiRoute::ListAudit
        | ApiRoute::VerifyAudit
        | ApiRoute::GetStore => true,
        ApiRoute::GetStatus
        | ApiRoute::GetOpenApi
        | ApiRoute::ListAgents
        | ApiRoute::GetAgent
        | ApiRoute::PollWorker
        | ApiRoute::WriteTurn
        | ApiRoute::TakeTurnAnswer
        | ApiRoute::EndTurn
        | ApiRoute::RegisterAgent
        | ApiRoute::HeartbeatAgent
        | ApiRoute::RemoveAgent
        | ApiRoute::FailTask
        | ApiRoute::RetryTask
        | ApiRoute::ListTasks
        | ApiRoute::AnswerTask
        | ApiRoute::CancelTask
        | ApiRoute::GetTask
        | ApiRoute::GetTaskLog
        | ApiRoute::GetArtifactPart
        | ApiRoute::ReplayDelivery
        | ApiRoute::EnableDelivery => false,
    }
}

fn unusable(fault: &OpenError) -> CliError {
    let said = fault.to_string();
    match said.split_once("; ") {
        Some((text, hint)) => CliError::internal(text).hint(hint),
        None => CliError::internal(said),
    }
}
