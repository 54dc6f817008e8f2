//! Tests of programs as agents: input, output, limits, clean-up and crashes.

use std::{fs, path::Path, time::Duration};

use serde_json::{Value, json};
use tokio::{process::Command, task::JoinSet};

use crate::{
    http::Call,
    processes::{children, none_runs, pids, runs},
    support::{Herald, Options, SOON, eventually, number, uuid},
    tasks::{begun, ended, failure, printed, settled, task, told},
    wire::{Draft, Wire, id, state},
};

/// An agent that runs this script for each message, served at the root, with an `echo` beside it.
fn script(script: &str, settings: &str) -> Options {
    Options::config(format!(
        "[[agents]]\nname = \"program\"\nkind = \"exec\"\n\
         command = [\"sh\", \"-c\", '''{script}''']\n{settings}\n\
         [[agents]]\nname = \"echo\"\nkind = \"echo\"\n"
    ))
}

fn files(herald: &Herald) -> usize {
    fs::read_dir(format!("/proc/{}/fd", herald.id())).unwrap().count()
}

/// In KiB.
fn memory(herald: &Herald) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", herald.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A script that leaves its process group, loses its parent, starts a child and ignores SIGTERM.
const STUBBORN: &str = "trap '' TERM
    setsid sh -c 'trap \"\" TERM; echo $$ >> pids; (sleep 600; :) & wait; sleep 600' &
    sh -c 'setsid sleep 600 & echo $! >> pids'
    echo $$ >> pids
    echo started
    while :; do sleep 600; done";

#[tokio::test]
async fn the_message_is_the_input_and_the_output_is_the_artifact() {
    let herald = Herald::start(script("wc -w; echo done >&2", "")).await;
    let task = told(&herald, "three short words").await;
    assert_eq!(state(&task), "completed");
    assert_eq!(printed(&task).trim(), "3");
    assert_eq!(task["artifacts"][0]["artifactId"], "output");
}

#[tokio::test]
async fn output_is_streamed_while_the_program_runs() {
    // The program continues only after the test has seen its first line.
    let waits = "echo first; until [ -e go ]; do sleep 0.05; done; echo second";
    let herald = Herald::start(script(waits, "")).await;
    let call = Wire::Rest.stream("", &Draft::new(uuid(), "go"));
    let mut stream = herald.client().await.open(&call).await.unwrap();
    let mut text = String::new();
    let mut chunks = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        let frame = Wire::Rest.frame(&event);
        text += frame.text().unwrap_or_default();
        if text == "first\n" {
            fs::write(herald.home().join("go"), "").unwrap();
        }
        chunks.extend(frame.body.get("artifactUpdate").cloned());
    }
    assert_eq!(text, "first\nsecond\n");
    let (last, before) = chunks.split_last().unwrap();
    assert_eq!(last["append"], true);
    assert!(before.iter().all(|chunk| chunk.get("lastChunk").is_none()), "{chunks:?}");
    assert!(chunks.iter().all(|chunk| chunk["artifact"]["parts"][0]["text"] != ""), "{chunks:?}");
}

#[tokio::test]
async fn the_exit_code_decides_and_error_detail_limits_what_callers_see() {
    let fails = "echo half; echo 'cannot open /srv/secret' >&2; echo 'it broke' >&2; exit 3";
    for (detail, text) in [
        ("", "agent program ended with exit code 3"),
        ("error_detail = \"kind\"", "agent program ended with exit code 3"),
        ("error_detail = \"message\"", "agent program ended with exit code 3: it broke"),
        (
            "error_detail = \"full\"",
            "agent program ended with exit code 3: cannot open /srv/secret\nit broke",
        ),
    ] {
        let herald = Herald::start(script(fails, detail)).await;
        let task = told(&herald, "x").await;
        assert_eq!(failure(&task), (text, "AGENT_FAILED"));
        assert_eq!(printed(&task), "half\n", "what it had printed is there");
        let log = herald.log();
        let line = log.lines().find(|line| line.contains("the agent failed")).expect("a line");
        let warned = line.contains("WARN") && line.contains("cannot open /srv/secret");
        assert!(warned, "the log has everything, as a warning: {line}");
    }
    let herald = Herald::start(script("kill -9 $$", "")).await;
    let task = told(&herald, "x").await;
    assert_eq!(failure(&task).0, "agent program was killed by signal 9");
}

