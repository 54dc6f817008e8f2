//! One call: from the decoded request through the engine to the encoded reply.

use bytes::Bytes;
use herald_engine::{
    AgentRoute, Caller, Reply, StoreGuard, Subscription, budget::Reservation, store::Scope,
};
use herald_protocol::{
    Dialect, Error, ErrorKind, MessageId, Operation, Request,
    grpc::Service,
    jsonrpc::{self, RequestId},
    request::SendMessage,
};

use crate::{
    bind::{Exchange, IDEMPOTENCY_KEY, cursor, grpc::framing},
    caller_limits::{LimitedKey, MessageSize, StoredLimits, StreamPermit},
    card,
};

/// Bytes that are stored with a message besides its JSON, at most.
const STORED_WITH_MESSAGE: u64 = 4 << 10;

/// The reply to a call, not yet encoded.
#[derive(Debug)]
pub(crate) struct CallReply {
    reply: Reply,
    dialect: Dialect,
    /// The permit of a stream.
    permit: Option<StreamPermit>,
}

/// A call that passed the checks of the server, without its request.
struct AdmittedCall<'a> {
    caller: &'a Caller,
    route: AgentRoute,
    permit: Option<StreamPermit>,
}

/// The reply to a call as its binding sends it.
#[derive(Debug)]
pub(crate) enum EncodedReply {
    /// The complete body, with its reservation if it is large.
    Whole(Bytes),
    /// A stream, to be written in the dialect of the call, and its permit.
    Stream(Subscription, Dialect, Option<StreamPermit>),
}

