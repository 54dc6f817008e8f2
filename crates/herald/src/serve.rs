//! The server half of the command line: `herald.toml`, the settings made of it, logs and spans.

pub(crate) mod compat_log;
pub(crate) mod config;
pub(crate) mod logging;
pub(crate) mod operator;
pub(crate) mod otlp;
pub(crate) mod reload;
pub(crate) mod remote;
pub(crate) mod settings;
