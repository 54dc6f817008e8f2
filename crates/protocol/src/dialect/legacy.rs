//! Dialects before 1.0: 0.1, and 0.3 (which reads 0.2 as well) on JSON-RPC and on REST.
//!
//! All of it can be deleted when these versions are no longer served.

pub(super) mod v01;
pub(super) mod v03;
pub(super) mod v03_read;
pub(super) mod v03_request;
pub(super) mod v03_rest;
pub(super) mod v03_write;

use super::{DATA_PART_COMPAT, FILENAME_COMPAT, LegacyShape, MEDIA_TYPE_COMPAT};