#[tokio::test]
async fn a_failed_task_ends_before_its_program_has_ended() {
    let deaf = "trap \"\" TERM; exec yes";
    let settings = "max_output = \"1MiB\"\nkill_grace = \"1h\"";
    let herald = Herald::start(script(deaf, settings)).await;
    let failed = told(&herald, "x").await;
    assert_eq!(failure(&failed).0, "agent program printed more than 1048576 bytes");
    assert!(!children(&herald).is_empty(), "it has its time to end");
}

#[tokio::test]
async fn a_cancelled_program_ends_with_all_its_processes() {
    let herald = Herald::start(script(STUBBORN, "kill_grace = \"200ms\"")).await;
    let id = begun(&herald, "x").await;
    let pids = pids(herald.home(), 3).await;
    assert!(pids.iter().all(|pid| runs(*pid)), "{pids:?}");
    let cancelled = Wire::Rest.result(&herald.call(&Wire::Rest.cancel(&id)).await).unwrap();
    assert_eq!(state(&cancelled), "canceled");
    none_runs(&pids).await;
    eventually(SOON, "no zombie is left", async || children(&herald).is_empty()).await;
    assert_eq!(state(&task(&herald, &id).await), "canceled", "the first end stays");
}

#[tokio::test]
async fn a_program_can_clean_up_after_sigterm() {
    let tidy =
        "trap 'echo tidied > tidy; exit 0' TERM; echo $$ >> pids; while :; do sleep 0.05; done";
    let herald = Herald::start(script(tidy, "")).await;
    let id = begun(&herald, "x").await;
    let pids = pids(herald.home(), 1).await;
    herald.call(&Wire::Rest.cancel(&id)).await;
    none_runs(&pids).await;
    assert_eq!(fs::read_to_string(herald.home().join("tidy")).unwrap(), "tidied\n");
}

#[tokio::test]
async fn leftover_processes_of_a_program_are_ended() {
    let leaves = "setsid sleep 600 & echo $! >> pids; sleep 600 & echo $! >> pids; echo done";
    let herald = Herald::start(script(leaves, "kill_grace = \"100ms\"")).await;
    let task = told(&herald, "x").await;
    assert_eq!((state(&task).as_str(), printed(&task).as_str()), ("completed", "done\n"));
    let pids = pids(herald.home(), 2).await;
    assert!(!pids.iter().any(|pid| runs(*pid)), "they are gone before the task is done");
}

#[tokio::test]
async fn timeout_and_idle_timeout_end_a_program() {
    for (settings, reason) in
        [("timeout = \"300ms\"", "TIMED_OUT"), ("idle_timeout = \"300ms\"", "IDLE")]
    {
        let settings = format!("kill_grace = \"100ms\"\n{settings}");
        let herald = Herald::start(script(STUBBORN, &settings)).await;
        let task = told(&herald, "x").await;
        assert_eq!(failure(&task).1, reason);
        none_runs(&pids(herald.home(), 3).await).await;
    }
}

#[tokio::test]
async fn any_output_of_a_program_affects_its_own_task_only() {
    let prints = "read -r what; case $what in
        bytes) printf 'a\\377b\\342\\202' ;;
        line) head -c 1000000 /dev/zero | tr '\\0' x ;;
        nothing) : ;;
        forever) echo $$ >> pids; yes ;;
        noise) echo $$ >> pids; yes >&2 ;;
        esac";
    let settings = "max_output = \"2MiB\"\ntimeout = \"5s\"\nkill_grace = \"100ms\"";
    let herald = Herald::start(script(prints, settings)).await;
    let before = memory(&herald);
    let forever = begun(&herald, "forever\n").await;
    let noise = begun(&herald, "noise\n").await;
    let echo = Wire::Rest.send("/agents/echo", &Draft::new(uuid(), "hi"), false);
    let echo = Wire::Rest.sent(&herald.call(&echo).await).unwrap();
    assert_eq!(printed(&echo), "Echo: hi");
    assert_eq!(printed(&told(&herald, "bytes\n").await), "a\u{fffd}b\u{fffd}");
    assert_eq!(printed(&told(&herald, "line\n").await), "x".repeat(1_000_000));
    let nothing = told(&herald, "nothing\n").await;
    assert_eq!((state(&nothing).as_str(), printed(&nothing).as_str()), ("completed", ""));
    let forever = ended(&herald, &forever).await;
    assert_eq!(failure(&forever).0, "agent program printed more than 2097152 bytes");
    assert_eq!(failure(&ended(&herald, &noise).await).1, "TIMED_OUT");
    none_runs(&pids(herald.home(), 2).await).await;
    let grown = memory(&herald).saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB for output that was bounded");
}

