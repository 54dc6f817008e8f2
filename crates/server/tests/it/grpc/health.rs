//! Health and reflection.

use std::sync::Arc;

use herald_engine::{
    Engine, Profile,
    store::{Store, flaky::Flaky},
};
use herald_server::Config;
use prost::Message;
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, ServerReflectionResponse, server_reflection_request::MessageRequest,
    server_reflection_response::MessageResponse,
};

use super::{Client, V1, V03};
use crate::{
    agents::Script,
    hub::{Hub, SOON},
};

const HEALTH: &str = "grpc.health.v1.Health";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SERVICE_UNKNOWN: i32 = 3;

#[derive(Clone, PartialEq, Eq, Message)]
struct Asked {
    #[prost(string, tag = "1")]
    service: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Health {
    #[prost(int32, tag = "1")]
    status: i32,
}

async fn check(client: &Client, service: &str) -> Result<i32, Status> {
    let asked = Asked { service: service.to_owned() };
    client.call::<_, Health>(HEALTH, "Check", asked).await.map(|health| health.status)
}

async fn watch(client: &Client, service: &str) -> Streaming<Health> {
    let asked = Asked { service: service.to_owned() };
    client.stream(HEALTH, "Watch", asked).await.unwrap().into_inner()
}

async fn next(health: &mut Streaming<Health>) -> Result<i32, Status> {
    let health = timeout(SOON, health.message()).await.unwrap()?;
    Ok(health.unwrap().status)
}

#[tokio::test]
async fn health_is_that_of_the_store_and_of_the_process() {
    let store = Arc::new(Flaky::new().unwrap());
    let script = Script::new();
    let engine = Engine::builder(Arc::clone(&store) as Arc<dyn Store>)
        .agent(Profile::new("script", "Does what it is told"), script.clone())
        .build()
        .unwrap();
    let mut hub = Hub::over(engine, script, |builder| builder).await;
    let client = Client::plain(&hub).await;
    for service in ["", V1, V03] {
        assert_eq!(check(&client, service).await.unwrap(), SERVING, "{service}");
    }
    assert_eq!(check(&client, "no.such").await.unwrap_err().code(), Code::NotFound);
    let mut watched = watch(&client, V1).await;
    assert_eq!(next(&mut watched).await.unwrap(), SERVING);
    let mut unknown = watch(&client, "no.such").await;
    assert_eq!(next(&mut unknown).await.unwrap(), SERVICE_UNKNOWN);
    store.fail_writes(true);
    assert_eq!(next(&mut watched).await.unwrap(), NOT_SERVING);
    assert_eq!(check(&client, "").await.unwrap(), NOT_SERVING);
    store.fail_writes(false);
    assert_eq!(next(&mut watched).await.unwrap(), SERVING);
    hub.stop();
    assert_eq!(next(&mut watched).await.unwrap(), NOT_SERVING);
    assert_eq!(next(&mut watched).await.unwrap_err().code(), Code::Unavailable);
    assert_eq!(next(&mut unknown).await.unwrap_err().code(), Code::Unavailable);
    hub.stopped().await;
}

#[tokio::test]
async fn reflection_shows_both_services_to_those_who_may_ask() {
    let hub = Hub::with(Config { grpc_reflection: true, ..Config::default() }).await;
    let mut client = Client::plain(&hub).await;
    for service in
        ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"]
    {
        let ask = |message| ServerReflectionRequest {
            host: String::new(),
            message_request: Some(message),
        };
        let questions = vec![
            ask(MessageRequest::ListServices(String::new())),
            ask(MessageRequest::FileContainingSymbol(V1.to_owned())),
            ask(MessageRequest::FileContainingSymbol("a2a.v1.Task".to_owned())),
        ];
        client.grpc.ready().await.unwrap();
        let path = format!("/{service}/ServerReflectionInfo").parse().unwrap();
        let codec = ProstCodec::<_, ServerReflectionResponse>::default();
        let asked =
            client.grpc.streaming(tonic::Request::new(tokio_stream::iter(questions)), path, codec);
        let answers = timeout(SOON, asked).await.unwrap().unwrap().into_inner();
        let (answers, end) = super::all(answers).await;
        assert!(end.is_none() && answers.len() == 3, "{end:?}");
        let Some(MessageResponse::ListServicesResponse(list)) = &answers[0].message_response else {
            panic!("{answers:?}")
        };
        let names: Vec<_> = list.service.iter().map(|service| service.name.as_str()).collect();
        assert!(names.contains(&V1) && names.contains(&V03), "{names:?}");
        for answer in &answers[1..] {
            let described = &answer.message_response;
            assert!(matches!(described, Some(MessageResponse::FileDescriptorResponse(_))));
        }
    }
}
