//! Things that work on tasks. Each is one implementation of [`herald_engine::Agent`].

mod conformance;
mod echo;

pub use conformance::{Conformance, Otherwise};
pub use echo::Echo;
