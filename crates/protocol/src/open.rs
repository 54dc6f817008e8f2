//! Open JSON: values that the protocol leaves open, kept as canonical text.
//!
//! A tree of small values takes up to a hundred times the memory of its text, and every copy of it
//! as much again. So `data`, `metadata` and their like stay text from the wire to the log and back.
//! The text is canonical: no white space, members sorted by name, the last of several members of
//! one name, numbers and strings in their shortest form. Equal values are therefore equal texts,
//! whatever their sender's formatting, and a text never contains a line break.

mod read;
mod writer;

use std::{fmt, sync::Arc};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{DeserializeOwned, DeserializeSeed, Error as _},
};
use serde_json::{Value, value::RawValue};

use read::{Transcode, TranscodeObject, Unedited};
pub(crate) use writer::JsonWriter;

/// Levels of nesting that an open value may have. The parser takes 128, and stored and translated
/// forms wrap the value in a few levels of their own.
const MAX_DEPTH: u8 = 96;

/// Any JSON value as canonical text. Copies share the text.
#[derive(Clone)]
pub struct Json {
    text: Arc<RawValue>,
    /// Levels of arrays and objects in it.
    depth: u8,
}

/// A JSON object as canonical text: `metadata`, `params`, `header`.
#[derive(Clone, PartialEq)]
pub struct Metadata(Json);

impl Json {
    /// The value that `value` serializes to.
    pub fn new(value: &impl Serialize) -> Result<Self, serde_json::Error> {
        Self::parse(&serde_json::to_string(value)?)
    }

    /// Reads JSON text.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        self.text.get()
    }

    /// The value as a type of the caller's choice.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.as_str())
    }

    /// The member of this name, if the value is an object that has one of this type.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        if !self.is_object() {
            return None;
        }
        serde_json::from_str(read::member(self.as_str(), name)?).ok()
    }

    /// The same value with every text, member names included, replaced by what `edit` makes of it.
    #[must_use]
    pub fn edited(&self, mut edit: impl FnMut(&str) -> String) -> Self {
        let mut writer = JsonWriter::with_capacity(self.as_str().len());
        let mut json = serde_json::Deserializer::from_str(self.as_str());
        let copied = Transcode(&mut writer, &mut edit).deserialize(&mut json);
        copied.expect("canonical JSON can be read");
        writer.finish()
    }

    /// True if it is `null`.
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    /// True if it is an object.
    pub fn is_object(&self) -> bool {
        self.as_str().starts_with('{')
    }

    /// The value as an object, if it is one.
    pub fn into_object(self) -> Result<Metadata, Self> {
        if self.is_object() { Ok(Metadata(self)) } else { Err(self) }
    }

    /// True if it nests too deeply to be read again once it is wrapped.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.depth > MAX_DEPTH
    }
}

impl Metadata {
    /// An object without members.
    pub fn new() -> Self {
        Self::default()
    }

    /// The object as any value.
    pub fn into_json(self) -> Json {
        self.0
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// True if it has no members.
    pub fn is_empty(&self) -> bool {
        self.as_str() == "{}"
    }

    /// The member of this name, if there is one and it has this type. Other members are skipped, not
    /// read.
    pub fn get<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        self.0.get(name)
    }

    /// The member of this name, if it is the only one.
    pub(crate) fn only(&self, name: &str) -> Option<Json> {
        let members = read::members(self.as_str());
        let [(only, value)] = &members[..] else { return None };
        (only == name).then(|| Json::parse(value).ok()).flatten()
    }

    /// The same object with every text, member names included, replaced by what `edit` makes of it.
    #[must_use]
    pub fn edited(&self, edit: impl FnMut(&str) -> String) -> Self {
        Self(self.0.edited(edit))
    }

    /// Every member, by name.
    pub fn members(&self) -> impl Iterator<Item = (String, Json)> {
        let members = read::members(self.as_str()).into_iter();
        members.map(|(name, value)| {
            (name.into_owned(), Json::parse(value).expect("a member of canonical JSON is JSON"))
        })
    }

    /// Sets one member.
    pub fn insert(&mut self, name: &str, value: impl Into<Json>) {
        let value = value.into();
        self.rewrite(|writer, object| {
            writer.name(object, name);
            writer.json(&value);
        });
    }

    /// Removes one member.
    pub fn remove(&mut self, name: &str) -> Option<Json> {
        let found = self.get(name)?;
        self.retain(|member, _| member != name);
        Some(found)
    }

    /// Adds the members of another object; of two with one name, the other's stays.
    pub fn extend(&mut self, other: &Self) {
        if self.is_empty() {
            *self = other.clone();
        } else if !other.is_empty() {
            self.rewrite(|writer, object| writer.members(object, &other.0));
        }
    }

    /// Keeps the members for which `keep` returns true, given their name and JSON text.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &str) -> bool) {
        let mut writer = JsonWriter::with_capacity(self.as_str().len());
        let object = writer.begin_object();
        for (name, value) in read::members(self.as_str()) {
            if keep(&name, value) {
                writer.name(&object, &name);
                writer.raw(value, self.0.depth - 1);
            }
        }
        writer.end_object(&object);
        self.0 = writer.finish();
    }

    fn rewrite(&mut self, add: impl FnOnce(&mut JsonWriter, &writer::Object)) {
        let mut writer = JsonWriter::with_capacity(self.as_str().len() + 64);
        let object = writer.begin_object();
        writer.members(&object, &self.0);
        add(&mut writer, &object);
        writer.end_object(&object);
        self.0 = writer.finish();
    }

    /// True if a member nests too deeply to be read again once it is wrapped.
    pub(crate) fn is_too_deep(&self) -> bool {
        self.0.depth > MAX_DEPTH + 1
    }
}

impl Default for Metadata {
    fn default() -> Self {
        Self(Json::from(Value::Object(serde_json::Map::new())))
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        let mut writer = JsonWriter::default();
        Transcode(&mut writer, &mut Unedited)
            .deserialize(value)
            .expect("a tree of JSON holds nothing but JSON");
        writer.finish()
    }
}

impl From<Value> for Json {
    fn from(value: Value) -> Self {
        Self::from(&value)
    }
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        let mut writer = JsonWriter::default();
        writer.string(text);
        writer.finish()
    }
}

impl From<serde_json::Map<String, Value>> for Json {
    fn from(members: serde_json::Map<String, Value>) -> Self {
        Self::from(Value::Object(members))
    }
}

impl From<bool> for Json {
    fn from(truth: bool) -> Self {
        Self::from(Value::Bool(truth))
    }
}

impl From<Metadata> for Json {
    fn from(object: Metadata) -> Self {
        object.0
    }
}

impl From<serde_json::Map<String, Value>> for Metadata {
    fn from(members: serde_json::Map<String, Value>) -> Self {
        Self(Json::from(members))
    }
}

impl FromIterator<(String, Value)> for Metadata {
    fn from_iter<I: IntoIterator<Item = (String, Value)>>(members: I) -> Self {
        Self::from(serde_json::Map::from_iter(members))
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Json {}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Metadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

impl Serialize for Metadata {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut writer = JsonWriter::default();
        Transcode(&mut writer, &mut Unedited).deserialize(deserializer)?;
        Ok(writer.finish())
    }
}

impl<'de> Deserialize<'de> for Metadata {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut writer = JsonWriter::default();
        deserializer.deserialize_map(TranscodeObject(Transcode(&mut writer, &mut Unedited)))?;
        // A deserializer may present other values as a map; only an object is accepted.
        let json = writer.finish();
        json.into_object().map_err(|_| D::Error::custom("must be an object"))
    }
}

#[cfg(test)]
mod tests;
