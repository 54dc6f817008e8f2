//! Tests of `herald task`.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

use crate::{
    cli_support::{Fake, answer, card, cli, herald, result, steered, task},
    support::SOON,
};

/// Starts a task that works until it is cancelled, and returns its id.
async fn begun(agent: &str) -> String {
    let sent = cli(["send", "-a", agent, "tck-cancel", "--async"]).json().await;
    sent["task"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_task_is_shown_with_its_artifacts_and_the_requested_history() {
    let server = herald().await;
    let agent = steered(&server);
    let sent = cli(["send", "-a", &agent, "tck-artifact-text"]).json().await;
    let id = sent["task"]["id"].as_str().unwrap();
    let shown = cli(["task", "get", "-a", &agent, id]).ok().await;
    assert_eq!(shown.field("Task ID"), id);
    assert_eq!(shown.field("Context ID"), sent["task"]["contextId"].as_str().unwrap());
    assert_eq!(shown.field("State"), "COMPLETED");
    assert!(shown.stdout.contains("\nText:\nGenerated text content\n\n"), "{shown:?}");
    assert!(!shown.stdout.contains("History: "), "{shown:?}");
    let history = cli(["task", "get", &agent, id, "--history", "1"]).ok().await;
    assert_eq!(history.field("History"), "user");
    let document = cli(["task", "get", "-a", &agent, id]).json().await;
    assert_eq!(document, sent["task"]);
    let lines = cli(["task", "get", "-a", &agent, id, "--stream", "-o", "json"]).ok().await.lines();
    assert_eq!(lines, [document]);
}

#[tokio::test]
async fn every_kind_of_part_is_rendered_and_none_is_lost() {
    let server = herald().await;
    let agent = steered(&server);
    let file = cli(["send", &agent, "tck-artifact-file"]).ok().await;
    assert_eq!(file.field("File"), "output.txt");
    assert_eq!(file.field("Media Type"), "text/plain");
    assert_eq!(file.field("Size"), "22 bytes");
    let url = cli(["send", &agent, "tck-artifact-file-url"]).ok().await;
    assert_eq!(url.field("URL"), "https://example.com/output.txt");
    let data = cli(["send", &agent, "tck-artifact-data"]).ok().await;
    assert!(
        data.stdout.contains("\nData:\n{\n  \"count\": 42,\n  \"key\": \"value\"\n}\n\n"),
        "{data:?}"
    );
    let pieces = ["send", &agent, "tck-stream-artifact-chunked"];
    let short = cli(pieces).ok().await;
    assert!(short.stdout.contains("\nText:\nchunk-1 chunk-2\n\n"), "{short:?}");
    let full = cli(pieces.into_iter().chain(["--verbose"])).ok().await;
    assert!(
        full.stdout.contains("Part: 1\nText:\nchunk-1 \n\nPart: 2\nText:\nchunk-2\n\n"),
        "{full:?}"
    );
}

#[tokio::test]
async fn waiting_ends_with_the_task_or_with_a_question() {
    let server = herald().await;
    let agent = steered(&server);
    let sent = cli(["send", "-a", &agent, "tck-long-running delay_ms=300", "--async"]).json().await;
    let id = sent["task"]["id"].as_str().unwrap();
    let wait = ["task", "get", "-a", &agent, id, "--wait", "--poll-interval", "100ms"];
    let waited = cli(wait).ok().await;
    assert_eq!(waited.field("State"), "COMPLETED");
    for (words, state) in
        [("tck-input-required", "INPUT_REQUIRED"), ("tck-auth-required", "AUTH_REQUIRED")]
    {
        let asked = cli(["send", "-a", &agent, words]).ok().await;
        assert_eq!(asked.field("State"), state);
        assert!(asked.stderr.contains("Warning: ") && asked.stderr.contains(state), "{asked:?}");
        let id = asked.field("Task ID");
        assert!(asked.field("Resume").contains(&format!("--task-id {id}")), "{asked:?}");
        let waited = cli(["task", "get", "-a", &agent, id, "--wait"]).ok().await;
        assert_eq!(waited.field("State"), state);
    }
}

#[tokio::test]
async fn polling_is_bounded_by_the_timeout_and_has_pauses() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            answer(&card(url))
        } else if request.body["method"] == "SendMessage" {
            result(request, &json!({ "task": task("UNSPECIFIED") }))
        } else {
            result(request, &task("UNSPECIFIED"))
        }
    })
    .await;
    for verb in [&["send", "x"][..], &["task", "get", "t-1", "--wait"]] {
        let before = fake.calls().len();
        let limits = ["-a", &fake.url, "--timeout", "1s", "--poll-interval", "1ms"];
        let error = cli(verb.iter().copied().chain(limits)).fails(5, "A2ACLI_ERR_TIMEOUT").await;
        assert!(error["hint"].as_str().unwrap().contains("task get"), "{error}");
        let looked = fake.calls().len() - before;
        assert!((1..=12).contains(&looked), "it looked {looked} times in a second");
    }
}

