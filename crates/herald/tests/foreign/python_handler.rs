//! Tests of handlers and of violations of their line protocol.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};
use tokio::{process::Command, task::JoinSet};

use crate::{
    http::Client,
    processes::{children, none_runs, pids, runs},
    support::{Herald, Options, SOON, ended as output_of, eventually, number, uuid},
    tasks::{begun, ended, failure, printed, task, told},
    wire::{Draft, Wire, id, is_terminal, state},
};

/// A handler that does what it is told, in a thread for each turn. What it starts with, and whom it
/// was told to let go of, it writes to files where it runs.
const STEERED: &str = r#"
import json, os, sys, threading, time
lock, stops = threading.Lock(), {}
def say(**line):
    with lock:
        sys.stdout.write(json.dumps(line) + "\n"); sys.stdout.flush()
def note(name, text):
    with lock, open(name, "a") as f: f.write(str(text) + "\n")
def work(turn, line):
    text = "".join(part.get("text", "") for part in line["message"]["parts"])
    word, _, rest = text.partition(" ")
    done = lambda **more: say(type="status", turn=turn, state="completed", **more)
    if word == "pieces":
        for piece in rest.split():
            say(type="artifact", turn=turn, artifactId="a", name="letters", text=piece, append=True)
        say(type="artifact", turn=turn, artifactId="a", parts=[{"data": {"n": 1}}], append=True, lastChunk=True)
        say(type="status", turn=turn, state="working", text="nearly")
        done(text="done")
    elif word == "ask":
        say(type="status", turn=turn, state="input_required", parts=[{"text": "which?"}, {"data": ["a", "b"]}])
    elif word == "answer":
        asked = [m["parts"][0]["text"] for m in line["history"] if m["role"] == "ROLE_AGENT"]
        done(text=f"{rest} after {asked}")
    elif word == "state": say(type="status", turn=turn, state=rest, text="so be it")
    elif word == "hold":
        note("held", rest)
        while not os.path.exists("go") and not stops[turn].wait(0.02): pass
        if stops[turn].is_set():
            note("stopped", rest); say(type="status", turn=turn, state="canceled")
        else: say(type="artifact", turn=turn, text=rest); done()
    elif word == "deaf": note("deaf", turn)
    elif word == "die": os._exit(3)
    elif word == "once":
        say(type="artifact", turn=turn, text="first ", append=True)
        if not os.path.exists("once"): note("once", line["attempt"]); os._exit(4)
        say(type="artifact", turn=turn, text="again", append=True); done()
    elif word == "error": say(type="error", turn=turn, kind="RuntimeError", message="it broke", detail="at /srv/x.py")
    elif word == "wrong": say(type="status", turn=turn, state="splendid")
    elif word == "canceled": say(type="status", turn=turn, state="canceled")
    elif word == "junk":
        with lock: sys.stdout.write("no JSON at all\n"); sys.stdout.flush()
        if rest: say(type="artifact", turn=turn, text=rest); done()
    elif word == "half": say(type="artifact", turn=turn, text="a\ud83eb"); done()
    elif word == "stranger": say(type="status", turn="4711", state="completed")
    elif word == "long":
        with lock: sys.stdout.write("x" * (9 << 20) + "\n"); sys.stdout.flush()
    elif word == "much":
        while not stops[turn].is_set(): say(type="artifact", turn=turn, text="x" * 1000, append=True)
        note("stopped", "much"); say(type="status", turn=turn, state="failed")
    else: say(type="artifact", turn=turn, text=text); done()
note("pids", os.getpid())
for raw in sys.stdin:
    line = json.loads(raw)
    if line["type"] == "hello": say(type="hello", protocol=1)
    elif line["type"] == "cancel": stops[line["turn"]].set()
    elif line["type"] == "begin":
        stops[line["turn"]] = threading.Event()
        threading.Thread(target=work, args=(line["turn"], line), daemon=True).start()
"#;

/// The scripted handler at the root, and an `echo` agent.
fn steered(settings: &str) -> Options {
    python(STEERED, settings)
}

fn python(program: &str, settings: &str) -> Options {
    Options::config(format!(
        "[[agents]]\nname = \"steered\"\nkind = \"handler\"\n\
         command = [\"python3\", \"-c\", '''{program}''']\n{settings}\n\
         [[agents]]\nname = \"echo\"\nkind = \"echo\"\n"
    ))
}

