//! The protocol beside the official SDKs. `cargo xtask test` installs them and runs this.
//!
//! The first word of a test's name is what `cargo xtask test` has to install for it.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod clients_descriptors;
#[path = "../it/difference.rs"]
mod difference;