impl Exchange<'_> {
    /// Passes a request to the engine and counts the call. The reservation of the request is returned
    /// once the request is stored.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    pub(crate) fn call(
        &self,
        caller: &Caller,
        dialect: Dialect,
        mut request: Request,
        reservation: Option<Reservation>,
    ) -> impl Future<Output = Result<CallReply, Error>> + Send {
        async move {
            let operation = request.operation();
            let named = request.tenant().filter(|tenant| !tenant.is_empty());
            let named = named.map(|tenant| caller.in_tenant(tenant));
            let authenticated = caller;
            let caller = match &named {
                Some(named) => named.as_ref().map_err(Error::clone),
                None => Ok(caller),
            };
            let mut until_stored = None;
            let caller = match caller {
                Ok(caller) => match self.stored_limits(caller, &request) {
                    // Boxed, because most servers have no such limits.
                    Some((limits, size)) => {
                        let reserved = Box::pin(self.reserve(caller, limits, size)).await;
                        reserved.map(|reserved| {
                            until_stored = Some(reserved);
                            caller
                        })
                    }
                    None => Ok(caller),
                },
                Err(error) => Err(error),
            };
            // Without an async block for the errors: it would hold the request a second time.
            let admitted = caller.and_then(|caller| self.admit(caller, dialect, &mut request));
            let replied = match admitted {
                Ok(admitted) => {
                    let AdmittedCall { caller, route, permit } = admitted;
                    let engine = &self.shared.engine;
                    // On the heap: it is the largest part of a request, and everything above would be
                    // moved with it.
                    let called =
                        engine.call_holding(caller, &route, request, reservation, until_stored);
                    let reply = Box::pin(called).await;
                    reply.map(|reply| CallReply {
                        reply: self.within_quota(caller, reply),
                        dialect,
                        permit,
                    })
                }
                Err(error) => Err(error),
            };
            let replied = replied.map_err(|error| {
                for_dialect(dialect, operation, self.shared.auth.is_open(), error)
            });
            if let Err(error) = &replied {
                self.record_refusal(Some(authenticated), error);
            }
            self.count(dialect, operation, replied.as_ref().err());
            replied
        }
    }

    /// The limits of stored tasks for a message, and the part of them that it takes.
    fn stored_limits(
        &self,
        caller: &Caller,
        request: &Request,
    ) -> Option<(StoredLimits, MessageSize)> {
        let (Request::SendMessage(send) | Request::SendStreamingMessage(send)) = request else {
            return None;
        };
        let limits = self.shared.caller_limits.stored(&caller.owner().tenant)?;
        let tasks = u64::from(send.message.task_id.is_none());
        let bytes = if limits.count_bytes() {
            let message = serde_json::to_vec(&send.message);
            message.map_or(0, |message| message.len() as u64).saturating_add(STORED_WITH_MESSAGE)
        } else {
            0
        };
        Some((limits, MessageSize { tasks, bytes }))
    }

    /// Refuses a message beyond the limits of stored tasks; otherwise the limits count it until the
    /// returned guard is dropped.
    async fn reserve(
        &self,
        caller: &Caller,
        limits: StoredLimits,
        size: MessageSize,
    ) -> Result<StoreGuard, Error> {
        let (owner, engine) = (caller.owner(), &self.shared.engine);
        let mut reserved = Vec::with_capacity(2);
        let tenant = &owner.tenant;
        let of_caller =
            (limits.caller, LimitedKey::Caller(owner.clone()), Scope::Own(owner.clone()));
        let of_tenant =
            (limits.tenant, LimitedKey::Tenant(tenant.clone()), Scope::Tenant(tenant.clone()));
        for (most, key, scope) in [of_caller, of_tenant] {
            if let Some(most) = most {
                let used = || engine.usage(&scope);
                let limits = &self.shared.caller_limits;
                reserved.push(limits.reserve(key, most, size, used).await?);
            }
        }
        Ok(Box::new(reserved))
    }

    /// Completes a request and takes the permit of a stream.
    fn admit<'a>(
        &self,
        caller: &'a Caller,
        dialect: Dialect,
        request: &mut Request,
    ) -> Result<AdmittedCall<'a>, Error> {
        self.complete(dialect, request)?;
        self.record_request(dialect, caller, request);
        let permit = if request.operation().is_streaming() {
            Some(self.stream_permit(caller)?)
        } else {
            None
        };
        let (agent, extensions) = (self.agent.clone(), self.extensions());
        let route = AgentRoute { agent, extensions, dialect };
        Ok(AdmittedCall { caller, route, permit })
    }

    /// The reply with the memory of a stream counted against the quota of the caller.
    fn within_quota(&self, caller: &Caller, reply: Reply) -> Reply {
        match reply {
            Reply::Stream(events) => Reply::Stream(events.within(self.response_quota(caller))),
            whole @ (Reply::Sent(_)
            | Reply::Task(_)
            | Reply::Tasks(_)
            | Reply::PushConfig(_)
            | Reply::PushConfigs(_)
            | Reply::Deleted
            | Reply::ExtendedCard(_)) => whole,
        }
    }

    /// Adds to a request what the binding carries outside its parameters.
    fn complete(&self, dialect: Dialect, request: &mut Request) -> Result<(), Error> {
        let span = self.request_span(request);
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = request {
            send.trace = span;
        }
        match request {
            Request::SendMessage(send) => self.complete_send(dialect, send),
            Request::SendStreamingMessage(send) => {
                self.complete_send(dialect, send)?;
                send.after = cursor::of(self.parts)?;
                match &send.message.task_id {
                    Some(task) => cursor::check(send.after.as_ref(), task),
                    None => Ok(()),
                }
            }
            Request::SubscribeToTask(subscribe) => {
                let cursor = cursor::of(self.parts)?;
                cursor::check(cursor.as_ref(), &subscribe.id)?;
                subscribe.after = cursor.map(|cursor| cursor.seq);
                Ok(())
            }
            Request::GetTask(_)
            | Request::ListTasks(_)
            | Request::CancelTask(_)
            | Request::CreateTaskPushNotificationConfig(_)
            | Request::GetTaskPushNotificationConfig(_)
            | Request::ListTaskPushNotificationConfigs(_)
            | Request::DeleteTaskPushNotificationConfig(_)
            | Request::GetExtendedAgentCard(_) => Ok(()),
        }
    }

    fn complete_send(&self, dialect: Dialect, send: &mut SendMessage) -> Result<(), Error> {
        if let Some(key) = self.parts.headers.get(&IDEMPOTENCY_KEY) {
            let key = key.to_str();
            let key = key.map_err(|_| Error::field("Idempotency-Key", "must be plain text"))?;
            send.idempotency_key = Some(key.to_owned());
        }
        if send.message.message_id.is_empty() && dialect.mints_message_id() {
            // A repeated message must be equal to the first, so its id comes from the key.
            let key = send.idempotency_key.clone();
            send.message.message_id = MessageId::new(key.unwrap_or_else(|| self.id.to_string()));
        }
        Ok(())
    }
}

