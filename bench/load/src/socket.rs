//! One WebSocket with JSON-RPC both ways.

use anyhow::{Context, bail};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use hyper::Uri;
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

pub(crate) struct Socket {
    stream: WebSocketStream<TcpStream>,
}

impl Socket {
    pub(crate) async fn open(url: &Uri) -> anyhow::Result<Self> {
        let authority = url.authority().context("the URL has no host")?;
        let socket = TcpStream::connect(authority.as_str()).await?;
        socket.set_nodelay(true)?;
        let request = url.to_string().into_client_request()?;
        let (stream, _) = client_async(request, socket).await?;
        Ok(Self { stream })
    }

    pub(crate) async fn send(&mut self, body: &Bytes) -> anyhow::Result<()> {
        let text = std::str::from_utf8(body)?.to_owned();
        Ok(self.stream.send(Message::text(text)).await?)
    }

    /// The next message, or `None` once the server has closed the socket.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Option<Bytes>> {
        loop {
            match self.stream.next().await.transpose()? {
                Some(Message::Text(text)) => return Ok(Some(text.into())),
                Some(Message::Ping(_) | Message::Pong(_)) => {}
                Some(Message::Binary(_) | Message::Frame(_)) => bail!("a message that is no text"),
                Some(Message::Close(_)) | None => return Ok(None),
            }
        }
    }

    pub(crate) async fn call(&mut self, body: &Bytes) -> anyhow::Result<Bytes> {
        self.send(body).await?;
        self.next().await?.context("the socket was closed")
    }
}
