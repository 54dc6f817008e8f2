//! Limits: bytes of a body, memory of a call, streams per caller, connections per address.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    pin::pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use herald_engine::budget::{
    self, BYTES_PER_REQUEST_BYTE, MemoryBudget, Payer, Quota, Reservation,
};
use herald_protocol::{Error, ErrorKind, locks::lock};
use http_body::Body;
use http_body_util::BodyExt;
use tokio::{
    task::yield_now,
    time::{Instant, timeout, timeout_at},
};

/// Bytes of a body that are read before other connections have their turn.
const TURN_BYTES: usize = 64 << 10;

/// The reason why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnreadBody {
    /// It is larger than the limit, in bytes.
    TooLarge { limit: usize },
    /// It did not arrive in time. HTTP and gRPC have a status for that, the protocol has no error.
    TooSlow,
    /// The connection failed before the end of the body.
    Broken,
    /// The memory budget was exhausted until the timeout.
    NoMemory,
}

impl From<UnreadBody> for Error {
    fn from(unread: UnreadBody) -> Self {
        match unread {
            UnreadBody::TooLarge { limit } => {
                let text = format!("the body is larger than {limit} bytes");
                Self::new(ErrorKind::TooLarge, text).with("limit", limit)
            }
            UnreadBody::TooSlow => {
                Self::new(ErrorKind::InvalidRequest, "the body did not arrive in time")
            }
            UnreadBody::Broken => {
                Self::new(ErrorKind::Parse, "the body ended before it was complete")
            }
            UnreadBody::NoMemory => {
                let text = "the server's memory limit for requests is reached; try again later";
                Self::new(ErrorKind::Unavailable, text)
            }
        }
    }
}

/// Reads a whole body and reserves the memory for it until it is stored. A body that declares a length
/// over the limit is not read. A body that is not small waits for its reservation before most of it is
/// read, so that the rest stays with the peer.
#[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
pub(crate) fn read_body<B>(
    body: B,
    limit: usize,
    wait: Duration,
    budget: &Arc<MemoryBudget>,
    payer: impl FnOnce() -> Payer,
) -> impl Future<Output = Result<(Bytes, Option<Reservation>), UnreadBody>>
where
    B: Body<Data = Bytes>,
{
    async move {
        if body.size_hint().lower() > limit as u64 {
            return Err(UnreadBody::TooLarge { limit });
        }
        let mut body = pin!(body);
        let declared = body.size_hint().exact().and_then(|size| usize::try_from(size).ok());
        let mut deadline = Instant::now() + wait;
        let (mut payer, mut reservation) = (Some(payer), None);
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        let mut unbroken = 0;
        loop {
            let frame =
                timeout_at(deadline, body.frame()).await.map_err(|_| UnreadBody::TooSlow)?;
            let Some(frame) = frame.transpose().map_err(|_| UnreadBody::Broken)? else { break };
            let Ok(data) = frame.into_data() else { continue };
            if first.len() + rest.len() + data.len() > limit {
                return Err(UnreadBody::TooLarge { limit });
            }
            if first.len() + rest.len() + data.len() > budget::SMALL
                && let Some(payer) = payer.take()
            {
                // A body without a declared length may be as large as the limit.
                let size = declared.unwrap_or(limit).saturating_mul(BYTES_PER_REQUEST_BYTE);
                let begun = Instant::now();
                // Boxed, here and below, because most requests do not wait.
                let quota = budget.quota(payer());
                let reserved = Box::pin(timeout(wait, quota.reserve(size))).await;
                reservation = Some(reserved.map_err(|_| UnreadBody::NoMemory)?);
                // The wait for memory does not count against the peer.
                deadline += begun.elapsed();
            }
            unbroken += data.len();
            // Most bodies are one piece, which is not copied.
            match (first.is_empty(), rest.is_empty()) {
                (true, true) => first = data,
                (false, _) => {
                    rest.reserve(declared.unwrap_or_default());
                    rest.extend_from_slice(&std::mem::take(&mut first));
                    rest.extend_from_slice(&data);
                }
                (true, false) => rest.extend_from_slice(&data),
            }
            if unbroken >= TURN_BYTES {
                unbroken = 0;
                yield_now().await;
            }
        }
        let body = if rest.is_empty() { first } else { rest.freeze() };
        if reservation.is_none() && !body.is_empty() {
            let size = body.len() * BYTES_PER_REQUEST_BYTE;
            reservation = budget.try_reserve_small(size);
            if reservation.is_none() {
                let reserved = Box::pin(timeout(wait, budget.reserve_small(size))).await;
                reservation = Some(reserved.map_err(|_| UnreadBody::NoMemory)?);
            }
        }
        Ok((body, reservation))
    }
}

