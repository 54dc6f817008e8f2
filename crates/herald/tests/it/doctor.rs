//! Tests of `herald doctor`: every check succeeds and fails.

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use herald_engine::Clock;
use herald_protocol::Timestamp;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional, split},
    net::{TcpListener, TcpStream},
    process::Command,
};
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::task::TaskTracker;

use crate::{
    cli_support::{Fake, response},
    receiver::{Receiver, ReceiverAnswer},
    support::{AGENTS, Ended, Herald, Options, SOON, ended},
    wire::{Draft, Wire},
};

/// The output of doctor.
#[derive(Debug)]
struct Report {
    json: Value,
    code: i32,
}

/// Runs it with these flags and nothing else from outside.
async fn run(home: &Path, flags: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    command.arg("doctor").args(flags).current_dir(home).env_clear();
    command.envs(variables.iter().copied());
    ended(command).await
}

async fn doctor(home: &Path, flags: &[&str]) -> Report {
    report(&run(home, &[flags, &["-o", "json"]].concat(), &[]).await)
}

fn report(ended: &Ended) -> Report {
    assert_eq!(ended.stderr, "", "{ended:?}");
    let json = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    Report { json, code: ended.status.code().unwrap() }
}

impl Report {
    fn find(&self, check: &str) -> Option<&Value> {
        let checks = self.json["checks"].as_array().unwrap();
        checks.iter().find(|finding| finding["check"] == check)
    }

    /// This check said so, with these words in what was seen or in the remedy, which every
    /// verdict but the good one has.
    #[track_caller]
    fn says(&self, check: &str, verdict: &str, words: &[&str]) {
        let found = self.find(check).unwrap_or_else(|| panic!("no {check} in {self:?}"));
        assert_eq!(found["verdict"], verdict, "{found}");
        assert_eq!(found["remedy"].is_string(), verdict != "ok", "{found}");
        let text = |key: &str| found[key].as_str().unwrap_or_default();
        let said = format!("{} -> {}", text("seen"), text("remedy"));
        for word in words {
            assert!(said.contains(word), "no {word:?} in {said}");
        }
        let worst = &self.json["verdict"];
        assert_eq!(self.code, i32::from(worst == "fail"), "{self:?}");
        assert!(verdict == "ok" || worst == verdict || worst == "fail", "{self:?}");
    }

    /// All checks are ok.
    #[track_caller]
    fn is_well(&self) {
        assert_eq!((&self.json["verdict"], self.code), (&json!("ok"), 0), "{self:?}");
    }
}

/// A home with this `herald.toml`.
fn home(config: &str) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("herald.toml"), config).unwrap();
    home
}

/// The port that a server listens on.
fn port(herald: &Herald) -> String {
    herald.address.port().to_string()
}

/// Checks a running server, with its own flags.
async fn examine(herald: &Herald, more: &[&str]) -> Report {
    let port = port(herald);
    let flags = [&["--data", "data", "--port", &port, "--timeout", "2s"], more].concat();
    doctor(herald.home(), &flags).await
}

#[tokio::test]
async fn without_faults_every_check_is_ok_in_both_formats() {
    let home = home(AGENTS);
    let found = doctor(home.path(), &["--port", "0"]).await;
    found.is_well();
    found.says("config", "ok", &["herald.toml", "echo, conformance"]);
    for check in ["port", "store", "disk", "clock"] {
        found.says(check, "ok", &[]);
    }
    let text = run(home.path(), &["--port", "0"], &[]).await;
    let lines: Vec<_> = text.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{text:?}");
    assert!(lines.iter().all(|line| line.starts_with("ok    ")), "{text:?}");
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "it left something behind: {left:?}");
}