fn lines(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The response to a blocking send of this text.
async fn answer(herald: &Herald, text: &str) -> Result<Value, crate::wire::Fault> {
    let call = Wire::Rpc.send("", &Draft::new(uuid(), text), false);
    Wire::Rpc.sent(&herald.call(&call).await)
}

/// The task of the last send.
async fn newest(herald: &Herald) -> Value {
    let listed = herald.call(&crate::wire::list(None, 1, "")).await.json();
    task(herald, id(&listed["tasks"][0])).await
}

#[tokio::test]
async fn a_handler_reports_every_state_and_writes_artifacts_in_chunks() {
    let herald = Herald::start(steered("")).await;
    let call = Wire::Rest.stream("", &Draft::new(uuid(), "pieces a b"));
    let mut stream = herald.client().await.open(&call).await.unwrap();
    let frames = Wire::Rest.rest_of(&mut stream).await.unwrap();
    let pieces: Vec<_> =
        frames.iter().filter_map(|frame| frame.body.get("artifactUpdate")).collect();
    let appended: Vec<_> = pieces.iter().map(|piece| piece["append"] == true).collect();
    assert_eq!(appended, [false, true, true]);
    assert_eq!(pieces[2]["lastChunk"], true);
    assert_eq!(pieces[0]["artifact"]["name"], "letters");
    let last = &frames.last().unwrap().body["statusUpdate"]["status"];
    assert_eq!(last["state"], "TASK_STATE_COMPLETED");
    assert_eq!(last["message"]["parts"][0]["text"], "done");
    let done = newest(&herald).await;
    let expected = json!([{ "text": "a" }, { "text": "b" }, { "data": { "n": 1 } }]);
    assert_eq!(done["artifacts"][0]["parts"], expected);
    for name in ["failed", "rejected", "auth-required", "TASK_STATE_COMPLETED"] {
        let said = told(&herald, &format!("state {name}")).await;
        assert_eq!(said["status"]["message"]["parts"][0]["text"], "so be it", "{name}");
        assert!(name.to_lowercase().ends_with(&state(&said)), "{name}: {said}");
    }
}

#[tokio::test]
async fn a_handler_asks_and_gets_the_answer() {
    let herald = Herald::start(steered("")).await;
    let asked = told(&herald, "ask").await;
    assert_eq!(state(&asked), "input-required");
    assert_eq!(asked["status"]["message"]["parts"][1], json!({ "data": ["a", "b"] }));
    let next = Draft::new(uuid(), "answer b").to(id(&asked));
    let done = Wire::Rest.sent(&herald.call(&Wire::Rest.send("", &next, false)).await).unwrap();
    assert_eq!(state(&done), "completed");
    assert_eq!(done["status"]["message"]["parts"][0]["text"], "b after ['which?']");
}

#[tokio::test]
async fn one_process_works_on_many_tasks_at_once() {
    let herald = Herald::start(steered("")).await;
    let mut tasks = Vec::new();
    for number in 0..20 {
        tasks.push(begun(&herald, &format!("hold {number}")).await);
    }
    let held = herald.home().join("held");
    eventually(SOON, "all are at work", async || lines(&held).len() == 20).await;
    fs::write(herald.home().join("go"), "").unwrap();
    for (number, task) in tasks.iter().enumerate() {
        let done = ended(&herald, task).await;
        let expected = ("completed".to_owned(), number.to_string());
        assert_eq!((state(&done), printed(&done)), expected);
    }
    assert_eq!(pids(herald.home(), 1).await.len(), 1);
    assert_eq!(children(&herald).len(), 1);
}

#[tokio::test]
async fn a_cancelled_turn_is_released_and_the_others_continue() {
    let herald = Herald::start(steered("kill_grace = \"300ms\"\nconcurrency = 2")).await;
    let (one, other) = (begun(&herald, "hold one").await, begun(&herald, "hold other").await);
    let held = herald.home().join("held");
    eventually(SOON, "both are at work", async || lines(&held).len() == 2).await;
    herald.call(&Wire::Rest.cancel(&one)).await;
    assert_eq!(state(&task(&herald, &one).await), "canceled");
    let stopped = herald.home().join("stopped");
    eventually(SOON, "it was told", async || lines(&stopped) == ["one"]).await;
    // Its slot is free again; that of a turn which ignores the cancel is free after `kill_grace`.
    let deaf = begun(&herald, "deaf").await;
    let heard = herald.home().join("deaf");
    eventually(SOON, "it works", async || lines(&heard).len() == 1).await;
    herald.call(&Wire::Rest.cancel(&deaf)).await;
    assert_eq!(printed(&told(&herald, "hi").await), "hi");
    fs::write(herald.home().join("go"), "").unwrap();
    assert_eq!(printed(&ended(&herald, &other).await), "other");
    assert_eq!(pids(herald.home(), 1).await.len(), 1, "nobody died of it");
}

#[tokio::test]
async fn a_handler_that_dies_fails_its_turns_and_is_restarted() {
    let herald = Herald::start(steered("")).await;
    let held = begun(&herald, "hold x").await;
    let path = herald.home().join("held");
    eventually(SOON, "it is at work", async || lines(&path).len() == 1).await;
    let text = "agent steered ended with exit code 3 in the middle of a turn";
    assert_eq!(failure(&told(&herald, "die").await), (text, "AGENT_FAILED"));
    assert_eq!(failure(&ended(&herald, &held).await), (text, "AGENT_FAILED"));
    assert_eq!(printed(&told(&herald, "hi").await), "hi");
    assert_eq!(pids(herald.home(), 2).await.len(), 2);
}

#[tokio::test]
async fn a_repeated_turn_replaces_its_output() {
    let herald = Herald::start(steered("attempts = 2")).await;
    let done = told(&herald, "once").await;
    assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "first again"));
    assert_eq!(lines(&herald.home().join("once")), ["1"]);
    assert_eq!(failure(&told(&herald, "die").await).1, "AGENT_FAILED", "not for ever");
    assert_eq!(pids(herald.home(), 3).await.len(), 3, "two for each, one of them for both");
}

