//! Operators: tasks of other owners, API keys, the audit log, and answers that name their question.

use std::sync::Arc;

use herald_engine::{
    Caller, Clock, Identity, NewApiKey, Scopes, Settings, TaskFilter,
    keys::hash_secret,
    store::{
        Actor, ApiKeyQuery, AuditQuery, ChainLink, Key, Owner, OwnerQuery, Scope, Store,
        flaky::Flaky,
    },
};
use herald_protocol::{
    AgentName, Content, ErrorKind, Json, Message, MessageId, Metadata, Part, Request, TaskId,
    TaskState, Timestamp, request::CancelTask,
};

use uuid::Uuid;

use crate::support::{Bench, Script, answer, profile, say};

fn owner(tenant: &str, principal: &str) -> Owner {
    Owner { tenant: tenant.into(), principal: principal.into() }
}

/// An engine whose agent asks about every message but "done".
async fn start() -> (Arc<Flaky>, Bench) {
    let store = Arc::new(Flaky::new().unwrap());
    let agent = Script::new(|turn| {
        Box::pin(async move {
            if turn.message().text() == "done" {
                turn.complete("ok").await?;
            } else {
                turn.ask("more?").await?;
            }
            Ok(())
        })
    });
    let on = Arc::clone(&store) as Arc<dyn Store>;
    let bench = Bench::on(on, agent, profile(), Settings::default(), Clock::system()).await;
    (store, bench)
}

fn as_caller(bench: &Bench, tenant: &str, principal: &str, scopes: Scopes) -> Bench {
    let identity = Identity::new(tenant.into(), principal, scopes);
    Bench { caller: Caller::from(Arc::new(identity)), ..bench.clone() }
}

/// All records, once the buffered ones are stored.
async fn audit(bench: &Bench, store: &dyn Store) -> Vec<(String, String, Option<String>)> {
    bench.engine.drain(std::time::Duration::from_secs(5)).await;
    let query = AuditQuery { oldest_first: true, limit: 100, ..AuditQuery::default() };
    let records = store.read_audit(query).await.unwrap().records;
    let rows = records.into_iter().map(|record| {
        let subject = record.entry.subject.map(|subject| subject.id.to_string());
        let actor = record.entry.actor.principal.to_string();
        (record.entry.action.into_owned(), actor, subject)
    });
    rows.collect()
}

#[tokio::test]
async fn an_administrator_reads_and_changes_tasks_of_every_owner() {
    let (store, bench) = start().await;
    let ann = as_caller(&bench, "acme", "ann", Scopes::CALLER);
    let root = as_caller(&bench, "ops", "root", Scopes::CALLER.with(Scopes::ADMIN));
    let task = ann.send(say("  \nFirst line\nsecond line")).await.unwrap();
    ann.send(say("done")).await.unwrap();
    as_caller(&bench, "other", "bob", Scopes::CALLER).send(say("done")).await.unwrap();
    let operator = root.engine.operator(&root.caller);

    let list =
        |scope: Scope, limit| TaskFilter { scope: Some(scope), limit, ..TaskFilter::default() };
    let own = operator.tasks(TaskFilter { limit: 10, ..TaskFilter::default() }).await.unwrap();
    assert!(own.tasks.is_empty(), "without a scope only the caller's own tasks are listed");
    let all = operator.tasks(list(Scope::All, 2)).await.unwrap();
    assert_eq!((all.tasks.len(), all.total), (2, 3));
    let token = all.next_page_token;
    let next = TaskFilter { page_token: token, ..list(Scope::All, 2) };
    let next = operator.tasks(next).await.unwrap();
    assert_eq!((next.tasks.len(), next.next_page_token), (1, None));
    assert_eq!(operator.tasks(list(Scope::Tenant("acme".into()), 9)).await.unwrap().total, 2);
    let waiting = TaskFilter { state: Some(TaskState::InputRequired), ..list(Scope::All, 9) };
    let waiting = operator.tasks(waiting).await.unwrap().tasks;
    let [summary] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((summary.key.task.clone(), &*summary.preview), (task.id.clone(), "First line"));
    let question = task.status.message.as_ref().unwrap().message_id.clone();
    assert_eq!(summary.question, Some(question));

    let key = operator.locate(Some(Scope::All), task.id.clone()).await.unwrap();
    assert_eq!(key.owner, owner("acme", "ann"));
    assert_eq!(operator.task(&key).await.unwrap().0, *summary);
    let log = operator.log(&key, 0, 100).await.unwrap();
    assert!(log.iter().all(|entry| entry.at.is_some() && entry.cause.is_some()));

    // The ordinary operations work on the task, and its log names the administrator.
    let acting = Bench { caller: operator.caller_for(&key).unwrap(), ..bench.clone() };
    let cancelled = acting
        .call(Request::CancelTask(CancelTask { id: task.id.clone(), ..CancelTask::default() }));
    cancelled.await.unwrap();
    let log = operator.log(&key, log.len() as u64, 100).await.unwrap();
    assert_eq!(log[0].cause.as_ref().unwrap().actor, Actor::Principal("root".into()));
    assert_eq!(ann.get(&task.id).await.unwrap().status.state, TaskState::Canceled);

    let owners = OwnerQuery { tenant: None, after: None, limit: 9 };
    let owners = operator.owners(owners).await.unwrap();
    let tasks: Vec<_> =
        owners.iter().map(|(owner, usage)| (&*owner.principal, usage.tasks)).collect();
    assert_eq!(tasks, [("ann", 2), ("bob", 1)]);
    assert_eq!(operator.usage(&Scope::All).await.unwrap().active, 0);
    assert_eq!(operator.store().await.unwrap().0.usage.tasks, 3);

    let records = audit(&bench, &*store).await;
    let cancel = ("task.cancel".to_owned(), "root".to_owned(), Some(task.id.to_string()));
    assert!(records.contains(&cancel), "{records:?}");
    for action in ["task.list", "task.find", "task.read", "task.log", "usage.read"] {
        assert!(records.iter().any(|(one, ..)| one == action), "{action}: {records:?}");
    }
}