#[tokio::test]
async fn an_invalid_configuration_is_reported_with_its_line_and_a_remedy() {
    for (config, words) in [
        ("port = 1\n", &["line 1", "belongs under [server]", "docs/configuration.md"][..]),
        ("[server]\nprot = 1\n", &["line 2", "did you mean `port`?"]),
        ("[server]\nallowed_origins = [\"x\"]\n", &["herald.toml", "https://"]),
        ("[[agents]]\nname = \"a\"\nkind = \"eccho\"\n", &["line 3", "unknown kind"]),
    ] {
        let found = doctor(home(config).path(), &[]).await;
        found.says("config", "fail", words);
        assert_eq!(found.json["checks"].as_array().unwrap().len(), 1, "{found:?}");
    }
    let home = tempfile::tempdir().unwrap();
    let missing = doctor(home.path(), &["--config", "nowhere.toml"]).await;
    missing.says("config", "fail", &["nowhere.toml", "cannot read"]);
    let text = run(home.path(), &["--host", "0.0.0.0"], &[]).await;
    assert_eq!(text.status.code(), Some(1));
    assert!(text.stdout.starts_with("fail  config  other machines can reach 0.0.0.0"), "{text:?}");
    assert!(text.stdout.contains("\n              -> correct it"), "{text:?}");
}

#[tokio::test]
async fn a_port_is_free_or_its_holder_is_named() {
    let home = tempfile::tempdir().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let held = doctor(home.path(), &["--port", &port, "--timeout", "200ms"]).await;
    held.says("port", "fail", &[&format!("127.0.0.1:{port} is held by"), "--port"]);
    if Path::new("/proc/net/tcp").exists() {
        held.says("port", "fail", &[&format!("(process {})", std::process::id())]);
    }
    drop(other);
    let free = doctor(home.path(), &["--port", &port]).await;
    free.says("port", "ok", &["is free"]);
    let open = "[auth]\nrequired = false\n";
    fs::write(home.path().join("herald.toml"), open).unwrap();
    // An address for examples, which no machine has.
    let foreign = doctor(home.path(), &["--host", "192.0.2.1"]).await;
    foreign.says("port", "fail", &["192.0.2.1:8000 cannot be opened", "--host"]);
}

#[tokio::test]
async fn a_running_server_is_recognised_and_distinguished_from_another() {
    let herald = Herald::start(Options::config(AGENTS)).await;
    let found = examine(&herald, &[]).await;
    found.is_well();
    found.says("port", "ok", &["is served by", &format!("(process {})", herald.id())]);
    found.says("store", "ok", &["in use by a server"]);
    found.says("card", "ok", &["has the card of"]);
    found.says("stream", "ok", &["the first event at"]);
    // The same data with another port, and the same port with other data.
    let elsewhere = doctor(herald.home(), &["--data", "data", "--port", "0"]).await;
    elsewhere.says("store", "ok", &["in use"]);
    let port = port(&herald);
    let config = "[[agents]]\nname = \"mine\"\nkind = \"echo\"\n";
    let other = doctor(home(config).path(), &["--port", &port]).await;
    other.says("port", "fail", &["is held by", "which serves \"Echo\""]);
}

/// All files of a directory with their content.
fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

#[tokio::test]
async fn a_store_is_checked_in_every_state_and_never_written() {
    let look = async |home: &Path, flags: &[&str]| {
        let data = home.join("data");
        let before = data.exists().then(|| files(&data));
        let found = doctor(home, &[&["--data", "data", "--port", "0"], flags].concat()).await;
        assert!(before == data.exists().then(|| files(&data)), "something was written");
        found
    };
    let mut herald = Herald::start(Options::agents()).await;
    for _ in 0..20 {
        herald.call(&Wire::Rpc.send("", &Draft::new("m", "hello"), false)).await;
    }
    let home = herald.home().to_owned();
    herald.kill9().await;
    let left = look(&home, &[]).await;
    left.says("store", "ok", &["20 tasks", "did not close it"]);
    herald.restart().await;
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    let closed = look(&home, &[]).await;
    closed.is_well();
    closed.says("store", "ok", &["20 tasks"]);
    let path = home.join("data/herald.db");
    let whole = fs::read(&path).unwrap();
    let change = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    change("INSERT INTO refinery_schema_history VALUES (999, 'l', '2030-01-01T00:00:00Z', '1')");
    look(&home, &[]).await.says(
        "store",
        "fail",
        &["version 999 of the database schema", "too old", "install"],
    );
    let mut damaged = whole.clone();
    let (from, to) = (whole.len() / 3, whole.len() / 3 * 2);
    damaged[from..to].fill(0xa5);
    for broken in [damaged, whole[..whole.len() / 2].to_vec(), b"no database".to_vec()] {
        fs::write(&path, broken).unwrap();
        look(&home, &[]).await.says("store", "fail", &["backup"]);
    }
    fs::remove_file(&path).unwrap();
    look(&home, &[]).await.says("store", "ok", &["the start creates"]);
    let memory = doctor(&home, &["--ephemeral", "--port", "0"]).await;
    memory.says("store", "ok", &["in memory only"]);
    assert!(memory.find("disk").is_none(), "{memory:?}");
}

