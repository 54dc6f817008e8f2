//! Webhooks: registration, order, retries, payloads by version, restarts.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use herald_engine::{
    Agent, AgentRoute, Caller, Clock, Engine, Profile, Reply, Scopes, Settings,
    store::{
        Key, Scope, Store, Webhook, WebhookQuery, WebhookState,
        sqlite::{Options, Sqlite},
    },
    webhooks::sender::{AttemptOutcome, AttemptResult, Delivery, SealedSecrets, WebhookSender},
};
use herald_protocol::{
    Dialect, Error, ErrorKind, Part, Request, SendResult, StreamEvent, TaskId, TaskState,
    Timestamp,
    push::{PushAuthentication, PushConfig, PushConfigPage},
    request::{ListPushConfigs, PushConfigRef, SendMessage},
};

use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::{Bench, Script, eventually, file, profile, reopened, say, text};

/// A receiver in place of the network: it answers by host, and remembers the deliveries.
#[derive(Debug, Default)]
struct Receiver {
    deliveries: Mutex<Vec<Delivery>>,
    /// Deliveries to hosts that hang.
    waiting: AtomicUsize,
    /// Hosts that fail, and the status that they answer with; `None` hangs until it recovers.
    failing: Mutex<HashMap<String, Option<u16>>>,
}

impl Receiver {
    fn fail(&self, host: &str, status: Option<u16>) {
        self.failing.lock().unwrap().insert(host.to_owned(), status);
    }

    fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    fn recover(&self, host: &str) {
        self.failing.lock().unwrap().remove(host);
    }

    /// The deliveries to a URL that were accepted.
    fn accepted(&self, url: &str) -> Vec<Delivery> {
        let deliveries = self.deliveries.lock().unwrap();
        deliveries.iter().filter(|delivery| delivery.url == url).cloned().collect()
    }

    fn bodies(&self, url: &str) -> Vec<serde_json::Value> {
        let accepted = self.accepted(url);
        accepted.iter().map(|it| serde_json::from_slice(&it.body).unwrap()).collect()
    }
}

#[async_trait]
impl WebhookSender for Receiver {
    async fn admit(&self, config: &PushConfig) -> Result<SealedSecrets, Error> {
        if config.url.contains("forbidden") {
            return Err(Error::field("url", "is forbidden"));
        }
        Ok(SealedSecrets(config.token.clone().unwrap_or_default().into()))
    }

    async fn send(&self, delivery: Delivery) -> AttemptResult {
        let host = delivery.url.split('/').nth(2).unwrap_or_default();
        let failing = || self.failing.lock().unwrap().get(host).copied();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while failing() == Some(None) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        let (outcome, status) = match failing() {
            Some(Some(410)) => (AttemptOutcome::Gone, Some(410)),
            Some(status) => (AttemptOutcome::Failed, status),
            None => {
                self.deliveries.lock().unwrap().push(delivery);
                (AttemptOutcome::Delivered, Some(200))
            }
        };
        AttemptResult { outcome, status, retry_after: None, detail: String::new() }
    }
}

/// An engine with a receiver and a clock.
struct PushBench {
    bench: Bench,
    receiver: Arc<Receiver>,
    store: Arc<dyn Store>,
    clock: Clock,
    _directory: Option<TempDir>,
}

fn start() -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000)
}

fn chunks(count: usize) -> Script {
    Script::new(move |turn| {
        Box::pin(async move {
            for index in 0..count {
                turn.append(text("out", format!("{index} ")), index + 1 == count).await?;
            }
            Ok(())
        })
    })
}

impl PushBench {
    async fn new(agent: Script) -> Self {
        let clock = Clock::manual(start());
        let directory = tempfile::tempdir().unwrap();
        let options = Options { clock: clock.clone(), ..Options::default() };
        let store = Arc::new(Sqlite::open(&directory.path().join("herald.db"), options).unwrap());
        let bench = Self::on(store, agent, clock, Settings::default(), profile()).await;
        Self { _directory: Some(directory), ..bench }
    }

    async fn on(
        store: Arc<dyn Store>,
        agent: impl Agent,
        clock: Clock,
        settings: Settings,
        profile: Profile,
    ) -> Self {
        let receiver = Arc::new(Receiver::default());
        let engine = Engine::builder(Arc::clone(&store))
            .settings(settings)
            .clock(clock.clone())
            .webhooks(Arc::clone(&receiver) as Arc<dyn WebhookSender>)
            .agent(profile, agent)
            .build()
            .unwrap();
        engine.start_work().await.unwrap();
        let (caller, route) = (Caller::anonymous("".into()), AgentRoute::default());
        let bench = Bench { engine, caller, route };
        Self { bench, receiver, store, clock, _directory: None }
    }