#[tokio::test]
async fn a_violation_of_the_line_protocol_fails_its_own_turn_only() {
    let herald = Herald::start(steered("max_output = \"100KiB\"")).await;
    let other = begun(&herald, "hold other").await;
    for (text, what) in [
        ("wrong", "agent steered wrote a line with invalid values"),
        ("canceled", "an agent cannot report this state"),
    ] {
        let fault = answer(&herald, text).await.unwrap_err();
        assert_eq!((fault.code, fault.reason.as_str()), (-32006, "INVALID_AGENT_RESPONSE"));
        assert!(fault.message.contains(what), "{fault:?}");
        let failed = newest(&herald).await;
        let (said, reason) = failure(&failed);
        assert!(said.contains(what) && reason == "INVALID_AGENT_RESPONSE", "{failed}");
    }
    let text = "agent steered wrote more than 102400 bytes";
    assert_eq!(failure(&told(&herald, "much").await), (text, "AGENT_FAILED"));
    let stopped = herald.home().join("stopped");
    eventually(SOON, "it was told", async || lines(&stopped) == ["much"]).await;
    // A line without a known turn is logged, and other turns continue.
    let junk = begun(&herald, "junk").await;
    eventually(SOON, "it is logged", async || herald.log().contains("no JSON at all")).await;
    assert_eq!(state(&task(&herald, &junk).await), "working");
    fs::write(herald.home().join("go"), "").unwrap();
    assert_eq!(printed(&ended(&herald, &other).await), "other");
    herald.call(&Wire::Rest.cancel(&junk)).await;
    assert_eq!(pids(herald.home(), 1).await.len(), 1, "it was one process all along");
}

#[tokio::test]
async fn an_invalid_line_without_a_turn_fails_the_only_running_turn() {
    // It ignores the cancel, and the task does not wait for it.
    let settings = "kill_grace = \"1h\"\nerror_detail = \"message\"";
    for (text, what) in [
        ("junk", "agent steered wrote an invalid line: is not valid JSON"),
        ("wrong", "agent steered wrote a line with invalid values: state: must be "),
        ("stranger", "agent steered wrote an invalid line: there is no such turn"),
        ("long", "agent steered wrote an invalid line: longer than 8388608 bytes"),
    ] {
        let herald = Herald::start(steered(settings)).await;
        let fault = answer(&herald, text).await.unwrap_err();
        assert_eq!(fault.code, -32006, "{fault:?}");
        assert!(fault.message.contains(what), "{fault:?}");
        // The process still has that turn, so an invalid line may belong to it.
        assert_eq!(printed(&told(&herald, "junk spares me").await), "spares me");
    }
}

