//! Buffer of the audit log for refusals and for reads of administrators. Equal acts of a second become
//! one record with a count, so that a flood of refused calls costs the store one small write a second.
//!
//! Administrative writes of the store (API keys) are recorded in their own transaction. The writes of
//! callers need no record here: their cause is stored with their events, and
//! [`Store::read_log`] returns it.

use std::{
    borrow::Cow,
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_protocol::locks::lock;
use tokio::sync::Notify;

use crate::store::{AuditActor, AuditEntry, AuditSubject, Store, StoreError};

/// The time during which equal acts are counted.
const WINDOW: Duration = Duration::from_secs(1);

/// The number of different acts that wait to be stored. Further ones are only counted.
const WAITING: usize = 256;

/// A refused call, or a read of an administrator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Act {
    /// The actor, as far as it is known.
    pub actor: AuditActor,
    /// The network address of the call.
    pub address: Option<IpAddr>,
    /// The act, as a dotted name.
    pub action: Cow<'static, str>,
    /// The object of the act.
    pub subject: Option<AuditSubject>,
    /// The reason of a refusal; `None` if the act was done.
    pub refused: Option<Arc<str>>,
    /// The id of the request.
    pub request: Option<Arc<str>>,
}

impl Act {
    /// An act of this actor that was done.
    pub fn new(actor: AuditActor, action: impl Into<Cow<'static, str>>) -> Self {
        let (address, subject, refused, request) = (None, None, None, None);
        Self { actor, address, action: action.into(), subject, refused, request }
    }

    /// The same act, refused for this reason.
    #[must_use]
    pub fn refused(self, reason: impl Into<Arc<str>>) -> Self {
        Self { refused: Some(reason.into()), ..self }
    }
}

/// Acts that wait to be stored.
#[derive(Debug, Default)]
pub(crate) struct ActBuffer {
    waiting: Mutex<Waiting>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    groups: HashMap<GroupKey, ActCount>,
    /// The number of acts that are lost.
    dropped: u64,
}

/// The properties that equal acts share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct GroupKey {
    actor: AuditActor,
    network: Option<IpAddr>,
    action: Cow<'static, str>,
    subject: Option<AuditSubject>,
    refused: Option<Arc<str>>,
}

#[derive(Debug, Clone)]
struct ActCount {
    /// The address of all of them, or the network if they differ.
    address: Option<IpAddr>,
    /// The request of the first.
    request: Option<Arc<str>>,
    count: u64,
}

impl ActBuffer {
    /// Adds an act. It never waits and its memory is bounded.
    pub(crate) fn add(&self, act: Act) {
        let Act { actor, address, action, subject, refused, request } = act;
        let network = address.map(network);
        let key = GroupKey { actor, network, action, subject, refused };
        lock(&self.waiting).add(key, ActCount { address, request, count: 1 });
        self.wake.notify_one();
    }

    /// Stores acts, at most once a second, until the future is dropped.
    pub(crate) async fn run(&self, store: &dyn Store) {
        loop {
            self.wake.notified().await;
            tokio::time::sleep(WINDOW).await;
            // After an outage the next attempt has the same acts, with higher counts.
            if self.flush(store).await.is_err() {
                self.wake.notify_one();
            }
        }
    }

    /// Stores all acts that wait.
    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<(), StoreError> {
        let taken = std::mem::take(&mut *lock(&self.waiting));
        let entries = taken.entries();
        if entries.is_empty() {
            return Ok(());
        }
        let stored = store.append_audit(entries).await;
        if stored.is_err() {
            let mut waiting = lock(&self.waiting);
            waiting.dropped += taken.dropped;
            for (key, counted) in taken.groups {
                waiting.add(key, counted);
            }
        }
        stored
    }
}

impl Waiting {
    fn add(&mut self, key: GroupKey, more: ActCount) {
        if let Some(counted) = self.groups.get_mut(&key) {
            counted.count += more.count;
            if counted.address != more.address {
                counted.address = key.network;
            }
        } else if self.groups.len() < WAITING {
            self.groups.insert(key, more);
        } else {
            self.dropped += more.count;
        }
    }

    fn entries(&self) -> Vec<AuditEntry> {
        let groups = self.groups.iter().map(|(key, counted)| AuditEntry {
            address: counted.address.map(|address| shown(address, key.network).into()),
            subject: key.subject.clone(),
            refused: key.refused.clone(),
            detail: match counted.count {
                1 => Cow::Borrowed(""),
                count => format!(r#"{{"count":{count}}}"#).into(),
            },
            request: counted.request.clone(),
            ..AuditEntry::new(key.actor.clone(), key.action.clone())
        });
        let dropped = (self.dropped > 0).then(|| AuditEntry {
            detail: format!(r#"{{"count":{}}}"#, self.dropped).into(),
            ..AuditEntry::new(
                AuditActor { credential: "server".into(), ..AuditActor::default() },
                "audit.dropped",
            )
        });
        groups.chain(dropped).collect()
    }
}

/// The network of an address: 24 bits of IPv4, 64 bits of IPv6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            Ipv4Addr::new(a, b, c, 0).into()
        }
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    }
}