    /// Lets time pass for the engine, and wakes the deliverer by a registration.
    async fn pass(&self, time: Duration) {
        let now = self.clock.now().as_millis() + i64::try_from(time.as_millis()).unwrap();
        self.clock.set(Timestamp::from_millis(now));
        // The deliverer looks again once it is woken; it sleeps by the real clock.
        let task = self.bench.send(say("wake")).await.unwrap().id;
        self.create(&task, config("http://wake/")).await.unwrap();
    }

    async fn create(&self, task: &TaskId, mut config: PushConfig) -> Result<PushConfig, Error> {
        config.task_id = Some(task.clone());
        let reply = self.bench.call(Request::CreateTaskPushNotificationConfig(config)).await?;
        let Reply::PushConfig(config) = reply else { panic!("expected a config, not {reply:?}") };
        Ok(config)
    }

    async fn get(&self, task: &TaskId, id: &str) -> Result<PushConfig, Error> {
        let wanted = PushConfigRef { tenant: None, task_id: task.clone(), id: id.into() };
        let reply = self.bench.call(Request::GetTaskPushNotificationConfig(wanted)).await?;
        let Reply::PushConfig(config) = reply else { panic!("expected a config, not {reply:?}") };
        Ok(config)
    }

    async fn delete(&self, task: &TaskId, id: &str) -> Result<(), Error> {
        let named = PushConfigRef { tenant: None, task_id: task.clone(), id: id.into() };
        self.bench.call(Request::DeleteTaskPushNotificationConfig(named)).await.map(|_| ())
    }

    async fn list(&self, list: ListPushConfigs) -> Result<PushConfigPage, Error> {
        let reply = self.bench.call(Request::ListTaskPushNotificationConfigs(list)).await?;
        let Reply::PushConfigs(page) = reply else { panic!("expected a page, not {reply:?}") };
        Ok(page)
    }

    /// Sends a message with a webhook, and returns the task.
    async fn send(&self, config: PushConfig) -> TaskId {
        let mut send = SendMessage { message: say("go"), ..SendMessage::default() };
        send.configuration.task_push_notification_config = Some(config);
        match self.bench.sent(send).await.unwrap() {
            SendResult::Task(task) => task.id,
            SendResult::Message(message) => panic!("a message: {message:?}"),
        }
    }

    async fn delivered(&self, url: &str, count: usize) -> Vec<serde_json::Value> {
        eventually(|| async { self.receiver.accepted(url).len() >= count }).await;
        self.receiver.bodies(url)
    }

    async fn webhook(&self, task: &TaskId) -> Webhook {
        let key = Key { owner: self.bench.caller.owner().clone(), task: task.clone() };
        self.store.webhooks_of(&key, None, 1).await.unwrap().remove(0)
    }

    async fn state(&self, task: &TaskId) -> WebhookState {
        self.webhook(task).await.state
    }
}

fn config(url: &str) -> PushConfig {
    PushConfig { url: url.to_owned(), ..PushConfig::default() }
}