#[tokio::test]
async fn a_lone_surrogate_is_replaced() {
    let herald = Herald::start(steered("")).await;
    assert_eq!(printed(&told(&herald, "half").await), "a\u{fffd}b");
}

#[tokio::test]
async fn callers_see_as_much_of_an_error_as_error_detail_allows() {
    for (detail, text) in [
        ("", "agent steered failed (RuntimeError)"),
        ("error_detail = \"message\"", "agent steered failed (RuntimeError): it broke"),
        ("error_detail = \"full\"", "agent steered failed (RuntimeError): it broke\nat /srv/x.py"),
    ] {
        let herald = Herald::start(steered(detail)).await;
        assert_eq!(failure(&told(&herald, "error").await), (text, "AGENT_FAILED"));
        assert!(herald.log().contains("at /srv/x.py"), "the log has everything");
    }
}

#[tokio::test]
async fn a_program_that_is_not_a_handler_is_reported_with_its_output() {
    for (program, text) in [
        ("pass", "agent steered ended with exit code 0 in the middle of a turn"),
        (
            "import sys; sys.exit(\"no such module\")",
            "agent steered ended with exit code 1 in the middle of a turn: no such module",
        ),
        (
            "print(\"{\\\"type\\\":\\\"hello\\\",\\\"protocol\\\":9}\", flush=True); input(); input()",
            "agent steered has version 9 of the line protocol, and 1 is needed",
        ),
    ] {
        let herald = Herald::start(python(program, "error_detail = \"message\"")).await;
        assert_eq!(failure(&told(&herald, "x").await).0, text);
    }
}

