//! Things that work on tasks. Each is one implementation of [`herald_engine::Agent`].

mod coding;
mod conformance;
mod echo;
mod exec;
mod failure;
mod handler;
pub mod process;
mod text;

pub use coding::{Coding, Preset};
pub use conformance::{Conformance, Otherwise};
pub use echo::Echo;
pub use exec::{Exec, Input};
pub use failure::ErrorDetail;
pub use handler::Handler;
