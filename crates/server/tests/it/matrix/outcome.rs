//! Outcome of a probe: the refusal or the first bytes of the answer, over any binding.

use bytes::{Buf, BufMut};
use futures_util::{SinkExt, StreamExt};
use herald_protocol::{
    ErrorKind,
    grpc::status::{ErrorInfo, RpcStatus},
};
use prost::Message as _;
use serde_json::Value;
use tokio::{net::TcpStream, time::timeout};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};
use tonic::{
    Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    transport::{Channel, Endpoint},
};

use super::probe::{Probe, Subject, Wire};
use crate::{
    client::Call,
    hub::{Hub, SOON},
};

/// Headers that carry credentials.
pub(super) type Credentials = Vec<(&'static str, String)>;

/// The outcome of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The kind of the refusal; `None` if the call succeeded.
    pub(super) refused: Option<ErrorKind>,
    /// The body, or its first event.
    pub(super) body: Vec<u8>,
    /// The challenges of a refusal over HTTP.
    pub(super) challenge: Option<String>,
}

/// The server, with one gRPC channel for all probes.
#[derive(Debug)]
pub(super) struct Prober<'a> {
    hub: &'a Hub,
    channel: Channel,
}

impl<'a> Prober<'a> {
    pub(super) async fn new(hub: &'a Hub) -> Self {
        let channel = Endpoint::from_shared(hub.url("")).unwrap().connect().await.unwrap();
        Self { hub, channel }
    }

    /// Makes the call of a probe.
    pub(super) async fn call(&self, probe: &Probe, credentials: &Credentials) -> Outcome {
        match &probe.wire {
            Wire::JsonRpc(_, call) | Wire::Rest(call) => {
                let call = credentials
                    .iter()
                    .fold(call.clone(), |call, (name, value)| call.with(name, value));
                self.http(probe, call).await
            }
            Wire::Grpc { path, message, is_stream } => {
                self.grpc(path, message.clone(), *is_stream, credentials).await
            }
            Wire::Socket { path, message, .. } => {
                self.socket(probe, path, message, credentials).await
            }
        }
    }

    async fn http(&self, probe: &Probe, call: Call) -> Outcome {
        // A feed may have nothing to show.
        let await_chunk = probe.subject != Subject::Feed;
        let (head, body) = self.hub.client().await.first(call, await_chunk).await;
        let text = String::from_utf8_lossy(&body).into_owned();
        let json = text.rsplit_once("data: ").map_or(&*text, |(_, data)| data);
        let json: Option<Value> = serde_json::from_str(json).ok();
        let refused = json.as_ref().and_then(|json| json.get("error")).map(|error| {
            let kind = kind(probe, error);
            let expected = match probe.wire.rpc_code(kind) {
                Some(code) => {
                    assert_eq!(error["code"], code, "{}: {text}", probe.name);
                    kind.codes().json_rpc_http
                }
                None => kind.codes().http,
            };
            assert_eq!(head.status, expected, "{}: {text}", probe.name);
            kind
        });
        if refused.is_none() {
            let expected = match probe.subject {
                Subject::Api(route) => route.status(),
                Subject::Operation(_) | Subject::Feed => 200,
            };
            assert_eq!(head.status, expected, "{}: {text}", probe.name);
        }
        let challenge = head.header("www-authenticate").map(str::to_owned);
        Outcome { refused, body, challenge }
    }

    async fn grpc(
        &self,
        path: &str,
        message: Vec<u8>,
        is_stream: bool,
        credentials: &Credentials,
    ) -> Outcome {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("a2a-version", version(path).parse().unwrap());
        for (name, value) in credentials {
            request.metadata_mut().append(*name, value.parse().unwrap());
        }
        let method = path.parse().unwrap();
        let answer = if is_stream {
            let opened =
                timeout(SOON, grpc.server_streaming(request, method, RawCodec)).await.unwrap();
            match opened {
                Ok(stream) => timeout(SOON, stream.into_inner().message()).await.unwrap(),
                Err(status) => Err(status),
            }
        } else {
            let answer = timeout(SOON, grpc.unary(request, method, RawCodec)).await.unwrap();
            answer.map(|answer| Some(answer.into_inner()))
        };
        match answer {
            Ok(message) => {
                Outcome { refused: None, body: message.unwrap_or_default(), challenge: None }
            }
            Err(status) => {
                let details = RpcStatus::decode(status.details()).unwrap_or_default().details;
                let info = details.first().map(|any| ErrorInfo::decode(&*any.value).unwrap());
                let reason = info.unwrap_or_else(|| panic!("{path:?}: {status:?}")).reason;
                let kind = ErrorKind::from_reason(&reason).unwrap();
                assert_eq!(status.code() as i32, kind.codes().grpc as i32, "{status:?}");
                let body = [status.message().as_bytes(), status.details()].concat();
                Outcome { refused: Some(kind), body, challenge: None }
            }
        }
    }

