//! gRPC reflection service, for tools without the protobuf files.

use std::io;

use bytes::Bytes;
use herald_protocol::grpc::DESCRIPTORS;
use http::{Request, Response};
use http_body_util::BodyExt;
use tonic_reflection::server::Builder;
use tower::ServiceExt;

use super::GrpcFailure;
use crate::{bind::Exchange, body::Body};

/// The names of the service; many tools know the old one only.
pub(super) const SERVICES: [&str; 2] =
    ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];

/// Serves a stream of requests.
pub(super) async fn answer<B>(
    exchange: &Exchange<'_>,
    service: &str,
    body: B,
) -> Result<Response<Body>, GrpcFailure>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    let caller = exchange.caller().await?;
    let permit = exchange.stream_permit(&caller)?;
    let body = tonic::body::Body::new(
        body.map_err(|_| io::Error::other("the body ended before it was complete")),
    );
    let request = Request::from_parts(exchange.parts.clone(), body);
    let builder = Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET);
    let valid = "the descriptors were compiled together";
    let answered = if service == SERVICES[0] {
        builder.build_v1().expect(valid).oneshot(request).await
    } else {
        builder.build_v1alpha().expect(valid).oneshot(request).await
    };
    let Ok(response) = answered;
    Ok(response.map(|body| Body::foreign(body, permit)))
}
