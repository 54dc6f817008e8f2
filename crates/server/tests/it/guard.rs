//! Attacks of web pages on a server on loopback.

use herald_server::Config;
use serde_json::json;

use crate::{
    client::{Call, message},
    hub::Hub,
};

#[tokio::test]
async fn a_name_that_was_made_to_resolve_here_is_refused() {
    let hub = Hub::start().await;
    for host in ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "0.0.0.0"] {
        for call in [
            Call::rpc("SendMessage", &message("hello")),
            Call::get("/tasks").v1(),
            Call::get("/.well-known/agent-card.json"),
            Call::get("/"),
        ] {
            let answer = hub.call(call.header("Host", host)).await;
            assert_eq!(answer.status(), 421, "{host}");
            let answer = answer.json();
            let said = answer["error"]["message"].as_str().unwrap();
            assert!(said.ends_with("add it to [server] allowed_hosts in herald.toml"), "{said}");
        }
    }
    for host in ["localhost", "localhost:1", "127.0.0.1", "[::1]:8000"] {
        let call = Call::rpc("ListTasks", &json!({})).header("Host", host);
        assert_eq!(hub.call(call).await.status(), 200, "{host}");
    }
    let allowed_hosts = vec!["good.example".into()];
    let hub = Hub::with(Config { allowed_hosts, ..Config::default() }).await;
    let call = Call::rpc("ListTasks", &json!({})).header("Host", "good.example:8000");
    assert_eq!(hub.call(call).await.status(), 200);
}

#[tokio::test]
async fn a_page_of_another_origin_cannot_call() {
    let hub = Hub::start().await;
    let own = hub.url("");
    let calls = [
        Call::rpc("SendMessage", &message("hello")),
        Call::post("/message:send", &message("hello")).v1(),
        Call::new("POST", "/tasks/x:cancel").v1(),
        Call::new("OPTIONS", "/a2a/jsonrpc").header("Access-Control-Request-Method", "POST"),
        Call::get("/tasks").v1(),
    ];
    for call in &calls {
        for origin in ["https://evil.example", "http://localhost:9", "null", "http://127.0.0.1"] {
            let answer = hub.call(call.clone().header("Origin", origin)).await;
            assert_eq!(answer.status(), 403, "{origin}");
            assert_eq!(answer.header("access-control-allow-origin"), None);
        }
        let answer = hub.call(call.clone().header("Origin", &own)).await;
        assert_ne!(answer.status(), 403);
    }
    let list = hub.call(Call::rpc("ListTasks", &json!({}))).await.result();
    assert_eq!(list["totalSize"], 2, "only the server's own page got through");
    let card = Call::get("/.well-known/agent-card.json").header("Origin", "https://evil.example");
    assert_eq!(hub.call(card).await.status(), 200, "a card is for everybody");
}

#[tokio::test]
async fn an_allowed_origin_is_told_so() {
    let allowed_origins = vec!["https://console.example".into()];
    let hub = Hub::with(Config { allowed_origins, ..Config::default() }).await;
    let origin = "https://console.example";
    let preflight = || {
        Call::new("OPTIONS", "/a2a/jsonrpc")
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
    };
    let wanted = "authorization, x-api-key, content-type, a2a-version";
    let allowed = preflight().header("Access-Control-Request-Headers", wanted);
    let allowed = hub.call(allowed).await;
    assert_eq!(allowed.status(), 204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some(origin));
    let names = allowed.header("access-control-allow-headers").unwrap();
    assert!(names.contains("A2A-Version") && names.contains("Content-Type"));
    for (name, value) in [
        ("Access-Control-Request-Method", "CONNECT"),
        ("Access-Control-Request-Method", "post"),
        ("Access-Control-Request-Headers", "authorization, cookie"),
        ("Access-Control-Request-Headers", "x-forwarded-for"),
    ] {
        let refused = hub.call(preflight().header(name, value)).await;
        assert_eq!(refused.status(), 403, "{name}: {value}");
        assert_eq!(refused.header("access-control-allow-methods"), None);
    }
    let call = Call::rpc("SendMessage", &message("hello")).header("Origin", origin);
    let answer = hub.call(call).await;
    assert_eq!(answer.header("access-control-allow-origin"), Some(origin));
    assert_eq!(answer.header("vary"), Some("Origin"));
    let plain = hub.call(Call::get("/tasks").v1()).await;
    assert_eq!(plain.header("vary"), Some("Origin"), "a cache must not mix the two up");
    assert_eq!(plain.header("access-control-allow-origin"), None);
    let missing = hub.call(Call::get("/tasks/x/y/z").v1().header("Origin", origin)).await;
    assert_eq!(missing.status(), 404);
    assert_eq!(missing.header("access-control-allow-origin"), Some(origin), "also with an error");
    for answer in [&allowed, &answer, &missing] {
        assert_eq!(answer.header("access-control-allow-credentials"), None);
    }
    let off = Hub::start().await.call(Call::get("/tasks").v1()).await;
    assert_eq!((off.header("vary"), off.header("access-control-allow-origin")), (None, None));
}

