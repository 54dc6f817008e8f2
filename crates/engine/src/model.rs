//! Data model: plain data of tasks, their logs and their claims, of members, of API keys and of the audit
//! log. It depends on the protocol alone.

pub mod api_key;
pub mod audit;
pub mod audit_chain;
pub mod cause;
pub mod command;
pub mod event;
pub mod key;
pub mod member;
pub mod record;
pub mod registration;
pub mod run;
pub mod scopes;
pub mod webhook;
pub mod worker;
