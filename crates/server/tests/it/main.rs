//! A real server on port 0, a real engine over SQLite in memory, and clients that misbehave.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they send")]

mod agents;
mod canaries;
mod canary;
mod client;
mod hub;
mod provider;
mod receiver;
#[path = "../../../protocol/tests/it/replaced.rs"]
mod replaced;
#[path = "../../src/webhook/guard/tests/spellings.rs"]
mod spellings;

mod api;
mod auth;
mod auth_certificate;
mod auth_jwt;
mod auth_key;
mod auth_reload;
mod bytes;
mod card;
mod errors;
mod events;
mod extended;
mod floods;
mod grpc;
mod guard;
mod http2;
mod lifecycle;
mod list;
mod matrix;
mod mcp;
mod metrics;
mod migration;
mod proxy;
mod push;
mod quotas;
mod registry;
mod remote_agents;
mod rest;
mod rpc;
mod send;
mod signing;
mod stream;
mod tls;
mod traces;
mod unread;
mod v01;
mod v03;
mod version;
mod webhook_guard;
mod webhook_sender;
mod words;
mod workers;
mod ws;
