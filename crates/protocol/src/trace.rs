//! Trace context of a message: W3C Trace Context, and the convention `metadata["a2a.trace"]` that some
//! agents used before it.

use std::{
    borrow::Cow,
    fmt,
    num::{NonZeroU64, NonZeroU128},
    str::FromStr,
    sync::Arc,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::open::Metadata;

/// The header that carries a [`TraceContext`].
pub const TRACEPARENT: &str = "traceparent";
/// The header for additions of tracing systems.
pub const TRACESTATE: &str = "tracestate";
/// The metadata key of the older convention: `{"traceId": …, "spanId": …}`.
pub const A2A_TRACE: &str = "a2a.trace";

/// The longest `tracestate` that is passed on, in bytes; the standard requires at least this.
const MAX_STATE: usize = 512;
const SAMPLED: u8 = 1;

/// One span of a trace, as its children see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace.
    pub trace: NonZeroU128,
    /// The span.
    pub span: NonZeroU64,
    /// True if the sender records the trace.
    pub sampled: bool,
    /// The `tracestate`, passed on unchanged.
    pub state: Option<Arc<str>>,
}

impl TraceContext {
    /// The context in a `traceparent` and a `tracestate`. As the standard requires, a malformed state is
    /// dropped, and a malformed parent drops both.
    pub fn read(parent: &str, state: Option<&str>) -> Option<Self> {
        let context: Self = parent.parse().ok()?;
        let fits = |state: &&str| {
            let plain = state.bytes().all(|byte| matches!(byte, b' '..=b'~'));
            plain && !state.is_empty() && state.len() <= MAX_STATE
        };
        Some(Self { state: state.map(str::trim).filter(fits).map(Arc::from), ..context })
    }

    /// The context under [`A2A_TRACE`]. Short ids are padded with zeros in front, and the dashes of UUIDs
    /// are removed.
    pub fn from_metadata(metadata: &Metadata) -> Option<Self> {
        let ids: Metadata = metadata.get(A2A_TRACE)?;
        let id = |name: &str| Some(ids.get::<String>(name)?.replace('-', ""));
        let trace = NonZeroU128::new(hex(&id("traceId")?, 32)?)?;
        let span = u64::try_from(hex(&id("spanId")?, 16)?).ok()?;
        Some(Self { trace, span: NonZeroU64::new(span)?, sampled: true, state: None })
    }

    /// The headers of the context, by name.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, Cow<'_, str>)> {
        let state = self.state.as_deref().map(|state| (TRACESTATE, state.into()));
        [(TRACEPARENT, self.to_string().into())].into_iter().chain(state)
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn child(&self, span: NonZeroU64) -> Self {
        Self { span, ..self.clone() }
    }
}

/// Up to `digits` hexadecimal digits.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let plain = !text.is_empty() && text.len() <= digits;
    let plain = plain && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u128::from_str_radix(text, 16).ok()).flatten()
}

/// The value of `traceparent`.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace, self.span, u8::from(self.sampled))
    }
}

/// A `traceparent` of this or a later version of the standard.
impl FromStr for TraceContext {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let text = text.trim();
        // Later versions may add to the end, and capitals are not allowed.
        let (known, more) = text.split_at_checked(55).ok_or(())?;
        let version = known.get(..2).ok_or(())?;
        if version == "ff" || known.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(());
        }
        if !more.is_empty() && (version == "00" || !more.starts_with('-')) {
            return Err(());
        }
        let mut pieces = known.split('-');
        let mut piece = |digits: usize| {
            let piece = pieces.next().filter(|piece| piece.len() == digits);
            piece.and_then(|piece| hex(piece, digits)).ok_or(())
        };
        piece(2)?;
        let trace = NonZeroU128::new(piece(32)?).ok_or(())?;
        let span = u64::try_from(piece(16)?).map_err(|_| ())?;
        let span = NonZeroU64::new(span).ok_or(())?;
        let flags = u8::try_from(piece(2)?).map_err(|_| ())?;
        Ok(Self { trace, span, sampled: flags & SAMPLED != 0, state: None })
    }
}

