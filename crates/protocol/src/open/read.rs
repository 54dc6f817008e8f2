//! Readers of JSON that build no tree: from any format into canonical text, and from that to members.

use std::{borrow::Cow, fmt};

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::writer::{Array, JsonWriter, Object};

/// Copies one value into a writer while it is read.
pub(super) struct Transcode<'w, E: Edit>(pub(super) &'w mut JsonWriter, pub(super) &'w mut E);

/// A change to every text on the way, member names included.
pub(super) trait Edit {
    fn edit<'t>(&mut self, text: &'t str) -> Cow<'t, str>;
}

/// No change.
pub(super) struct Unedited;

impl Edit for Unedited {
    fn edit<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        Cow::Borrowed(text)
    }
}

impl<F: FnMut(&str) -> String> Edit for F {
    fn edit<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        Cow::Owned(self(text))
    }
}

impl<'de, E: Edit> DeserializeSeed<'de> for Transcode<'_, E> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, E: Edit> Visitor<'de> for Transcode<'_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<F: Error>(self) -> Result<(), F> {
        self.0.null();
        Ok(())
    }

    fn visit_none<F: Error>(self) -> Result<(), F> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<F: Error>(self, value: bool) -> Result<(), F> {
        self.0.bool(value);
        Ok(())
    }

    fn visit_u64<F: Error>(self, number: u64) -> Result<(), F> {
        self.0.number(number);
        Ok(())
    }

    fn visit_i64<F: Error>(self, number: i64) -> Result<(), F> {
        self.0.number(number);
        Ok(())
    }

    fn visit_f64<F: Error>(self, number: f64) -> Result<(), F> {
        let number = serde_json::Number::from_f64(number);
        self.0.number(number.ok_or_else(|| F::custom("JSON has no such number"))?);
        Ok(())
    }

    fn visit_str<F: Error>(self, text: &str) -> Result<(), F> {
        self.0.string(&self.1.edit(text));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let array = self.0.begin_array();
        while items
            .next_element_seed(ArrayItem(Transcode(&mut *self.0, &mut *self.1), &array))?
            .is_some()
        {}
        self.0.end_array();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let object = self.0.begin_object();
        while members
            .next_key_seed(MemberName(Transcode(&mut *self.0, &mut *self.1), &object))?
            .is_some()
        {
            members.next_value_seed(Transcode(&mut *self.0, &mut *self.1))?;
        }
        self.0.end_object(&object);
        Ok(())
    }
}

/// An item of an array. Its comma is written once it is certain that there is an item.
struct ArrayItem<'w, E: Edit>(Transcode<'w, E>, &'w Array);

impl<'de, E: Edit> DeserializeSeed<'de> for ArrayItem<'_, E> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        self.0.0.item(self.1);
        self.0.deserialize(deserializer)
    }
}

/// The name of a member.
struct MemberName<'w, E: Edit>(Transcode<'w, E>, &'w Object);

impl<'de, E: Edit> DeserializeSeed<'de> for MemberName<'_, E> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<E: Edit> Visitor<'_> for MemberName<'_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<F: Error>(self, name: &str) -> Result<(), F> {
        let Self(Transcode(writer, edit), object) = self;
        writer.name(object, &edit.edit(name));
        Ok(())
    }
}

/// The same for an object only. Its error says so, since serde takes the words of the visitor.
pub(super) struct TranscodeObject<'a, E: Edit>(pub(super) Transcode<'a, E>);

impl<'de, E: Edit> Visitor<'de> for TranscodeObject<'_, E> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<(), A::Error> {
        self.0.visit_map(map)
    }
}

/// The members of a canonical object.
pub(super) fn members(object: &str) -> Vec<(Cow<'_, str>, &str)> {
    struct MemberList;
    impl<'de> Visitor<'de> for MemberList {
        type Value = Vec<(Cow<'de, str>, &'de str)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<Borrowed<'_>, &RawValue>()? {
                members.push((name.0, value.get()));
            }
            Ok(members)
        }
    }
    let members = serde_json::Deserializer::from_str(object).deserialize_map(MemberList);
    members.expect("canonical text of an object")
}

/// The text of one member of a canonical object.
pub(super) fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    struct Find<'n>(&'n str);
    impl<'de> Visitor<'de> for Find<'_> {
        type Value = Option<&'de str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(is_it) = map.next_key_seed(Is(self.0))? {
                if is_it {
                    found = Some(map.next_value::<&RawValue>()?.get());
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(found)
        }
    }
    let found = serde_json::Deserializer::from_str(object).deserialize_map(Find(name));
    found.expect("canonical text of an object")
}

/// True if a member has a certain name.
struct Is<'n>(&'n str);

impl<'de> DeserializeSeed<'de> for Is<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Is<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a member's name")
    }

    fn visit_str<F: Error>(self, name: &str) -> Result<bool, F> {
        Ok(name == self.0)
    }
}

/// A name that is copied only if it has an escape.
#[derive(serde::Deserialize)]
struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
