//! Open data and moments, for which protobuf has messages of its own.

use prost_types::{ListValue, Struct, Value as Wire, value::Kind};
use serde_json::{Number, Value};

use crate::{message::Metadata, time::Timestamp, validate::Violations};

/// Whole numbers up to this are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads an open object; what is wrong with it is noted under `field`.
pub(super) fn open(
    object: Option<Struct>,
    field: &str,
    at: &mut Violations<'_>,
) -> Option<Metadata> {
    object.map(|object| members(object, field, at))
}

fn members(object: Struct, field: &str, at: &mut Violations<'_>) -> Metadata {
    object.fields.into_iter().map(|(name, member)| (name, value(member, field, at))).collect()
}

/// Reads any JSON value. One without content is `null`.
pub(super) fn value(wire: Wire, field: &str, at: &mut Violations<'_>) -> Value {
    match wire.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => Value::Bool(truth),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::NumberValue(number)) => number_of(number).unwrap_or_else(|| {
            at.add(field, "holds a number that JSON does not have");
            Value::Null
        }),
        Some(Kind::StructValue(object)) => Value::Object(members(object, field, at)),
        Some(Kind::ListValue(list)) => {
            list.values.into_iter().map(|item| value(item, field, at)).collect()
        }
    }
}

/// A double as JSON writes it: without a fraction where it has none.
fn number_of(number: f64) -> Option<Value> {
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Some(Value::from(number as i64));
    }
    Number::from_f64(number).map(Value::Number)
}

/// Writes an open object.
pub(super) fn object(metadata: Metadata) -> Struct {
    Struct { fields: metadata.into_iter().map(|(name, value)| (name, wire(value))).collect() }
}

/// Writes any JSON value.
pub(super) fn wire(value: Value) -> Wire {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(truth) => Kind::BoolValue(truth),
        // Every JSON number that was read has a nearest double.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or_default()),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.into_iter().map(wire).collect() })
        }
        Value::Object(members) => Kind::StructValue(object(members)),
    };
    Wire { kind: Some(kind) }
}

/// Reads a moment; one that the calendar does not have is noted under `field`.
pub(super) fn moment(
    wire: Option<prost_types::Timestamp>,
    field: &str,
    at: &mut Violations<'_>,
) -> Option<Timestamp> {
    let prost_types::Timestamp { seconds, nanos } = wire?;
    let millis = i64::from(nanos) / 1_000_000;
    let calendar = (-62_135_596_800..=253_402_300_799).contains(&seconds);
    if !calendar || !(0..1_000_000_000).contains(&nanos) {
        at.add(field, "must lie between the years 1 and 9999");
        return None;
    }
    Some(Timestamp::from_millis(seconds * 1000 + millis))
}

/// Writes a moment.
pub(super) fn timestamp(moment: Timestamp) -> prost_types::Timestamp {
    let millis = moment.as_millis();
    let nanos = i32::try_from(millis.rem_euclid(1000)).unwrap_or_default() * 1_000_000;
    prost_types::Timestamp { seconds: millis.div_euclid(1000), nanos }
}