/// A response body with a reservation for as long as any part of it is in memory, so that responses that
/// peers do not read stay within the budget. A small one counts against its caller's quota once the pool
/// of small ones is exhausted, so that callers who do not read theirs do not block the others.
pub(crate) fn hold(
    body: Vec<u8>,
    budget: &MemoryBudget,
    quota: impl FnOnce() -> Arc<Quota>,
) -> Result<Bytes, Error> {
    let is_small = body.len() <= budget::SMALL;
    let small = if is_small { budget.try_reserve_small(body.len()) } else { None };
    let reservation = small.or_else(|| quota().try_reserve(body.len())).ok_or_else(|| {
        let text = "the server's memory limit for responses is reached; try again later";
        Error::new(ErrorKind::Unavailable, text)
    })?;
    Ok(held(body, reservation))
}

/// Bytes that hold a reservation.
pub(crate) fn held(bytes: Vec<u8>, reservation: Reservation) -> Bytes {
    struct Held {
        bytes: Vec<u8>,
        _reservation: Reservation,
    }
    impl AsRef<[u8]> for Held {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }
    Bytes::from_owner(Held { bytes, _reservation: reservation })
}

/// A body in small pieces, because a connection buffers a piece until the peer reads it.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    rest: Bytes,
    /// True if there is more than one piece.
    many: bool,
}

impl Pieces {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { many: bytes.len() > budget::SMALL, rest: bytes }
    }

    /// The next piece. The last of many is a copy, so that it does not keep the memory of the whole body.
    pub(crate) fn next(&mut self) -> Option<Bytes> {
        match (self.rest.len(), self.many) {
            (0, _) => None,
            (1..=budget::SMALL, false) => Some(std::mem::take(&mut self.rest)),
            (1..=budget::SMALL, true) => {
                Some(Bytes::copy_from_slice(&std::mem::take(&mut self.rest)))
            }
            (_, _) => Some(self.rest.split_to(budget::SMALL)),
        }
    }

    /// The number of bytes that are left.
    pub(crate) fn len(&self) -> usize {
        self.rest.len()
    }
}

/// A limit that a request is beyond before it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AdmissionLimit {
    /// All connections.
    Connections,
    /// The connections of one address.
    ConnectionsPerAddress,
    /// The memory of calls in progress.
    CallMemory,
}

impl AdmissionLimit {
    pub(crate) const fn message(self) -> &'static str {
        match self {
            Self::Connections => {
                "the server has too many connections ([limits] connections in herald.toml); try \
                 again later"
            }
            Self::ConnectionsPerAddress => {
                "too many connections from this address ([limits] connections_per_address in \
                 herald.toml); close some and try again"
            }
            Self::CallMemory => {
                "the server's memory limit for calls in progress is reached; try again later"
            }
        }
    }
}

/// Approximate memory of a call in progress beside its message and its response: its task, its future,
/// its headers. Counted where one connection can have many calls, on HTTP/2 and in a session.
pub(crate) const CALL: usize = 8 << 10;

/// Reserves the memory of a call in progress, if it is free.
pub(crate) fn try_reserve_call(
    budget: &MemoryBudget,
    quota: impl FnOnce() -> Arc<Quota>,
) -> Option<Reservation> {
    budget.try_reserve_small(CALL).or_else(|| quota().try_reserve(CALL))
}