#[derive(Serialize, Deserialize)]
struct StoredTrace<'a> {
    traceparent: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<Cow<'a, str>>,
}

/// An object with the two headers.
impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tracestate = self.state.as_deref().map(Into::into);
        StoredTrace { traceparent: self.to_string().into(), tracestate }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let stored = StoredTrace::deserialize(deserializer)?;
        Self::read(&stored.traceparent, stored.tracestate.as_deref())
            .ok_or_else(|| de::Error::custom("no traceparent"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_written_as_the_standard_has_it() {
        let context = TraceContext::read(PARENT, Some(" vendor=1,other=2 ")).unwrap();
        assert_eq!(context.to_string(), PARENT);
        assert!(context.sampled);
        assert_eq!(context.state.as_deref(), Some("vendor=1,other=2"));
        let stored = serde_json::to_string(&context).unwrap();
        assert_eq!(serde_json::from_str::<TraceContext>(&stored).unwrap(), context);
        let later = format!("01{}-and-more", &PARENT[2..]);
        assert_eq!(later.parse::<TraceContext>().unwrap().to_string(), PARENT);
        let unsampled = PARENT.replace("-01", "-00");
        assert!(!unsampled.parse::<TraceContext>().unwrap().sampled);
        // Unknown flags are ignored.
        let flags = PARENT.replace("-01", "-03");
        assert_eq!(flags.parse::<TraceContext>().unwrap().to_string(), PARENT);
    }

    #[test]
    fn a_broken_traceparent_is_none_at_all() {
        for broken in [
            "",
            "00",
            &PARENT[..54],
            &format!("{PARENT}0"),
            &format!("{PARENT}-more"),
            &format!("ff{}", &PARENT[2..]),
            &PARENT.to_uppercase(),
            &PARENT.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            &PARENT.replace("b7ad6b7169203331", &"0".repeat(16)),
            &PARENT.replace('-', "_"),
            &PARENT.replace('a', "g"),
            &PARENT.replace("0af7", "+af7"),
            "00-0af7651916cd43dd8448eb211c80319cb-7ad6b7169203331-01",
            "ünïcode-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::read(broken, None), None, "{broken}");
        }
        let long = "x".repeat(513);
        for state in ["", "a=\u{1}", "ä=1", &long] {
            assert_eq!(TraceContext::read(PARENT, Some(state)).unwrap().state, None, "{state:?}");
        }
    }

    #[test]
    fn the_older_convention_is_read_from_metadata_with_ids_of_any_length() {
        let read = |ids: &str| {
            let metadata = format!("{{\"a2a.trace\":{ids}}}");
            TraceContext::from_metadata(&serde_json::from_str(&metadata).unwrap())
        };
        let pair = |trace: &str, span: &str| {
            read(&format!("{{\"traceId\":\"{trace}\",\"spanId\":\"{span}\"}}"))
        };
        let short = pair("abc123", "def456").unwrap();
        assert_eq!(short.to_string(), format!("00-{:0>32}-{:0>16}-01", "abc123", "def456"));
        let uuid = "0af76519-16cd-43dd-8448-eb211c80319c";
        assert_eq!(pair(uuid, "B7AD6B7169203331").unwrap().to_string(), PARENT);
        for broken in
            ["null", "\"abc123\"", "{\"traceId\":\"abc123\"}", "{\"traceId\":7,\"spanId\":8}"]
        {
            assert_eq!(read(broken), None, "{broken}");
        }
        let (long, longer) = ("1".repeat(17), "1".repeat(33));
        for (trace, span) in [("", "1"), ("0", "1"), ("not hex", "1"), (&longer, "1"), ("1", &long)]
        {
            assert_eq!(pair(trace, span), None, "{trace} {span}");
        }
        assert_eq!(TraceContext::from_metadata(&Metadata::new()), None);
    }
}
