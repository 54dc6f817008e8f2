//! Receiver of webhooks on loopback: records what it gets, and answers as a test says.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) path: String,
    /// Names in lower case, with their values, in their order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A response by the path of its request.
pub(crate) type ReceiverScript = fn(&str) -> ReceiverAnswer;

/// The bytes of a response.
#[derive(Debug)]
pub(crate) enum ReceiverAnswer {
    /// These bytes.
    Text(String),
    /// Nothing, while the connection stays open.
    Silence,
    /// These bytes, and then one byte after the other, slowly and for ever.
    Drip(String),
    /// These bytes, and then zeros, as fast as they are read and for ever.
    Flood(String),
}

impl ReceiverAnswer {
    /// A response without a body.
    pub(crate) fn status(status: u16, headers: &str) -> Self {
        Self::Text(format!("HTTP/1.1 {status} Status\r\nContent-Length: 0\r\n{headers}\r\n"))
    }
}

#[derive(Debug)]
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    connections: Arc<Mutex<usize>>,
    accepting: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Receiver {
    pub(crate) async fn start(script: ReceiverScript) -> Self {
        Self::on(IpAddr::from(Ipv4Addr::LOCALHOST), 0, script).await.unwrap()
    }

    pub(crate) async fn on(ip: IpAddr, port: u16, script: ReceiverScript) -> std::io::Result<Self> {
        let listener = TcpListener::bind((ip, port)).await?;
        let address = listener.local_addr()?;
        let (received, connections) =
            (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<usize>>::default());
        let (record, count) = (Arc::clone(&received), Arc::clone(&connections));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *count.lock().unwrap() += 1;
                // The test ends with the connection or the connection with the test.
                tokio::spawn(serve(stream, Arc::clone(&record), script));
            }
        });
        Ok(Self { address, received, connections, accepting })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests until now.
    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// The number of accepted connections until now.
    pub(crate) fn connections(&self) -> usize {
        *self.connections.lock().unwrap()
    }
}

async fn serve(mut stream: TcpStream, record: Arc<Mutex<Vec<Received>>>, script: ReceiverScript) {
    let mut bytes = Vec::new();
    loop {
        let Some(request) = read_request(&mut stream, &mut bytes).await else { return };
        let answer = script(&request.path);
        record.lock().unwrap().push(request);
        match answer {
            ReceiverAnswer::Text(text) => {
                if stream.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
            ReceiverAnswer::Silence => {
                let _ = stream.read(&mut [0; 1]).await;
                return;
            }
            ReceiverAnswer::Drip(head) => {
                let mut next = stream.write_all(head.as_bytes()).await;
                while next.is_ok() {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    next = stream.write_all(b"x").await;
                }
                return;
            }
            ReceiverAnswer::Flood(head) => {
                let mut next = stream.write_all(head.as_bytes()).await;
                while next.is_ok() {
                    next = stream.write_all(&[b'0'; 16 << 10]).await;
                }
                return;
            }
        }
    }
}

/// Reads one request. Bytes of the next one stay in `bytes`.
async fn read_request(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<Received> {
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    let headers: Vec<_> = lines.map(header).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, value)| value.parse().unwrap());
    let total = end + 4 + length;
    while bytes.len() < total {
        if stream.read_buf(bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = bytes[end + 4..total].to_vec();
    bytes.drain(..total);
    Some(Received { path, headers, body })
}