// proves: PUSH-008, PUSH-009, PUSH-011, PUSH-014, PUSH-029
#[tokio::test]
async fn a_webhook_in_a_send_gets_the_task_and_its_events_in_order() {
    let push = PushBench::new(chunks(10)).await;
    let task = push.send(config("http://a/hook")).await;
    let bodies = push.delivered("http://a/hook", 13).await;
    assert_eq!(bodies.len(), 13);
    assert_eq!(bodies[0]["task"]["id"], task.as_str());
    assert_eq!(bodies[0]["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    assert_eq!(bodies[1]["statusUpdate"]["status"]["state"], "TASK_STATE_WORKING");
    for (index, body) in bodies[2..12].iter().enumerate() {
        let part = &body["artifactUpdate"]["artifact"]["parts"][0]["text"];
        assert_eq!(part, &format!("{index} "));
    }
    assert_eq!(bodies[12]["statusUpdate"]["status"]["state"], "TASK_STATE_COMPLETED");
    let accepted = push.receiver.accepted("http://a/hook");
    let ids: std::collections::HashSet<_> = accepted.iter().map(|it| &it.id).collect();
    assert_eq!(ids.len(), 13, "each event has its own id");
    assert!(accepted.iter().all(|it| it.content_type == "application/a2a+json"));
    eventually(|| async { push.state(&task).await == WebhookState::Idle }).await;
}

// proves: PUSH-002, PUSH-003, PUSH-004, PUSH-005, PUSH-006
#[tokio::test]
async fn configs_are_created_read_listed_and_deleted() {
    let push = PushBench::new(chunks(1)).await;
    let task = push.bench.send(say("go")).await.unwrap().id;
    let given = PushConfig {
        token: Some("secret".to_owned()),
        authentication: Some(PushAuthentication {
            scheme: "Basic".to_owned(),
            credentials: Some("secret".to_owned()),
        }),
        ..config("http://a/")
    };
    let created = push.create(&task, given).await.unwrap();
    let id = created.id.clone().unwrap();
    assert!(!id.as_str().is_empty());
    assert_eq!((created.token.as_ref(), created.url.as_str()), (None, "http://a/"));
    let authentication = created.authentication.clone().unwrap();
    assert_eq!((authentication.scheme.as_str(), authentication.credentials), ("Basic", None));
    assert_eq!(push.get(&task, id.as_str()).await.unwrap(), created);
    assert_eq!(push.get(&task, "").await.unwrap(), created, "the only one");
    for name in ["x", "y"] {
        let named = PushConfig { id: Some(name.into()), ..config("http://b/") };
        push.create(&task, named).await.unwrap();
    }
    assert_eq!(push.get(&task, "").await.unwrap_err().kind, ErrorKind::InvalidParams);
    let mut list = ListPushConfigs { task_id: task.clone(), ..ListPushConfigs::default() };
    assert_eq!(push.list(list.clone()).await.unwrap().configs.len(), 3);
    list.page_size = Some(2);
    let first = push.list(list.clone()).await.unwrap();
    assert_eq!(first.configs.len(), 2);
    list.page_token = Some(first.next_page_token);
    let second = push.list(list.clone()).await.unwrap();
    assert_eq!((second.configs.len(), second.next_page_token.as_str()), (1, ""));
    list.page_token = Some("forged".to_owned());
    assert_eq!(push.list(list).await.unwrap_err().kind, ErrorKind::InvalidParams);
    push.delete(&task, "x").await.unwrap();
    push.delete(&task, "x").await.unwrap();
    assert_eq!(push.get(&task, "x").await.unwrap_err().kind, ErrorKind::TaskNotFound);
    let unknown = TaskId::from("unknown");
    for error in [
        push.create(&unknown, config("http://a/")).await.map(|_| ()),
        push.get(&unknown, "x").await.map(|_| ()),
        push.delete(&unknown, "x").await,
    ] {
        assert_eq!(error.unwrap_err().kind, ErrorKind::TaskNotFound);
    }
    let refused = push.create(&task, config("http://forbidden/")).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidParams);
}

// proves: PUSH-030
#[tokio::test]
async fn another_caller_finds_no_config() {
    let mut push = PushBench::new(chunks(1)).await;
    let task = push.bench.send(say("go")).await.unwrap().id;
    let named = PushConfig { id: Some("x".into()), ..config("http://a/") };
    push.create(&task, named.clone()).await.unwrap();
    push.bench.caller = Caller::new("other".into(), "eve", Scopes::ALL);
    for error in [
        push.create(&task, named).await.map(|_| ()),
        push.get(&task, "x").await.map(|_| ()),
        push.delete(&task, "x").await,
    ] {
        assert_eq!(error.unwrap_err(), Error::task_not_found());
    }
}

// proves: PUSH-001
#[tokio::test]
async fn an_agent_without_push_refuses_every_config() {
    let store = Arc::new(Sqlite::memory().unwrap());
    let without = Profile { push: false, ..profile() };
    let (clock, settings) = (Clock::system(), Settings::default());
    let push = PushBench::on(store, chunks(1), clock, settings, without).await;
    let task = push.bench.send(say("go")).await.unwrap().id;
    let list = ListPushConfigs { task_id: task.clone(), ..ListPushConfigs::default() };
    let mut send = SendMessage { message: say("go"), ..SendMessage::default() };
    send.configuration.task_push_notification_config = Some(config("http://a/"));
    for error in [
        push.create(&task, config("http://a/")).await.map(|_| ()),
        push.get(&task, "x").await.map(|_| ()),
        push.list(list).await.map(|_| ()),
        push.delete(&task, "x").await,
        push.bench.sent(send).await.map(|_| ()),
    ] {
        assert_eq!(error.unwrap_err().kind, ErrorKind::PushNotificationNotSupported);
    }
}

#[tokio::test]
async fn a_message_with_a_webhook_needs_the_scope_push() {
    let mut push = PushBench::new(chunks(1)).await;
    push.bench.caller = Caller::new("acme".into(), "ann", Scopes::SEND);
    let mut send = SendMessage { message: say("go"), ..SendMessage::default() };
    send.configuration.task_push_notification_config = Some(config("http://a/"));
    assert_eq!(push.bench.sent(send).await.unwrap_err().kind, ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_late_webhook_gets_the_task_as_it_is() {
    let push = PushBench::new(chunks(3)).await;
    let task = push.bench.send(say("go")).await.unwrap();
    push.create(&task.id, config("http://late/")).await.unwrap();
    let bodies = push.delivered("http://late/", 1).await;
    assert_eq!(bodies.len(), 1);
    assert_eq!(bodies[0]["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(bodies[0]["task"]["artifacts"][0]["parts"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn the_same_url_in_a_later_message_is_the_same_webhook() {
    let asks = Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() != "more" {
                turn.ask("more?").await?;
            }
            Ok(())
        })
    });
    let push = PushBench::new(asks).await;
    let task = push.send(config("http://a/")).await;
    let mut send = SendMessage { message: say("more"), ..SendMessage::default() };
    send.message.task_id = Some(task.clone());
    send.configuration.task_push_notification_config = Some(config("http://a/"));
    push.bench.sent(send).await.unwrap();
    let list = ListPushConfigs { task_id: task, ..ListPushConfigs::default() };
    assert_eq!(push.list(list).await.unwrap().configs.len(), 1);
}

// proves: PUSH-013
#[tokio::test]
async fn a_receiver_that_fails_gets_every_event_in_order_later() {
    let push = PushBench::new(chunks(5)).await;
    push.receiver.fail("down", Some(503));
    let task = push.send(config("http://down/")).await;
    eventually(|| async { push.state(&task).await == WebhookState::Waiting }).await;
    // An hour: the attempts after 5 s, 30 s, 2 min, 15 min fail.
    for (attempt, wait) in (2..).zip([6, 35, 140, 1000]) {
        push.pass(Duration::from_secs(wait)).await;
        eventually(|| async { push.webhook(&task).await.failures == attempt }).await;
    }
    push.receiver.recover("down");
    assert!(push.receiver.accepted("http://down/").is_empty());
    push.pass(Duration::from_secs(4000)).await;
    let bodies = push.delivered("http://down/", 8).await;
    let first: Vec<_> = bodies
        .iter()
        .map(|body| body.as_object().unwrap().keys().next().unwrap().clone())
        .collect();
    let mut expected = vec!["task", "statusUpdate"];
    expected.extend(["artifactUpdate"; 5]);
    expected.push("statusUpdate");
    assert_eq!(first, expected);
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_only_itself() {
    let push = PushBench::new(chunks(1)).await;
    push.receiver.fail("hangs", None);
    let mut hanging = Vec::new();
    for number in 0..50 {
        hanging.push(push.send(config(&format!("http://hangs/{number}"))).await);
    }
    push.send(config("http://fine/")).await;
    push.delivered("http://fine/", 4).await;
    assert_eq!(push.state(&hanging[0]).await, WebhookState::Ready);
}

#[tokio::test]
async fn receivers_of_one_tenant_that_hang_leave_places_for_others() {
    let mut push = PushBench::new(chunks(1)).await;
    for number in 0..200 {
        let host = format!("hangs{number}");
        push.receiver.fail(&host, None);
        push.send(config(&format!("http://{host}/"))).await;
    }
    eventually(|| async { push.receiver.waiting() >= 96 }).await;
    push.bench.caller = Caller::anonymous("other".into());
    push.send(config("http://fine/")).await;
    push.delivered("http://fine/", 4).await;
    assert_eq!(
        push.receiver.waiting(),
        96,
        "half of the places for receivers that have not answered"
    );
}

#[tokio::test]
async fn events_that_are_delivered_again_on_request_have_a_limit() {
    let push = PushBench::new(chunks(1)).await;
    let task = push.send(config("http://slow/")).await;
    push.delivered("http://slow/", 4).await;
    push.receiver.fail("slow", None);
    let id = push.webhook(&task).await.id;
    let mut replays = JoinSet::new();
    for _ in 0..16 {
        let bench = push.bench.clone();
        replays.spawn(async move {
            bench.engine.operator(&bench.caller).deliver_again(id, 1).await.map(|_| ())
        });
    }
    eventually(|| async { push.receiver.waiting() == 16 }).await;
    let operator = push.bench.engine.operator(&push.bench.caller);
    let refused = operator.deliver_again(id, 1).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unavailable, "{refused}");
    push.receiver.recover("slow");
    assert!(replays.join_all().await.iter().all(Result::is_ok));
}

#[tokio::test]
async fn a_large_delivery_waits_for_memory_and_is_not_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let large = Script::new(|turn| {
        Box::pin(async move {
            let size = if turn.message().text() == "large" { 40 << 10 } else { 1 };
            turn.artifact(text("out", "x".repeat(size))).await?;
            Ok(())
        })
    });
    // Each of the two pools for deliveries has 160 KiB: enough for one of 40 KiB.
    let settings = Settings { memory: 5 << 20, ..Settings::default() };
    let clock = Clock::manual(start());
    let options = Options { clock: clock.clone(), ..Options::default() };
    let path = directory.path().join("herald.db");
    let store = Arc::new(Sqlite::open(&path, options).unwrap());
    let mut push = PushBench::on(store, large, clock, settings, profile()).await;
    let task = push.bench.send(say("large")).await.unwrap().id;
    push.receiver.fail("hangs", None);
    push.create(&task, config("http://hangs/")).await.unwrap();
    for dialect in [Dialect::V1, Dialect::V03] {
        let url = format!("http://{dialect:?}/");
        let waiting = push.bench.send(say("large")).await.unwrap().id;
        push.bench.route.dialect = dialect;
        push.create(&waiting, config(&url)).await.unwrap();
        eventually(|| async { push.state(&waiting).await == WebhookState::Waiting }).await;
        let webhook = push.webhook(&waiting).await;
        assert_eq!((webhook.failures, webhook.attempts), (0, 0), "{dialect:?}");
    }
    push.bench.route.dialect = Dialect::V1;
    push.send(config("http://small/")).await;
    push.delivered("http://small/", 4).await;
    push.receiver.recover("hangs");
    push.delivered("http://hangs/", 1).await;
    push.pass(Duration::from_secs(2)).await;
    for url in ["http://V1/", "http://V03/"] {
        push.delivered(url, 1).await;
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_does_not_hold_up_a_shutdown() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |store| {
        PushBench::on(store, chunks(1), Clock::system(), Settings::default(), profile()).await
    };
    let push = start(file(directory.path())).await;
    push.receiver.fail("hangs", None);
    push.send(config("http://hangs/")).await;
    // Much longer than the test may take.
    push.bench.engine.drain(Duration::from_secs(100_000)).await;
    drop(push);
    let push = start(reopened(directory.path()).await).await;
    push.delivered("http://hangs/", 4).await;
}

#[tokio::test]
async fn a_damaged_webhook_is_parked_and_does_not_hold_up_others_of_its_receiver() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |store| {
        PushBench::on(store, chunks(1), Clock::system(), Settings::default(), profile()).await
    };
    let push = start(file(directory.path())).await;
    push.receiver.fail("one", None);
    push.send(config("http://one/damaged")).await;
    push.bench.engine.drain(Duration::from_secs(60)).await;
    drop(push);
    let conn = rusqlite::Connection::open(directory.path().join("test.db")).unwrap();
    assert_eq!(conn.execute("UPDATE webhooks SET dialect = 99", []).unwrap(), 1);
    drop(conn);
    let push = start(reopened(directory.path()).await).await;
    push.send(config("http://one/fine")).await;
    push.delivered("http://one/fine", 4).await;
    let counts = push.store.count_webhooks(10).await.unwrap();
    assert!(counts.contains(&(WebhookState::Parked, 1)), "{counts:?}");
    let query = WebhookQuery { scope: Scope::All, state: None, before: None, limit: 10 };
    let listed = push.store.list_webhooks(query).await.unwrap().webhooks;
    let urls: Vec<_> = listed.iter().map(|webhook| webhook.target.url.as_str()).collect();
    assert_eq!(urls, ["http://one/fine"], "it does not hide others");
}