/// An address, or its network if equal acts came from several addresses.
fn shown(address: IpAddr, network: Option<IpAddr>) -> String {
    if network != Some(address) {
        return address.to_canonical().to_string();
    }
    let bits = if address.is_ipv4() { 24 } else { 64 };
    format!("{address}/{bits}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{AuditQuery, AuditRecord, flaky::Flaky};

    fn refusal(address: [u8; 4], reason: &str) -> Act {
        let actor = AuditActor { credential: "anonymous".into(), ..AuditActor::default() };
        let (address, request) = (Some(address.into()), Some("r".into()));
        Act { address, request, ..Act::new(actor, "auth.refused").refused(reason) }
    }

    async fn records(store: &dyn Store) -> Vec<AuditRecord> {
        let query = AuditQuery { limit: 1000, ..AuditQuery::default() };
        store.read_audit(query).await.unwrap().records
    }

    /// The address, the reason and the detail of each record, sorted.
    async fn stored(store: &dyn Store) -> Vec<(String, String, String)> {
        let entries = records(store).await.into_iter().map(|record| record.entry);
        let mut found: Vec<_> = entries
            .map(|entry| {
                let text = |text: Option<Arc<str>>| text.as_deref().unwrap_or("-").to_owned();
                (text(entry.address), text(entry.refused), entry.detail.into_owned())
            })
            .collect();
        found.sort();
        found
    }

    fn row(address: &str, reason: &str, detail: &str) -> (String, String, String) {
        (address.into(), reason.into(), detail.into())
    }

    #[tokio::test]
    async fn equal_refusals_become_one_record_with_a_count() {
        let (store, log) = (Flaky::new().unwrap(), ActBuffer::default());
        for _ in 0..1000 {
            log.add(refusal([192, 0, 2, 7], "wrong token"));
        }
        for last in 0..200 {
            log.add(refusal([203, 0, 113, last], "wrong token"));
        }
        log.add(refusal([192, 0, 2, 7], "expired"));
        log.flush(&store).await.unwrap();
        let expected = [
            row("192.0.2.7", "expired", ""),
            row("192.0.2.7", "wrong token", r#"{"count":1000}"#),
            row("203.0.113.0/24", "wrong token", r#"{"count":200}"#),
        ];
        assert_eq!(stored(&store).await, expected);
        log.flush(&store).await.unwrap();
        assert_eq!(records(&store).await.len(), 3, "nothing is stored twice");
    }

    #[tokio::test]
    async fn the_number_of_waiting_refusals_is_bounded_and_lost_ones_are_counted() {
        let (store, log) = (Flaky::new().unwrap(), ActBuffer::default());
        for network in 0..1000_u16 {
            let [high, low] = network.to_be_bytes();
            log.add(refusal([10, high, low, 1], "wrong token"));
        }
        log.flush(&store).await.unwrap();
        let records = records(&store).await;
        assert_eq!(records.len(), WAITING + 1);
        let lost: Vec<_> =
            records.iter().filter(|record| record.entry.action == "audit.dropped").collect();
        assert_eq!(lost.len(), 1);
        assert_eq!(lost[0].entry.detail, format!(r#"{{"count":{}}}"#, 1000 - WAITING));
    }

    #[tokio::test]
    async fn refusals_of_an_outage_are_stored_after_it() {
        let (store, log) = (Flaky::new().unwrap(), ActBuffer::default());
        store.fail_writes(true);
        log.add(refusal([192, 0, 2, 7], "wrong token"));
        assert!(log.flush(&store).await.is_err());
        log.add(refusal([192, 0, 2, 7], "wrong token"));
        store.fail_writes(false);
        log.flush(&store).await.unwrap();
        assert_eq!(stored(&store).await, [row("192.0.2.7", "wrong token", r#"{"count":2}"#)]);
    }

    #[test]
    fn an_address_is_shown_as_it_is_unless_several_were_counted() {
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        assert_eq!(network(mapped), IpAddr::from([192, 0, 2, 0]));
        assert_eq!(shown(mapped, Some(network(mapped))), "192.0.2.7");
        let long: IpAddr = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        assert_eq!(shown(network(long), Some(network(long))), "2001:db8:1:2::/64");
    }
}
