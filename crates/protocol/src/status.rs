//! Errors as `google.rpc.Status` in JSON: the REST body and its typed details.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::error::{Error, Violation};

pub(crate) const DOMAIN: &str = "a2a-protocol.org";

/// The typed details of an error: always an `ErrorInfo`, then the fields at fault and the retry delay.
#[derive(Debug)]
pub struct Details<'a>(pub &'a Error);

#[derive(Serialize)]
struct ErrorInfoJson<'a> {
    #[serde(rename = "@type")]
    kind: &'static str,
    reason: &'static str,
    domain: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a BTreeMap<Cow<'static, str>, String>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BadRequestJson<'a> {
    #[serde(rename = "@type")]
    kind: &'static str,
    field_violations: Vec<FieldViolationJson<'a>>,
}

#[derive(Serialize)]
struct FieldViolationJson<'a> {
    field: &'a str,
    description: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RetryInfoJson {
    #[serde(rename = "@type")]
    kind: &'static str,
    retry_delay: String,
}

impl Serialize for Details<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let detail = self.0.detail.as_deref();
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&ErrorInfoJson {
            kind: "type.googleapis.com/google.rpc.ErrorInfo",
            reason: self.0.kind.codes().reason,
            domain: DOMAIN,
            metadata: detail.map(|detail| &detail.metadata).filter(|facts| !facts.is_empty()),
        })?;
        let violations: Vec<_> = detail
            .map(|detail| detail.violations.as_slice())
            .unwrap_or_default()
            .iter()
            .map(|Violation { field, description }| FieldViolationJson { field, description })
            .collect();
        if !violations.is_empty() {
            seq.serialize_element(&BadRequestJson {
                kind: "type.googleapis.com/google.rpc.BadRequest",
                field_violations: violations,
            })?;
        }
        if let Some(delay) = self.0.retry_delay() {
            seq.serialize_element(&RetryInfoJson {
                kind: "type.googleapis.com/google.rpc.RetryInfo",
                retry_delay: format!("{}s", delay.as_secs_f64()),
            })?;
        }
        seq.end()
    }
}

/// The REST body of an error. Clients of 0.3 read `code` and `message` at the top level.
pub(crate) fn body(error: &Error, old: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct BodyJson<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        code: Option<i32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<&'a str>,
        error: StatusJson<'a>,
    }
    #[derive(Serialize)]
    struct StatusJson<'a> {
        code: u16,
        status: &'static str,
        message: &'a str,
        details: Details<'a>,
    }
    let codes = error.kind.codes();
    let status = StatusJson {
        code: codes.http,
        status: codes.grpc.name(),
        message: &error.message,
        details: Details(error),
    };
    let body = BodyJson {
        code: old.then_some(codes.json_rpc_v03),
        message: old.then_some(&error.message),
        error: status,
    };
    serde_json::to_vec(&body).expect("an error has only string keys")
}