#[tokio::test]
async fn a_program_that_does_not_read_its_input_does_not_block() {
    let herald = Herald::start(script("exec 0<&-; echo deaf", "")).await;
    let task = told(&herald, &"much ".repeat(100_000)).await;
    assert_eq!((state(&task).as_str(), printed(&task).as_str()), ("completed", "deaf\n"));
}

#[tokio::test]
async fn files_have_a_path_and_data_is_json() {
    let parts = json!([
        { "text": "look:" },
        { "data": { "n": 1 } },
        { "raw": "aGVsbG8=", "filename": "../../no/../te st.txt", "mediaType": "text/plain" },
        { "url": "https://example.com/x", "mediaType": "image/png" },
    ]);
    let message = json!({ "messageId": "m-7", "role": "ROLE_USER", "parts": parts });
    let call = Call::post("/message:send", &json!({ "message": message }));
    let call = call.header("a2a-version", "1.0");

    let herald = Herald::start(script("cat; echo; echo $HERALD_TASK_ID", "")).await;
    let task = Wire::Rest.sent(&herald.call(&call).await).unwrap();
    let text = printed(&task);
    let lines: Vec<&str> = text.lines().collect();
    let path = lines[2];
    assert!(path.ends_with("/2-no..test.txt"), "{path}");
    assert_eq!(
        [&lines[..2], &lines[3..]].concat(),
        ["look:", "{\"n\":1}", "https://example.com/x", id(&task)]
    );
    assert!(!Path::new(path).exists(), "the file goes with the turn");

    // Three lines: the message, the content of the file that it names, and the ids.
    let reads = r#"message=$(cat); echo "$message"
cat "$(echo "$message" | sed "s/.*\"path\":\"\([^\"]*\)\".*/\1/")"; echo
echo "$HERALD_TASK_ID $HERALD_CONTEXT_ID $HERALD_MESSAGE_ID""#;
    let herald = Herald::start(script(reads, "input = \"json\"")).await;
    let task = Wire::Rest.sent(&herald.call(&call).await).unwrap();
    let text = printed(&task);
    let lines: Vec<&str> = text.lines().collect();
    let [message, file, ids] = lines[..] else { panic!("{text}") };
    let message: Value = serde_json::from_str(message).unwrap();
    assert_eq!(file, "hello");
    let context = task["contextId"].as_str().unwrap();
    assert_eq!(ids, format!("{} {context} m-7", id(&task)));
    assert_eq!(message["taskId"], task["id"]);
    assert_eq!(message["parts"][1], json!({ "data": { "n": 1 } }));
    assert_eq!(message["parts"][2].get("raw"), None);
    assert_eq!(message["parts"][3], parts[3]);
}

/// A message whose only part is a file.
fn file() -> Call {
    let parts = json!([{ "raw": "aGVsbG8=", "filename": "note.txt" }]);
    let message = json!({ "messageId": uuid(), "role": "ROLE_USER", "parts": parts });
    let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
    Call::post("/message:send", &body).header("a2a-version", "1.0")
}

