//! gRPC health service, with the readiness of `/readyz`.

use std::time::Duration;

use bytes::Bytes;
use herald_engine::{Caller, Engine};
use herald_protocol::{Error, ErrorKind, TenantId, grpc::Service};
use http::Response;
use prost::Message;

use super::{
    GrpcFailure, NOT_FOUND, STOPPING,
    framing::{frame, framed},
    read, respond, success, trailers, unknown,
};
use crate::{
    bind::{
        Exchange,
        stream::{EventBody, FrameBuffer},
    },
    body::Body,
    health::ReadinessCache,
};

/// The name of the service.
pub(super) const SERVICE: &str = "grpc.health.v1.Health";

/// The interval of a watch. Each check is a write.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Clone, PartialEq, Eq, Message)]
struct HealthRequest {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct HealthResponse {
    #[prost(enumeration = "Serving", tag = "1")]
    status: i32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
enum Serving {
    Unknown = 0,
    Yes = 1,
    No = 2,
    NoSuchService = 3,
}

impl Serving {
    async fn now(readiness: &ReadinessCache, engine: &Engine) -> Self {
        if readiness.check(engine).await.is_ok() { Self::Yes } else { Self::No }
    }

    fn encode(self) -> Vec<u8> {
        HealthResponse { status: self as i32 }.encode_to_vec()
    }
}

pub(super) async fn answer<B>(
    exchange: &Exchange<'_>,
    method: &str,
    body: B,
) -> Result<Response<Body>, GrpcFailure>
where
    B: http_body::Body<Data = Bytes>,
{
    if !matches!(method, "Check" | "Watch") {
        return Err(unknown(format_args!("{SERVICE} has no method {method:?}")));
    }
    let shared = exchange.shared;
    let anybody = Caller::anonymous(TenantId::default());
    let request = HealthRequest::decode(read(exchange, &anybody, body).await?.0);
    let request = request.map_err(|fault| Error::new(ErrorKind::Parse, fault))?;
    let name = request.service.as_str();
    let known = name.is_empty() || Service::ALL.into_iter().any(|service| service.name() == name);
    match (method, known) {
        ("Check", true) => {
            let serving = Serving::now(&shared.readiness, &shared.engine).await;
            Ok(respond(Body::trailed(framed(serving.encode()).into(), success())))
        }
        ("Check", false) => Err(GrpcFailure::Plain(NOT_FOUND, "unknown service")),
        (_, known) => {
            let permit = exchange.stream_permit(&anybody)?;
            let (readiness, engine) = (shared.readiness.clone(), shared.engine.clone());
            let watch = move |out| async move {
                watch(&readiness, &engine, known, &out).await;
                Some(trailers(&STOPPING))
            };
            Ok(respond(Body::events(EventBody::new(watch, Some(permit)))))
        }
    }
}

/// Writes the status of the server, and again after each change, until it stops.
async fn watch(readiness: &ReadinessCache, engine: &Engine, known: bool, out: &FrameBuffer) {
    let mut last = None;
    loop {
        let now =
            if known { Serving::now(readiness, engine).await } else { Serving::NoSuchService };
        if last != Some(now) {
            frame(&mut out.lock().bytes, &now.encode());
            last = Some(now);
        }
        if engine.is_draining() {
            return;
        }
        out.ready(None).await;
        tokio::select! {
            () = tokio::time::sleep(WATCH_INTERVAL) => {}
            () = engine.draining() => {}
        }
    }
}