#[tokio::test]
async fn acts_of_administrators_name_the_task_the_address_and_the_outcome() {
    let (store, bench) = start().await;
    let ann = as_caller(&bench, "acme", "ann", Scopes::CALLER);
    let root = as_caller(&bench, "ops", "root", Scopes::CALLER.with(Scopes::ADMIN));
    let task = ann.send(say("hello")).await.unwrap();
    let request = Uuid::new_v4();
    let caller = root.caller.with_request(request, "api", Some([192, 0, 2, 7].into()));
    let operator = bench.engine.operator(&caller);
    let key = operator.locate(Some(Scope::All), task.id.clone()).await.unwrap();
    operator.task(&key).await.unwrap();
    operator.log(&key, 0, 9).await.unwrap();
    let acting = Bench { caller: operator.caller_for(&key).unwrap(), ..bench.clone() };
    acting.get(&task.id).await.unwrap();
    let cancel =
        || Request::CancelTask(CancelTask { id: task.id.clone(), ..CancelTask::default() });
    acting.call(cancel()).await.unwrap();
    let refused = acting.call(cancel()).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TaskNotCancelable);

    bench.engine.drain(std::time::Duration::from_secs(5)).await;
    let query = AuditQuery { limit: 100, ..AuditQuery::default() };
    let records = store.read_audit(query).await.unwrap().records;
    for record in &records {
        let entry = &record.entry;
        assert_eq!(entry.address.as_deref(), Some("192.0.2.7"), "{record:?}");
        assert_eq!(entry.request.as_deref(), Some(&*request.to_string()), "{record:?}");
        let subject = entry.subject.as_ref().unwrap();
        assert_eq!((&*subject.kind, &*subject.id), ("task", task.id.as_str()), "{record:?}");
    }
    let with =
        |action: &'static str| records.iter().filter(move |record| record.entry.action == action);
    for action in ["task.find", "task.read", "task.log"] {
        assert!(with(action).count() > 0, "{action}: {records:?}");
        assert!(with(action).all(|record| record.entry.refused.is_none()), "{records:?}");
    }
    let outcomes: Vec<_> =
        with("task.cancel").filter_map(|record| record.entry.refused.as_deref()).collect();
    assert_eq!(outcomes, [refused.message.as_str()], "{records:?}");
}

