//! google.protobuf.Struct and Timestamp.
//!
//! Open values stay encoded while their message is read, and become canonical JSON without a tree in
//! between, which would take many times their bytes.

use std::fmt;

use prost::{
    DecodeError,
    bytes::{Buf, BufMut, Bytes},
    encoding::{
        DecodeContext, WireType, bytes, decode_key, decode_varint, encode_key, encode_varint,
        fixed64, skip_field,
    },
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::{
    open::{Json, JsonWriter, Metadata},
    time::Timestamp,
    validate::Violations,
};

/// Whole numbers up to this are exact in a double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Levels of arrays and objects that are read, as many as the parser of JSON takes.
const MAX_LEVELS: usize = 128;

/// A `google.protobuf.Struct` or a `google.protobuf.Value` in its encoded form.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ValueBytes(Vec<u8>);

/// Errors of open values.
#[derive(Debug, Clone, Copy)]
enum WireError {
    Number,
    Depth,
    Broken,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Number => "holds a number that JSON does not have",
            Self::Depth => "is nested too deeply",
            Self::Broken => "is not a valid protobuf value",
        })
    }
}

impl From<DecodeError> for WireError {
    fn from(_: DecodeError) -> Self {
        Self::Broken
    }
}

/// Keeps every field unchanged, so that unknown ones are not lost.
impl prost::Message for ValueBytes {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        ctx: DecodeContext,
    ) -> Result<(), DecodeError> {
        let out = &mut self.0;
        match wire_type {
            WireType::Varint => {
                encode_key(tag, wire_type, out);
                encode_varint(decode_varint(buf)?, out);
            }
            WireType::SixtyFourBit => {
                let mut value = 0;
                fixed64::merge(wire_type, &mut value, buf, ctx)?;
                fixed64::encode(tag, &value, out);
            }
            WireType::LengthDelimited => {
                let mut value = Bytes::new();
                bytes::merge(wire_type, &mut value, buf, ctx)?;
                bytes::encode(tag, &value, out);
            }
            // No field of these messages has such a type.
            WireType::ThirtyTwoBit | WireType::StartGroup | WireType::EndGroup => {
                skip_field(wire_type, tag, buf, ctx)?;
            }
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Reads an open object; an error is reported under `field`.
pub(super) fn open(
    object: Option<ValueBytes>,
    field: &str,
    at: &mut Violations<'_>,
) -> Option<Metadata> {
    let object = object?;
    let read = transcode(&object.0, field, at, read_struct);
    Some(read.into_object().unwrap_or_default())
}

/// Reads any JSON value. An empty one is `null`; an error is reported under `field`.
pub(super) fn value(value: &ValueBytes, field: &str, at: &mut Violations<'_>) -> Json {
    transcode(&value.0, field, at, read_value)
}

fn transcode(
    bytes: &[u8],
    field: &str,
    at: &mut Violations<'_>,
    read: fn(&[u8], &mut JsonWriter, usize) -> Result<(), WireError>,
) -> Json {
    let mut writer = JsonWriter::with_capacity(bytes.len());
    match read(bytes, &mut writer, MAX_LEVELS) {
        Ok(()) => writer.finish(),
        Err(fault) => {
            at.add(field, fault.to_string());
            Json::from(serde_json::Value::Null)
        }
    }
}

fn read_value(mut bytes: &[u8], writer: &mut JsonWriter, levels: usize) -> Result<(), WireError> {
    let mut last = None;
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        last = Some((tag, field(tag, wire_type, &mut bytes)?));
    }
    match last {
        None | Some((1, _)) => writer.null(),
        Some((2, Field::Double(number))) => write_number(number, writer)?,
        Some((3, Field::Bytes(text))) => {
            writer.string(std::str::from_utf8(text).map_err(|_| WireError::Broken)?);
        }
        Some((4, Field::Varint(truth))) => writer.bool(truth != 0),
        Some((5, Field::Bytes(object))) => read_struct(object, writer, levels)?,
        Some((6, Field::Bytes(list))) => read_list(list, writer, levels)?,
        Some(_) => return Err(WireError::Broken),
    }
    Ok(())
}

fn read_struct(mut bytes: &[u8], writer: &mut JsonWriter, levels: usize) -> Result<(), WireError> {
    let levels = levels.checked_sub(1).ok_or(WireError::Depth)?;
    let object = writer.begin_object();
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        let (1, Field::Bytes(mut entry)) = (tag, field(tag, wire_type, &mut bytes)?) else {
            continue;
        };
        let (mut name, mut member): (&[u8], &[u8]) = (&[], &[]);
        while !entry.is_empty() {
            let (tag, wire_type) = decode_key(&mut entry)?;
            match (tag, field(tag, wire_type, &mut entry)?) {
                (1, Field::Bytes(bytes)) => name = bytes,
                (2, Field::Bytes(bytes)) => member = bytes,
                _ => {}
            }
        }
        writer.name(&object, std::str::from_utf8(name).map_err(|_| WireError::Broken)?);
        read_value(member, writer, levels)?;
    }
    writer.end_object(&object);
    Ok(())
}

fn read_list(mut bytes: &[u8], writer: &mut JsonWriter, levels: usize) -> Result<(), WireError> {
    let levels = levels.checked_sub(1).ok_or(WireError::Depth)?;
    let array = writer.begin_array();
    while !bytes.is_empty() {
        let (tag, wire_type) = decode_key(&mut bytes)?;
        if let (1, Field::Bytes(item)) = (tag, field(tag, wire_type, &mut bytes)?) {
            writer.item(&array);
            read_value(item, writer, levels)?;
        }
    }
    writer.end_array();
    Ok(())
}

