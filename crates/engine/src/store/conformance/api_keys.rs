//! Checks of API keys: creation, revocation, last uses, pages.

use std::sync::Arc;

use super::{
    super::{
        ApiKey, ApiKeyQuery, AuditActor, AuditEntry, AuditQuery, Change, Scopes, Store, StoreError,
        Visibility,
    },
    OTHER, at,
    changes::await_change,
    join, owner,
};

/// A key with this id and a hash of its own.
pub(super) fn api_key(id: &str, hash: u8, tenant: &str) -> ApiKey {
    ApiKey {
        id: id.into(),
        hash: [hash; 32],
        owner: owner(tenant, "ann"),
        scopes: Scopes::SEND.with(Scopes::ADMIN),
        agents: Some(vec!["echo".into(), "ünï, \"😀\"".into()]),
        skills: None,
        visibility: Some(Visibility::Tenant),
        created: at(1),
        created_by: "root".into(),
        expires: Some(at(100)),
        last_used: None,
        revoked: None,
        label: "for tests, with ünï \"quotes\"".into(),
    }
}

/// An act of an administrator.
pub(super) fn act(action: &'static str) -> AuditEntry {
    let (tenant, principal) = ("acme".into(), "root".into());
    let actor = AuditActor { tenant, principal, credential: "token".into(), credential_id: None };
    AuditEntry::new(actor, action)
}

async fn actions(store: &dyn Store) -> Vec<String> {
    let query = AuditQuery { oldest_first: true, limit: 100, ..AuditQuery::default() };
    let page = store.read_audit(query).await.unwrap();
    page.records.iter().map(|record| record.entry.action.to_string()).collect()
}

pub(super) async fn a_key_is_found_by_its_id_and_by_its_hash(store: Arc<dyn Store>) {
    let whole = api_key("a", 1, "acme");
    let mut bare = ApiKey { agents: None, expires: None, ..api_key("b", 2, "acme") };
    bare.skills = Some(vec!["draw".into()]);
    (bare.scopes, bare.visibility) = (Scopes::NONE, None);
    bare.label = String::new();
    for key in [&whole, &bare] {
        store.create_key(key.clone(), act("key.create")).await.unwrap();
        assert_eq!(store.find_key(&key.id).await.unwrap().as_ref(), Some(key));
        assert_eq!(store.find_key_by_hash(&key.hash).await.unwrap().as_ref(), Some(key));
    }
    assert_eq!(store.find_key("c").await, Ok(None));
    assert_eq!(store.find_key_by_hash(&[9; 32]).await, Ok(None));
}

pub(super) async fn a_key_with_a_known_id_or_hash_is_refused(store: Arc<dyn Store>) {
    let first = api_key("a", 1, "acme");
    store.create_key(first.clone(), act("key.create")).await.unwrap();
    for second in [api_key("a", 2, "acme"), api_key("b", 1, "acme")] {
        let refused = store.create_key(second, act("key.create")).await;
        assert_eq!(refused, Err(StoreError::Conflict));
    }
    assert_eq!(store.find_key("a").await, Ok(Some(first)));
    assert_eq!(store.find_key("b").await, Ok(None));
    assert_eq!(actions(&*store).await, ["key.create"], "a refused write is not recorded");
}

pub(super) async fn keys_are_listed_in_pages(store: Arc<dyn Store>) {
    for number in 0..7_u8 {
        let tenant = if number % 2 == 0 { "acme" } else { "other" };
        let key = api_key(&format!("k{number}"), number, tenant);
        store.create_key(key, act("key.create")).await.unwrap();
    }
    store.revoke_key("k2", at(5), act("key.revoke")).await.unwrap();
    for (tenant, expected) in [
        (None, vec!["k0", "k1", "k2", "k3", "k4", "k5", "k6"]),
        (Some("acme".into()), vec!["k0", "k2", "k4", "k6"]),
        (Some("nobody".into()), vec![]),
    ] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let query = ApiKeyQuery { tenant: tenant.clone(), after: after.take(), limit: 3 };
            let page = store.list_keys(query).await.unwrap();
            assert!(page.len() <= 3);
            let Some(last) = page.last() else { break };
            after = Some(Arc::clone(&last.id));
            found.extend(page.into_iter().map(|key| key.id.to_string()));
        }
        assert_eq!(found, expected);
    }
}

pub(super) async fn a_key_is_revoked_once(store: Arc<dyn Store>) {
    store.create_key(api_key("a", 1, "acme"), act("key.create")).await.unwrap();
    let revoked = store.revoke_key("a", at(5), act("key.revoke")).await.unwrap().unwrap();
    assert_eq!(revoked, ApiKey { revoked: Some(at(5)), ..api_key("a", 1, "acme") });
    assert!(!revoked.is_valid(at(6)));
    let again = store.revoke_key("a", at(9), act("key.revoke")).await.unwrap();
    assert_eq!(again, Some(revoked.clone()), "the first revocation counts");
    assert_eq!(store.find_key_by_hash(&[1; 32]).await, Ok(Some(revoked)));
    assert_eq!(store.revoke_key("b", at(5), act("key.revoke")).await, Ok(None));
    assert_eq!(actions(&*store).await, ["key.create", "key.revoke"]);
}

pub(super) async fn the_last_use_of_a_key_is_recorded(store: Arc<dyn Store>) {
    for (id, hash) in [("a", 1), ("b", 2)] {
        store.create_key(api_key(id, hash, "acme"), act("key.create")).await.unwrap();
    }
    let uses = vec![("a".into(), at(7)), ("b".into(), at(3)), ("c".into(), at(3))];
    store.record_key_uses(uses).await.unwrap();
    // A late report of another node does not turn the time back.
    store.record_key_uses(vec![("a".into(), at(5)), ("b".into(), at(4))]).await.unwrap();
    let used = async |id| store.find_key(id).await.unwrap().unwrap().last_used;
    assert_eq!((used("a").await, used("b").await), (Some(at(7)), Some(at(4))));
    assert_eq!(actions(&*store).await, ["key.create"; 2], "uses are not acts");
}

pub(super) async fn all_members_are_notified_of_changed_keys(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    let mut all = [store.changes(super::LIVING), store.changes(OTHER)];
    store.create_key(api_key("a", 1, "acme"), act("key.create")).await.unwrap();
    for changes in &mut all {
        await_change(changes, &Change::Keys).await;
    }
    store.revoke_key("a", at(5), act("key.revoke")).await.unwrap();
    for changes in &mut all {
        await_change(changes, &Change::Keys).await;
    }
}