#[tokio::test]
async fn a_disk_without_space_or_permission_is_reported() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("file"), b"").unwrap();
    let below = doctor(home.path(), &["--port", "0", "--data", "file/data"]).await;
    below.says("disk", "fail", &["cannot be written", "--data"]);
    let well = doctor(home.path(), &["--port", "0", "--data", "not/there/yet"]).await;
    well.says("disk", "ok", &["can be written", "free", "a commit takes"]);
    if let Ok(memory) = tempfile::tempdir_in("/dev/shm") {
        let data = memory.path().to_str().unwrap();
        let found = doctor(home.path(), &["--port", "0", "--data", data]).await;
        found.says("disk", "warn", &["tmpfs", "use a disk"]);
    }
    let small = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
        .arg(small.path())
        .output()
        .await
        .is_ok_and(|output| output.status.success());
    if !mounted {
        println!("not run: no file system can be mounted here");
        return;
    }
    let data = small.path().to_str().unwrap();
    let full = doctor(home.path(), &["--port", "0", "--data", data]).await;
    let unmounted = Command::new("umount").arg("-l").arg(small.path()).status().await.unwrap();
    assert!(unmounted.success());
    full.says("disk", "fail", &["8.0 MiB free", "free disk space"]);
}

#[tokio::test]
async fn a_clock_behind_the_stores_files_is_a_failure() {
    let mut herald = Herald::start(Options::default()).await;
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    let flags = ["--data", "data", "--port", "0"];
    doctor(herald.home(), &flags).await.says("clock", "ok", &["20"]);
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000);
    let file = fs::File::options().write(true).open(herald.database()).unwrap();
    file.set_modified(later).unwrap();
    let behind = doctor(herald.home(), &flags).await;
    behind.says("clock", "fail", &["written at 2096-", "timedatectl"]);
}

/// A server that answers every request for a card with this, and is not there for others.
async fn card_server(card: String, headers: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let read = stream.read(&mut head).await.unwrap_or(0);
            let (status, body) = if head[..read].starts_with(b"GET /.well-known/") { ("200 OK", card.as_str()) } else { ("404 Not Found", "") };
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n{body}"
            );
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    address
}

/// The card that a server of these settings shows at this address.
async fn card_of(config: &str, url: &str) -> Value {
    let options = Options::config(config).arguments(["--public-url", url]);
    let herald = Herald::start(options).await;
    let call = crate::http::Call::get("/.well-known/agent-card.json").header("a2a-version", "1.0");
    herald.call(&call).await.json()
}

/// Runs the checks with the public URL of a card server, while no server runs.
async fn through(config: &str, address: SocketAddr) -> Report {
    let url = format!("http://{address}");
    let flags = ["--ephemeral", "--port", "0", "--public-url", &url, "--timeout", "2s"];
    doctor(home(config).path(), &flags).await
}

#[tokio::test]
async fn a_clock_that_differs_from_the_cards_server_is_reported() {
    let date = |seconds: u64| {
        let then = SystemTime::now() - Duration::from_secs(seconds);
        let then = jiff::Timestamp::try_from(then).unwrap();
        jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&then).unwrap()
    };
    for (behind, verdict) in
        [(None, "fail"), (Some(3600), "fail"), (Some(30), "warn"), (Some(0), "ok")]
    {
        // Just before it is compared: the runs before took their time.
        let date = behind.map_or_else(|| "Fri, 01 Jan 2100 00:00:00 GMT".to_owned(), date);
        let address = card_server("{}".to_owned(), format!("date: {date}\r\n")).await;
        let words: &[&str] = match verdict {
            "ok" => &[],
            _ => &["at the card's address", "timedatectl"],
        };
        through("", address).await.says("clock", verdict, words);
    }
    let address = card_server("{}".to_owned(), String::new()).await;
    through("", address).await.says("clock", "ok", &[]);
}

