//! Agent kinds. Each is one implementation of [`herald_engine::Agent`].

mod a2a;
mod artifact_writer;
mod coding;
mod conformance;
mod echo;
mod ended;
mod exec;
mod failure;
pub mod git;
mod handler;
mod llm;
pub mod process;
mod text;
mod worker;

pub use a2a::Upstream;
pub use coding::{
    ACTIVITY_EXTENSION, BackgroundPolicy, Coding, InvalidRule, PermissionRule, PermissionRules,
    Preset, ToolDetail,
};
pub use conformance::{Conformance, Otherwise};
pub use echo::Echo;
pub use exec::{Exec, Input};
pub use handler::Handler;
pub use herald_engine::ErrorDetail;
pub use llm::{Endpoint, EndpointError, EndpointTimeouts, Llm, Parameters};
pub use worker::{Worker, WorkerConnection, WorkerError, WorkerSettings};