#[tokio::test]
async fn a_receiver_that_is_gone_or_always_fails_is_stopped() {
    let push = PushBench::new(chunks(1)).await;
    push.receiver.fail("gone", Some(410));
    let gone = push.send(config("http://gone/")).await;
    eventually(|| async { push.state(&gone).await == WebhookState::Disabled }).await;
    push.receiver.fail("down", Some(500));
    let parked = push.send(config("http://down/")).await;
    for attempt in 1..10 {
        eventually(|| async { push.webhook(&parked).await.failures == attempt }).await;
        push.pass(Duration::from_secs(2 * 24 * 3600)).await;
    }
    eventually(|| async { push.state(&parked).await == WebhookState::Parked }).await;
}

// proves: PUSH-016
#[tokio::test]
async fn before_1_0_a_delivery_is_the_whole_task() {
    for (dialect, state) in
        [(Dialect::V03, "completed"), (Dialect::V03Rest, "completed"), (Dialect::V01, "completed")]
    {
        let mut push = PushBench::new(chunks(5)).await;
        push.bench.route.dialect = dialect;
        let task = push.send(config("http://old/")).await;
        // Submitted, working, the complete artifact, completed.
        let bodies = push.delivered("http://old/", 4).await;
        assert_eq!(bodies.len(), 4, "{bodies:?}");
        for body in &bodies {
            assert_eq!(body["id"], task.as_str());
        }
        if dialect != Dialect::V01 {
            assert!(bodies.iter().all(|body| body["kind"] == "task"));
        }
        assert_eq!(bodies[3]["status"]["state"], state);
        assert_eq!(bodies[2]["artifacts"][0]["parts"].as_array().unwrap().len(), 5);
        let accepted = push.receiver.accepted("http://old/");
        assert!(accepted.iter().all(|it| it.content_type == "application/json"));
    }
}