#[tokio::test]
async fn cancel_reports_the_state_and_can_be_repeated() {
    let server = herald().await;
    let agent = steered(&server);
    let id = begun(&agent).await;
    for _ in 0..2 {
        let canceled = cli(["task", "cancel", "-a", &agent, &id]).ok().await;
        assert_eq!(canceled.field("Task ID"), id);
        assert_eq!(canceled.field("State"), "CANCELED");
        assert!(!canceled.field("Context ID").is_empty());
    }
    let sent = cli(["send", "-a", &agent, "tck-complete-task"]).json().await;
    let done = sent["task"]["id"].as_str().unwrap();
    let error =
        cli(["task", "cancel", "-a", &agent, done]).fails(1, "TaskNotCancelableError").await;
    assert_eq!(error["a2aCode"], -32002);
}

#[tokio::test]
async fn an_unknown_task_is_the_protocols_error_over_every_binding() {
    let server = herald().await;
    let host = steered(&server);
    let mut errors = Vec::new();
    for transport in ["jsonrpc", "http+json", "grpc", "websocket"] {
        for verb in ["get", "cancel", "subscribe", "download"] {
            let arguments = ["task", verb, &host, "nobody", "--transport", transport];
            let mut error = cli(arguments).fails(1, "TaskNotFoundError").await;
            assert_eq!(error["a2aCode"], -32001);
            assert!(error["hint"].take().as_str().unwrap().contains("--debug"), "{error}");
            errors.push(error);
        }
    }
    assert!(errors.windows(2).all(|pair| pair[0] == pair[1]), "{errors:?}");
    let sent = ["send", &host, "x", "--task-id", "nobody"];
    cli(sent).fails(1, "TaskNotFoundError").await;
    let listed = cli(["task", "list", &host]).json().await;
    assert_eq!(listed["totalSize"], 0, "a rejected id made a new task: {listed}");
}

