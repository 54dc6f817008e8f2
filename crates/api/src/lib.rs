//! Herald's own HTTP interface, `/api`: its route table and the types of its requests and replies, as
//! plain data for the server and for clients. No I/O, no async.
//!
//! [`routes`] is the one table. The server dispatches by it, a client builds its requests with it, and
//! the OpenAPI document ([`openapi`]) and `docs/api.md` ([`mod@reference`]) are written from it.

#![expect(
    clippy::disallowed_methods,
    reason = "the derived schemas are JSON trees; they are built for documents only"
)]

pub mod agents;
pub mod audit;
pub mod deliveries;
pub mod keys;
pub mod openapi;
pub mod operator;
mod path;
pub mod query;
pub mod reference;
pub mod routes;
mod schema;
pub mod status;
pub mod store;
pub mod tasks;
pub mod workers;

pub use path::RouteMiss;
pub use routes::{ApiCall, ApiRoute, ApiScope};
pub use schema::OpenApiDocument;
