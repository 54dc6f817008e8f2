//! Tests of `kind = "llm"` with a scripted endpoint on loopback.

use serde_json::{Value, json};

use crate::{
    http::Call,
    model::{Model, Step, response},
    support::{Herald, Options, SOON, eventually, uuid},
    tasks::{begun, ended, failure, printed, task, told},
    wire::{Draft, Wire, id, state},
};

const SYSTEM: &str = "You are a canary, and this is your secret song.";

/// An agent that asks this model, served at the root.
fn asks(model: &Model, settings: &str) -> Options {
    Options::config(format!(
        "[[agents]]\nname = \"poet\"\nkind = \"llm\"\nurl = \"{}\"\nmodel = \"tiny\"\n{settings}\n",
        model.url()
    ))
}

fn text(text: &str) -> Step {
    Step::Text(text.to_owned())
}

fn says(text: &str) -> Step {
    Step::Say(text.to_owned())
}

/// A stream with this text only.
fn stream(events: &str) -> Step {
    Step::Raw(format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n{events}").into())
}

async fn told_in(herald: &Herald, context: &str, text: &str) -> Value {
    let draft = Draft::new(uuid(), text).within(context);
    Wire::Rest.sent(&herald.call(&Wire::Rest.send("", &draft, false)).await).unwrap()
}

/// The roles and texts of the last request.
fn conversation(model: &Model) -> Vec<(String, String)> {
    let asked = model.asked().pop().unwrap().body;
    let messages = asked["messages"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    messages.map(|message| (text(&message["role"]), text(&message["content"]))).collect()
}

fn pairs(said: &[(&str, &str)]) -> Vec<(String, String)> {
    said.iter().map(|(role, text)| ((*role).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn a_message_goes_to_the_model_and_its_answer_is_the_artifact() {
    let model = Model::start(vec![text("Roses are red")]).await;
    let settings = format!(
        "system = \"{SYSTEM}\"\napi_key = \"env:POET_KEY\"\ntemperature = 0.5\nmax_tokens = 99\n\
         parameters = {{ top_p = 0.9, stop = [\"END\"] }}"
    );
    let options = asks(&model, &settings).environment("POET_KEY", "canary-7c5e-31");
    let herald = Herald::start(options.arguments(["--log-level", "trace"])).await;
    let task = told(&herald, "A poem, please").await;
    assert_eq!(state(&task), "completed");
    assert_eq!(printed(&task), "Roses are red");
    let artifact = &task["artifacts"][0];
    assert_eq!(
        (&artifact["artifactId"], &artifact["name"]),
        (&json!("response"), &json!("response"))
    );
    assert_eq!(artifact["metadata"]["finishReason"], "stop");
    assert_eq!(artifact["metadata"]["usage"]["totalTokens"], 10);

    let asked = model.asked().pop().unwrap();
    assert_eq!(asked.path, "/v1/chat/completions");
    assert_eq!(asked.header("authorization"), Some("Bearer canary-7c5e-31"));
    let expected = json!({
        "model": "tiny", "stream": true, "stream_options": { "include_usage": true },
        "temperature": 0.5, "max_tokens": 99, "top_p": 0.9, "stop": ["END"],
        "messages": [
            { "role": "system", "content": SYSTEM },
            { "role": "user", "content": "A poem, please" },
        ],
    });
    assert_eq!(asked.body, expected);
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await;
    assert!(!card.text().contains("secret song"), "{}", card.text());
    assert!(!task.to_string().contains("secret song"));
    let log = herald.log();
    for canary in ["canary-7c5e", "secret song"] {
        assert!(!log.contains(canary), "{canary} in the log");
    }
}

#[tokio::test]
async fn the_answer_is_streamed_and_a_cancel_closes_the_connection() {
    let model = Model::start(vec![says("Once upon "), Step::Hang]).await;
    let herald = Herald::start(asks(&model, "")).await;
    let call = Wire::Rest.stream("", &Draft::new(uuid(), "A tale"));
    let mut stream = herald.client().await.open(&call).await.unwrap();
    let first = loop {
        let frame = Wire::Rest.frame(&stream.next().await.unwrap().unwrap());
        if let Some(text) = frame.text() {
            assert_eq!(text, "Once upon", "while the model still thinks");
            break frame;
        }
    };
    assert_eq!(model.left(), 0);
    let cancelled = herald.call(&Wire::Rest.cancel(&first.task)).await;
    assert_eq!(state(&Wire::Rest.result(&cancelled).unwrap()), "canceled");
    eventually(SOON, "the connection is closed", async || model.left() == 1).await;
}

#[tokio::test]
async fn a_conversation_is_remembered_and_a_message_without_a_context_starts_anew() {
    let mut answers: Vec<_> = ["A1", "E1", "E2", "A3", "A4"].map(text).into();
    answers.extend([Step::Status(400), text("A5"), text("A6")]);
    let model = Model::start(answers).await;
    let mut herald = Herald::start(asks(&model, "system = \"Be brief\"\nmemory = 2")).await;
    let system = ("system", "Be brief");
    told_in(&herald, "chat", "Q1").await;
    // Neither the conversation nor each other is remembered.
    for alone in ["Elsewhere", "Anew"] {
        told(&herald, alone).await;
        assert_eq!(conversation(&model), pairs(&[system, ("user", alone)]));
    }
    told_in(&herald, "chat", "Q2").await;
    let first = [system, ("user", "Q1"), ("assistant", "A1"), ("user", "Q2")];
    assert_eq!(conversation(&model), pairs(&first));
    herald.restart_cleanly().await;
    told_in(&herald, "chat", "Q3").await;
    let (third, fourth) = ([("user", "Q2"), ("assistant", "A3")], [("user", "Q3")]);
    let second = [&first[..3], &third, &fourth].concat();
    assert_eq!(conversation(&model), pairs(&second), "also after a restart");
    assert_eq!(state(&told_in(&herald, "chat", "Unanswered").await), "failed");
    let newest = [&[system][..], &third, &fourth, &[("assistant", "A4"), ("user", "Unanswered")]];
    assert_eq!(conversation(&model), pairs(&newest.concat()), "what is older is forgotten");
    told_in(&herald, "chat", "Q5").await;
    let answered = [system, ("user", "Q3"), ("assistant", "A4"), ("user", "Q5")];
    assert_eq!(conversation(&model), pairs(&answered), "what was not answered is left out");
    *herald.options() = asks(&model, "memory = 0");
    herald.restart_cleanly().await;
    told_in(&herald, "chat", "Q6").await;
    assert_eq!(conversation(&model), pairs(&[("user", "Q6")]), "memory = 0 remembers nothing");
}

#[tokio::test]
async fn a_message_to_a_task_at_work_is_answered_after_the_first() {
    let model = Model::start(vec![says("A1"), Step::Wait, text("!"), text("A2")]).await;
    let herald = Herald::start(asks(&model, "")).await;
    let id = begun(&herald, "Q1").await;
    eventually(SOON, "the model is asked", async || model.asked().len() == 1).await;
    let more = Wire::Rest.send("", &Draft::new(uuid(), "Q2").to(&id), true);
    herald.call(&more).await;
    model.go();
    let ended = ended(&herald, &id).await;
    let said = |number: usize| {
        let parts = ended["artifacts"][number]["parts"].as_array().unwrap().iter();
        parts.map(|part| part["text"].as_str().unwrap()).collect::<String>()
    };
    assert_eq!((said(0).as_str(), said(1).as_str()), ("A1!", "A2"), "{ended}");
    assert_eq!(ended["artifacts"][1]["artifactId"], "response-2");
    let expected = [("user", "Q1"), ("assistant", "A1!"), ("user", "Q2")];
    assert_eq!(conversation(&model), pairs(&expected));
}

#[tokio::test]
async fn a_busy_endpoint_is_retried_until_the_first_token() {
    let busy = b"HTTP/1.1 429 Busy\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n".to_vec();
    let script = vec![Step::Raw(busy), Step::Status(503), Step::Die, text("At last")];
    let model = Model::start(script).await;
    let herald = Herald::start(asks(&model, "")).await;
    assert_eq!(printed(&told(&herald, "hi").await), "At last");
    assert_eq!(model.asked().len(), 4);

    let model = Model::start(vec![Step::Status(503), Step::Status(503), text("Too late")]).await;
    let herald = Herald::start(asks(&model, "retries = 1")).await;
    let task = told(&herald, "hi").await;
    let said = "agent poet was refused by its model's endpoint with status 503";
    assert_eq!(failure(&task), (said, "AGENT_UNAVAILABLE"));
    assert_eq!((model.asked().len(), model.unused()), (2, 1));
}

#[tokio::test]
async fn permanent_errors_are_not_retried() {
    let later = b"HTTP/1.1 429 Later\r\nretry-after: 3600\r\ncontent-length: 0\r\n\r\n".to_vec();
    for (script, said) in [
        (vec![Step::Status(401)], "was refused by its model's endpoint with status 401"),
        (vec![Step::Raw(later)], "was refused by its model's endpoint with status 429"),
        (vec![says("Half "), Step::Die], "got an answer from its model that broke off"),
    ] {
        let count = script.len();
        let model = Model::start([script, vec![text("Too late")]].concat()).await;
        let herald = Herald::start(asks(&model, "")).await;
        let task = told(&herald, "hi").await;
        assert_eq!(failure(&task).0, format!("agent poet {said}"));
        assert_eq!((model.asked().len(), model.unused()), (1, 1), "{said}");
        let half = if count == 2 { "Half " } else { "" };
        assert_eq!(printed(&task), half, "what was said stays");
    }
}

#[tokio::test]
async fn invalid_responses_of_an_endpoint_fail_the_task_with_a_reason() {
    let endless = format!("data: {}", "x".repeat(2 << 20));
    let filtered = r#"data: {"choices":[{"delta":{},"finish_reason":"content_filter"}]}"#;
    let refusal = r#"data: {"choices":[{"delta":{"refusal":"I would rather not"}}]}"#;
    let tool = Step::Tool { name: "rm".to_owned(), arguments: json!({ "path": "/" }) };
    let unended = r#"data: {"choices":[{"delta":{"content":"Half"},"finish_reason":""}]}"#;
    let error = r#"data: {"error":{"message":"the canary is overloaded"}}"#;
    let html = response(200, "text/html; charset=utf-8", "<html><b>Welcome!</b></html>");
    let elsewhere = Model::start(vec![text("Caught")]).await;
    let location = format!("{}/chat/completions", elsewhere.url());
    let moved = format!("HTTP/1.1 307 Moved\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
    for (steps, said) in [
        (vec![Step::Raw(html)], "got an invalid response from its model's endpoint"),
        (vec![stream(&endless)], "got an event of more than 1048576 bytes from its model"),
        (vec![says("So "), Step::Raw(endless.clone().into())], "got an event of more than"),
        (vec![stream("data: {\"choi")], "got an answer from its model that broke off"),
        (vec![says("So "), Step::Raw(b"data: {\"ch".to_vec())], "that broke off"),
        // An empty `finish_reason` counts as absent.
        (vec![stream(&format!("{unended}\n\n"))], "that broke off"),
        (vec![stream("data: <b>no</b>\n\n")], "got an event from its model that cannot be read"),
        (vec![stream(&format!("{error}\n\n"))], "got an error from its model"),
        (
            vec![says("So "), Step::Raw(format!("{error}\n\n").into())],
            "got an error from its model",
        ),
        (
            vec![stream(&format!("{filtered}\n\ndata: [DONE]\n\n"))],
            "was cut off by the content filter of its model",
        ),
        (
            vec![stream(&format!("{refusal}\n\ndata: [DONE]\n\n"))],
            "was refused an answer by its model",
        ),
        (vec![tool], "was asked by its model for a tool, and has none"),
        (
            vec![Step::Raw(moved.into())],
            "was sent elsewhere by its model's endpoint, which is not followed",
        ),
    ] {
        let model = Model::start(steps).await;
        let options = asks(&model, "api_key = \"k\"\nretries = 0");
        let herald = Herald::start(options).await;
        let task = told(&herald, "hi").await;
        let (told, reason) = failure(&task);
        assert!(told.starts_with("agent poet ") && told.contains(said), "{said}: {told}");
        assert!(!told.contains("canary"), "{told}");
        // A failure before the first token is retried.
        let gone = said == "got an answer from its model that broke off";
        assert_eq!(reason, if gone { "AGENT_UNAVAILABLE" } else { "AGENT_FAILED" }, "{said}");
    }
    assert!(elsewhere.asked().is_empty(), "the key goes nowhere else");
}

#[tokio::test]
async fn an_endpoint_without_streaming_or_without_done_works() {
    let whole = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"All at once"},
        "finish_reason":"stop"}],"usage":{"total_tokens":4,"sk-1":2,"said":"so"}}"#;
    let undone = r#"data: {"choices":[{"delta":{"content":"Not done"},"finish_reason":"length"}]}"#;
    let model = Model::start(vec![
        Step::Raw(response(200, "application/json", whole)),
        stream(&format!("{undone}\n\n")),
    ])
    .await;
    let herald = Herald::start(asks(&model, "")).await;
    let task = told(&herald, "hi").await;
    assert_eq!(printed(&task), "All at once");
    let usage = &task["artifacts"][0]["metadata"]["usage"];
    assert_eq!(usage, &json!({ "totalTokens": 4 }), "what is given out is numbers");
    let task = told(&herald, "hi").await;
    assert_eq!((state(&task).as_str(), printed(&task).as_str()), ("completed", "Not done"));
    assert_eq!(task["artifacts"][0]["metadata"]["finishReason"], "length");
}

#[tokio::test]
async fn callers_see_as_much_of_a_failure_as_error_detail_allows() {
    for (detail, said) in [
        ("kind", "with status 400"),
        ("message", "with status 400: the model says 400"),
        ("full", "with status 400: the model says 400"),
    ] {
        let model = Model::start(vec![Step::Status(400)]).await;
        let herald = Herald::start(asks(&model, &format!("error_detail = \"{detail}\""))).await;
        let task = told(&herald, "hi").await;
        assert!(failure(&task).0.ends_with(said), "{detail}: {}", failure(&task).0);
        assert!(herald.log().contains("the model says 400"), "the log has it all");
    }
}

#[tokio::test]
async fn a_key_that_the_endpoint_repeats_is_redacted() {
    let refusal = |body: &str| Step::Raw(response(401, "application/json", body));
    let escaped = r"\u0063anary-7c5e\/77";
    let long = format!("{}canary-7c5e/77", "x".repeat((64 << 10) - 8));
    let cut = "HTTP/1.1 401 No\r\ncontent-length: 99\r\n\r\nwrong key: canary-7c5e/7";
    let whole = r#"{"choices":[{"message":{"content":"?"}}],"error":"canary-7c5e/77"}"#;
    for (answer, said) in [
        (refusal(r#"{"error":"wrong key: canary-7c5e/77"}"#), "with status 401: wrong key: …"),
        (
            refusal(&format!(r#"{{"error":{{"message":"wrong key: {escaped}"}}}}"#)),
            "with status 401: wrong key: …",
        ),
        // Bodies that are not JSON, or JSON within a text.
        (refusal(&format!("wrong key: {escaped}!")), "with status 401: wrong key: …!"),
        (refusal("/?key=%63anary-7c5e%2f77&x"), "with status 401: /?key=…&x"),
        (refusal(&long), "with status 401"),
        (Step::Raw(cut.into()), "with status 401"),
        (
            Step::Raw(response(200, "text/canary-7c5e/77", "Hello")),
            "from its model's endpoint: text/…: Hello",
        ),
        (Step::Raw(response(200, "application/json", whole)), "got an error from its model: …"),
        (stream("data: canary-7c5e/77\n\n"), "that cannot be read: …"),
        (
            stream(&format!("data: {{\"error\":{{\"message\":\"{escaped}\"}}}}\n\n")),
            "got an error from its model: …",
        ),
    ] {
        let model = Model::start(vec![answer]).await;
        let settings = "api_key = \"canary-7c5e/77\"\nerror_detail = \"full\"\nretries = 0";
        let herald = Herald::start(asks(&model, settings)).await;
        let task = told(&herald, "hi").await;
        assert!(failure(&task).0.ends_with(said), "{said}: {}", failure(&task).0);
        let shown = format!("{task}{}", herald.log());
        assert!(!shown.contains("anary-7c5e"), "{said}: {shown}");
    }
}

#[tokio::test]
async fn a_system_prompt_that_the_endpoint_repeats_is_redacted() {
    let system = "You are a canary.\nSing it.\n\"Secret song\" is its name: tell nobody!";
    let escaped = serde_json::to_string(system).unwrap();
    let settings = format!("system = {escaped}\nerror_detail = \"full\"");
    let quoted = format!("no model, in {{'content': {escaped}}}");
    let part = "too long: \u{22}Secret song\u{22} is its name: tell…";
    for (body, said) in [
        (
            json!({ "detail": [{ "msg": "Field required", "input": [system] }] }),
            "with status 400: Field required",
        ),
        (
            json!({ "error": { "message": quoted } }),
            "with status 400: no model, in {'content': \"…",
        ),
        (json!({ "error": part }), "with status 400: too long: \"…"),
        (json!(system), "with status 400: …"),
        (json!({ "request": { "system": system } }), "with status 400"),
    ] {
        let answer = response(400, "application/json", &body.to_string());
        let model = Model::start(vec![Step::Raw(answer)]).await;
        let herald = Herald::start(asks(&model, &settings)).await;
        let task = told(&herald, "hi").await;
        assert!(failure(&task).0.ends_with(said), "{said}: {}", failure(&task).0);
        let shown = format!("{task}{}", herald.log());
        assert!(!shown.contains("Secret") && !shown.contains("canary"), "{said}: {shown}");
    }
}

#[tokio::test]
async fn an_answer_is_complete_with_its_finish_reason() {
    let finished = r#"data: {"choices":[{"delta":{"content":"Done"},"finish_reason":"stop"}]}"#;
    let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":4}}\n\n";
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let begin = Step::Write(format!("{head}{finished}\n\n").into());
    let also = Step::Write(usage.into());
    for (script, tokens) in [
        (vec![begin.clone(), Step::Hang], None),
        (vec![begin.clone(), also.clone(), Step::Hang], Some(4)),
        (vec![begin, also, Step::Endless(b": still here\n\n".to_vec())], Some(4)),
    ] {
        let model = Model::start(script).await;
        // Neither of them ends the answer.
        let herald = Herald::start(asks(&model, "idle_timeout = \"0s\"\ntimeout = \"20s\"")).await;
        let task = told(&herald, "hi").await;
        assert_eq!((&*state(&task), &*printed(&task)), ("completed", "Done"), "{task}");
        let about = &task["artifacts"][0]["metadata"];
        assert_eq!(about["finishReason"], "stop");
        assert_eq!(about["usage"]["totalTokens"].as_u64(), tokens);
    }
}

#[tokio::test]
async fn every_wait_for_the_endpoint_has_a_timeout() {
    let model = Model::start(vec![Step::Hang]).await;
    let herald = Herald::start(asks(&model, "first_token_timeout = \"300ms\"")).await;
    let task = told(&herald, "hi").await;
    let said = "agent poet got no answer from its model within 0.3 s";
    assert_eq!(failure(&task), (said, "AGENT_UNAVAILABLE"));
    eventually(SOON, "the connection is closed", async || model.left() == 1).await;

    let model = Model::start(vec![says("Well "), Step::Hang]).await;
    let herald = Herald::start(asks(&model, "idle_timeout = \"300ms\"")).await;
    let task = told(&herald, "hi").await;
    assert_eq!(failure(&task).0, "agent poet heard nothing from its model for 0.3 s");

    let gone = Model::start(Vec::new()).await;
    let options = asks(&gone, "retries = 1");
    drop(gone);
    let herald = Herald::start(options).await;
    let task = told(&herald, "hi").await;
    assert_eq!(failure(&task), ("agent poet could not reach its model", "AGENT_UNAVAILABLE"));
}

#[tokio::test]
async fn an_answer_is_limited_by_max_output() {
    let model = Model::start(vec![text("one two three"), text("one two three")]).await;
    let herald = Herald::start(asks(&model, "max_output = 13")).await;
    assert_eq!(state(&told(&herald, "hi").await), "completed");
    let herald = Herald::start(asks(&model, "max_output = 12")).await;
    let task = told(&herald, "hi").await;
    assert_eq!(failure(&task).0, "agent poet got more than 12 bytes from its model");
}

#[tokio::test]
async fn data_is_sent_as_json_images_as_images_and_other_files_are_named() {
    let model = Model::start(["Seen"; 4].map(text).to_vec()).await;
    let herald = Herald::start(asks(&model, "images = true")).await;
    let send = |parts: Value| {
        let message = json!({ "messageId": uuid(), "role": "ROLE_USER", "parts": parts });
        Call::post("/message:send", &json!({ "message": message })).header("a2a-version", "1.0")
    };
    let parts = json!([
        { "text": "What is it?" },
        { "data": { "size": 3 } },
        { "raw": "AAEC", "mediaType": "image/png" },
        { "url": "https://example.com/cat.jpg", "mediaType": "image/jpeg" },
    ]);
    assert_eq!(herald.call(&send(parts)).await.status, 200);
    let expected = json!([
        { "type": "text", "text": "What is it?" },
        { "type": "text", "text": "{\"size\":3}" },
        { "type": "image_url", "image_url": { "url": "data:image/png;base64,AAEC" } },
        { "type": "image_url", "image_url": { "url": "https://example.com/cat.jpg" } },
    ]);
    assert_eq!(model.asked()[0].body["messages"][0]["content"], expected);
    let data = json!([{ "text": "And this?" }, { "data": [1, 2] }]);
    assert_eq!(herald.call(&send(data)).await.status, 200);
    assert_eq!(model.asked()[1].body["messages"][0]["content"], "And this?\n[1,2]");

    let files = json!([
        { "text": "And these?" },
        { "raw": "MSwy", "filename": "a.csv", "mediaType": "text/csv" },
        { "raw": "AAEC", "filename": "a.pdf", "mediaType": "application/pdf" },
    ]);
    assert_eq!(herald.call(&send(files)).await.status, 200);
    let named = "And these?\n[file a.csv, text/csv]\n1,2\n\
                 [file a.pdf, application/pdf, 3 bytes: its content is not shown]";
    assert_eq!(model.asked()[2].body["messages"][0]["content"], named);
    let blind = Herald::start(asks(&model, "")).await;
    let image = json!([{ "raw": "AAEC", "filename": "cat.png", "mediaType": "image/png" }]);
    assert_eq!(blind.call(&send(image)).await.status, 200);
    let named = "[file cat.png, image/png, 3 bytes: its content is not shown]";
    assert_eq!(model.asked()[3].body["messages"][0]["content"], named);

    for (server, modes) in [
        (&herald, json!(["text/plain", "text/*", "application/json", "image/*"])),
        (&blind, json!(["text/plain", "text/*", "application/json"])),
    ] {
        let card = server.call(&Call::get("/.well-known/agent-card.json")).await;
        let card: Value = serde_json::from_str(card.text()).unwrap();
        assert_eq!(card["defaultInputModes"], modes, "the card says what the model reads");
    }
}

#[tokio::test]
async fn an_answer_in_0_3_is_called_response_and_has_no_empty_part_and_no_snake_case() {
    // The model is silent for a while before it ends, so that all its text has been streamed.
    let end = json!({
        "choices": [{ "delta": {}, "finish_reason": "stop" }],
        "usage": {
            "prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3,
            "completion_tokens_details": { "reasoning_tokens": 0 },
        },
    });
    let end = Step::Raw(format!("data: {end}\n\ndata: [DONE]\n\n").into());
    let model = Model::start(vec![says("Forty-"), says("two"), Step::Wait, end]).await;
    let herald = Herald::start(asks(&model, "")).await;
    let id = begun(&herald, "How many?").await;
    eventually(SOON, "all but the last letter is there", async || {
        printed(&task(&herald, &id).await) == "Forty-tw"
    })
    .await;
    model.go();
    ended(&herald, &id).await;
    let get = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": { "id": id } });
    let answer = herald.call(&Call::post("/a2a", &get)).await;
    let task = serde_json::from_str::<Value>(answer.text()).unwrap()["result"].take();
    let artifact = &task["artifacts"][0];
    assert_eq!(
        (&artifact["artifactId"], &artifact["name"]),
        (&json!("response"), &json!("response"))
    );
    let parts = artifact["parts"].as_array().unwrap();
    assert!(parts.iter().all(|part| part["text"] != ""), "{artifact}");
    let said: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
    assert_eq!(said, "Forty-two");
    let about = json!({
        "finishReason": "stop",
        "usage": {
            "promptTokens": 1, "completionTokens": 2, "totalTokens": 3,
            "completionTokensDetails": { "reasoningTokens": 0 },
        },
    });
    assert_eq!(artifact["metadata"], about);
}

#[tokio::test]
async fn an_answer_that_a_crash_interrupted_is_requested_again() {
    let model = Model::start(vec![says("Half "), Step::Hang, text("Whole")]).await;
    let mut herald = Herald::start(asks(&model, "")).await;
    let id = begun(&herald, "hi").await;
    eventually(SOON, "something was said", async || printed(&task(&herald, &id).await) == "Half")
        .await;
    herald.kill9().await;
    herald.restart().await;
    assert_eq!(printed(&ended(&herald, &id).await), "Whole");
}

#[tokio::test]
async fn a_trace_continues_at_the_endpoint() {
    let model = Model::start(vec![text("Traced")]).await;
    let herald = Herald::start(asks(&model, "")).await;
    let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let call = Wire::Rest.send("", &Draft::new(uuid(), "hi"), false);
    let call = call.header("traceparent", parent).header("tracestate", "vendor=1");
    let task = Wire::Rest.sent(&herald.call(&call).await).unwrap();
    assert_eq!(state(&task), "completed", "{}", id(&task));
    let asked = model.asked().pop().unwrap();
    assert_eq!(asked.header("traceparent"), Some(parent));
    assert_eq!(asked.header("tracestate"), Some("vendor=1"));
}

#[tokio::test]
async fn mistakes_in_its_settings_are_refused_at_the_start() {
    let llm = "kind = \"llm\"\nmodel = \"m\"\nurl = \"http://127.0.0.1:9/v1\"";
    for (settings, said) in [
        ("kind = \"llm\"\nmodel = \"m\"", "needs url, such as url = \"http://127.0.0.1:11434/v1\""),
        ("kind = \"llm\"\nurl = \"http://127.0.0.1:9\"", "needs model"),
        ("kind = \"llm\"\nmodel = \"m\"\nurl = \"ftp://x/v1\"", "must look like https://"),
        ("kind = \"llm\"\nmodel = \"m\"\nurl = \"http://me:pw@x/v1\"", "without credentials in it"),
        (&format!("{llm}\nparameters = {{ stream = false }}"), "cannot contain \"stream\""),
        (
            &format!("{llm}\nparameters = {{ model = \"x\" }}"),
            "\"model\": use the key of that name",
        ),
        (&format!("{llm}\napi_key = \"env:NO_SUCH_KEY_8\""), "NO_SUCH_KEY_8 is not set"),
        (&format!("{llm}\ncommand = [\"cat\"]"), "`command` belongs to kind"),
        ("kind = \"echo\"\nmodel = \"m\"", "`model` belongs to kind = \"llm\""),
        ("kind = \"echo\"\nparameters = { seed = 1 }", "`parameters` belongs to kind = \"llm\""),
        ("kind = \"echo\"\nerror_detail = \"full\"", "`error_detail` belongs to kind"),
    ] {
        let refused = Options::config(format!("[[agents]]\nname = \"a\"\n{settings}\n"));
        let refused = refused.refused().await;
        assert!(refused.stderr.contains(said), "{settings}: {}", refused.stderr);
    }
}