#[tokio::test]
async fn a_caller_without_admin_reaches_only_what_it_sees() {
    let (store, bench) = start().await;
    let ann = as_caller(&bench, "acme", "ann", Scopes::CALLER);
    let bob = as_caller(&bench, "acme", "bob", Scopes::CALLER);
    let task = ann.send(say("hello")).await.unwrap();
    let own = ann.engine.operator(&ann.caller);
    let key = own.locate(None, task.id.clone()).await.unwrap();
    assert_eq!(own.task(&key).await.unwrap().1.id, task.id);
    assert_eq!(own.tasks(TaskFilter { limit: 9, ..TaskFilter::default() }).await.unwrap().total, 1);
    assert!(own.usage(&Scope::Own(owner("acme", "ann"))).await.is_ok());

    let operator = bob.engine.operator(&bob.caller);
    let forbidden =
        |error: herald_protocol::Error| assert_eq!(error.kind, ErrorKind::Forbidden, "{error}");
    for scope in [Scope::All, Scope::Tenant("acme".into()), Scope::Own(owner("acme", "ann"))] {
        let filter = TaskFilter { scope: Some(scope.clone()), limit: 9, ..TaskFilter::default() };
        forbidden(operator.tasks(filter).await.unwrap_err());
        forbidden(operator.locate(Some(scope.clone()), task.id.clone()).await.unwrap_err());
        forbidden(operator.usage(&scope).await.unwrap_err());
    }
    let guessed = operator.locate(None, task.id.clone()).await.unwrap();
    let absent = Key { task: TaskId::from("unknown"), ..guessed.clone() };
    let errors =
        [operator.task(&guessed).await.unwrap_err(), operator.task(&absent).await.unwrap_err()];
    assert_eq!(errors[0], errors[1]);
    assert_eq!(errors[0].kind, ErrorKind::TaskNotFound);
    forbidden(operator.task(&key).await.unwrap_err());
    forbidden(operator.log(&key, 0, 9).await.unwrap_err());
    forbidden(operator.caller_for(&key).unwrap_err());
    forbidden(operator.audit(AuditQuery::default()).await.unwrap_err());
    forbidden(operator.audit_ends().await.unwrap_err());
    forbidden(operator.verify_audit(None).await.unwrap_err());
    forbidden(
        operator.owners(OwnerQuery { tenant: None, after: None, limit: 9 }).await.unwrap_err(),
    );
    forbidden(operator.store().await.unwrap_err());
    forbidden(
        operator.keys(ApiKeyQuery { tenant: None, after: None, limit: 9 }).await.unwrap_err(),
    );
    forbidden(operator.revoke_key("k").await.unwrap_err());
    let blind = as_caller(&bench, "acme", "ann", Scopes::SEND);
    let filter = TaskFilter { limit: 9, ..TaskFilter::default() };
    forbidden(blind.engine.operator(&blind.caller).tasks(filter).await.unwrap_err());
    assert_eq!(audit(&bench, &*store).await, []);
}

#[tokio::test]
async fn keys_are_issued_listed_and_revoked_with_their_records() {
    let (store, bench) = start().await;
    let root = as_caller(&bench, "", "root", Scopes::CALLER.with(Scopes::ADMIN));
    let caller = root.caller.with_request(Uuid::new_v4(), "api", Some([192, 0, 2, 7].into()));
    let operator = root.engine.operator(&caller);
    let new = NewApiKey {
        owner: owner("acme", "ann"),
        scopes: Scopes::CALLER,
        agents: None,
        skills: None,
        visibility: None,
        expires: None,
        label: "build server".into(),
    };
    let mut changes = bench.engine.key_changes();
    let (key, secret) = operator.create_key(new.clone()).await.unwrap();
    changes.changed().await.unwrap();
    let found = bench.engine.find_key_by_hash(&hash_secret(secret.reveal())).await.unwrap();
    assert_eq!(found.as_ref(), Some(&key));
    assert_eq!((&*key.created_by, key.is_valid(Timestamp::from_millis(i64::MAX))), ("root", true));
    bench.engine.record_key_use(&key.id);
    let page = ApiKeyQuery { tenant: Some("acme".into()), after: None, limit: 9 };
    assert_eq!(operator.keys(page).await.unwrap(), std::slice::from_ref(&key));
    for wrong in [
        NewApiKey { owner: owner("acme", ""), ..new.clone() },
        NewApiKey { label: "x".repeat(300), ..new.clone() },
        NewApiKey { expires: Some(Timestamp::from_millis(1)), ..new.clone() },
        NewApiKey { skills: Some(vec!["s".into(); 100]), ..new.clone() },
        NewApiKey { owner: owner("acme", "ann\n"), ..new.clone() },
        NewApiKey { owner: owner("ac\u{1b}[2Jme", "ann"), ..new.clone() },
        NewApiKey { owner: owner(&"t".repeat(257), "ann"), ..new.clone() },
        NewApiKey { label: "build\u{7f}".into(), ..new.clone() },
        NewApiKey { label: "build\u{85}".into(), ..new.clone() },
        NewApiKey { label: "server\u{202e}dliub".into(), ..new.clone() },
        NewApiKey { skills: Some(vec!["a\tb".into()]), ..new.clone() },
        NewApiKey { skills: Some(vec![String::new()]), ..new.clone() },
        NewApiKey { agents: Some(vec!["a\0b".into()]), ..new.clone() },
    ] {
        let refused = operator.create_key(wrong.clone()).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidParams, "{wrong:?}");
    }
    let plain = NewApiKey { label: "für das Lager – 日本".into(), ..new };
    plain.issue("root", Timestamp::from_millis(0)).unwrap();
    for _ in 0..2 {
        let revoked = operator.revoke_key(&key.id).await.unwrap().unwrap();
        assert!(revoked.revoked.is_some());
    }
    changes.changed().await.unwrap();
    assert_eq!(operator.revoke_key("unknown").await, Ok(None));
    let head = operator.verify_audit(None).await.unwrap().unwrap();
    assert_eq!(head.number, 2);
    assert_ne!(head, ChainLink::default());
    let records = operator.audit(AuditQuery { limit: 9, ..AuditQuery::default() }).await.unwrap();
    let entry = &records.records[0].entry;
    assert_eq!((&*entry.action, entry.address.as_deref()), ("key.revoke", Some("192.0.2.7")));
    assert!(records.records.iter().all(|record| !format!("{record:?}").contains(secret.reveal())));
    // The last use is stored at the end at the latest.
    let actions: Vec<_> =
        audit(&bench, &*store).await.into_iter().map(|(action, ..)| action).collect();
    assert_eq!(actions, ["key.create", "key.revoke"]);
    assert!(store.find_key(&key.id).await.unwrap().unwrap().last_used.is_some());
}

