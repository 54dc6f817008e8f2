//! gRPC health service, with the readiness of `/readyz`.

use std::time::Duration;

use bytes::Bytes;
use herald_engine::{Caller, Engine};
use herald_protocol::{Error, ErrorKind, TenantId, grpc::Service};
use http::Response;
use prost::Message;

use super::{
    Failure, NOT_FOUND, STOPPING, frame, framed, read, respond, success, trailers, unknown,
};
use crate::{
    bind::{
        Exchange,
        stream::{Events, Out},
        too_many,
    },
    body::Body,
    health::ReadinessCache,
};

/// Its name.
pub(super) const SERVICE: &str = "grpc.health.v1.Health";

/// How often a watched server is looked at. Each look is a write.
const EVERY: Duration = Duration::from_secs(5);

#[derive(Clone, PartialEq, Eq, Message)]
struct Request {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Answer {
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
        Answer { status: self as i32 }.encode_to_vec()
    }
}

pub(super) async fn answer<B>(
    exchange: &Exchange<'_>,
    method: &str,
    body: B,
) -> Result<Response<Body>, Failure>
where
    B: http_body::Body<Data = Bytes>,
{
    if !matches!(method, "Check" | "Watch") {
        return Err(unknown(format_args!("{SERVICE} has no method {method:?}")));
    }
    let shared = exchange.shared;
    let anybody = Caller::anonymous(TenantId::default());
    let request = Request::decode(read(exchange, &anybody, body).await?.0);
    let request = request.map_err(|fault| Error::new(ErrorKind::Parse, fault))?;
    let name = request.service.as_str();
    let known = name.is_empty() || Service::ALL.into_iter().any(|service| service.name() == name);
    match (method, known) {
        ("Check", true) => {
            let serving = Serving::now(&shared.readiness, &shared.engine).await;
            Ok(respond(Body::trailed(framed(serving.encode()), success())))
        }
        ("Check", false) => Err(Failure::Plain(NOT_FOUND, "there is no service of that name")),
        (_, known) => {
            let permit =
                shared.streams.try_acquire(anybody.owner().clone()).ok_or_else(too_many)?;
            let (readiness, engine) = (shared.readiness.clone(), shared.engine.clone());
            let watch = move |out| async move {
                watch(&readiness, &engine, known, &out).await;
                Some(trailers(&STOPPING))
            };
            Ok(respond(Body::events(Events::new(watch, Some(permit)))))
        }
    }
}

/// Writes how the server is, and again when that changes, until it stops.
async fn watch(readiness: &ReadinessCache, engine: &Engine, known: bool, out: &Out) {
    let mut last = None;
    loop {
        let now =
            if known { Serving::now(readiness, engine).await } else { Serving::NoSuchService };
        if last != Some(now) {
            frame(&mut out.lock(), &now.encode());
            last = Some(now);
        }
        if engine.is_draining() {
            return;
        }
        out.ready(None).await;
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            () = engine.draining() => {}
        }
    }
}
