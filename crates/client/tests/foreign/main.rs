//! The client against the official SDK servers. `cargo xtask test` installs them and runs this.
//!
//! The first word of a test's name is what `cargo xtask test` has to install for it.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(
    dead_code,
    reason = "the helpers are those of the other test binary, which uses all of them"
)]
#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they send")]

#[path = "../../../server/tests/it/agents.rs"]
mod agents;
#[path = "../../../server/tests/it/canary.rs"]
mod canary;
#[path = "../it/fake.rs"]
mod fake;
#[path = "../it/hub.rs"]
mod hub;
#[path = "../it/proxy.rs"]
mod proxy;

mod servers;
mod servers_signatures;
