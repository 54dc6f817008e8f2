//! Tokens that are replaced while the server runs.

use herald_engine::Scopes;
use herald_protocol::TenantId;
use herald_server::{Config, Server, ServerBuildError, Token};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::{
    agents::Script,
    client::{Answer, Call, Client, message},
    hub::engine,
};

fn token(secret: &str, scopes: Scopes) -> Token {
    let (tenant, principal) = (TenantId::from("acme"), format!("holder of {secret}"));
    Token { secret: secret.into(), tenant, principal, scopes, ..Token::default() }
}

struct Running {
    server: Server,
    address: std::net::SocketAddr,
    _served: AbortOnDropHandle<()>,
}

impl Running {
    async fn start(tokens: Vec<Token>) -> Self {
        let config = Config { tokens, ..Config::default() };
        let server = Server::builder(engine(&Script::new())).config(config).build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = server.clone();
        let served = TaskTracker::new().spawn(async move {
            serving.serve(listener, std::future::pending()).await.unwrap();
        });
        Self { server, address, _served: AbortOnDropHandle::new(served) }
    }

    async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    async fn send(&self, header: &str, value: &str) -> Answer {
        let call = Call::rpc("SendMessage", &message("hello")).header(header, value);
        self.client().await.call(call).await
    }
}

// proves: SEC-007
#[tokio::test]
async fn a_token_is_accepted_as_bearer_and_as_api_key() {
    let running = Running::start(vec![token("first", Scopes::CALLER)]).await;
    for (header, value, status) in [
        ("Authorization", "Bearer first", 200),
        ("X-API-Key", "first", 200),
        ("x-api-key", " first ", 200),
        ("X-API-Key", "second", 401),
        ("X-API-Key", "Bearer first", 401),
        ("X-API-Key", "", 401),
        ("Authorization", "first", 401),
    ] {
        assert_eq!(running.send(header, value).await.status(), status, "{header}: {value}");
    }
    let both = Call::rpc("SendMessage", &message("hello"))
        .header("X-API-Key", "first")
        .header("Authorization", "Bearer wrong");
    assert_eq!(running.client().await.call(both).await.status(), 401);
}

#[tokio::test]
async fn a_removed_token_ends_at_once_and_others_go_on() {
    let (removed, kept) = (token("removed", Scopes::CALLER), token("kept", Scopes::CALLER));
    let changed = token("changed", Scopes::CALLER);
    let running = Running::start(vec![removed, kept.clone(), changed]).await;
    let open = async |secret: &str| {
        let call = Call::rpc("SendStreamingMessage", &message("wait"))
            .header("Authorization", &format!("Bearer {secret}"));
        let mut stream = running.client().await.open(call).await;
        assert!(stream.next().await.is_some());
        stream
    };
    let (mut gone, mut stays) = (open("removed").await, open("kept").await);
    let mut other_rights = open("changed").await;
    let next = [kept.clone(), token("changed", Scopes::READ), token("new", Scopes::CALLER)];
    assert_eq!(running.server.replace_tokens(&next), Ok((2, 2)));
    while gone.next().await.is_some() {}
    while other_rights.next().await.is_some() {}
    for (secret, status) in [("removed", 401), ("kept", 200), ("changed", 403), ("new", 200)] {
        let answer = running.send("Authorization", &format!("Bearer {secret}")).await;
        assert_eq!(answer.status(), status, "{secret}");
    }
    // The stream of the token that stayed is still open: it gets the end of its task.
    let list = Call::rpc("ListTasks", &json!({})).header("Authorization", "Bearer kept");
    let tasks = running.client().await.call(list).await.result()["tasks"].clone();
    let waiting = tasks.as_array().unwrap().iter().find(|task| {
        task["status"]["state"] == "TASK_STATE_WORKING"
            || task["status"]["state"] == "TASK_STATE_SUBMITTED"
    });
    let id = &waiting.unwrap()["id"];
    let cancel =
        Call::rpc("CancelTask", &json!({ "id": id })).header("Authorization", "Bearer kept");
    running.client().await.call(cancel).await.result();
    let mut last = String::new();
    while let Some(event) = stays.next().await {
        last = event.data;
    }
    assert!(last.contains("TASK_STATE_CANCELED"), "{last}");
}

#[tokio::test]
async fn a_mistake_leaves_the_tokens_in_use_and_no_tokens_do_not_open_the_server() {
    let running = Running::start(vec![token("first", Scopes::CALLER)]).await;
    let wrong = running.server.replace_tokens(&[token("with space", Scopes::CALLER)]);
    assert!(matches!(wrong, Err(ServerBuildError::Token(_))), "{wrong:?}");
    assert_eq!(running.send("Authorization", "Bearer first").await.status(), 200);
    assert_eq!(running.server.replace_tokens(&[]), Ok((0, 1)));
    assert_eq!(running.send("Authorization", "Bearer first").await.status(), 401);
    assert_eq!(running.send("X-Nothing", "x").await.status(), 401);
}

#[tokio::test]
async fn an_idle_websocket_ends_with_its_token() {
    let running = Running::start(vec![token("first", Scopes::CALLER)]).await;
    let mut client = running.client().await;
    client
        .write(
            "GET /ws HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer first\r\n\
             Upgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        )
        .await;
    assert_eq!(client.head().await.status, 101);
    running.server.replace_tokens(&[]).unwrap();
    // A close frame with code 1008: policy violation.
    let frame = client.bytes(4).await;
    assert_eq!((frame[0], &frame[2..]), (0x88, &1008_u16.to_be_bytes()[..]));
}
