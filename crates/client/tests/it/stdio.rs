//! Agents that are programs, as shell scripts. `crates/herald` has the test with the real binary.

use std::path::Path;

use herald_client::{Client, Limits, StreamEvent, TaskState, protocol::ErrorKind};
use tempfile::tempdir;

use crate::hub::{all, quick, soon};

/// A client of a shell script.
fn script(text: &str) -> Client {
    quick().command("sh", ["-c", text]).unwrap()
}

/// Lines that answer the call of this id with a finished task.
fn done(id: u64) -> String {
    let task = r#"{"task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}}"#;
    format!(r#"echo '{{"jsonrpc":"2.0","id":{id},"result":{task}}}'"#)
}

/// Waits for a file that a script creates at its end.
async fn appears(path: &Path) {
    soon(async {
        while !path.exists() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_program_is_called_over_lines_and_other_output_is_ignored() {
    let text = format!(
        "read -r line\n\
         case \"$line\" in *'\"method\":\"SendMessage\"'*'\"a2a-version\":\"1.0\"'*) ;; *) exit 9;; esac\n\
         echo listening\n\
         echo '{{\"method\":\"hello\"}}'\n\
         {}\n\
         cat > /dev/null",
        done(1)
    );
    let client = script(&text);
    assert_eq!(client.card().name, "sh");
    let sent = soon(client.send("hello")).await.unwrap();
    assert!(matches!(sent, herald_client::SendResult::Task(task) if task.id.as_str() == "t"));
}

#[tokio::test]
async fn a_stream_of_a_program_has_its_events_and_its_end() {
    let event = |body: &str| {
        format!(r#"echo '{{"jsonrpc":"2.0","id":1,"result":{{{body}}},"eventId":"t:1"}}'"#)
    };
    let status = r#""statusUpdate":{"taskId":"t","contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}"#;
    let text = format!(
        "read -r line\n{}\n{}\n{}\ncat > /dev/null",
        event(r#""task":{"id":"t","contextId":"c","status":{"state":"TASK_STATE_WORKING"}}"#),
        event(status),
        r#"echo '{"jsonrpc":"2.0","method":"stream/end","params":{"id":1}}'"#,
    );
    let mut events = script(&text).stream("hello").await.unwrap();
    soon(events.next()).await.unwrap().unwrap();
    assert_eq!(events.cursor(), Some("t:1"));
    let rest = all(events).await;
    assert_eq!(rest.last().and_then(StreamEvent::state), Some(TaskState::Completed));
}

#[tokio::test]
async fn an_error_without_an_id_belongs_to_the_only_call() {
    let text = "read -r line\n\
                echo '{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,\"message\":\"too long\"}}'\n\
                cat > /dev/null";
    let error = soon(script(text).send("hello")).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::InvalidRequest));
}

#[tokio::test]
async fn a_program_that_exits_fails_its_calls_and_is_restarted_by_the_next() {
    let place = tempdir().unwrap();
    let marker = place.path().join("ran");
    let text = format!(
        "read -r line\n\
         if [ ! -e '{0}' ]; then : > '{0}'; exit 3; fi\n\
         {1}\n\
         cat > /dev/null",
        marker.display(),
        done(2)
    );
    let client = script(&text);
    let error = soon(client.send("hello")).await.unwrap_err();
    assert!(error.is_broken() && format!("{error:?}").contains("exit status: 3"), "{error:?}");
    soon(client.send("hello")).await.unwrap();
}

#[tokio::test]
async fn a_connection_whose_credentials_are_refused_is_not_used_again() {
    let place = tempdir().unwrap();
    let marker = place.path().join("ran");
    let text = format!(
        "read -r line\n\
         if [ -e '{0}' ]; then {1}; else : > '{0}'\n\
         echo '{{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{{\"code\":-31011,\"message\":\"who?\"}}}}'; fi\n\
         cat > /dev/null",
        marker.display(),
        done(2)
    );
    let client = script(&text);
    let error = soon(client.send("hello")).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Unauthenticated));
    soon(client.send("hello")).await.unwrap();
}

#[tokio::test]
async fn a_missing_program_and_an_endless_line_are_errors_of_their_kind() {
    let client = Client::connect("stdio:no-such-program-anywhere --flag").await.unwrap();
    let error = soon(client.send("hello")).await.unwrap_err();
    assert!(error.is_setup() && error.to_string().contains("no-such-program"), "{error}");
    assert!(!format!("{client:?}").contains("--flag"), "arguments may be secret");
    assert!(Client::connect("stdio:").await.unwrap_err().is_setup());

    let limits = Limits { event: 1000, response: 1000, ..Limits::default() };
    let endless = ["-c", "while :; do printf xxxxxxxxxxxxxxxx; done"];
    let client = quick().limits(limits).command("sh", endless).unwrap();
    let error = soon(client.send("hello")).await.unwrap_err();
    assert!(error.is_too_large(), "{error:?}");
}

#[tokio::test]
async fn child_processes_of_a_program_are_killed_with_it() {
    let place = tempdir().unwrap();
    let (number, alive) = (place.path().join("number"), place.path().join("alive"));
    // The child process outlives the program and has none of its streams open.
    let text = format!(
        "sleep 600 < /dev/null > /dev/null 2>&1 & echo $! > '{0}.new'; mv '{0}.new' '{0}'\n\
         read -r line\n{1}\n: > '{2}'\ncat > /dev/null",
        number.display(),
        done(1),
        alive.display()
    );
    let client = script(&text);
    soon(client.send("hello")).await.unwrap();
    appears(&number).await;
    let started = std::fs::read_to_string(&number).unwrap();
    let process = Path::new("/proc").join(started.trim());
    assert!(process.exists());
    drop(client);
    soon(async {
        // A killed process stays in `/proc` as a zombie until its parent reaps it.
        let gone = || match std::fs::read_to_string(process.join("stat")) {
            Ok(stat) => stat.contains(") Z "),
            Err(_) => true,
        };
        while !gone() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_program_ends_with_its_client() {
    let place = tempdir().unwrap();
    let marker = place.path().join("gone");
    let client =
        script(&format!("read -r line\n{}\ncat > /dev/null\n: > '{}'", done(1), marker.display()));
    soon(client.send("hello")).await.unwrap();
    assert!(!marker.exists());
    drop(client);
    appears(&marker).await;
}