#[tokio::test]
async fn a_direct_answer_is_delivered_alone() {
    let agent = Script::new(|turn| {
        Box::pin(async move {
            turn.reply(vec![Part::text("hello")]).await?;
            Ok(())
        })
    });
    let push = PushBench::new(agent.direct()).await;
    let mut send = SendMessage { message: say("go"), ..SendMessage::default() };
    send.configuration.task_push_notification_config = Some(config("http://a/"));
    push.bench.sent(send).await.unwrap();
    let bodies = push.delivered("http://a/", 1).await;
    assert_eq!(bodies.len(), 1);
    assert!(bodies[0]["message"].is_object(), "{bodies:?}");
}

#[tokio::test]
async fn a_delivery_is_the_same_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let start = async |store| {
        PushBench::on(store, chunks(20), Clock::system(), Settings::default(), profile()).await
    };
    let push = start(file(directory.path())).await;
    let task = push.send(config("http://a/")).await;
    push.delivered("http://a/", 23).await;
    let bodies = |push: &PushBench| -> Vec<(String, Bytes)> {
        push.receiver.accepted("http://a/").into_iter().map(|it| (it.id, it.body)).collect()
    };
    let first = bodies(&push);
    push.bench.engine.drain(Duration::from_secs(5)).await;
    drop(push);
    let push = start(reopened(directory.path()).await).await;
    let key = Key { owner: push.bench.caller.owner().clone(), task };
    let id = push.store.webhooks_of(&key, None, 1).await.unwrap()[0].id;
    push.store.restart_webhook(id, Some(0)).await.unwrap();
    push.delivered("http://a/", 23).await;
    assert_eq!(bodies(&push), first);
}