#[tokio::test]
async fn the_card_at_the_public_address_is_compared_with_the_settings() {
    let config = AGENTS;
    // An address where no server runs.
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{nobody}");
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let flags = ["--ephemeral", "--port", &free.to_string(), "--public-url", &url];
    let stopped = doctor(home(config).path(), &flags).await;
    stopped.says("card", "warn", &["refused", "start it"]);
    through(config, nobody).await.says("card", "fail", &["refused", "public_url"]);
    let page = card_server("<html>".to_owned(), String::new()).await;
    through(config, page).await.says("card", "fail", &["no card", "/.well-known"]);
    let moved = card_server(String::new(), "location: /elsewhere\r\n".to_owned()).await;
    through(config, moved).await.says("card", "fail", &["no card"]);

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let card = card_of(config, &format!("http://{address}")).await;
    let same = serve_again(address, card.to_string()).await;
    through(config, same).await.says("card", "ok", &["\"Echo\""]);
    // The card server has no streams.
    through(config, same).await.says("stream", "fail", &["404", "every path"]);

    let mut rewritten = card.clone();
    rewritten["supportedInterfaces"][0]["url"] = json!("http://inside:8000/a2a/jsonrpc");
    let rewritten = card_server(rewritten.to_string(), String::new()).await;
    through(config, rewritten).await.says("card", "fail", &["http://inside:8000", "rewrite"]);
}

/// Serves a card at an address that was chosen before.
async fn serve_again(address: SocketAddr, card: String) -> SocketAddr {
    let inner = card_server(card, String::new()).await;
    let listener = TcpListener::bind(address).await.unwrap();
    proxy(listener, inner, Passing::Everything);
    address
}

#[tokio::test]
async fn the_old_card_of_a_server_that_was_not_restarted_is_a_warning() {
    let herald = Herald::start(Options::config(AGENTS)).await;
    examine(&herald, &[]).await.is_well();
    let changed = AGENTS.replace("kind = \"echo\"", "kind = \"echo\"\ndescription = \"new\"");
    fs::write(herald.home().join("herald.toml"), changed).unwrap();
    examine(&herald, &[]).await.says(
        "card",
        "warn",
        &["differs from that of these settings", "restart the server"],
    );
}

/// The treatment of streams by a proxy.
#[derive(Debug, Clone, Copy)]
enum Passing {
    Everything,
    /// It buffers a stream until its end.
    WholeAnswers,
}

/// Forwards connections to another address.
fn proxy(listener: TcpListener, to: SocketAddr, passing: Passing) {
    let connections = TaskTracker::new();
    let inner = connections.clone();
    connections.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            inner.spawn(async move {
                let server = TcpStream::connect(to).await.unwrap();
                lead(stream, server, passing).await;
            });
        }
    });
}

