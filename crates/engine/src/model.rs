//! Data model: plain data of tasks, their logs and their claims. It depends on the protocol alone.

pub mod cause;
pub mod command;
pub mod event;
pub mod key;
pub mod member;
pub mod record;
pub mod run;