#[tokio::test]
async fn a_key_has_at_most_the_rights_of_its_creator() {
    let (store, bench) = start().await;
    let names = |names: Option<&[&str]>| {
        names.map(|names| names.iter().map(|name| (*name).into()).collect::<Vec<String>>())
    };
    let agents = |list: Option<&[&str]>| {
        list.map(|list| list.iter().map(|name| (*name).into()).collect::<Vec<AgentName>>())
    };
    // Each right with the values of a creator, and those that a key may and may not have then.
    type Names = Option<&'static [&'static str]>;
    let lists: [(Names, &[Names], &[Names]); 3] = [
        (None, &[None, Some(&["a"]), Some(&[])], &[]),
        (
            Some(&["a", "b"]),
            &[Some(&["a", "b"]), Some(&["b"]), Some(&[])],
            &[None, Some(&["a", "c"])],
        ),
        (Some(&[]), &[Some(&[])], &[None, Some(&["a"])]),
    ];
    let admin = Scopes::ADMIN.with(Scopes::READ);
    let scopes = [
        (Scopes::ALL, vec![Scopes::ALL, Scopes::CALLER, Scopes::NONE], vec![]),
        (
            admin,
            vec![admin, Scopes::READ],
            vec![Scopes::CALLER, admin.with(Scopes::SEND), Scopes::ALL],
        ),
        (Scopes::ADMIN, vec![Scopes::ADMIN], vec![Scopes::READ]),
    ];
    let tenants: [(&str, &[&str], &[&str]); 2] =
        [("", &["", "acme"], &[]), ("acme", &["acme"], &["", "other", "ACME"])];
    let base = |tenant: &str| Identity::new(tenant.into(), "root", Scopes::ALL);
    let key = |tenant: &str| NewApiKey {
        owner: owner(tenant, "ann"),
        scopes: Scopes::READ,
        agents: None,
        skills: None,
        visibility: None,
        expires: None,
        label: String::new(),
    };
    let mut cases = Vec::new();
    for (creator, allowed, refused) in &scopes {
        let wanted =
            allowed.iter().map(|one| (one, true)).chain(refused.iter().map(|one| (one, false)));
        for (wanted, is_allowed) in wanted {
            let creator = Identity { scopes: *creator, ..base("") };
            cases.push((creator, NewApiKey { scopes: *wanted, ..key("") }, is_allowed));
        }
    }
    for (creator, allowed, refused) in tenants {
        let wanted =
            allowed.iter().map(|one| (one, true)).chain(refused.iter().map(|one| (one, false)));
        for (wanted, is_allowed) in wanted {
            cases.push((base(creator), key(wanted), is_allowed));
        }
    }
    for (creator, allowed, refused) in lists {
        let wanted =
            allowed.iter().map(|one| (*one, true)).chain(refused.iter().map(|one| (*one, false)));
        for (wanted, is_allowed) in wanted {
            let limited = Identity { agents: agents(creator), ..base("") };
            cases.push((limited, NewApiKey { agents: agents(wanted), ..key("") }, is_allowed));
            let limited = Identity { skills: names(creator), ..base("") };
            cases.push((limited, NewApiKey { skills: names(wanted), ..key("") }, is_allowed));
        }
    }
    let mut created = 0;
    for (creator, new, is_allowed) in cases {
        let caller = Caller::from(Arc::new(creator));
        let result = bench.engine.operator(&caller).create_key(new.clone()).await;
        match result {
            Ok((key, _)) => {
                assert!(is_allowed, "{:?} created {key:?}", caller.identity());
                created += 1;
            }
            Err(error) => {
                assert!(!is_allowed, "{:?} could not create {new:?}: {error}", caller.identity());
                assert_eq!(error.kind, ErrorKind::Forbidden, "{error}");
            }
        }
    }
    let all = ApiKeyQuery { tenant: None, after: None, limit: 99 };
    assert_eq!(store.list_keys(all).await.unwrap().len(), created, "a refused key is not stored");
}

