//! Schemas of values that the protocol defines, for fields whose types have none of their own.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A time: UTC, milliseconds.
#[derive(Debug)]
pub(crate) struct TimeSchema;

/// The name of a task state.
#[derive(Debug)]
pub(crate) struct StateSchema;

/// An object of A2A 1.0.
#[derive(Debug)]
pub(crate) struct ProtocolObject;

/// An OpenAPI document.
#[derive(Debug)]
pub struct OpenApiDocument;

impl JsonSchema for TimeSchema {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl JsonSchema for StateSchema {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "State".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^TASK_STATE_[A-Z_]+$" })
    }
}

impl JsonSchema for ProtocolObject {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "ProtocolObject".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}

impl JsonSchema for OpenApiDocument {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "OpenApiDocument".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object" })
    }
}