    async fn socket(
        &self,
        probe: &Probe,
        path: &str,
        message: &str,
        credentials: &Credentials,
    ) -> Outcome {
        let url = format!("ws://{}{path}", self.hub.address);
        let mut request = url.into_client_request().unwrap();
        if is_v1(message) {
            request.headers_mut().insert("a2a-version", "1.0".parse().unwrap());
        }
        for (name, value) in credentials {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let stream = TcpStream::connect(self.hub.address).await.unwrap();
        let mut socket = match timeout(SOON, client_async(request, stream)).await.unwrap() {
            Ok((socket, _)) => socket,
            Err(Error::Http(answer)) => {
                let kind = match answer.status().as_u16() {
                    401 => ErrorKind::Unauthenticated,
                    403 => ErrorKind::Forbidden,
                    other => panic!("{}: {other}", probe.name),
                };
                let challenge = answer.headers().get("www-authenticate");
                let challenge = challenge.map(|value| value.to_str().unwrap().to_owned());
                let body = answer.into_body().unwrap_or_default();
                return Outcome { refused: Some(kind), body, challenge };
            }
            Err(error) => panic!("{}: {error}", probe.name),
        };
        socket.send(Message::text(message)).await.unwrap();
        loop {
            match timeout(SOON, socket.next()).await.unwrap().unwrap().unwrap() {
                Message::Text(text) => {
                    let json: Value = serde_json::from_str(&text).unwrap();
                    let refused = json.get("error").map(|error| {
                        let kind = kind(probe, error);
                        assert_eq!(error["code"], probe.wire.rpc_code(kind).unwrap(), "{text}");
                        kind
                    });
                    let body = text.as_bytes().to_vec();
                    return Outcome { refused, body, challenge: None };
                }
                Message::Ping(_) | Message::Pong(_) => {}
                Message::Binary(_) | Message::Close(_) | Message::Frame(_) => panic!("no text"),
            }
        }
    }
}

impl Outcome {
    /// The outcome without the id of the task, to compare two calls that name different tasks.
    pub(super) fn without(&self, task: &str) -> (Option<ErrorKind>, String) {
        (self.refused, String::from_utf8_lossy(&self.body).replace(task, "ID"))
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The kind of an error in JSON, by its reason.
fn kind(probe: &Probe, error: &Value) -> ErrorKind {
    let details = error.get("details").or_else(|| error.get("data"));
    let details = details.and_then(Value::as_array).into_iter().flatten();
    let reason = details.filter_map(|detail| detail["reason"].as_str()).next();
    let kind = reason.and_then(ErrorKind::from_reason);
    kind.unwrap_or_else(|| panic!("{}: no known reason in {error}", probe.name))
}

fn is_v1(message: &str) -> bool {
    let json: Value = serde_json::from_str(message).unwrap();
    json["method"].as_str().unwrap().starts_with(char::is_uppercase)
}

fn version(path: &str) -> &'static str {
    if path.starts_with("/lf.") { "1.0" } else { "0.3" }
}

/// Messages of gRPC as bytes.
#[derive(Debug, Default)]
struct RawCodec;

#[derive(Debug, Default)]
struct RawCoder;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = RawCoder;
    type Decoder = RawCoder;

    fn encoder(&mut self) -> RawCoder {
        RawCoder
    }

    fn decoder(&mut self) -> RawCoder {
        RawCoder
    }
}

impl Encoder for RawCoder {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(&item);
        Ok(())
    }
}

impl Decoder for RawCoder {
    type Item = Vec<u8>;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        let mut item = vec![0; buffer.remaining()];
        buffer.copy_to_slice(&mut item);
        Ok(Some(item))
    }
}
