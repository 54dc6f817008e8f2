//! JSON-RPC on a persistent connection: a WebSocket, or the standard streams of a child process.

use std::{net::SocketAddr, sync::Arc};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    sync::{Mutex, OwnedMutexGuard},
    time::timeout,
};
use tokio_tungstenite::{WebSocketStream, client_async, tungstenite::Message};

use crate::{
    http::Call,
    stdio::Pipe,
    support::SOON,
    wire::{Frame, Wire},
};

/// The server of a session.
#[derive(Debug)]
pub(crate) enum Peer {
    Socket(SocketAddr),
    Pipe(Arc<Mutex<Pipe>>),
}

/// A connection with one call: a new socket, or the pipe until the call ends.
#[derive(Debug)]
pub(crate) enum Line {
    Socket(Box<WebSocketStream<TcpStream>>),
    Pipe(OwnedMutexGuard<Pipe>),
}

impl Peer {
    pub(crate) async fn open(&self) -> Line {
        match self {
            Self::Socket(address) => {
                let stream = TcpStream::connect(address).await.unwrap();
                let handshake = client_async(format!("ws://{address}/ws"), stream);
                let (socket, _) = timeout(SOON, handshake).await.unwrap().unwrap();
                Line::Socket(Box::new(socket))
            }
            Self::Pipe(pipe) => {
                let free = timeout(SOON, Arc::clone(pipe).lock_owned()).await;
                Line::Pipe(free.expect("the last stream has ended or was cut"))
            }
        }
    }
}

impl Line {
    /// Makes a call.
    pub(crate) async fn ask(&mut self, wire: Wire, call: Call) {
        // On sessions the shared method names mean 0.1, unless the call has a version.
        let call = match wire {
            Wire::OldRpc => call.header("a2a-version", "0.3"),
            Wire::Rpc | Wire::Rest | Wire::OldRest | Wire::FirstRpc => call,
        };
        self.write(&call.message()).await;
    }

    async fn write(&mut self, message: &Value) {
        match self {
            Self::Socket(socket) => socket.send(Message::text(message.to_string())).await.unwrap(),
            Self::Pipe(pipe) => pipe.write(format!("{message}\n")).await,
        }
    }

    pub(crate) async fn next(&mut self) -> Value {
        match self {
            Self::Socket(socket) => loop {
                let message = timeout(SOON, socket.next()).await.expect("a message in time");
                // Pings are answered by the library.
                if let Message::Text(text) = message.expect("another message").unwrap() {
                    break serde_json::from_str(&text).unwrap();
                }
            },
            Self::Pipe(pipe) => pipe.next().await,
        }
    }

    /// The next event of the stream, unless it has ended.
    pub(crate) async fn frame(&mut self, wire: Wire) -> Option<Frame> {
        let message = self.next().await;
        if message["method"] == "stream/end" {
            assert_eq!(message["params"], json!({ "id": 7 }));
            return None;
        }
        assert_eq!(message["id"], 7, "{message}");
        let event = message["eventId"].as_str().map(str::to_owned);
        let event = event.unwrap_or_else(|| panic!("no event: {message}"));
        Some(Frame::new(&event, wire.outcome(200, message).unwrap()))
    }

    /// Disconnects from a stream: a socket is closed; on the pipe the call is cancelled.
    pub(crate) async fn cut(mut self) {
        if let Self::Pipe(_) = self {
            let give_up = json!({ "id": 7 });
            let give_up =
                json!({ "jsonrpc": "2.0", "method": "$/cancelRequest", "params": give_up });
            self.write(&give_up).await;
            while self.next().await["error"]["code"] != -32800 {}
        }
    }
}