#[tokio::test]
async fn an_absurd_ping_interval_is_harmless() {
    let program = "import sys, json
print(json.dumps({\"type\": \"hello\", \"protocol\": 1, \"ping\": 2**64 - 1}), flush=True)
for raw in sys.stdin:
    line = json.loads(raw)
    if line[\"type\"] == \"begin\":
        print(json.dumps({\"type\": \"status\", \"turn\": line[\"turn\"], \"state\": \"completed\"}), flush=True)";
    let herald = Herald::start(python(program, "")).await;
    for _ in 0..2 {
        assert_eq!(state(&told(&herald, "x").await), "completed");
    }
}

#[tokio::test]
async fn a_handler_that_closed_its_input_is_replaced() {
    let program = "import os, time
print(\"{\\\"type\\\":\\\"hello\\\",\\\"protocol\\\":1}\", flush=True)
os.close(0)
open(\"closed\", \"w\").close()
time.sleep(600)";
    let herald = Herald::start(python(program, "kill_grace = \"100ms\"")).await;
    let first = begun(&herald, "x").await;
    let closed = herald.home().join("closed");
    eventually(SOON, "its input was closed", async || closed.exists()).await;
    // A closed input is noticed with the next line only.
    let second = begun(&herald, "y").await;
    for id in [first, second] {
        let text = "agent steered closed its input";
        assert_eq!(failure(&ended(&herald, &id).await), (text, "AGENT_FAILED"));
    }
}

#[tokio::test]
async fn a_handler_that_stops_answering_is_replaced() {
    // It answers the first ping and then hangs in the middle of a line.
    let program = "import sys, os, json
open(\"pids\", \"a\").write(str(os.getpid()) + \"\\n\")
for raw in sys.stdin:
    line = json.loads(raw)
    if line[\"type\"] == \"hello\": print(json.dumps({\"type\": \"hello\", \"protocol\": 1, \"ping\": 1}), flush=True)
    if line[\"type\"] == \"ping\" and line[\"id\"] == 1: print(json.dumps({\"type\": \"pong\", \"id\": 1}), flush=True)
";
    let herald = Herald::start(python(program, "kill_grace = \"100ms\"")).await;
    let text = "agent steered did not answer a ping in time";
    assert_eq!(failure(&told(&herald, "x").await), (text, "AGENT_FAILED"));
    none_runs(&pids(herald.home(), 1).await).await;
}

/// `HERALD_HANDLER_KILLS=50` is the long version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_at_any_moment_every_task_ends() {
    let kills = number("HERALD_HANDLER_KILLS", 5);
    let herald = Herald::start(steered("attempts = 2")).await;
    let address = herald.address;
    let mut lanes = JoinSet::new();
    for lane in 0..4 {
        lanes.spawn(async move {
            let mut client = Client::connect(address).await.unwrap();
            let mut states = Vec::new();
            for number in 0..kills * 4 {
                let draft = Draft::new(uuid(), format!("pieces {lane} {number}"));
                let answer = client.call(&Wire::Rest.send("", &draft, false)).await.unwrap();
                let task = Wire::Rest.sent(&answer).unwrap();
                states.push(state(&task));
                if state(&task) == "failed" {
                    assert_eq!(failure(&task).1, "AGENT_FAILED");
                } else {
                    let parts = json!([
                        { "text": lane.to_string() },
                        { "text": number.to_string() },
                        { "data": { "n": 1 } }
                    ]);
                    assert_eq!(task["artifacts"][0]["parts"], parts, "nothing twice: {task}");
                }
            }
            states
        });
    }
    for round in 1..=usize::try_from(kills).unwrap() {
        let started = pids(herald.home(), round).await;
        let newest = started.last().unwrap().to_string();
        Command::new("kill").args(["-9", &newest]).status().await.unwrap();
        // It may have been its predecessor's place; then the next start is waited for all the same.
        told(&herald, "hi").await;
    }
    let mut completed = 0;
    while let Some(states) = lanes.join_next().await {
        let states = states.unwrap();
        assert!(states.iter().all(|state| is_terminal(state)), "{states:?}");
        completed += states.iter().filter(|state| *state == "completed").count();
    }
    assert!(completed > 0);
    assert_eq!(children(&herald).len(), 1, "the last one, and no zombie");
}

#[tokio::test]
async fn a_handler_ends_with_its_server() {
    let mut herald = Herald::start(steered("")).await;
    let held = begun(&herald, "hold x").await;
    let started = pids(herald.home(), 1).await;
    herald.kill9().await;
    herald.restart().await;
    assert!(!runs(started[0]));
    assert_eq!(failure(&ended(&herald, &held).await).1, "INTERRUPTED");
    let held = begun(&herald, "hold x").await;
    let started = pids(herald.home(), 2).await;
    herald.restart_cleanly().await;
    assert!(!started.iter().any(|pid| runs(*pid)));
    assert_eq!(failure(&ended(&herald, &held).await).1, "INTERRUPTED");
}

/// A handler that answers with its own name, as a program file.
fn write_handler(path: &Path, says: &str) {
    let text = format!(
        "#!/bin/sh\nwhile read -r line; do case $line in\n\
         *'\"type\":\"hello\"'*) echo '{{\"type\":\"hello\",\"protocol\":1}}' ;;\n\
         *'\"type\":\"begin\"'*) turn=${{line#*\\\"turn\\\":\\\"}}; turn=${{turn%%\\\"*}}\n\
         echo '{{\"type\":\"artifact\",\"turn\":\"'$turn'\",\"text\":\"{says}\"}}'\n\
         echo '{{\"type\":\"status\",\"turn\":\"'$turn'\",\"state\":\"completed\"}}' ;;\n\
         esac; done\n"
    );
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn handlers_are_found_beside_the_configuration_and_on_the_search_path() {
    let place = tempfile::tempdir().unwrap();
    let (beside, search) = (place.path().join("handlers"), place.path().join("bin"));
    fs::create_dir(&beside).unwrap();
    fs::create_dir(&search).unwrap();
    write_handler(&beside.join("greet.sh"), "from the manifest");
    let manifest = |name: &str| {
        format!(
            "name = \"{name}\"\nkind = \"handler\"\ndescription = \"Greets\"\n\
             command = [\"./greet.sh\"]\n"
        )
    };
    fs::write(beside.join("greet.toml"), manifest("greet")).unwrap();
    fs::write(beside.join("echo.toml"), manifest("echo")).unwrap();
    for (name, says) in [("path-one", "from the path"), ("greet", "not this one")] {
        write_handler(&search.join(format!("herald-handler-{name}")), says);
    }
    write_handler(&search.join("herald-handler-Not A Name"), "nobody");
    fs::write(search.join("herald-handler-text"), "no program").unwrap();
    let config = place.path().join("herald.toml");
    fs::write(&config, "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n").unwrap();
    let path = format!("{}:{}", search.display(), std::env::var("PATH").unwrap());
    let config = config.to_str().unwrap();

    let options = Options::default().arguments(["--config", config]).environment("PATH", &path);
    let herald = Herald::start(options.clone()).await;
    assert!(herald.greeting.contains("serves echo, greet, path-one"), "{}", herald.greeting);
    let base = format!("http://{}/agents", herald.address);
    for line in [
        format!("  agents echo      {base}/echo  and at the root\n"),
        format!("         greet     {base}/greet\n"),
        format!("         path-one  {base}/path-one\n"),
    ] {
        assert!(herald.greeting.contains(&line), "no {line:?} in {}", herald.greeting);
    }
    let (nameless, text) = ("\"Not A Name\" is not a valid agent name", "it is not executable");
    let log = herald.log();
    assert!(log.contains("herald-handler-text is skipped"), "{log}");
    assert!(log.contains(text) && log.contains(nameless), "{log}");
    for (name, says) in
        [("echo", "Echo: x"), ("greet", "from the manifest"), ("path-one", "from the path")]
    {
        let call = Wire::Rest.send(&format!("/agents/{name}"), &Draft::new(uuid(), "x"), false);
        let done = Wire::Rest.sent(&herald.call(&call).await).unwrap();
        assert_eq!(printed(&done), says, "{name}");
    }
    let herald = Herald::start(options.arguments(["--no-discovery"])).await;
    assert!(herald.greeting.contains("serves echo\n"), "{}", herald.greeting);
    assert!(!herald.greeting.contains("/agents/"), "{}", herald.greeting);
    assert!(!herald.log().contains("passed over"), "{}", herald.log());

    let list = |arguments: &'static [&'static str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
        // Manifests in the current directory are ignored, since the configuration file is elsewhere.
        command.current_dir(place.path()).env("PATH", &path).arg("serve").args(arguments);
        output_of(command)
    };
    let listed = list(&["--config", "herald.toml", "--list-handlers"]).await;
    assert!(listed.stderr.contains(text) && listed.stderr.contains(nameless), "{listed:?}");
    let table = listed.stdout;
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).map(str::to_owned);
    assert!(row("greet").unwrap().contains("found       Greets"), "{table}");
    assert!(row("echo").unwrap().contains("configured"), "{table}");
    assert!(row("conformance").is_none(), "it is not served: {table}");
    let listed = list(&["--config", "herald.toml", "--list-handlers=json"]).await.stdout;
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let one = listed.iter().find(|one| one["name"] == "path-one").unwrap();
    assert_eq!(one["source"], "found");
    assert_eq!(one["path"], json!(search.join("herald-handler-path-one")));
    fs::remove_file(place.path().join("herald.toml")).unwrap();
    let without = list(&["--list-handlers"]).await.stdout;
    assert!(without.contains("path-one"), "{without}");
    assert!(!without.contains("Greets"), "never from the current directory: {without}");
    fs::write(place.path().join("herald.toml"), "").unwrap();
    fs::write(beside.join("bad.toml"), "name = \"bad\"\nkind = \"handler\"\ncomand = []\n")
        .unwrap();
    let refused = list(&["--list-handlers"]).await;
    assert!(refused.stderr.contains("bad.toml"), "{}", refused.stderr);
    assert!(refused.stderr.contains("did you mean `command`?"), "{}", refused.stderr);
    let wrong = "name = \"bad\"\nkind = \"handler\"\ncommand = [\"no-such-program-7\"]\n";
    fs::write(beside.join("bad.toml"), wrong).unwrap();
    let refused = list(&["--list-handlers"]).await;
    assert!(refused.stderr.contains("bad.toml, line 3: "), "{}", refused.stderr);
}
