//! The client half of the command line: from arguments and settings to a client of one agent, and from
//! its errors to messages and exit codes.

mod catalog;
pub(crate) mod contact;
pub(crate) mod credentials;
pub(crate) mod debug_tap;
pub(crate) mod error;
pub(crate) mod layers;
pub(crate) mod reference;
pub(crate) mod trust;