/// The content of one field.
enum Field<'a> {
    Varint(u64),
    Double(f64),
    Bytes(&'a [u8]),
    Other,
}

fn field<'a>(tag: u32, wire_type: WireType, bytes: &mut &'a [u8]) -> Result<Field<'a>, WireError> {
    match wire_type {
        WireType::Varint => Ok(Field::Varint(decode_varint(bytes)?)),
        WireType::SixtyFourBit if bytes.len() >= 8 => Ok(Field::Double(bytes.get_f64_le())),
        WireType::LengthDelimited => {
            let size = usize::try_from(decode_varint(bytes)?).map_err(|_| WireError::Broken)?;
            let (content, rest) = bytes.split_at_checked(size).ok_or(WireError::Broken)?;
            *bytes = rest;
            Ok(Field::Bytes(content))
        }
        WireType::SixtyFourBit
        | WireType::ThirtyTwoBit
        | WireType::StartGroup
        | WireType::EndGroup => {
            skip_field(wire_type, tag, bytes, DecodeContext::default())?;
            Ok(Field::Other)
        }
    }
}

/// A double in JSON, without a fraction if it is an integer.
fn write_number(number: f64, writer: &mut JsonWriter) -> Result<(), WireError> {
    if number.fract() == 0.0 && number.abs() <= EXACT {
        writer.number(number as i64);
    } else {
        writer.number(serde_json::Number::from_f64(number).ok_or(WireError::Number)?);
    }
    Ok(())
}

/// Writes an open object.
pub(super) fn object(metadata: &Metadata) -> ValueBytes {
    let mut out = Vec::with_capacity(metadata.as_str().len() * 2);
    let mut json = serde_json::Deserializer::from_str(metadata.as_str());
    json.deserialize_map(StructFields(&mut out)).expect("canonical JSON can be read");
    ValueBytes(out)
}

/// Writes any JSON value.
pub(super) fn wire(value: &Json) -> ValueBytes {
    let mut out = Vec::with_capacity(value.as_str().len() * 2);
    let mut json = serde_json::Deserializer::from_str(value.as_str());
    Encode(&mut out).deserialize(&mut json).expect("canonical JSON can be read");
    ValueBytes(out)
}

/// Begins a nested message, with one byte for its length.
fn begin(tag: u32, out: &mut Vec<u8>) -> usize {
    encode_key(tag, WireType::LengthDelimited, out);
    out.push(0);
    out.len()
}

/// Writes the length of the message that began at `start`. A long message is moved by a few bytes, which
/// is cheaper than to compute all lengths first, because nesting is bounded.
fn end(start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    if let Ok(short @ 0..=0x7f) = u8::try_from(length) {
        out[start - 1] = short;
        return;
    }
    let mut long = Vec::with_capacity(5);
    encode_varint(length as u64, &mut long);
    out.splice(start - 1..start, long);
}

fn text(tag: u32, text: &str, out: &mut Vec<u8>) {
    encode_key(tag, WireType::LengthDelimited, out);
    encode_varint(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

/// Writes the fields of one `Value`.
struct Encode<'o>(&'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Encode<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Encode<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        prost::encoding::int32::encode(1, &0, self.0);
        Ok(())
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<(), E> {
        prost::encoding::bool::encode(4, &truth, self.0);
        Ok(())
    }

    // Every JSON number that was read has a nearest double.
    fn visit_u64<E: Error>(self, number: u64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<(), E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<(), E> {
        prost::encoding::double::encode(2, &number, self.0);
        Ok(())
    }

    fn visit_str<E: Error>(self, string: &str) -> Result<(), E> {
        text(3, string, self.0);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let list = begin(6, self.0);
        while items.next_element_seed(Within(1, &mut *self.0))?.is_some() {}
        end(list, self.0);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        let object = begin(5, self.0);
        StructFields(&mut *self.0).visit_map(members)?;
        end(object, self.0);
        Ok(())
    }
}

/// Writes one `Value` as a field of this number.
struct Within<'o>(u32, &'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Within<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        let start = begin(self.0, self.1);
        Encode(&mut *self.1).deserialize(deserializer)?;
        end(start, self.1);
        Ok(())
    }
}

/// Writes the fields of one `Struct`.
struct StructFields<'o>(&'o mut Vec<u8>);

impl<'de> Visitor<'de> for StructFields<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        loop {
            // The entry begins before its name is read, and is removed if there is no name.
            let before = self.0.len();
            let entry = begin(1, self.0);
            if members.next_key_seed(FieldName(&mut *self.0))?.is_none() {
                self.0.truncate(before);
                return Ok(());
            }
            members.next_value_seed(Within(2, &mut *self.0))?;
            end(entry, self.0);
        }
    }
}

struct FieldName<'o>(&'o mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for FieldName<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for FieldName<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<(), E> {
        text(1, name, self.0);
        Ok(())
    }
}

/// Reads a timestamp; one outside the calendar is reported under `field`.
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

/// Writes a timestamp.
pub(super) fn timestamp(moment: Timestamp) -> prost_types::Timestamp {
    let millis = moment.as_millis();
    let nanos = i32::try_from(millis.rem_euclid(1000)).unwrap_or_default() * 1_000_000;
    prost_types::Timestamp { seconds: millis.div_euclid(1000), nanos }
}
