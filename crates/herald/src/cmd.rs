//! Verbs of the command line, one file per family.

pub(crate) mod agent;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod card;
pub(crate) mod chat;
pub(crate) mod config;
pub(crate) mod conformance;
pub(crate) mod demo;
pub(crate) mod doctor;
mod download;
pub(crate) mod key;
pub(crate) mod listen;
pub(crate) mod mcp;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod status;
pub(crate) mod store;
pub(crate) mod task;
mod task_api;
pub(crate) mod webhook;
pub(crate) mod worker;
pub(crate) mod worktree;
