//! Scripted endpoint of a language model on loopback.
//!
//! The path of a request selects the wire format: each format is one file beside this
//! one, and one line in [`Format::of`].

mod anthropic;
mod chat;
mod gemini;
mod responses;

use std::{
    collections::VecDeque,
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

/// The steps of the endpoint. A request consumes steps until one of them ends its answer.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// Sends this text, and continues with the next step.
    Say(String),
    /// Sends this text and ends the answer.
    Text(String),
    /// Calls a tool and ends the answer.
    Tool { name: String, arguments: Value },
    /// Waits for the test: see [`Model::go`].
    Wait,
    /// Sends nothing more until the caller disconnects.
    Hang,
    /// Closes the connection.
    Die,
    /// Refuses with this status.
    Status(u16),
    /// Writes these bytes, as the whole answer if nothing was sent before, and closes the connection.
    Raw(Vec<u8>),
    /// Writes these bytes, and continues with the next step.
    Write(Vec<u8>),
    /// Writes these bytes repeatedly until the caller disconnects.
    Endless(Vec<u8>),
}

/// A request as received.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Value,
}

/// The endpoint. It stops when it is dropped.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) address: SocketAddr,
    script: Arc<Script>,
    _serving: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Script {
    steps: Mutex<VecDeque<Step>>,
    /// Steps of conversations that begin with a text: see [`Model::beside`].
    beside: Mutex<Vec<(String, VecDeque<Step>)>>,
    asked: Mutex<Vec<Asked>>,
    /// The number of callers that disconnected during [`Step::Hang`].
    left: Mutex<usize>,
    going: Notify,
}

/// A wire format of answers.
struct Format {
    content_type: &'static str,
    /// The beginning of an answer to a request.
    begin: fn(&Value) -> String,
    say: fn(&str) -> String,
    tool: fn(&str, &Value) -> String,
    /// The end of an answer, by its text and whether it called a tool.
    end: fn(&str, bool) -> String,
    refusal: fn(u16) -> String,
}

impl Format {
    fn of(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        match path {
            _ if path.ends_with("/chat/completions") => Some(chat::FORMAT),
            _ if path.ends_with("/responses") => Some(responses::FORMAT),
            _ if path.ends_with("/messages") => Some(anthropic::FORMAT),
            _ if path.ends_with(":streamGenerateContent") => Some(gemini::FORMAT),
            _ => None,
        }
    }
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

impl Model {
    pub(crate) async fn start(steps: Vec<Step>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = Arc::new(Script { steps: Mutex::new(steps.into()), ..Script::default() });
        let mut serving = JoinSet::new();
        let served = Arc::clone(&script);
        serving.spawn(async move {
            let mut callers = JoinSet::new();
            while let Ok((caller, _)) = listener.accept().await {
                let script = Arc::clone(&served);
                // A disconnect is not a failure of the endpoint.
                callers.spawn(async move { script.serve(caller).await.unwrap_or_default() });
            }
        });
        Self { address, script, _serving: serving }
    }

    /// The base URL of endpoints such as `/v1/chat/completions`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Gives conversations whose first message has this text steps of their own, so that several at
    /// once do not take each other's.
    pub(crate) fn beside(&self, text: &str, steps: impl IntoIterator<Item = Step>) {
        let steps = steps.into_iter().collect();
        self.script.beside.lock().unwrap().push((text.to_owned(), steps));
    }

    /// Releases one waiting request, or the next one.
    pub(crate) fn go(&self) {
        self.script.going.notify_one();
    }

    /// The requests so far, in order.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.script.asked.lock().unwrap().clone()
    }

    /// The number of callers that disconnected during [`Step::Hang`].
    pub(crate) fn left(&self) -> usize {
        *self.script.left.lock().unwrap()
    }

    /// Steps that no request has consumed yet.
    pub(crate) fn unused(&self) -> usize {
        self.script.steps.lock().unwrap().len()
    }
}