impl CallReply {
    /// The reply itself, and the permit of a stream, to be held until the stream ends.
    pub(crate) fn into_reply(self) -> (Reply, Option<StreamPermit>) {
        (self.reply, self.permit)
    }

    /// The reply as JSON; for JSON-RPC as the result of the call `id`.
    pub(crate) fn encode(
        self,
        exchange: &Exchange<'_>,
        caller: &Caller,
        id: Option<&RequestId>,
    ) -> Result<EncodedReply, Error> {
        let dialect = self.dialect;
        // Most replies fit; a larger one makes it grow once.
        let mut out = Vec::with_capacity(1024);
        if let Some(id) = id {
            jsonrpc::begin_result(&mut out, id);
        }
        match (self.reply, dialect) {
            (Reply::Stream(events), _) => {
                return Ok(EncodedReply::Stream(events, dialect, self.permit));
            }
            (Reply::Sent(sent), Dialect::V1) => sent.write(&mut out),
            (Reply::Task(task), Dialect::V1) => task.write(&mut out),
            (Reply::Sent(sent), _) => out.extend(dialect.encode_send_result(&sent.decode()?)),
            (Reply::Task(task), _) => out.extend(dialect.encode_task(&task.decode()?)),
            (Reply::Tasks(page), _) => out.extend(dialect.encode_page(&page)),
            (Reply::PushConfig(config), _) => out.extend(dialect.encode_push_config(&config)),
            (Reply::PushConfigs(page), _) => out.extend(dialect.encode_push_page(&page)),
            (Reply::Deleted, _) => out.extend(dialect.encode_deleted()),
            (Reply::ExtendedCard(described), _) => {
                out.extend(dialect.encode_card(&card::extended(exchange, *described)));
            }
        }
        if id.is_some() {
            out.push(b'}');
        }
        exchange.hold(out, caller).map(EncodedReply::Whole)
    }

    /// The reply as the message of a gRPC service, in its frame.
    pub(crate) fn encode_grpc(
        self,
        exchange: &Exchange<'_>,
        caller: &Caller,
        service: Service,
    ) -> Result<EncodedReply, Error> {
        let message = match self.reply {
            Reply::Stream(events) => {
                return Ok(EncodedReply::Stream(events, self.dialect, self.permit));
            }
            Reply::Sent(sent) => service.encode_send_result(sent.decode()?),
            Reply::Task(task) => service.encode_task(task.decode()?),
            Reply::Tasks(page) => service.encode_page(page),
            Reply::PushConfig(config) => service.encode_push_config(config),
            Reply::PushConfigs(page) => service.encode_push_page(page),
            Reply::Deleted => Vec::new(),
            Reply::ExtendedCard(described) => {
                service.encode_card(card::extended(exchange, *described))
            }
        };
        exchange.hold(framing::framed(message), caller).map(EncodedReply::Whole)
    }
}

/// The error in the terms of a dialect. Without credentials nobody can get an extended card, so that an
/// agent has none there; before 1.0 an agent without one has none configured, because there is no capability
/// that it could lack.
fn for_dialect(dialect: Dialect, operation: Operation, is_open: bool, mut error: Error) -> Error {
    if operation != Operation::GetExtendedAgentCard {
        return error;
    }
    if is_open && error.kind == ErrorKind::Unauthenticated {
        let text = "this agent has no extended card, because the server needs no credentials";
        error = Error::new(ErrorKind::UnsupportedOperation, text);
    }
    if dialect != Dialect::V1 && error.kind == ErrorKind::UnsupportedOperation {
        error.kind = ErrorKind::ExtendedAgentCardNotConfigured;
    }
    error
}