async fn lead(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    mut server: TcpStream,
    passing: Passing,
) {
    if let Passing::Everything = passing {
        let _ = copy_bidirectional(&mut client, &mut server).await;
        return;
    }
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (split(client), split(server));
    let forth = tokio::io::copy(&mut from_client, &mut to_server);
    let back = async {
        let (mut held, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(read) = from_server.read(&mut piece).await {
            held.extend_from_slice(&piece[..read]);
            let stream = held.windows(17).any(|part| part == b"text/event-stream");
            if read == 0 || !stream {
                let _ = to_client.write_all(&held).await;
                held.clear();
            }
            if read == 0 {
                return;
            }
        }
    };
    tokio::select! {
        _ = forth => {}
        () = back => {}
    }
}

#[tokio::test]
async fn a_buffering_proxy_is_reported() {
    for (passing, verdict, words) in [
        (Passing::Everything, "ok", &["the first event at"][..]),
        (Passing::WholeAnswers, "fail", &["no event arrived", "within 2s", "proxy_buffering off"]),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let options = Options::agents().arguments(["--public-url", &url]);
        let herald = Herald::start(options).await;
        proxy(listener, herald.address, passing);
        let found = examine(&herald, &["--public-url", &url]).await;
        found.says("card", "ok", &[&url]);
        found.says("stream", verdict, words);
    }
}

#[tokio::test]
async fn streams_are_checked_with_a_token_that_is_not_printed() {
    let config = |scopes: &str| {
        let token = format!("token = \"hush-hush\", scopes = [{scopes}]");
        format!("[auth]\ntokens = [{{ {token}, tenant = \"a\", principal = \"p\" }}]\n{AGENTS}")
    };
    let herald = Herald::start(Options::config(config("\"read\""))).await;
    let found = examine(&herald, &[]).await;
    found.says("stream", "ok", &[]);
    assert!(!found.json.to_string().contains("hush"), "{found:?}");
    let herald = Herald::start(Options::config(config("\"send\""))).await;
    examine(&herald, &[]).await.says("stream", "warn", &["no token has the scope read"]);
    // A server with another card does not get the token.
    let stranger = card_server("{}".to_owned(), String::new()).await;
    let found = through(&config("\"read\""), stranger).await;
    found.says("card", "warn", &["differs from that of these settings"]);
    assert!(found.find("stream").is_none(), "{found:?}");
}

/// A self-signed certificate for `localhost` and its key, as files.
/// It expires in this many days, or in the far future.
fn certificate(directory: &Path, days: Option<i64>) -> (Vec<u8>, Vec<u8>) {
    let mut wanted = CertificateParams::new(["localhost".to_owned()]).unwrap();
    if let Some(days) = days {
        let end = Clock::system().now().as_millis() + days * 24 * 60 * 60 * 1000;
        let end = Timestamp::from_millis(end).to_string();
        let part = |from: usize, to: usize| end[from..to].parse::<u8>().unwrap();
        let year = end[..4].parse().unwrap();
        wanted.not_after = date_time_ymd(year, part(5, 7), part(8, 10));
    }
    let key = KeyPair::generate().unwrap();
    let pair = (wanted.self_signed(&key).unwrap().der().to_vec(), key.serialize_der());
    for (name, label, der) in
        [("chain.pem", "CERTIFICATE", &pair.0), ("key.pem", "PRIVATE KEY", &pair.1)]
    {
        let text = BASE64_STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        let body = lines.join("\n");
        let pem = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        fs::write(directory.join(name), pem).unwrap();
    }
    pair
}

#[tokio::test]
async fn the_certificate_of_the_port_is_checked_against_its_key() {
    let files = tempfile::tempdir().unwrap();
    certificate(files.path(), None);
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (chain, key) = (path("chain.pem"), path("key.pem"));
    let flags = ["--tls-certificate", &chain, "--tls-key", &key];
    let herald = Herald::start(Options::agents().arguments(flags)).await;
    let found = examine(&herald, &flags).await;
    found.is_well();
    found.says("tls", "ok", &["belong together", "until 4096"]);
    found.says("card", "ok", &["https://127.0.0.1"]);
    found.says("stream", "ok", &[]);
    let other = tempfile::tempdir().unwrap();
    certificate(other.path(), None);
    fs::copy(other.path().join("key.pem"), path("key.pem")).unwrap();
    examine(&herald, &flags).await.says("tls", "fail", &["key.pem", "--tls-key", "PEM"]);
    fs::remove_file(path("key.pem")).unwrap();
    examine(&herald, &flags).await.says("tls", "fail", &["cannot read", "key.pem"]);
    for (days, verdict, said) in
        [(30, "ok", "until 20"), (10, "warn", "in 9 days"), (-1, "fail", "expired at 20")]
    {
        certificate(files.path(), Some(days));
        examine(&herald, &flags).await.says("tls", verdict, &[said]);
    }
}

#[tokio::test]
async fn an_untrusted_or_expiring_certificate_is_reported() {
    for (days, verdict, said) in [(None, "ok", "until 4096"), (Some(10), "warn", "in 9 days")] {
        public_certificate(days, verdict, said).await;
    }
}

async fn public_certificate(days: Option<i64>, verdict: &str, said: &str) {
    let files = tempfile::tempdir().unwrap();
    let (chain, key) = certificate(files.path(), days);
    let key = rustls::pki_types::PrivateKeyDer::try_from(key).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![chain.into()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
    let options = Options::agents().arguments(["--public-url", &url]);
    let herald = Herald::start(options).await;
    let to = herald.address;
    let connections = TaskTracker::new();
    let inner = connections.clone();
    connections.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            inner.spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                lead(stream, TcpStream::connect(to).await.unwrap(), Passing::Everything).await;
            });
        }
    });
    let unknown = examine(&herald, &["--public-url", &url]).await;
    unknown.says("certificate", "fail", &["ertificate", "chain"]);
    let roots = files.path().join("chain.pem");
    let port = port(&herald);
    let flags = ["--data", "data", "--port", &port, "--public-url", &url, "-o", "json"];
    let trusted = [("SSL_CERT_FILE", roots.to_str().unwrap())];
    let found = report(&run(herald.home(), &flags, &trusted).await);
    found.says("certificate", verdict, &["trusted", said]);
    found.says("stream", "ok", &[&url]);
}

