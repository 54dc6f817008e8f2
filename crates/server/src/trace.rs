//! Trace context of a request, from its headers or its metadata.

use herald_protocol::{
    Request, TraceContext,
    trace::{TRACEPARENT, TRACESTATE},
};
use http::{HeaderMap, HeaderName};

static PARENT: HeaderName = HeaderName::from_static(TRACEPARENT);
static STATE: HeaderName = HeaderName::from_static(TRACESTATE);

/// The span of the sender, from the headers. Two `traceparent` headers or a malformed one count as
/// none.
pub(crate) fn of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(&PARENT).iter();
    let parent = parents.next().filter(|_| parents.next().is_none())?.to_str().ok()?;
    let states = headers.get_all(&STATE).iter();
    let states: Vec<_> = states.filter_map(|state| state.to_str().ok()).collect();
    TraceContext::read(parent, Some(&states.join(",")))
}

/// The span of the sender, from the metadata of the request or of its message: the convention of callers
/// that do not send the headers.
pub(crate) fn in_metadata(request: &Request) -> Option<TraceContext> {
    let (own, message) = match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            (send.metadata.as_ref(), send.message.metadata.as_ref())
        }
        Request::CancelTask(cancel) => (cancel.metadata.as_ref(), None),
        Request::GetTask(_)
        | Request::ListTasks(_)
        | Request::SubscribeToTask(_)
        | Request::CreateTaskPushNotificationConfig(_)
        | Request::GetTaskPushNotificationConfig(_)
        | Request::ListTaskPushNotificationConfigs(_)
        | Request::DeleteTaskPushNotificationConfig(_)
        | Request::GetExtendedAgentCard(_) => (None, None),
    };
    [own, message].into_iter().flatten().find_map(TraceContext::from_metadata)
}