#[tokio::test]
async fn pages_and_the_api_protect_browsers_and_replies_are_not_stored() {
    let hub = Hub::start().await;
    for path in ["/", "/agents/files/", "/api", "/api/v1/nothing"] {
        let answer = hub.call(Call::get(path)).await;
        let policy = answer.header("content-security-policy").unwrap();
        assert!(policy.contains("default-src 'none'"), "{path}");
        assert!(policy.contains("frame-ancestors 'none'"), "{path}");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("x-content-type-options", "nosniff"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), Some(value), "{path} {name}");
        }
    }
    for call in
        [Call::rpc("ListTasks", &json!({})), Call::get("/tasks").v1(), Call::get("/tasks/x").v1()]
    {
        assert_eq!(hub.call(call).await.header("cache-control"), Some("no-store"));
    }
}

#[tokio::test]
async fn bindings_refuse_writes_that_a_page_of_another_site_caused() {
    let allowed_origins = vec!["https://console.example".into()];
    let hub = Hub::with(Config { allowed_origins, ..Config::default() }).await;
    let status = async |call: Call| {
        let mut client = hub.client().await;
        client.send(&call).await;
        client.head().await.status
    };
    let socket = || {
        Call::get("/ws")
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
    };
    let writes = [
        Call::rpc("SendMessage", &message("hello")),
        Call::rpc("SendMessage", &message("hello")).at("/"),
        Call::post("/message:send", &message("hello")).v1(),
        // Without a body a browser sends it without asking first.
        Call::new("POST", "/tasks/x:cancel").v1(),
        Call::new("POST", "/agents/files/tasks/x:cancel").v1(),
        socket(),
    ];
    for write in &writes {
        let open = status(write.clone()).await;
        assert_ne!(open, 403);
        let from = |site: &str| write.clone().header("Sec-Fetch-Site", site);
        for site in ["same-origin", "none"] {
            assert_eq!(status(from(site)).await, open, "{site}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(status(from(site)).await, 403, "{site}");
            let named = from(site).header("Origin", "https://console.example");
            assert_eq!(status(named).await, open, "{site}");
            let bearer = from(site).header("Authorization", "Bearer x");
            assert_eq!(status(bearer).await, open, "{site}");
        }
    }
    for read in [Call::get("/tasks").v1(), Call::get("/")] {
        let answer = hub.call(read.header("Sec-Fetch-Site", "cross-site")).await;
        assert_eq!(answer.status(), 200, "a link to a page, and a read, change nothing");
    }
}

#[tokio::test]
async fn the_api_refuses_calls_that_a_page_of_another_site_caused() {
    let allowed_origins = vec!["https://console.example".into()];
    let hub = Hub::with(Config { allowed_origins, ..Config::default() }).await;
    let call = |site: &str| Call::get("/api/agents").header("Sec-Fetch-Site", site);
    let open = hub.call(Call::get("/api/agents")).await.status();
    for site in ["same-origin", "none"] {
        assert_eq!(hub.call(call(site)).await.status(), open, "{site}");
    }
    for site in ["cross-site", "same-site"] {
        assert_eq!(hub.call(call(site)).await.status(), 403, "{site}");
        let named = call(site).header("Origin", "https://console.example");
        assert_eq!(hub.call(named).await.status(), open, "{site}");
    }
    let evil = Call::get("/api/agents").header("Origin", "https://evil.example");
    assert_eq!(hub.call(evil).await.status(), 403);
}

#[tokio::test]
async fn a_form_cannot_post() {
    let hub = Hub::start().await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let call = Call::post("/message:send", &message("hello")).v1().header("Content-Type", kind);
        let answer = hub.call(call).await;
        assert_eq!((answer.status(), answer.reason()), (400, "CONTENT_TYPE_NOT_SUPPORTED".into()));
        let call = Call::post("/v1/message:send", &message("hello")).header("Content-Type", kind);
        assert_eq!(hub.call(call).await.status(), 400);
    }
}

// proves: SEC-011
#[tokio::test]
async fn a_file_that_a_message_names_by_its_url_is_not_fetched() {
    let hub = Hub::start().await;
    let internal = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    internal.set_nonblocking(true).unwrap();
    let url = format!("http://{}/latest/meta-data/", internal.local_addr().unwrap());
    let mut named = message("look at this");
    let part = json!({ "url": url, "mediaType": "text/plain", "filename": "secrets" });
    named["message"]["parts"].as_array_mut().unwrap().push(part);
    for call in [
        Call::rpc("SendMessage", &named).at("/agents/files/a2a/jsonrpc"),
        Call::post("/agents/files/message:send", &named).v1(),
    ] {
        let answer = hub.call(call).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert!(answer.text().contains("TASK_STATE_COMPLETED"), "{}", answer.text());
    }
    let error = internal.accept().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock, "the server connected to the URL");
}
