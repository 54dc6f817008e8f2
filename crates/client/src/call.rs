//! Outgoing call, and the interceptors that see and change it first.

use async_trait::async_trait;
use herald_protocol::{Operation, Request};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::Error;

/// A call before it is encoded.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// What is asked for.
    pub request: Request,
    /// Headers to send along, beside those of the protocol and the credentials.
    pub headers: HeaderMap,
    /// The last event that was seen, where a stream is taken up again.
    pub(crate) cursor: Option<String>,
}

/// Sees every call before it goes out, and how it ended.
///
/// It is asked once per call; a call that is repeated is the same call. Any closure that takes
/// `&mut Outgoing` is one.
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// May change the call, or refuse it.
    async fn before(&self, call: &mut Outgoing) -> Result<(), Error>;

    /// Learns how the call ended. A stream has begun when this says that it went well.
    fn after(&self, _operation: Operation, _outcome: Result<(), &Error>) {}
}

#[async_trait]
impl<F> Interceptor for F
where
    F: Fn(&mut Outgoing) -> Result<(), Error> + Send + Sync + 'static,
{
    async fn before(&self, call: &mut Outgoing) -> Result<(), Error> {
        self(call)
    }
}

/// Where a call belongs in a trace (W3C Trace Context).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The value of `traceparent`.
    pub parent: String,
    /// The value of `tracestate`; empty is none.
    pub state: String,
}

impl Outgoing {
    pub(crate) fn new(request: Request, cursor: Option<String>) -> Self {
        Self { request, headers: HeaderMap::new(), cursor }
    }

    /// Puts the call into a trace. What cannot stand in a header is left out: a trace is no reason
    /// to fail.
    pub(crate) fn trace(&mut self, context: &TraceContext) {
        let fields = [("traceparent", &context.parent), ("tracestate", &context.state)];
        for (name, value) in fields {
            if let (false, Ok(value)) = (value.is_empty(), HeaderValue::try_from(value)) {
                self.headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

impl Error {
    /// What an [`Interceptor`] refuses a call with.
    pub fn intercepted(reason: impl Into<String>) -> Self {
        Self::setup(reason)
    }
}
