//! Invalid HTTP requests, byte by byte.

use std::time::Duration;

use herald_server::{Config, Limits, Timeouts};
use serde_json::json;

use crate::{
    client::{Call, Client, message},
    hub::{Hub, SOON},
};

async fn quick() -> Hub {
    let timeouts = Timeouts {
        head: Duration::from_secs(1),
        body: Duration::from_secs(1),
        idle: Duration::from_secs(3),
        ..Timeouts::default()
    };
    let limits = Limits { body: 64 << 10, ..Limits::default() };
    Hub::with(Config { timeouts, limits, ..Config::default() }).await
}

/// The server is unharmed.
async fn works(hub: &Hub) {
    assert_eq!(hub.call(Call::rpc("SendMessage", &message("hello"))).await.status(), 200);
}

fn rpc(body: impl Into<Vec<u8>>) -> Call {
    Call::rpc("", &json!({})).body(body)
}

fn rest(body: impl Into<Vec<u8>>) -> Call {
    Call::post("/message:send", &json!({})).v1().body(body)
}

fn with_parts(parts: &str) -> String {
    format!(r#"{{"message":{{"messageId":"m","role":"ROLE_USER","parts":{parts}}}}}"#)
}

fn in_call(params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#)
}

// proves: SEC-009
#[tokio::test]
async fn depth_bombs_do_not_go_off() {
    let hub = Hub::start().await;
    let depth = 100_000;
    let arrays = "[".repeat(depth) + &"]".repeat(depth);
    let objects = r#"{"a":"#.repeat(depth) + "1" + &"}".repeat(depth);
    for bomb in [arrays.as_str(), objects.as_str(), &"[".repeat(depth), &r#"{"a":"#.repeat(depth)] {
        for params in [
            bomb.to_owned(),
            with_parts(&format!(r#"[{{"data":{bomb}}}]"#)),
            format!(r#"{{"metadata":{{"x":{bomb}}}}}"#),
            format!(r#"{{"unknown":{bomb}}}"#),
        ] {
            let answer = hub.call(rpc(in_call(&params))).await;
            let code = answer.error().0;
            assert!([-32700, -32600, -32602].contains(&code), "{code}");
            let answer = hub.call(rest(params)).await;
            assert_eq!(answer.status(), 400, "{}", answer.text());
        }
        let answer = hub.call(rpc(bomb)).await;
        assert!([-32700, -32600].contains(&answer.error().0));
    }
    works(&hub).await;
}

#[tokio::test]
async fn strange_json_is_never_our_fault() {
    let hub = Hub::start().await;
    let long = "k".repeat(1 << 20);
    let cases: Vec<Vec<u8>> = vec![
        in_call(r#"{"message":{"messageId":"a","messageId":"b","role":"ROLE_USER","parts":[{"text":"x"}]}}"#).into(),
        in_call(&with_parts(r#"[{"data":1e999999}]"#)).into(),
        in_call(&with_parts(r#"[{"text":"\ud800"}]"#)).into(),
        in_call(&with_parts(r#"[{"text":"\u0000"}]"#)).into(),
        in_call(&with_parts(r#"[{"text":"a\qb"}]"#)).into(),
        in_call(&with_parts(r#"[{"text":"x"},]"#)).into(),
        in_call(&with_parts(&format!(r#"[{{"text":"x","{long}":1}}]"#))).into(),
        in_call(r#"{"historyLength":99999999999999999999,"id":"x"}"#).into(),
        [b"\xef\xbb\xbf", in_call("{}").as_bytes()].concat(),
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"GetTask\",\"params\":{\"id\":\"\xff\xfe\"}}".to_vec(),
        b"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"GetTask\"}".to_vec(),
        b"\0".to_vec(),
        vec![0xff; 1000],
        br#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"GetTask"}"#.to_vec(),
        format!(r#"{{"jsonrpc":"2.0","id":"{}","method":"GetTask"}}"#, "i".repeat(1 << 20)).into(),
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":"GetTask"}}"#, "9".repeat(1 << 20)).into(),
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, "M".repeat(1 << 20)).into(),
        b"NaN".to_vec(),
        b"{'single':'quotes'}".to_vec(),
    ];
    for case in cases {
        let shown = String::from_utf8_lossy(&case[..case.len().min(120)]).into_owned();
        let answer = hub.call(rpc(case.clone())).await;
        assert_eq!(answer.status(), 200, "{shown}");
        assert!(answer.body.len() < 5000, "{shown}");
        let code = answer.json()["error"]["code"].as_i64();
        assert!(code != Some(-32603), "{shown} {}", answer.text());
        let answer = hub.call(rest(case)).await;
        assert!(answer.status() < 500, "{shown} {}", answer.text());
    }
    works(&hub).await;
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_early() {
    let hub = quick().await;
    for declared in [70_000_u64, 10 << 30] {
        // The body never comes, and is not waited for.
        let mut client = hub.client().await;
        client.write(head("/a2a/jsonrpc", &format!("Content-Length: {declared}"))).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.error()), (200, (-32600, "TOO_LARGE".into())));
        assert_eq!(answer.header("connection"), Some("close"));
        assert!(client.is_closed().await);
        let mut client = hub.client().await;
        client.write(head("/message:send", &format!("Content-Length: {declared}"))).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.reason()), (413, "TOO_LARGE".into()));
        assert!(client.is_closed().await);
    }
    for (path, status) in [("/a2a/jsonrpc", 200), ("/message:send", 413)] {
        // One chunk after the other, until it is enough.
        let mut client = hub.client().await;
        client.write(head(path, "Transfer-Encoding: chunked")).await;
        for _ in 0..17 {
            client.write(format!("1000;ext=1\r\n{}\r\n", "x".repeat(4096))).await;
        }
        let answer = client.answer().await;
        assert_eq!(answer.status(), status);
        assert!(answer.text().contains("TOO_LARGE"));
    }
    let most = in_call(&with_parts(&format!(r#"[{{"text":"{}"}}]"#, "x".repeat(60 << 10))));
    assert_eq!(hub.call(rpc(most)).await.json()["error"], json!(null));
}

fn head(path: &str, framing: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         A2A-Version: 1.0\r\n{framing}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_client_that_sends_it_all_first_still_learns_why_it_is_refused() {
    let limits = Limits { body: 64 << 10, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    for path in ["/a2a/jsonrpc", "/message:send"] {
        let mut client = hub.client().await;
        let body = vec![b'x'; 4 << 20];
        client.write(head(path, &format!("Content-Length: {}", body.len()))).await;
        // More than the buffers on the way hold: somebody has to take it.
        client.write(&body).await;
        assert!(client.answer().await.text().contains("TOO_LARGE"));
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn expecting_clients_are_told_no_before_they_send() {
    let hub = quick().await;
    let mut client = hub.client().await;
    client.write(head("/message:send", "Expect: 100-continue\r\nContent-Length: 1000000")).await;
    assert_eq!(client.answer().await.status(), 413);
    let body = message("hello").to_string();
    let mut client = hub.client().await;
    let framing = format!("Expect: 100-continue\r\nContent-Length: {}", body.len());
    client.write(head("/message:send", &framing)).await;
    assert_eq!(client.head().await.status, 100);
    client.write(body).await;
    assert_eq!(client.answer().await.status(), 200);
}

#[tokio::test]
async fn who_leaves_after_a_part_of_the_preface_keeps_no_place() {
    let timeouts = Timeouts { head: Duration::from_secs(3600), ..Timeouts::default() };
    let limits = Limits { connections: 2, ..Limits::default() };
    let hub = Hub::with(Config { timeouts, limits, ..Config::default() }).await;
    for start in ["P", "PRI * HTTP", "PRI", "P"] {
        let mut client = hub.client().await;
        client.write(start).await;
        drop(client);
    }
    let served = async { while hub.call(Call::get("/")).await.status() == 503 {} };
    tokio::time::timeout(SOON, served).await.expect("a place");
}

#[tokio::test]
async fn slow_headers_end_the_connection() {
    let hub = quick().await;
    for start in ["", "P", "PRI", "POST /a2a/jsonrpc HTTP/1.1\r\nHost: localhost\r\nX-A: "] {
        let mut client = hub.client().await;
        client.write(start).await;
        assert!(client.is_closed().await, "{start:?}");
    }
    // Also on a connection that has served, and also a drop at a time.
    let mut client = hub.client().await;
    assert_eq!(client.call(Call::get("/healthz")).await.status(), 200);
    client.write("GET /healthz HTTP/1.1\r\nX-Drip: ").await;
    let began = std::time::Instant::now();
    loop {
        let dripped =
            tokio::time::timeout(Duration::from_millis(10), client.stream.readable()).await;
        if dripped.is_ok() {
            break;
        }
        if tokio::io::AsyncWriteExt::write_all(&mut client.stream, b"x").await.is_err() {
            break;
        }
        assert!(began.elapsed() < SOON, "still open");
    }
    works(&hub).await;
}

#[tokio::test]
async fn a_slow_body_is_given_up() {
    let hub = quick().await;
    for path in ["/a2a/jsonrpc", "/message:send", "/v1/message:send"] {
        let mut client = hub.client().await;
        client
            .write(head(path, "Content-Length: 100").replace(
                "A2A-Version: 1.0\r\n",
                if path.starts_with("/v1") { "" } else { "A2A-Version: 1.0\r\n" },
            ))
            .await;
        client.write("{").await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), 408, "{path}");
        assert!(client.is_closed().await, "{path}");
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let hub = quick().await;
    let mut busy = hub.client().await;
    busy.send(&Call::rpc("SendMessage", &message("wait x"))).await;
    let mut idle = hub.client().await;
    assert_eq!(idle.call(Call::get("/healthz")).await.status(), 200);
    assert!(idle.is_closed().await);
    // By now the busy one has waited for longer than any connection may idle.
    hub.release(1);
    assert_eq!(busy.answer().await.status(), 200);
}

#[tokio::test]
async fn oversized_headers_are_refused() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    let big = "x".repeat(100 << 10);
    let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Big: {big}\r\n\r\n");
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, request.as_bytes()).await;
    assert_eq!(client.head().await.status, 431);
    let mut client = hub.client().await;
    let many: String = (0..10_000).map(|index| format!("X-{index}: 1\r\n")).collect();
    let request = format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n{many}\r\n");
    let _ = tokio::io::AsyncWriteExt::write_all(&mut client.stream, request.as_bytes()).await;
    assert_eq!(client.head().await.status, 431);
    works(&hub).await;
}

#[tokio::test]
async fn requests_that_two_parsers_could_read_differently_are_refused() {
    let hub = quick().await;
    let smuggled = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for framing in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: 0x5",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        "X-Folded: a\r\n b: c",
        "X-Nul: a\0b",
    ] {
        let mut client = hub.client().await;
        client.write(head("/a2a/jsonrpc", framing)).await;
        client.write(format!("5\r\nhello\r\n0\r\n\r\n{smuggled}")).await;
        let status = client.head().await.status;
        assert_eq!(status, 400, "{framing}");
        only_answer(client, framing).await;
    }
}

#[tokio::test]
async fn a_transfer_coding_other_than_chunked_is_not_taken_for_plain() {
    let hub = quick().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#;
    let chunked = format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for (framing, status) in [
        ("Transfer-Encoding: chunked", 200),
        ("Transfer-Encoding: Chunked ", 200),
        ("Transfer-Encoding: gzip, chunked", 501),
        ("Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked", 501),
        ("Transfer-Encoding: identity, chunked", 501),
    ] {
        let mut client = hub.client().await;
        client.write(head("/a2a/jsonrpc", framing)).await;
        client.write(chunked.clone()).await;
        assert_eq!(client.head().await.status, status, "{framing}");
    }
    works(&hub).await;
}

#[tokio::test]
async fn no_content_encoding_of_several_is_overlooked() {
    let hub = quick().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#;
    for (encodings, status) in [
        ("Content-Encoding: Identity\r\nContent-Encoding: identity", 200),
        ("Content-Encoding: identity\r\nContent-Encoding: gzip", 415),
        ("Content-Encoding: identity, gzip", 415),
        ("Content-Encoding: gzip, identity", 415),
    ] {
        let mut client = hub.client().await;
        let framing = format!("{encodings}\r\nContent-Length: {}", body.len());
        client.write(head("/a2a/jsonrpc", &framing)).await;
        client.write(body).await;
        assert_eq!(client.head().await.status, status, "{encodings}");
    }
}

/// The connection ends without a second answer.
async fn only_answer(mut client: Client, case: &str) {
    let mut rest = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut client.stream, &mut rest).await;
    let rest = String::from_utf8_lossy(&rest).into_owned();
    assert!(!rest.contains("HTTP/1.1"), "{case}: {rest}");
}

#[tokio::test]
async fn a_length_beside_chunks_does_not_leave_a_second_request_behind() {
    let hub = quick().await;
    let mut client = hub.client().await;
    let both = "Content-Length: 5\r\nTransfer-Encoding: chunked";
    client.write(head("/a2a/jsonrpc", both)).await;
    let smuggled = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    client.write(format!("0\r\n\r\n{smuggled}")).await;
    let first = client.head().await;
    if first.status == 400 {
        return only_answer(client, both).await;
    }
    // Chunks count for more than a length, which is one of the two readings the standard allows,
    // and then the connection is not used again.
    assert_eq!(first.status, 200);
}

#[tokio::test]
async fn other_malformed_requests_are_refused() {
    let hub = quick().await;
    for request in [
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        "GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: user@localhost\r\n\r\n",
        "GET /\u{7f} HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
        "G\0T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n",
    ] {
        let mut client = hub.client().await;
        client.write(request).await;
        assert_eq!(client.head().await.status, 400, "{request:?}");
    }
    works(&hub).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_leaves_nothing_behind() {
    let limits = Limits { connections: 2, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    for _ in 0..10 {
        let mut client = hub.client().await;
        client.write(head("/a2a/jsonrpc", "Content-Length: 100")).await;
        client.write("{\"jsonrpc\"").await;
        drop(client);
        let stream = hub.client().await;
        let mut stream = stream.open(Call::rpc("SendStreamingMessage", &message("wait x"))).await;
        stream.json().await;
        drop(stream);
    }
    works(&hub).await;
}
