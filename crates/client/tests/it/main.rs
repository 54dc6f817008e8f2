//! Tests of the client against a real Herald and against hostile servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they send")]

// The same agents that the server is tested with.
#[path = "../../../server/tests/it/agents.rs"]
mod agents;
#[path = "../../../server/tests/it/canary.rs"]
#[expect(dead_code, reason = "the tests of the server use the rest")]
mod canary;
mod fake;
mod hub;
mod proxy;

mod calls;
mod credentials;
mod discovery;
mod grpc;
mod hostile;
mod oauth;
mod older_agents;
mod operations;
mod resume;
mod secure;
mod sessions;
mod signatures;
mod silence;
mod stdio;
mod streams;
mod tls;
mod v01;
mod webhooks;
