//! Outgoing call, and interceptors that may change it.

use async_trait::async_trait;
use herald_protocol::{Operation, Request, TraceContext};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::Error;

/// A call before it is encoded.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The operation and its parameters.
    pub request: Request,
    /// Headers in addition to those of the protocol and the credentials.
    pub headers: HeaderMap,
    /// The id of the last event received, for a stream that resumes.
    pub(crate) cursor: Option<String>,
}

/// Hook before and after every call. A retried call is one call.
///
/// Every closure that takes `&mut Outgoing` is an interceptor.
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// May change the call, or refuse it.
    async fn before(&self, call: &mut Outgoing) -> Result<(), Error>;

    /// Called with the outcome of the call. For a stream, success means that it has begun.
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

impl Outgoing {
    pub(crate) fn new(request: Request, cursor: Option<String>) -> Self {
        Self { request, headers: HeaderMap::new(), cursor }
    }

    /// Adds the trace headers.
    pub(crate) fn trace(&mut self, context: &TraceContext) {
        for (name, value) in context.headers() {
            // A value that a header cannot have is left out: tracing must not fail a call.
            if let Ok(value) = HeaderValue::try_from(&*value) {
                self.headers.insert(HeaderName::from_static(name), value);
            }
        }
    }
}

impl Error {
    /// The error with which an [`Interceptor`] refuses a call.
    pub fn intercepted(reason: impl Into<String>) -> Self {
        Self::setup(reason)
    }
}