#[tokio::test]
async fn an_answer_to_another_question_is_refused() {
    let (_, bench) = start().await;
    let task = bench.send(say("hello")).await.unwrap();
    let first = task.status.message.as_ref().unwrap().message_id.clone();
    let naming = |question: &MessageId, text: &str| {
        let mut metadata = Metadata::new();
        metadata.insert("herald.question", question.as_str());
        Message { metadata: Some(metadata), ..answer(&task, text) }
    };
    // The first question is answered, and the agent asks another one.
    let asked = bench.send(naming(&first, "more")).await.unwrap();
    let second = asked.status.message.as_ref().unwrap().message_id.clone();
    assert_ne!(first, second);
    let refused = bench.send(naming(&first, "done")).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::QuestionChanged);
    let named = refused.detail.unwrap().metadata["question"].clone();
    assert_eq!(named, second.to_string(), "the error names the open question");
    let data = |question: &MessageId| {
        let json = format!(r#"{{"choice":"allow","question":"{question}"}}"#);
        let content = Content::Data(Json::parse(&json).unwrap());
        Message { parts: vec![Part { content, ..Part::text("") }], ..answer(&task, "") }
    };
    let refused = bench.send(data(&first)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::QuestionChanged);
    let asked = bench.send(data(&second)).await.unwrap();
    assert_eq!(asked.status.state, TaskState::InputRequired);
    // Plain words need no question.
    let done = bench.send(answer(&task, "done")).await.unwrap();
    assert_eq!(done.status.state, TaskState::Completed);
}

#[tokio::test]
async fn an_operator_answers_for_an_owner_once() {
    let (_, bench) = start().await;
    let ann = as_caller(&bench, "acme", "ann", Scopes::CALLER);
    let root = as_caller(&bench, "ops", "root", Scopes::CALLER.with(Scopes::ADMIN));
    let task = ann.send(say("hello")).await.unwrap();
    let question = task.status.message.as_ref().unwrap().message_id.clone();
    let operator = root.engine.operator(&root.caller);
    let key = operator.locate(Some(Scope::All), task.id.clone()).await.unwrap();
    let acting = Bench { caller: operator.caller_for(&key).unwrap(), ..bench.clone() };
    for _ in 0..2 {
        acting.call(operator.answer(&key, &question, vec![Part::text("done")])).await.unwrap();
    }
    let other = operator.answer(&key, &question, vec![Part::text("other")]);
    assert_eq!(acting.call(other).await.unwrap_err().kind, ErrorKind::IdempotencyConflict);
    crate::support::eventually(|| async {
        ann.get(&task.id).await.unwrap().status.state == TaskState::Completed
    })
    .await;
    let history = ann.get(&task.id).await.unwrap().history.unwrap();
    let answers: Vec<_> = history.iter().filter(|message| message.text() == "done").collect();
    let [answer] = &answers[..] else { panic!("{answers:?}") };
    let by: Option<String> = answer.metadata.as_ref().unwrap().get("herald.by");
    assert_eq!(by.as_deref(), Some("root"));
    // A late answer to a question that is no longer open.
    let late = operator.answer(&key, &MessageId::from("gone"), vec![Part::text("x")]);
    assert_eq!(acting.call(late).await.unwrap_err().kind, ErrorKind::TaskEnded);
}