#[tokio::test]
async fn files_of_callers_are_private_and_removed_after_a_crash() {
    let shows = "read -r path; stat -c %a \"$path\" \"${path%/*}\"; echo \"$path\"; \
                 until [ -e go ]; do sleep 0.05; done";
    let temporary = tempfile::tempdir().unwrap();
    let place = temporary.path().to_str().unwrap().to_owned();
    let options = script(shows, "").environment("TMPDIR", &place).shell("umask 022");
    let mut herald = Herald::start(options).await;
    let sent = Wire::Rest.sent(&herald.call(&file()).await).unwrap();
    let shown = async || printed(&task(&herald, id(&sent)).await);
    eventually(SOON, "it has shown them", async || shown().await.contains("note.txt\n")).await;
    let shown = shown().await;
    let lines: Vec<_> = shown.lines().collect();
    assert_eq!(lines[..2], ["600", "700"]);
    let path = Path::new(lines[2]);
    assert!(path.starts_with(&place) && path.exists(), "{shown}");
    // A directory of another program with a similar name.
    let foreign = temporary.path().join("herald-foreign");
    fs::create_dir(&foreign).unwrap();
    herald.kill9().await;
    assert!(path.exists(), "nobody was there to remove it");
    herald.restart().await;
    assert!(!path.parent().unwrap().exists(), "{shown}");
    assert!(foreign.exists());
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_wait_when_file_descriptors_are_scarce() {
    let herald = Herald::start(script("cat; sleep 0.2", "").shell("ulimit -n 64")).await;
    let mut client = herald.client().await;
    let mut tasks = Vec::new();
    for number in 0..40 {
        let draft = Draft::new(uuid(), format!("number {number}"));
        let sent = client.call(&Wire::Rest.send("", &draft, true)).await.unwrap();
        tasks.push(id(&Wire::Rest.sent(&sent).unwrap()).to_owned());
    }
    for (number, task) in tasks.iter().enumerate() {
        let look = async |client: &mut crate::http::Client| {
            Wire::Rest.result(&client.call(&Wire::Rest.get(task)).await.unwrap()).unwrap()
        };
        let deadline = tokio::time::Instant::now() + SOON;
        let mut found = look(&mut client).await;
        while !matches!(state(&found).as_str(), "completed" | "failed") {
            assert!(tokio::time::Instant::now() < deadline, "{found}");
            tokio::time::sleep(Duration::from_millis(20)).await;
            found = look(&mut client).await;
        }
        assert_eq!(
            (state(&found).as_str(), &*printed(&found)),
            ("completed", &*format!("number {number}"))
        );
    }
}

#[tokio::test]
async fn a_program_gets_its_variables_and_none_of_the_servers_secrets() {
    let settings = "env = { GIVEN = \"as is\", SECRET = \"env:HERALD_TEST_SECRET\" }";
    let herald = Herald::start(
        script("tr '\\0' ' ' < /proc/$$/cmdline; env", settings)
            .environment("HERALD_TEST_SECRET", "canary-9d1")
            .environment("HERALD_TEST_OTHER", "canary-4c2"),
    )
    .await;
    let text = printed(&told(&herald, "x").await);
    let (line, environment) = text.split_once("; env ").unwrap();
    assert!(!line.contains("canary"), "{line}");
    let has = |variable: &str| environment.lines().any(|line| line == variable);
    assert!(has("GIVEN=as is") && has("SECRET=canary-9d1"), "{environment}");
    assert!(!environment.contains("canary-4c2"), "{environment}");
    assert!(!environment.contains("HERALD_TEST_SECRET"), "{environment}");
}

#[tokio::test]
async fn programs_of_a_killed_server_are_ended_at_the_next_start() {
    let mut herald = Herald::start(script(STUBBORN, "")).await;
    let id = begun(&herald, "x").await;
    let pids = pids(herald.home(), 3).await;
    // A process of another program whose id is in a record with another start time.
    let mut foreign = Command::new("sleep").arg("600").kill_on_drop(true).spawn().unwrap();
    let foreign_id = foreign.id().unwrap();
    let records = herald.home().join("data/processes");
    let life = fs::read_dir(&records).unwrap().next().unwrap().unwrap().path();
    fs::write(life.join(format!("{foreign_id}-1")), "").unwrap();
    herald.kill9().await;
    assert!(pids.iter().all(|pid| runs(*pid)), "nobody was there to end them");
    herald.restart().await;
    assert!(!pids.iter().any(|pid| runs(*pid)), "they are gone before it serves");
    assert!(runs(foreign_id), "whoever has the number now is left alone");
    let text = "the server stopped while the agent was at work";
    assert_eq!(failure(&ended(&herald, &id).await), (text, "INTERRUPTED"));
    assert_eq!(fs::read_dir(&records).unwrap().count(), 0, "what is over is not remembered");
    foreign.kill().await.unwrap();
}

#[tokio::test]
async fn leftovers_of_a_dead_program_are_ended_beside_a_later_one() {
    let mut herald = Herald::start(script("eval \"$(cat)\"", "")).await;
    // It ends with the server, because its output is closed.
    let orphan =
        "setsid sleep 600 & echo $! >> pids; echo $$ > leader; while echo x; do sleep 0.1; done";
    begun(&herald, orphan).await;
    pids(herald.home(), 1).await;
    begun(&herald, "echo $$ >> pids; exec sleep 600").await;
    let pids = pids(herald.home(), 2).await;
    herald.kill9().await;
    let leader = fs::read_to_string(herald.home().join("leader")).unwrap().trim().parse().unwrap();
    eventually(SOON, "its leader ended", async || !runs(leader)).await;
    assert!(pids.iter().all(|pid| runs(*pid)), "nobody was there to end them");
    herald.restart().await;
    none_runs(&pids).await;
}

#[tokio::test]
async fn a_program_with_attempts_runs_again_after_a_crash() {
    let second = "if [ -e once ]; then echo again; else touch once; echo $$ >> pids; echo first; \
                  sleep 600; fi";
    let mut herald = Herald::start(script(second, "attempts = 2")).await;
    let id = begun(&herald, "x").await;
    let pids = pids(herald.home(), 1).await;
    herald.kill9().await;
    herald.restart().await;
    let task = ended(&herald, &id).await;
    assert_eq!((state(&task).as_str(), printed(&task).as_str()), ("completed", "again\n"));
    none_runs(&pids).await;
}

#[tokio::test]
async fn a_stopped_server_leaves_no_process() {
    let stop = |signals: usize| async move {
        let options = script(STUBBORN, "");
        let mut herald = Herald::start(options).await;
        let id = begun(&herald, "x").await;
        let pids = pids(herald.home(), 3).await;
        for _ in 0..signals {
            herald.terminate().await;
        }
        assert!(herald.wait(SOON).await.success());
        assert!(!pids.iter().any(|pid| runs(*pid)));
        herald.restart().await;
        assert_eq!(failure(&ended(&herald, &id).await).1, "INTERRUPTED");
    };
    stop(1).await;
    stop(2).await;
}

#[tokio::test]
async fn a_link_out_of_the_allowed_roots_is_refused() {
    let roots = tempfile::tempdir().unwrap();
    let (inside, outside) = (roots.path().join("inside"), roots.path().join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::create_dir(&outside).unwrap();
    let link = roots.path().join("link");
    let settings =
        format!("workdir = \"{}\"\nallowed_roots = [\"{}\"]", link.display(), inside.display());
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    let refused = script("pwd", &settings).refused().await;
    assert!(refused.stderr.contains("outside of the allowed directories"), "{}", refused.stderr);

    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&inside, &link).unwrap();
    let herald = Herald::start(script("pwd -P", &settings)).await;
    let inside = inside.canonicalize().unwrap();
    assert_eq!(printed(&told(&herald, "x").await).trim(), inside.to_str().unwrap());
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&outside, &link).unwrap();
    let sent = Wire::OldRpc.send("", &Draft::new(uuid(), "x"), false);
    let fault = Wire::OldRpc.sent(&herald.call(&sent).await).expect_err("it cannot be started");
    assert_eq!((fault.code, &*fault.reason), (-32007, "AGENT_UNAVAILABLE"), "{fault:?}");
    let task = settled(&herald, Err(fault)).await;
    assert_eq!(failure(&task), ("agent program could not be started", "AGENT_UNAVAILABLE"));
}