#[tokio::test]
async fn all_end_states_are_delivered() {
    for (outcome, expected) in
        [("fail", TaskState::Failed), ("cancel", TaskState::Canceled), ("", TaskState::Completed)]
    {
        let agent = Script::new(move |turn| {
            Box::pin(async move {
                match outcome {
                    "fail" => Err(herald_engine::AgentError::Failed("broken".to_owned())),
                    "cancel" => {
                        turn.cancelled().cancelled().await;
                        Ok(())
                    }
                    _ => Ok(()),
                }
            })
        });
        let push = PushBench::new(agent).await;
        let mut send = SendMessage { message: say("go"), ..SendMessage::default() };
        send.configuration.return_immediately = true;
        send.configuration.task_push_notification_config = Some(config("http://a/"));
        let SendResult::Task(task) = push.bench.sent(send).await.unwrap() else {
            panic!("expected a task");
        };
        if outcome == "cancel" {
            push.bench.cancel(&task.id).await.unwrap();
        }
        let last = async || {
            let accepted = push.receiver.accepted("http://a/");
            let last = accepted.last().map(|it| Dialect::V1.decode_event(&it.body).unwrap());
            matches!(last, Some(StreamEvent::StatusUpdate(it)) if it.status.state == expected)
        };
        eventually(last).await;
    }
}