#[tokio::test]
async fn tasks_are_listed_by_page_and_filtered_by_state_and_context() {
    let server = herald().await;
    let agent = steered(&server);
    let waiting = cli(["send", "-a", &agent, "tck-input-required"]).json().await;
    let context = waiting["task"]["contextId"].as_str().unwrap();
    for _ in 0..4 {
        cli(["send", "-a", &agent, "tck-complete-task"]).ok().await;
    }
    let list = ["task", "list", "-a", &agent];
    let with = |more: &[&'static str]| cli(list.iter().copied().chain(more.to_vec()));
    let page = with(&["--page-size", "2"]).json().await;
    assert_eq!((page["tasks"].as_array().unwrap().len(), &page["totalSize"]), (2, &json!(5)));
    let token = page["nextPageToken"].as_str().unwrap();
    let next = ["task", "list", "-a", &agent, "--page-size", "2", "--page-token", token];
    let next = cli(next).json().await;
    assert_ne!(next["tasks"][0]["id"], page["tasks"][0]["id"]);
    let all = with(&["--page-size", "2", "--all"]).json().await;
    assert_eq!(all["tasks"].as_array().unwrap().len(), 5);
    let lines = with(&["--all", "--page-size", "2", "--stream", "-o", "json"]).ok().await.lines();
    assert_eq!(lines.len(), 5);
    assert!(lines.iter().all(|line| line["id"].is_string()), "{lines:?}");
    let narrowed = with(&["--status", "input-required"]).json().await;
    assert_eq!(narrowed["tasks"][0]["id"], waiting["task"]["id"]);
    assert_eq!(narrowed["totalSize"], 1);
    let of_context = cli(["task", "list", "-a", &agent, "--context-id", context]).json().await;
    assert_eq!(of_context["totalSize"], 1);
    let text = with(&["--status", "TASK_STATE_COMPLETED"]).ok().await;
    assert_eq!(text.field("Total"), "4");
    assert_eq!(text.stdout.matches("State: COMPLETED").count(), 4);
    with(&["--status", "sleeping"]).fails(2, "A2ACLI_ERR_USAGE").await;
}

#[tokio::test]
async fn a_task_is_followed_from_its_current_state_to_its_end() {
    let server = herald().await;
    let agent = steered(&server);
    let id = &begun(&agent).await;
    let follow = ["task", "subscribe", "-a", &agent, id, "--stream", "-o", "json"];
    let mut child = cli(follow).spawn();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = timeout(SOON, lines.next_line()).await.unwrap().unwrap().unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(first["task"]["id"], **id, "the first event is the whole task");
    cli(["task", "cancel", "-a", &agent, id]).ok().await;
    let mut last = first;
    while let Some(line) = timeout(SOON, lines.next_line()).await.unwrap().unwrap() {
        last = serde_json::from_str(&line).unwrap();
    }
    assert_eq!(last["statusUpdate"]["status"]["state"], "TASK_STATE_CANCELED", "{last}");
    assert_eq!(last["statusUpdate"]["taskId"], **id);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
    // Without --stream it is the task itself, and so it is after the end.
    let ended = cli(["task", "subscribe", "-a", &agent, id]).json().await;
    assert_eq!(
        (&ended["id"], &ended["status"]["state"]),
        (&json!(id), &json!("TASK_STATE_CANCELED"))
    );
    let again = cli(["task", "subscribe", "-a", &agent, id, "--stream", "-o", "json"]).ok().await;
    assert_eq!(again.lines()[0]["task"]["status"]["state"], "TASK_STATE_CANCELED");
}

#[tokio::test]
async fn artifacts_are_saved_inside_the_directory_and_replace_no_file() {
    let outside = tempdir().unwrap();
    let home = tempdir().unwrap();
    let target = format!("../{}/stolen", outside.path().file_name().unwrap().to_str().unwrap());
    let mut done = task("COMPLETED");
    done["artifacts"] = json!([
        { "artifactId": "a", "parts": [{ "text": "one " }, { "text": "two" }] },
        { "artifactId": "b", "parts": [
            { "raw": "AAE=", "filename": target },
            { "data": { "k": 1 } },
            { "raw": "Ag==", "filename": "stolen" },
            { "url": "http://169.254.169.254/secret" } ] },
    ]);
    let task = done.clone();
    let fake =
        Fake::start(
            move |url, request| {
                if request.is_card() { answer(&card(url)) } else { result(request, &task) }
            },
        )
        .await;
    let download = ["task", "download", "-a", &fake.url, "t-1", "--dir", "out"];
    let saved = cli(download).at(home.path()).ok().await;
    assert_eq!(saved.field("Task ID"), "t-1");
    assert!(saved.stderr.contains("not fetched"), "{saved:?}");
    let read = |name: &str| fs::read(home.path().join("out").join(name)).unwrap();
    assert_eq!(read("a.txt"), b"one two");
    assert_eq!((read("stolen"), read("stolen-2")), (vec![0, 1], vec![2]));
    assert_eq!(serde_json::from_slice::<Value>(&read("b.json")).unwrap(), json!({ "k": 1 }));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);

    let error = cli(download).at(home.path()).fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(error["hint"].as_str().unwrap().contains("--force"), "{error}");
    // An existing link is replaced, not followed.
    fs::write(outside.path().join("victim"), "untouched").unwrap();
    fs::remove_file(home.path().join("out/a.txt")).unwrap();
    symlink(outside.path().join("victim"), home.path().join("out/a.txt")).unwrap();
    let replaced = cli(download.into_iter().chain(["--force"])).at(home.path()).json().await;
    assert_eq!((read("a.txt"), &replaced["artifacts"]), (b"one two".to_vec(), &done["artifacts"]));
    assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"untouched");
    let files = &replaced["metadata"]["https://github.com/herald-a2a/herald/cli/files"];
    assert_eq!(files.as_array().unwrap().len(), 4, "{replaced}");
    let one = ["task", "download", "-a", &fake.url, "t-1", "--artifact", "c"];
    cli(one).at(home.path()).fails(2, "A2ACLI_ERR_USAGE").await;
}