#[tokio::test]
async fn mistakes_in_its_settings_are_refused_at_the_start() {
    let agent = |settings: &str| format!("[[agents]]\nname = \"a\"\n{settings}\n");
    for (settings, said) in [
        ("kind = \"exec\"", "needs a command"),
        ("kind = \"exec\"\ncommand = []", "needs a command"),
        ("kind = \"exec\"\ncommand = [\"no-such-program-7\"]", "is it installed?"),
        ("kind = \"exec\"\ncommand = [\"/etc/passwd\"]", "chmod +x"),
        ("kind = \"exec\"\ncommand = [\"wc -w\"]", "element of its own: [\"wc\", \"-w\"]"),
        ("kind = \"exec\"\ncommand = [\"herald.toml\"]", "write \"./herald.toml\""),
        ("kind = \"exec\"\ncommand = [\"cat\"]\nworkdir = \"nowhere\"", "nowhere"),
        ("kind = \"echo\"\ncommand = [\"cat\"]", "`command` belongs to kind = \"exec\""),
        ("kind = \"exec\"\ncommand = [\"cat\"]\ninput = \"xml\"", "unknown value `xml`"),
        (
            "kind = \"exec\"\ncommand = [\"cat\"]\ntimeout = \"18446744073709551615s\"",
            "is too long",
        ),
        (
            "kind = \"exec\"\ncommand = [\"cat\"]\nmemory = 3",
            "`memory` belongs to kind = \"a2a\", \"llm\", \"worker\" or",
        ),
    ] {
        let refused = Options::config(agent(settings)).refused().await;
        assert!(refused.stderr.contains(said), "{settings}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn a_missing_program_of_exec_is_refused_as_in_the_file() {
    for (line, said) in [
        ("no-such-program-7 --fast", "no executable program \"no-such-program-7\" on PATH"),
        ("no-such-program-7|cat", "is it installed?"),
        ("./nowhere.sh fast", "there is no file \"./nowhere.sh\"; check the path"),
        ("/etc/passwd", "chmod +x"),
        (" ", "--exec needs a command, such as --exec 'wc -w'"),
    ] {
        let refused = Options::default().arguments(["--exec", line]).refused().await;
        assert!(refused.stderr.contains(said), "{line}: {}", refused.stderr);
    }
    // Shell syntax is not checked.
    for line in ["cd / && pwd", "WORD=x; echo $WORD", "\"cat\"", "for x in 1; do cat; done"] {
        Herald::start(Options::default().arguments(["--exec", line])).await;
    }
}

#[tokio::test]
async fn the_exec_flag_serves_a_program() {
    let options = Options::default().arguments(["--exec", "tr a-z A-Z | rev"]);
    let herald = Herald::start(options).await;
    assert_eq!(printed(&told(&herald, "live").await), "EVIL");
    let options = Options::agents().arguments(["--exec", "pwd", "--workdir", "/"]);
    let herald = Herald::start(options).await;
    assert_eq!(printed(&told(&herald, "x").await), "/\n", "it is at the root, before the file's");
    let echo = Wire::Rest.send("/agents/echo", &Draft::new(uuid(), "hi"), false);
    assert_eq!(printed(&Wire::Rest.sent(&herald.call(&echo).await).unwrap()), "Echo: hi");
}

/// `HERALD_EXEC_TASKS=500` is the long version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_concurrent_programs_leave_no_process() {
    let count = number("HERALD_EXEC_TASKS", 64);
    let herald = Herald::start(script("cat; echo", "concurrency = 32")).await;
    for _ in 0..8 {
        told(&herald, "warm").await;
    }
    let (files_before, memory_before) = (files(&herald), memory(&herald));
    let address = herald.address;
    let mut lanes = JoinSet::new();
    for lane in 0..32 {
        lanes.spawn(async move {
            let mut client = crate::http::Client::connect(address).await.unwrap();
            for number in (lane..count).step_by(32) {
                let draft = Draft::new(uuid(), format!("task {number}"));
                let answer = client.call(&Wire::Rest.send("", &draft, false)).await.unwrap();
                let task = Wire::Rest.sent(&answer).unwrap();
                assert_eq!(printed(&task), format!("task {number}\n"));
                assert_eq!(state(&task), "completed");
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        lane.unwrap();
    }
    eventually(SOON, "no zombie is left", async || children(&herald).is_empty()).await;
    eventually(SOON, "no file is left open", async || files(&herald) <= files_before + 2).await;
    let grown = memory(&herald).saturating_sub(memory_before);
    println!("{count} programs, {grown} KiB more memory");
    assert!(grown < 24 << 10, "{grown} KiB more after {count} programs");
    let log = herald.home().join("data/processes");
    eventually(SOON, "no record is left", async || {
        let lives = fs::read_dir(&log).unwrap().flatten();
        lives.flat_map(|life| fs::read_dir(life.path()).unwrap()).count() == 0
    })
    .await;
}