#[tokio::test]
async fn the_keys_of_an_identity_provider_are_fetched() {
    let home = tempfile::tempdir().unwrap();
    let provider = Fake::start(|url, request| {
        let body = match request.path.as_str() {
            "/.well-known/openid-configuration" => {
                json!({ "issuer": url, "jwks_uri": format!("{url}/keys") })
            }
            _ => json!({ "keys": [{}, {}] }),
        };
        response(200, "application/json", body.to_string())
    })
    .await;
    let config = |issuer: &str| {
        let jwt =
            format!("jwt = {{ issuer = \"{issuer}\", audience = \"herald\", tenant = \"acme\" }}");
        fs::write(home.path().join("herald.toml"), format!("{AGENTS}\n[auth]\n{jwt}\n")).unwrap();
    };
    config(&provider.url);
    let report = doctor(home.path(), &["--port", "0"]).await;
    let found = report.find("jwks").unwrap();
    assert_eq!(found["verdict"], "ok", "{found}");
    assert!(found["seen"].as_str().unwrap().ends_with("has 2 keys"), "{found}");
    assert_eq!(report.find("auth").unwrap()["seen"], "accepts 1 identity provider and API keys");
    config("http://127.0.0.1:1");
    let report = doctor(home.path(), &["--port", "0"]).await;
    let found = report.find("jwks").unwrap();
    assert_eq!((&found["verdict"], report.code), (&json!("warn"), 0), "{found}");
    assert!(found["seen"].as_str().unwrap().contains("cannot be fetched"), "{found}");
}

#[tokio::test]
async fn a_receiver_of_webhooks_is_probed_by_the_rules_of_the_server() {
    let receiver = Receiver::start(|path| {
        ReceiverAnswer::status(if path == "/moved" { 308 } else { 405 }, "")
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let (url, host) = (receiver.url("/canary-7c5e-path"), receiver.address.to_string());
    let flags = ["--port", "0", "-o", "json"];
    let with = |urls: &[&str]| -> Vec<String> {
        let urls = urls.iter().flat_map(|url| ["--webhook", url]);
        flags.into_iter().chain(urls).map(str::to_owned).collect()
    };
    let probe = async |urls: &[&str], variables: &[(&str, &str)]| {
        let flags = with(urls);
        let flags: Vec<_> = flags.iter().map(String::as_str).collect();
        report(&run(home.path(), &flags, variables).await)
    };
    let refused = probe(&[&url], &[]).await;
    let allow = format!("allowed_hosts = [\"{host}\"]");
    refused.says("webhook", "fail", &["not public", &allow]);
    assert!(!refused.json.to_string().contains("canary-7c5e"), "{refused:?}");
    assert_eq!(receiver.connections(), 0);
    let allowed = [("PUSH_NOTIFICATION_ALLOWED_HOSTS", host.as_str())];
    probe(&[&url], &allowed).await.says("webhook", "ok", &["405"]);
    let moved = receiver.url("/moved");
    probe(&[&moved], &allowed).await.says("webhook", "warn", &["308", "redirects"]);
    probe(&["https://receiver.invalid/"], &[]).await.says("webhook", "fail", &["no address"]);
    probe(&["ftp://a.example/"], &[]).await.says("webhook", "fail", &["https://"]);
    drop(receiver);
    probe(&[&url], &allowed).await.says("webhook", "fail", &["does not answer"]);
    assert!(doctor(home.path(), &["--port", "0"]).await.find("webhook").is_none());
}
