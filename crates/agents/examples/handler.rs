//! A handler in Rust. It spells what it is told letter by letter, for many callers at once, and stops
//! when it is told to.
//!
//! ```toml
//! [[agents]]
//! name = "spell"
//! kind = "handler"
//! command = ["./target/debug/examples/handler"]
//! ```

#![expect(clippy::disallowed_methods, reason = "json! is a short way to write a line")]
#![expect(clippy::print_stdout, reason = "standard output is where a handler speaks")]

use std::{
    collections::HashMap,
    io,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

fn main() -> io::Result<()> {
    // Dropping the sender of a turn tells its thread to stop.
    let mut turns: HashMap<String, mpsc::Sender<()>> = HashMap::new();
    for line in io::stdin().lines() {
        let line: Value = serde_json::from_str(&line?)?;
        let turn = line["turn"].as_str().unwrap_or_default().to_owned();
        match line["type"].as_str() {
            Some("hello") => println!("{}", json!({ "type": "hello", "protocol": 1, "ping": 30 })),
            Some("ping") => println!("{}", json!({ "type": "pong", "id": line["id"] })),
            Some("cancel") => drop(turns.remove(&turn)),
            Some("begin") => {
                let (go_on, stopped) = mpsc::channel();
                turns.insert(turn.clone(), go_on);
                thread::spawn(move || spell(&turn, &line["message"], &stopped));
            }
            // What a later version may say is not for us.
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn spell(turn: &str, message: &Value, stopped: &mpsc::Receiver<()>) {
    let parts = message["parts"].as_array().into_iter().flatten();
    let text: String = parts.filter_map(|part| part["text"].as_str()).collect();
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_last = letters.peek().is_none();
        // Each println! is one whole line, whoever else speaks.
        println!(
            "{}",
            json!({
                "type": "artifact", "turn": turn, "artifactId": "letters",
                "text": format!("{letter} "), "append": true, "lastChunk": is_last,
            })
        );
        if stopped.recv_timeout(Duration::from_millis(20)) == Err(RecvTimeoutError::Disconnected) {
            println!("{}", json!({ "type": "status", "turn": turn, "state": "canceled" }));
            return;
        }
    }
    println!("{}", json!({ "type": "status", "turn": turn, "state": "completed" }));
}
