//! Canaries: secrets of the tests that are recognised in any output of a server.
//!
//! Every credential in a test begins with `canary-7c5e`: tokens, API keys, passwords, keys of models and
//! collectors. Logs, metrics, exported spans and responses of the servers under test are scanned, and a secret in
//! one of them fails the test. A credential that is wrong on purpose begins so too, because it may be a mistyped one.

use std::{
    cell::Cell,
    io,
    sync::{Mutex, Once, PoisonError},
};

/// The beginning of every secret. No encoding of JSON, HTML or URLs changes it.
pub(crate) const MARK: &str = "canary-7c5e";

/// The same in base64, by the number of bytes before it modulo three.
const ENCODED: [&str; 3] = ["Y2FuYXJ5LTdjNW", "NhbmFyeS03YzVl", "jYW5hcnktN2M1Z"];

/// The secret with this name.
pub(crate) fn secret(name: &str) -> String {
    format!("{MARK}-{name}")
}

/// The first secret in a text, with the text around it.
pub(crate) fn leak(text: &str) -> Option<&str> {
    let at = [MARK].iter().chain(&ENCODED).find_map(|mark| text.find(mark))?;
    let from = text.floor_char_boundary(at.saturating_sub(300));
    Some(&text[from..text.ceil_char_boundary(at + 100)])
}

/// Fails if there is a secret in an output of a server.
#[track_caller]
pub(crate) fn scan(place: &str, output: impl AsRef<[u8]>) {
    if let Some(found) = leak(&String::from_utf8_lossy(output.as_ref())) {
        panic!("a secret is in {place}: {found}");
    }
}

/// Lines with secrets in the log of this process, each with the name of its thread. The thread of a test, on which
/// its servers run too, has the name of the test.
static LEAKS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

thread_local! {
    /// True on the thread of a test that has secrets. Lines of other threads are not even formatted.
    static IS_WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Watches the log of this thread, at level trace, until the thread ends.
pub(crate) fn watch_log() {
    use tracing_subscriber::{Layer, filter::dynamic_filter_fn, layer::SubscriberExt, registry};
    static ON: Once = Once::new();
    IS_WATCHED.set(true);
    ON.call_once(|| {
        let ours =
            dynamic_filter_fn(|line, _| IS_WATCHED.get() && line.target().starts_with("herald_"));
        let lines = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(|| Watcher);
        let subscriber = registry().with(lines.with_filter(ours));
        tracing::subscriber::set_global_default(subscriber).expect("nothing else logs");
    });
}

/// Fails if this test logged a secret, or a thread that belongs to no test.
#[track_caller]
pub(crate) fn check_log() {
    let own = thread_name();
    let mut leaks = LEAKS.lock().unwrap_or_else(PoisonError::into_inner);
    let found: Vec<_> =
        leaks.extract_if(.., |(thread, _)| *thread == own || !thread.contains("::")).collect();
    drop(leaks);
    assert!(found.is_empty(), "a secret is in the log: {found:#?}");
}

fn thread_name() -> String {
    std::thread::current().name().unwrap_or("a thread").to_owned()
}

struct Watcher;

impl io::Write for Watcher {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(found) = leak(&String::from_utf8_lossy(line)) {
            let found = (thread_name(), found.to_owned());
            LEAKS.lock().unwrap_or_else(PoisonError::into_inner).push(found);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
