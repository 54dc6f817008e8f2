//! WebSocket transport: one message per text frame.

use std::time::Duration;

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use herald_protocol::failure;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use reqwest::Upgraded;
use tokio::time::timeout;
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message, Utf8Bytes,
        handshake::derive_accept_key,
        protocol::{Role, WebSocketConfig},
    },
};
use uuid::Uuid;

use super::{
    HttpEndpoint,
    http::{read, refuse_redirect, request, retry_after},
    session::{Dial, MessageReader, MessageWriter},
};
use crate::error::Error;

/// The subprotocol.
const PROTOCOL: &str = "a2a.jsonrpc";

/// WebSocket interface of an agent.
#[derive(Debug)]
pub(crate) struct WebSocket {
    endpoint: HttpEndpoint,
}

struct WebSocketReader {
    socket: SplitStream<WebSocketStream<Upgraded>>,
    idle: Duration,
    limit: usize,
}

struct WebSocketWriter {
    socket: SplitSink<WebSocketStream<Upgraded>, Message>,
}

impl WebSocket {
    pub(crate) fn new(endpoint: HttpEndpoint) -> Self {
        Self { endpoint }
    }
}

#[async_trait]
impl Dial for WebSocket {
    async fn dial(&self) -> Result<(Box<dyn MessageReader>, Box<dyn MessageWriter>), Error> {
        let HttpEndpoint { http, dialect, .. } = &self.endpoint;
        let mut url = self.endpoint.url.clone();
        for (name, secret) in self.endpoint.secrets() {
            url.query_pairs_mut().append_pair(name, secret.expose());
        }
        let key = STANDARD.encode(Uuid::new_v4().as_bytes());
        let mut headers = self.endpoint.proof();
        for (name, value) in [
            (header::CONNECTION, "Upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL),
        ] as [(HeaderName, &'static str); 4]
        {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let value = HeaderValue::try_from(&key).expect("base64 is ASCII");
        headers.insert(header::SEC_WEBSOCKET_KEY, value);
        let response = http.send(request(Method::GET, &url, headers, Bytes::new())?).await?;
        refuse_redirect(&response)?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let (parts, body) = response.into_parts();
            let body = read(body, http.limits.card, "the answer").await?;
            let status = parts.status.as_u16();
            return Err(match failure::rest(*dialect, status, &body) {
                Some(error) => Error::refused(error),
                None => Error::bad_status(status, &String::from_utf8_lossy(&body)),
            }
            .waiting(retry_after(&parts.headers)));
        }
        let accepted = response.headers().get(header::SEC_WEBSOCKET_ACCEPT);
        if accepted.is_none_or(|accepted| *accepted != derive_accept_key(key.as_bytes())) {
            return Err(Error::invalid("the server switched to another protocol than WebSocket"));
        }
        let response = response.map(|_| reqwest::Body::default());
        let upgraded = reqwest::Response::from(response).upgrade().await;
        let upgraded = upgraded.map_err(Error::connect)?;
        let limit = http.limits.event.max(http.limits.response);
        let config =
            WebSocketConfig::default().max_message_size(Some(limit)).max_frame_size(Some(limit));
        let socket = WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await;
        let (write, read) = socket.split();
        let incoming = WebSocketReader { socket: read, idle: http.timeouts.idle, limit };
        Ok((Box::new(incoming), Box::new(WebSocketWriter { socket: write })))
    }
}

#[async_trait]
impl MessageReader for WebSocketReader {
    /// Pings count as data, so that a quiet socket does not time out.
    async fn next(&mut self) -> Result<Bytes, Error> {
        loop {
            let message = timeout(self.idle, self.socket.next()).await;
            let message =
                message.map_err(|_| Error::timeout("the socket sent nothing", self.idle))?;
            match message {
                Some(Ok(Message::Text(text))) => return Ok(text.into()),
                Some(Ok(Message::Binary(bytes))) => return Ok(bytes),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(close))) => {
                    let why = close.map(|close| close.to_string()).unwrap_or_default();
                    return Err(Error::broken("the server closed the socket", why));
                }
                Some(Err(tungstenite::Error::Capacity(_))) => {
                    return Err(Error::too_large("a message", self.limit));
                }
                Some(Err(fault)) => {
                    return Err(Error::broken("the connection of the socket was lost", fault));
                }
                None => {
                    return Err(Error::broken(
                        "the connection of the socket was lost",
                        "it was closed",
                    ));
                }
            }
        }
    }
}

#[async_trait]
impl MessageWriter for WebSocketWriter {
    async fn send(&mut self, message: Bytes) -> Result<(), Error> {
        let text =
            Utf8Bytes::try_from(message).map_err(|_| Error::setup("the message is not UTF-8"))?;
        let sent = self.socket.send(Message::Text(text)).await;
        sent.map_err(|fault| Error::broken("the connection of the socket was lost", fault))
    }

    async fn close(&mut self) {
        // An error means that the connection is closed already.
        let _ = self.socket.close().await;
    }
}
