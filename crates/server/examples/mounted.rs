//! Agents inside of an application: `cargo run -p herald-server --example mounted [ADDRESS]`.
//!
//! The application has its own pages; everything below `/assistant` is the server's. Frameworks that
//! take tower services mount it the same way: without the prefix, which `public_url` names.

#![expect(clippy::print_stdout, reason = "an example says where it is")]

use std::{convert::Infallible, env, sync::Arc};

use bytes::Bytes;
use herald_engine::{Agent, AgentError, Engine, Profile, Turn, store::sqlite::Sqlite};
use herald_server::{Config, Server};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

#[derive(Debug)]
struct Assistant;

#[async_trait::async_trait]
impl Agent for Assistant {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        Ok(turn.answer(format!("You said: {}", turn.message().text())).await?)
    }
}

type Page = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn application(server: Server, mut request: Request<Incoming>) -> Result<Page, Infallible> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let Some(path) = path.strip_prefix("/assistant/") else {
        return Ok(Response::new(Full::from("The application's own page").boxed_unsync()));
    };
    *request.uri_mut() = Uri::try_from(format!("/{path}")).unwrap_or_default();
    server.oneshot(request).await.map(|response| response.map(BodyExt::boxed_unsync))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = env::args().nth(1).unwrap_or("127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(address).await?;
    let base = format!("http://{}", listener.local_addr()?);
    let profile = Profile::new("assistant", "Helps with the application");
    let engine = Engine::builder(Arc::new(Sqlite::memory()?)).agent(profile, Assistant).build()?;
    engine.start_work().await?; // A server without a socket of its own leaves it to its host.
    let config = Config { public_url: Some(format!("{base}/assistant")), ..Config::default() };
    let server = Server::builder(engine).config(config).build()?;
    println!("{base}");
    let connections = TaskTracker::new();
    loop {
        let (stream, server) = (listener.accept().await?.0, server.clone());
        let service = service_fn(move |request| application(server.clone(), request));
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}