/// The address that limits count by: one host may have all addresses of an IPv6 network of 64 bits.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

/// A count of open things per key, such as streams per owner, each within a limit.
#[derive(Debug, Clone)]
pub(crate) struct KeyedLimit<K: Hash + Eq> {
    open: Arc<Mutex<HashMap<K, usize>>>,
}

/// A permit for one open thing of a key. Dropping it returns the permit.
#[derive(Debug)]
pub(crate) struct KeyedPermit<K: Hash + Eq> {
    key: K,
    open: Arc<Mutex<HashMap<K, usize>>>,
}

impl<K: Hash + Eq> Default for KeyedLimit<K> {
    fn default() -> Self {
        Self { open: Arc::default() }
    }
}

impl<K: Hash + Eq + Clone> KeyedLimit<K> {
    /// A permit, unless the key has as many as the limit.
    pub(crate) fn try_acquire(&self, key: K, limit: usize) -> Option<KeyedPermit<K>> {
        let mut open = lock(&self.open);
        let count = open.entry(key.clone()).or_default();
        if *count >= limit {
            return None;
        }
        *count += 1;
        Some(KeyedPermit { key, open: Arc::clone(&self.open) })
    }

    /// The number of permits that are held, of all keys.
    pub(crate) fn count(&self) -> usize {
        lock(&self.open).values().sum()
    }
}

