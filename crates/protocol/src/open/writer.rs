//! Writer of canonical JSON: one buffer, no tree.

use std::ops::Range;

use serde_json::value::RawValue;

use super::{Json, read};

/// Writes one canonical value.
#[derive(Debug, Default)]
pub(crate) struct JsonWriter {
    text: Vec<u8>,
    /// The members of the objects that are open, the innermost object's last.
    members: Vec<ObjectMember>,
    /// Arrays and objects that are open, and the most that ever were.
    open: u8,
    depth: u8,
}

/// An object that is being written.
#[derive(Debug)]
pub(crate) struct Object {
    start: usize,
    /// Its first entry in [`JsonWriter::members`].
    first: usize,
}

/// An array that is being written.
#[derive(Debug)]
pub(crate) struct Array {
    start: usize,
}

/// Offsets in the text. They count in 32 bits, because an object may have nearly as many members as
/// bytes.
#[derive(Debug, Clone, Copy)]
struct ObjectMember {
    start: u32,
    name_end: u32,
}

impl JsonWriter {
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { text: Vec::with_capacity(bytes), ..Self::default() }
    }

    pub(crate) fn null(&mut self) {
        self.text.extend_from_slice(b"null");
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.text.extend_from_slice(if value { b"true" } else { b"false" });
    }

    /// Writes a number, or `null` for one that JSON does not have.
    pub(crate) fn number(&mut self, number: impl Into<serde_json::Number>) {
        serde_json::to_writer(&mut self.text, &number.into()).expect("a buffer takes all bytes");
    }

    pub(crate) fn string(&mut self, text: &str) {
        serde_json::to_writer(&mut self.text, text).expect("a buffer takes all bytes");
    }

    /// Copies a value that is canonical already.
    pub(crate) fn json(&mut self, value: &Json) {
        self.raw(value.as_str(), value.depth);
    }

    /// Copies canonical text that nests at most so deeply.
    pub(super) fn raw(&mut self, text: &str, depth: u8) {
        self.text.extend_from_slice(text.as_bytes());
        self.depth = self.depth.max(self.open.saturating_add(depth));
    }

    pub(crate) fn begin_array(&mut self) -> Array {
        let start = self.text.len();
        self.begin(b'[');
        Array { start }
    }

    /// Announces the next item of the innermost array.
    pub(crate) fn item(&mut self, array: &Array) {
        if self.text.len() > array.start + 1 {
            self.text.push(b',');
        }
    }

    pub(crate) fn end_array(&mut self) {
        self.text.push(b']');
        self.open = self.open.saturating_sub(1);
    }

    pub(crate) fn begin_object(&mut self) -> Object {
        let object = Object { start: self.text.len(), first: self.members.len() };
        self.begin(b'{');
        object
    }

    /// Writes the name of the next member; its value has to follow.
    pub(crate) fn name(&mut self, object: &Object, name: &str) {
        if self.members.len() > object.first {
            self.text.push(b',');
        }
        let start = offset(self.text.len());
        self.string(name);
        self.members.push(ObjectMember { start, name_end: offset(self.text.len()) });
        self.text.push(b':');
    }

    /// Copies all members of another object.
    pub(super) fn members(&mut self, object: &Object, other: &Json) {
        for (name, value) in read::members(other.as_str()) {
            self.name(object, &name);
            self.raw(value, other.depth.saturating_sub(1));
        }
    }

    /// Closes the innermost object and puts its members in order.
    pub(crate) fn end_object(&mut self, object: &Object) {
        let Self { text, members, .. } = self;
        let own = &members[object.first..];
        let is_ordered = own.is_sorted_by(|a, b| name(text, *a) < name(text, *b));
        if !is_ordered {
            sort(text, object.start, own);
        }
        members.truncate(object.first);
        self.text.push(b'}');
        self.open = self.open.saturating_sub(1);
    }

    /// The value that was written.
    pub(crate) fn finish(self) -> Json {
        let text = String::from_utf8(self.text).expect("JSON is written as UTF-8");
        let text = RawValue::from_string(text).expect("one whole value was written");
        Json { text: text.into(), depth: self.depth }
    }

    fn begin(&mut self, bracket: u8) {
        self.text.push(bracket);
        self.open = self.open.saturating_add(1);
        self.depth = self.depth.max(self.open);
    }
}

/// Rewrites the object that starts at `start` and has these members, sorted by name. Of several
/// members of one name the last stays.
fn sort(text: &mut Vec<u8>, start: usize, members: &[ObjectMember]) {
    let end = offset(text.len());
    // A member ends before the comma in front of the next one.
    let ends = members.iter().skip(1).map(|next| next.start - 1).chain([end]);
    let mut spans: Vec<(ObjectMember, u32)> = members.iter().copied().zip(ends).collect();
    spans.sort_by(|(a, _), (b, _)| name(text, *a).cmp(name(text, *b)));
    let mut sorted = Vec::with_capacity(text.len() - start);
    for (index, (member, end)) in spans.iter().enumerate() {
        let is_last =
            spans.get(index + 1).is_none_or(|(next, _)| name(text, *next) != name(text, *member));
        if is_last {
            sorted.push(if sorted.is_empty() { b'{' } else { b',' });
            sorted.extend_from_slice(&text[range(member.start, *end)]);
        }
    }
    text.truncate(start);
    text.extend_from_slice(&sorted);
}

fn name(text: &[u8], member: ObjectMember) -> &[u8] {
    // Without the quotation marks, so that a name sorts before the longer ones that begin with it.
    &text[range(member.start + 1, member.name_end - 1)]
}

fn range(start: u32, end: u32) -> Range<usize> {
    start as usize..end as usize
}

fn offset(position: usize) -> u32 {
    u32::try_from(position).expect("every input is bounded far below 4 GiB")
}
