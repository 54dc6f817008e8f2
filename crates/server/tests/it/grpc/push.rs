//! Webhooks that are registered over gRPC.

use herald_protocol::grpc::generated::v1;
use herald_server::Config;
use serde_json::Value;

use super::{Client, V1};
use crate::{
    hub::Hub,
    receiver::{Receiver, ReceiverAnswer},
};

// proves: GRPC-009, PUSH-002, PUSH-004, PUSH-005, PUSH-006, PUSH-023
#[tokio::test]
async fn configs_work_over_grpc_and_deliveries_are_json_over_http() {
    let receiver = Receiver::start(|_| ReceiverAnswer::status(200, "")).await;
    let hub = Hub::pushing(Config::default(), &[&receiver.address.to_string()]).await;
    let client = Client::v1(&hub).await;
    let task = client.send("hello").await.unwrap();
    let config = v1::TaskPushNotificationConfig {
        task_id: task.id.clone(),
        url: receiver.url("/grpc"),
        token: "canary-7c5e-grpc".to_owned(),
        ..Default::default()
    };
    let created: v1::TaskPushNotificationConfig =
        client.call(V1, "CreateTaskPushNotificationConfig", config).await.unwrap();
    assert!(!created.id.is_empty());
    assert_eq!((&created.task_id, created.token.as_str()), (&task.id, ""));
    let named = v1::GetTaskPushNotificationConfigRequest {
        task_id: task.id.clone(),
        id: created.id.clone(),
        ..Default::default()
    };
    let get = async || -> Result<v1::TaskPushNotificationConfig, _> {
        client.call(V1, "GetTaskPushNotificationConfig", named.clone()).await
    };
    assert_eq!(get().await.unwrap(), created);
    let list = v1::ListTaskPushNotificationConfigsRequest {
        task_id: task.id.clone(),
        ..Default::default()
    };
    let listed: v1::ListTaskPushNotificationConfigsResponse =
        client.call(V1, "ListTaskPushNotificationConfigs", list).await.unwrap();
    assert_eq!(listed.configs, std::slice::from_ref(&created));
    while receiver.received().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let delivery = receiver.received().remove(0);
    assert_eq!(delivery.header("content-type"), Some("application/a2a+json"));
    let body: Value = serde_json::from_slice(&delivery.body).unwrap();
    assert_eq!(body["task"]["id"], *task.id);
    let delete = v1::DeleteTaskPushNotificationConfigRequest {
        task_id: task.id.clone(),
        id: created.id.clone(),
        ..Default::default()
    };
    for _ in 0..2 {
        // Read as another message, whose fields stay empty only if the reply has none of them.
        let empty: v1::TaskPushNotificationConfig =
            client.call(V1, "DeleteTaskPushNotificationConfig", delete.clone()).await.unwrap();
        assert_eq!(empty, v1::TaskPushNotificationConfig::default());
    }
    assert!(get().await.is_err());
}