impl Script {
    fn next(&self, body: &Value) -> Step {
        let first = body["messages"][0].to_string();
        let mut beside = self.beside.lock().unwrap();
        let own = beside.iter_mut().find(|(text, _)| first.contains(text.as_str()));
        let next = match own {
            Some((_, steps)) => steps.pop_front(),
            None => self.steps.lock().unwrap().pop_front(),
        };
        next.unwrap_or(Step::Status(500))
    }

    /// One request and its answer.
    async fn serve(&self, caller: TcpStream) -> std::io::Result<()> {
        let mut caller = BufReader::new(caller);
        let asked = read(&mut caller).await?;
        let format = Format::of(&asked.path);
        let body = asked.body.clone();
        self.asked.lock().unwrap().push(asked);
        let Some(format) = format else {
            return caller.write_all(&response(404, "text/plain", "no such endpoint")).await;
        };
        let (mut is_begun, mut said) = (false, String::new());
        loop {
            let step = self.next(&body);
            let speaks = matches!(step, Step::Say(_) | Step::Text(_) | Step::Tool { .. });
            if speaks && !is_begun {
                is_begun = true;
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: {}\r\nconnection: close\r\n\r\n",
                    format.content_type
                );
                caller.write_all((head + &(format.begin)(&body)).as_bytes()).await?;
            }
            match step {
                Step::Say(text) => {
                    caller.write_all((format.say)(&text).as_bytes()).await?;
                    said += &text;
                }
                Step::Text(text) => {
                    for word in text.split_inclusive(' ') {
                        caller.write_all((format.say)(word).as_bytes()).await?;
                    }
                    said += &text;
                    return caller.write_all((format.end)(&said, false).as_bytes()).await;
                }
                Step::Tool { name, arguments } => {
                    let called = (format.tool)(&name, &arguments) + &(format.end)(&said, true);
                    return caller.write_all(called.as_bytes()).await;
                }
                Step::Wait => self.going.notified().await,
                Step::Hang => {
                    let gone = caller.read(&mut [0]).await.unwrap_or(0) == 0;
                    *self.left.lock().unwrap() += usize::from(gone);
                    return Ok(());
                }
                Step::Die => return Ok(()),
                Step::Status(status) => {
                    let refusal = response(status, "application/json", &(format.refusal)(status));
                    return caller.write_all(&refusal).await;
                }
                Step::Raw(bytes) => return caller.write_all(&bytes).await,
                Step::Write(bytes) => caller.write_all(&bytes).await?,
                Step::Endless(bytes) => loop {
                    caller.write_all(&bytes).await?;
                    tokio::task::yield_now().await;
                },
            }
        }
    }
}

/// A whole response.
pub(crate) fn response(status: u16, content_type: &str, body: &str) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} Said\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n",
        body.len()
    );
    (head + body).into_bytes()
}

async fn read(caller: &mut BufReader<TcpStream>) -> std::io::Result<Asked> {
    let mut line = String::new();
    caller.read_line(&mut line).await?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = Vec::new();
    loop {
        line.clear();
        caller.read_line(&mut line).await?;
        match line.trim().split_once(": ") {
            Some((name, value)) => headers.push((name.to_lowercase(), value.to_owned())),
            None => break,
        }
    }
    let asked = Asked { path, headers, body: Value::Null };
    let mut body = Vec::new();
    if let Some(length) = asked.header("content-length") {
        body.resize(length.parse().unwrap(), 0);
        caller.read_exact(&mut body).await?;
    } else if asked.header("transfer-encoding").is_some() {
        loop {
            line.clear();
            caller.read_line(&mut line).await?;
            let length = usize::from_str_radix(line.trim(), 16).unwrap();
            let start = body.len();
            // The line break after a chunk is not part of it.
            body.resize(start + length + 2, 0);
            caller.read_exact(&mut body[start..]).await?;
            body.truncate(start + length);
            if length == 0 {
                break;
            }
        }
    }
    Ok(Asked { body: serde_json::from_slice(&body).unwrap_or_default(), ..asked })
}
