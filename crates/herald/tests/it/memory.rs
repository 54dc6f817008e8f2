//! Test of the memory of large messages, which is a small multiple of their size.

use std::fs;

use crate::{
    http::Call,
    support::{Herald, Options},
};

/// Bytes of each message, just below the limit of a body.
const SIZE: usize = 4_000_000;

/// Limit of the memory for one message at its peak, as a multiple of its bytes. The budget is 12, and the noise of an
/// allocator gets some more. Text parts took 13.5 to 18 before large bytes had one owner at a time.
const MULTIPLE: u64 = 13;

/// A message whose open part repeats `item`.
fn message(open: &str, item: &str, close: &str) -> String {
    let mut text = String::with_capacity(SIZE + 200);
    // A UUID, so that the message is hashed too.
    text.push_str(
        r#"{"message":{"messageId":"7c4a1f0e-5d0b-4c56-9d0a-3a1f5b7c9e21","role":"ROLE_USER","#,
    );
    text.push_str(open);
    text.push_str(item);
    while text.len() < SIZE {
        text.push(',');
        text.push_str(item);
    }
    text.push_str(close);
    text.push_str("}}");
    text
}

fn nested() -> String {
    format!("{}0{}", "[".repeat(90), "]".repeat(90))
}

/// The peak resident memory of a server, in bytes.
fn peak(herald: &Herald) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", herald.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_large_message_takes_a_small_multiple_of_its_bytes_whatever_its_shape() {
    let data = (r#""parts":[{"data":["#, "]}]");
    let parts = format!(r#"{{"data":[{}]}}"#, vec![r#"{"":0}"#; 500].join(","));
    let texts = format!(r#"{{"text":"{}"}}"#, "text ".repeat(800));
    for (shape, text) in [
        ("objects", message(data.0, r#"{"":0}"#, data.1)),
        ("arrays", message(data.0, "[]", data.1)),
        ("numbers", message(data.0, "1", data.1)),
        ("strings", message(data.0, r#""""#, data.1)),
        ("nested", message(data.0, &nested(), data.1)),
        ("metadata", message(r#""parts":[{"text":"x"}],"metadata":{"a":["#, r#"{"":0}"#, "]}")),
        ("parts", message(r#""parts":["#, &parts, "]")),
        ("texts", message(r#""parts":["#, &texts, "]")),
    ] {
        let herald = Herald::start(Options::default()).await;
        herald.call(&Call::get("/.well-known/agent-card.json")).await;
        let idle = peak(&herald);
        let bytes = text.len() as u64;
        let call = Call::post_text("/message:send", text).header("a2a-version", "1.0");
        let answer = herald.call(&call).await;
        assert_eq!(answer.status, 200, "{shape}: {}", &answer.text()[..200]);
        let taken = peak(&herald) - idle;
        println!("{shape}: {:.1} times its bytes", taken as f64 / bytes as f64);
        assert!(taken < MULTIPLE * bytes, "{shape}: {taken} bytes for {bytes}");
    }
}