impl<K: Hash + Eq> Drop for KeyedPermit<K> {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};

    use super::*;

    #[test]
    fn responses_that_nobody_reads_do_not_pile_up() {
        let budget = MemoryBudget::for_responses(800 << 10, 4);
        let held = |body, payer| {
            hold(body, &budget, || budget.quota(Payer::Address([127, 0, 0, payer].into())))
        };
        let body = || vec![b'x'; 120 << 10];
        let first = held(body(), 1).unwrap();
        assert_eq!(first, body());
        let mut first = Pieces::new(first);
        assert_eq!(held(body(), 1).unwrap_err().kind, ErrorKind::Unavailable);
        assert!(held(body(), 2).is_ok(), "others have their own");
        assert!(held(b"small".to_vec(), 1).is_ok());
        let (mut pieces, mut count) = (vec![first.next().unwrap()], 1);
        while first.len() > budget::SMALL {
            pieces = vec![first.next().unwrap()];
            count += 1;
        }
        assert_eq!((count, first.len()), (14, budget::SMALL));
        assert!(held(body(), 1).is_err(), "it is still on its way");
        pieces.push(first.next().unwrap());
        assert!(first.next().is_none());
        assert!(held(body(), 1).is_err(), "a piece of it is still on its way");
        let last = pieces.pop().unwrap();
        drop(pieces);
        assert!(held(body(), 1).is_ok(), "only the last is left, which is a copy");
        assert_eq!(last, body()[..budget::SMALL]);
    }

    #[test]
    fn small_responses_are_counted_and_those_of_one_caller_block_no_other() {
        let budget = MemoryBudget::for_responses(64 * budget::SMALL, 4);
        let small = |payer| {
            let body = vec![b'x'; budget::SMALL];
            hold(body, &budget, || budget.quota(Payer::Address([127, 0, 0, payer].into())))
        };
        // An eighth of 64 is the pool of small ones, a fourth of the rest is the quota of a caller.
        let mut unread: Vec<_> = (0..8 + 14).map(|_| small(1).unwrap()).collect();
        assert_eq!(small(1).unwrap_err().kind, ErrorKind::Unavailable);
        assert!(small(2).is_ok(), "others have their quota");
        unread.pop();
        assert!(small(1).is_ok());
    }

    /// Reads a body in a budget of 1 MiB.
    async fn read<B: Body<Data = Bytes>>(body: B, limit: usize) -> Result<Bytes, UnreadBody> {
        let budget = MemoryBudget::with_small_pool(1 << 20, 1);
        let read = read_body(body, limit, SECOND, &budget, || Payer::Process).await;
        read.map(|(body, _)| body)
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test]
    async fn a_declared_length_over_the_limit_is_refused_unread() {
        let body = Full::new(Bytes::from_static(b"12345"));
        assert_eq!(read(body.clone(), 4).await.unwrap_err(), UnreadBody::TooLarge { limit: 4 });
        assert_eq!(read(body, 5).await.unwrap(), "12345");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_never_ends_is_given_up() {
        struct Silent;
        impl Body for Silent {
            type Data = Bytes;
            type Error = std::convert::Infallible;
            fn poll_frame(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Self::Error>>> {
                std::task::Poll::Pending
            }
        }
        assert_eq!(read(Silent, 5).await.unwrap_err(), UnreadBody::TooSlow);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_waits_for_its_reservation_and_is_refused_without_one() {
        let budget = MemoryBudget::with_small_pool(1 << 20, 1);
        let body = |size| Full::new(Bytes::from(vec![b'x'; size]));
        let read =
            async |size| read_body(body(size), 1 << 20, SECOND, &budget, || Payer::Process).await;
        let (first, large) = read(230 << 10).await.unwrap();
        assert_eq!(first.len(), 230 << 10);
        assert_eq!(
            read(200 << 10).await.unwrap_err(),
            UnreadBody::NoMemory,
            "the server was too slow, not the peer"
        );
        // An eighth of the budget is for small bodies: four of 8 KiB, and each counts four times.
        let mut small = Vec::new();
        for _ in 0..4 {
            small.push(read(budget::SMALL).await.unwrap());
        }
        assert_eq!(
            read(budget::SMALL).await.unwrap_err(),
            UnreadBody::NoMemory,
            "small ones count"
        );
        drop((small, large));
        assert!(read(200 << 10).await.is_ok());
        assert!(read(budget::SMALL).await.is_ok());
    }

    #[tokio::test]
    async fn pieces_are_joined_up_to_the_limit() {
        let pieces = |texts: &'static [&'static str]| {
            let mut texts = texts.iter();
            StreamBody::new(Parts(move || texts.next().copied()))
        };
        let joined = read(pieces(&["ab", "c", "", "de"]), 5).await;
        assert_eq!(joined.unwrap(), "abcde");
        let refused = read(pieces(&["ab", "c", "def"]), 5).await;
        assert_eq!(refused.unwrap_err(), UnreadBody::TooLarge { limit: 5 });
        assert_eq!(read(pieces(&[]), 5).await.unwrap(), "");
    }

    struct Parts<F>(F);

    impl<F: FnMut() -> Option<&'static str> + Unpin> futures_core::Stream for Parts<F> {
        type Item = Result<http_body::Frame<Bytes>, std::convert::Infallible>;

        fn poll_next(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Self::Item>> {
            let piece = (self.0)();
            std::task::Poll::Ready(
                piece.map(|text| Ok(http_body::Frame::data(Bytes::from_static(text.as_bytes())))),
            )
        }
    }

    #[test]
    fn addresses_of_one_ipv6_network_count_together() {
        let network = |text: &str| network(text.parse().unwrap());
        assert_eq!(network("2001:db8:1:2:3::4"), network("2001:db8:1:2:ffff::1"));
        assert_ne!(network("2001:db8:1:2::4"), network("2001:db8:1:3::4"));
        assert_ne!(network("192.0.2.1"), network("192.0.2.2"));
        assert_eq!(network("::ffff:192.0.2.1"), network("192.0.2.1"));
    }

    #[test]
    fn a_permit_is_free_again_once_dropped() {
        let limit = KeyedLimit::default();
        let first = limit.try_acquire("a", 2).unwrap();
        let _second = limit.try_acquire("a", 2).unwrap();
        assert!(limit.try_acquire("a", 2).is_none());
        assert!(limit.try_acquire("b", 2).is_some());
        drop(first);
        assert!(limit.try_acquire("a", 2).is_some());
    }
}
