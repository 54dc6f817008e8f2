//! One kept-alive HTTP/1.1 connection, HTTP/2 connection with gRPC, or WebSocket, without a pool in front of it.

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{
    Method, Request, Response, StatusCode, Uri,
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
    header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST},
};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::{grpc::Grpc, socket::Socket};

/// The variable with a bearer token.
const TOKEN: &str = "LOAD_TOKEN";

pub(crate) struct Connection {
    link: Link,
    url: Uri,
    /// The credentials of each request over HTTP/1.1.
    authorization: Option<String>,
}

enum Link {
    Http(SendRequest<Full<Bytes>>),
    Socket(Box<Socket>),
    Grpc(Grpc),
}

impl Connection {
    pub(crate) async fn open(url: &Uri) -> anyhow::Result<Self> {
        if is_socket(url) {
            let socket = Box::new(Socket::open(url).await?);
            return Ok(Self::over(Link::Socket(socket), url));
        }
        if is_grpc(url) {
            return Ok(Self::over(Link::Grpc(Grpc::open(url).await?), url));
        }
        let authority = url.authority().context("the URL has no host")?;
        let socket = TcpStream::connect(authority.as_str()).await?;
        // Requests are single writes, but the measurement must not depend on it.
        socket.set_nodelay(true)?;
        let (sender, driver) = handshake(TokioIo::new(socket)).await?;
        // Its error is the error of the request that was under way, and is reported there.
        tokio::task::spawn_local(async move { drop(driver.await) });
        Ok(Self::over(Link::Http(sender), url))
    }

    fn over(link: Link, url: &Uri) -> Self {
        let authorization = std::env::var(TOKEN).ok().map(|token| format!("Bearer {token}"));
        Self { link, url: url.clone(), authorization }
    }

    /// The same connection once more, if it takes many calls at once and is to be shared.
    pub(crate) fn shared(&self) -> Option<Self> {
        match &self.link {
            Link::Grpc(grpc) if self.url.scheme_str() == Some("grpc") => {
                Some(Self::over(Link::Grpc(grpc.clone()), &self.url))
            }
            Link::Grpc(_) | Link::Http(_) | Link::Socket(_) => None,
        }
    }

    /// Sends one JSON-RPC request; the answer's body is still to be read.
    pub(crate) async fn post(&mut self, body: Bytes, accept: &str) -> anyhow::Result<Incoming> {
        let path = self.url.path_and_query().context("the URL has no path")?.to_string();
        let response = self.exchange(Method::POST, &path, accept, body).await?;
        ensure!(response.status() == StatusCode::OK, "HTTP status {}", response.status());
        Ok(response.into_body())
    }

    /// Calls `/api` and returns the body of the answer.
    pub(crate) async fn api(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> anyhow::Result<Bytes> {
        let response = self.exchange(method, path, "application/json", body).await?;
        let status = response.status();
        let answer = response.into_body().collect().await?.to_bytes();
        let text = || String::from_utf8_lossy(&answer).into_owned();
        ensure!(status.is_success(), "HTTP status {status} of {path}: {}", text());
        Ok(answer)
    }

    async fn exchange(
        &mut self,
        method: Method,
        path: &str,
        accept: &str,
        body: Bytes,
    ) -> anyhow::Result<Response<Incoming>> {
        let Link::Http(sender) = &mut self.link else { bail!("only over HTTP/1.1") };
        sender.ready().await?;
        let authority = self.url.authority().context("the URL has no host")?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, authority.as_str())
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, accept)
            .header("a2a-version", "1.0");
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        Ok(sender.send_request(request.body(Full::new(body))?).await?)
    }

    /// The connection, if it is one of gRPC.
    pub(crate) fn grpc(&mut self) -> Option<&mut Grpc> {
        match &mut self.link {
            Link::Grpc(grpc) => Some(grpc),
            Link::Http(_) | Link::Socket(_) => None,
        }
    }

    pub(crate) async fn call(&mut self, body: Bytes) -> anyhow::Result<Bytes> {
        if let Link::Socket(socket) = &mut self.link {
            return socket.call(&body).await;
        }
        Ok(self.post(body, "application/json").await?.collect().await?.to_bytes())
    }
}

pub(crate) fn is_grpc(url: &Uri) -> bool {
    matches!(url.scheme_str(), Some("grpc" | "grpc-each"))
}

pub(crate) fn is_socket(url: &Uri) -> bool {
    url.scheme_str() == Some("ws")
}