#[tokio::test]
async fn webhooks_are_created_shown_listed_and_deleted() {
    let fake = Fake::start(|url, request| {
        let mut card = card(url);
        card["capabilities"] = json!({ "pushNotifications": true });
        let params = &request.body["params"];
        match request.body["method"].as_str() {
            None => answer(&card),
            Some("CreateTaskPushNotificationConfig") => {
                let mut made = params.clone();
                made["id"] = "p-1".into();
                result(request, &made)
            }
            Some("GetTaskPushNotificationConfig") => {
                result(request, &json!({ "taskId": "t-1", "id": "p-1", "url": "http://h/" }))
            }
            Some("ListTaskPushNotificationConfigs") => {
                result(request, &json!({ "configs": [{ "id": "p-1", "url": "http://h/" }] }))
            }
            Some(_) => result(request, &json!({})),
        }
    })
    .await;
    let run = |arguments: &[&str]| {
        let all = ["task", "push-config"].into_iter().chain(arguments.iter().copied());
        cli(all.chain(["-a", fake.url.as_str()]))
    };
    // Not a canary: the JSON of a configuration contains its token.
    let create = [
        "create",
        "t-1",
        "--url",
        "http://h/",
        "--token",
        "plain-7c5e-s",
        "--auth-scheme",
        "Bearer",
    ];
    let made = run(&create).json().await;
    assert_eq!((&made["id"], &made["taskId"]), (&json!("p-1"), &json!("t-1")));
    let text = run(&create).ok().await;
    assert_eq!((text.field("URL"), text.field("Token")), ("http://h/", "(set)"));
    assert!(!text.stdout.contains("plain-7c5e-s"), "{text:?}");
    let debugged = run(&[&create[..], &["--debug"]].concat()).ok().await;
    assert!(debugged.stderr.contains("CreateTaskPush"), "{debugged:?}");
    assert!(!debugged.stderr.contains("plain-7c5e-s"), "{debugged:?}");
    assert_eq!(run(&["get", "t-1", "p-1"]).json().await["url"], "http://h/");
    assert_eq!(run(&["list", "t-1"]).json().await["configs"][0]["id"], "p-1");
    assert_eq!(run(&["delete", "t-1", "p-1"]).ok().await.field("Deleted"), "yes");
    let asked = fake.calls();
    let last = asked.last().unwrap();
    assert_eq!(last.body["method"], "DeleteTaskPushNotificationConfig");
    assert_eq!(
        (&last.body["params"]["taskId"], &last.body["params"]["id"]),
        (&json!("t-1"), &json!("p-1"))
    );
}

#[tokio::test]
async fn undeclared_capabilities_are_not_used() {
    let fake = crate::cli_support::agent(json!({ "task": task("COMPLETED") })).await;
    let push = ["task", "push-config", "list", "-a", &fake.url, "t-1"];
    cli(push).fails(1, "PushNotificationNotSupportedError").await;
    cli(["card", "get", &fake.url, "--extended"]).fails(1, "UnsupportedOperationError").await;
    assert!(fake.calls().is_empty(), "{:?}", fake.calls());
    // The task of an agent without streaming is polled, and the lines are the same.
    let lines = cli(["send", "-a", &fake.url, "x", "--stream", "-o", "json"]).ok().await.lines();
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(fake.calls()[0].body["method"], "SendMessage");
}

#[tokio::test]
async fn a_task_that_ends_before_its_subscription_is_shown() {
    // The refusals of Herald and of the official SDKs.
    for code in [-32004, -32001, -32602] {
        for flags in [&["-o", "json"][..], &["-o", "json", "--stream"]] {
            let looked = AtomicUsize::new(0);
            let fake = Fake::start(move |url, request| match request.body["method"].as_str() {
                None => {
                    let mut card = card(url);
                    card["capabilities"]["streaming"] = true.into();
                    answer(&card)
                }
                Some("GetTask") => match looked.fetch_add(1, Ordering::Relaxed) {
                    0 => result(request, &task("WORKING")),
                    _ => result(request, &task("COMPLETED")),
                },
                Some(_) => answer(&json!({
                    "jsonrpc": "2.0", "id": request.body["id"],
                    "error": { "code": code, "message": "the task has ended" },
                })),
            })
            .await;
            let arguments = ["task", "subscribe", &fake.url, "t-1"];
            let ended = cli(arguments.into_iter().chain(flags.iter().copied())).ok().await;
            let shown: Value = serde_json::from_str(&ended.stdout).unwrap();
            let shown = shown.get("task").unwrap_or(&shown);
            assert_eq!(shown["status"]["state"], "TASK_STATE_COMPLETED", "{code} {flags:?}");
        }
    }
}
