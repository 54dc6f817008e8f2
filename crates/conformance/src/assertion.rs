//! Assertion language of ACTS: parser, evaluation and mismatch messages.
//!
//! A key of a map is an operator if its name and its value have an operator's form, and the name of
//! a member otherwise: `{type: string}` applies to the value, `{type: {type: string}}` to its
//! member `type`. The files of the A2A project use `items`, which their specification does not list:
//! a map applies to every element, a list to the elements at its positions.

use std::fmt;

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Number, Value};

use herald_protocol::escape::is_active;

/// A condition on a JSON value.
#[derive(Debug, Clone)]
pub(super) enum Assertion {
    /// Equal to this.
    Equals(Value),
    /// A list whose elements fulfil these, position by position.
    Positions(Vec<Self>),
    /// All of these hold.
    Rules(Vec<Rule>),
}

/// One operator of an assertion.
#[derive(Debug, Clone)]
pub(super) enum Rule {
    Type(JsonType),
    Exists,
    Absent,
    Contains(String),
    Matches(Regex),
    StartsWith(String),
    EndsWith(String),
    Compare(Comparison, f64),
    Count(Comparison, u64),
    AllOf(Vec<Assertion>),
    AnyOf(Vec<Assertion>),
    Not(Box<Assertion>),
    Each(Box<Assertion>),
    Items(Box<Assertion>),
    Member(String, Assertion),
}

/// The types of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum JsonType {
    String,
    Number,
    Boolean,
    Array,
    Object,
    Null,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    AtLeast,
    AtMost,
    More,
    Less,
}

/// A value that does not fulfil its assertion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mismatch {
    /// The path of the member, relative to the value that is checked.
    pub(super) path: String,
    pub(super) expected: String,
    pub(super) actual: String,
}

/// An assertion that is not fulfilled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unmet {
    Mismatch(Mismatch),
    /// The assertion cannot be evaluated, because the suite is invalid.
    Broken(String),
}

impl From<Mismatch> for Unmet {
    fn from(mismatch: Mismatch) -> Self {
        Self::Mismatch(mismatch)
    }
}

impl From<String> for Unmet {
    fn from(why: String) -> Self {
        Self::Broken(why)
    }
}

/// The most memory of a compiled pattern, since suites come from other people.
const LARGEST_PATTERN: usize = 256 << 10;

/// The most characters of a value in a message.
const SHOWN: usize = 160;

impl Assertion {
    /// Reads an assertion.
    pub(super) fn parse(text: &Value) -> Result<Self, String> {
        if let Some(list) = text.as_array() {
            return list.iter().map(Self::parse).collect::<Result<_, _>>().map(Self::Positions);
        }
        match text.as_object() {
            Some(map) => Self::parse_map(map),
            None => Ok(Self::Equals(text.clone())),
        }
    }

    /// Reads a map, all of whose entries must be fulfilled.
    fn parse_map(map: &Map<String, Value>) -> Result<Self, String> {
        let rules = map.iter().map(|(key, value)| Rule::parse(key, value));
        rules.collect::<Result<_, _>>().map(Self::Rules)
    }

    /// Checks a value, which may be absent.
    pub(super) fn check(&self, path: &str, value: Option<&Value>) -> Result<(), Mismatch> {
        let fail = |expected: String| Err(Mismatch::new(path, expected, value));
        match self {
            Self::Equals(expected) if value.is_some_and(|value| same(expected, value)) => Ok(()),
            Self::Equals(expected) => fail(shown(expected)),
            Self::Positions(list) => list.iter().enumerate().try_for_each(|(index, one)| {
                one.check(&format!("{path}[{index}]"), value.and_then(|value| value.get(index)))
            }),
            Self::Rules(rules) => rules.iter().try_for_each(|rule| rule.check(path, value)),
        }
    }
}

impl Rule {
    fn parse(key: &str, value: &Value) -> Result<Self, String> {
        let one = || Assertion::parse(value).map(Box::new);
        let all = |list: &[Value]| list.iter().map(Assertion::parse).collect::<Result<_, _>>();
        let whole = |number: &Number| {
            number.as_u64().ok_or_else(|| format!("{key} must be a whole number, not {number}"))
        };
        let limit = |number: &Number| number.as_f64().unwrap_or(f64::NAN);
        Ok(match (key, value) {
            ("type", Value::String(name)) => match JsonType::from_name(name) {
                Some(kind) => Self::Type(kind),
                None => return Err(format!("{name:?} is not a type of JSON")),
            },
            ("exists" | "absent", Value::Bool(false)) => {
                return Err(format!("{key} can only be true"));
            }
            ("exists", Value::Bool(true)) => Self::Exists,
            ("absent", Value::Bool(true)) => Self::Absent,
            ("contains", Value::String(part)) => Self::Contains(part.clone()),
            ("matches", Value::String(pattern)) => match compiled(pattern) {
                Ok(regex) => Self::Matches(regex),
                Err(fault) => return Err(format!("{pattern:?} is not a valid pattern: {fault}")),
            },
            ("starts_with", Value::String(start)) => Self::StartsWith(start.clone()),
            ("ends_with", Value::String(end)) => Self::EndsWith(end.clone()),
            ("gte", Value::Number(number)) => Self::Compare(Comparison::AtLeast, limit(number)),
            ("lte", Value::Number(number)) => Self::Compare(Comparison::AtMost, limit(number)),
            ("gt", Value::Number(number)) => Self::Compare(Comparison::More, limit(number)),
            ("lt", Value::Number(number)) => Self::Compare(Comparison::Less, limit(number)),
            ("count", Value::Number(number)) => Self::Count(Comparison::Equal, whole(number)?),
            ("count_gte", Value::Number(number)) => {
                Self::Count(Comparison::AtLeast, whole(number)?)
            }
            ("count_lte", Value::Number(number)) => Self::Count(Comparison::AtMost, whole(number)?),
            ("all_of", Value::Array(list)) => Self::AllOf(all(list)?),
            ("any_of" | "one_of", Value::Array(list)) => Self::AnyOf(all(list)?),
            ("not", _) => Self::Not(one()?),
            ("items", Value::Array(_)) => Self::Items(one()?),
            ("items", _) => Self::Each(one()?),
            _ => Self::Member(key.to_owned(), Assertion::parse(value)?),
        })
    }

    fn check(&self, path: &str, value: Option<&Value>) -> Result<(), Mismatch> {
        let text = value.and_then(Value::as_str);
        let holds = match self {
            Self::Member(name, assertion) => {
                let below = match path {
                    "" => name.clone(),
                    path => format!("{path}.{name}"),
                };
                return assertion.check(&below, value.and_then(|value| value.get(name)));
            }
            Self::Each(assertion) => {
                let Some(list) = value.and_then(Value::as_array) else {
                    return Err(Mismatch::new(path, self.to_string(), value));
                };
                return list.iter().enumerate().try_for_each(|(index, one)| {
                    assertion.check(&format!("{path}[{index}]"), Some(one))
                });
            }
            Self::Items(assertion) => return assertion.check(path, value),
            Self::AllOf(list) => return list.iter().try_for_each(|one| one.check(path, value)),
            Self::AnyOf(list) => list.iter().any(|one| one.check(path, value).is_ok()),
            Self::Not(assertion) => assertion.check(path, value).is_err(),
            Self::Type(kind) => value.is_some_and(|value| kind.is(value)),
            Self::Exists => value.is_some(),
            Self::Absent => value.is_none(),
            Self::Contains(part) => {
                let member = |list: &Vec<Value>| list.iter().any(|one| one.as_str() == Some(part));
                text.is_some_and(|text| text.contains(part.as_str()))
                    || value.and_then(Value::as_array).is_some_and(member)
            }
            Self::Matches(regex) => text.is_some_and(|text| regex.is_match(text)),
            Self::StartsWith(start) => text.is_some_and(|text| text.starts_with(start.as_str())),
            Self::EndsWith(end) => text.is_some_and(|text| text.ends_with(end.as_str())),
            Self::Compare(comparison, limit) => {
                let number = value.and_then(Value::as_f64);
                number.is_some_and(|number| comparison.holds(&number, limit))
            }
            Self::Count(comparison, limit) => {
                let list = value.and_then(Value::as_array);
                list.is_some_and(|list| comparison.holds(&(list.len() as u64), limit))
            }
        };
        if holds { Ok(()) } else { Err(Mismatch::new(path, self.to_string(), value)) }
    }
}

fn compiled(pattern: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern).size_limit(LARGEST_PATTERN).dfa_size_limit(LARGEST_PATTERN).build()
}

impl JsonType {
    const ALL: [(Self, &str); 6] = [
        (Self::String, "string"),
        (Self::Number, "number"),
        (Self::Boolean, "boolean"),
        (Self::Array, "array"),
        (Self::Object, "object"),
        (Self::Null, "null"),
    ];

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(kind, _)| *kind)
    }

    fn is(self, value: &Value) -> bool {
        match self {
            Self::String => value.is_string(),
            Self::Number => value.is_number(),
            Self::Boolean => value.is_boolean(),
            Self::Array => value.is_array(),
            Self::Object => value.is_object(),
            Self::Null => value.is_null(),
        }
    }
}

impl Comparison {
    fn holds<T: PartialOrd>(self, value: &T, limit: &T) -> bool {
        match self {
            Self::Equal => value == limit,
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
            Self::More => value > limit,
            Self::Less => value < limit,
        }
    }
}

/// Equality of values. Numbers are compared by value, whatever their spelling.
fn same(left: &Value, right: &Value) -> bool {
    match (left.as_f64(), right.as_f64()) {
        (Some(left), Some(right)) => left == right,
        _ => left == right,
    }
}

impl Mismatch {
    pub(super) fn new(path: &str, expected: impl Into<String>, actual: Option<&Value>) -> Self {
        let actual = actual.map_or_else(|| "nothing".to_owned(), shown);
        Self { path: path.to_owned(), expected: expected.into(), actual }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        write!(f, "expected {}, found {}", self.expected, self.actual)
    }
}

/// A value in one short line without terminal control characters.
pub(super) fn shown(value: &Value) -> String {
    short(&value.to_string())
}

/// A text in one short line without terminal control characters.
pub(super) fn short(text: &str) -> String {
    let plain = |c: char| if is_active(c) { ' ' } else { c };
    let mut shown: String = text.chars().map(plain).take(SHOWN).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push('…');
    }
    shown
}

impl fmt::Display for Assertion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Equals(value) => f.write_str(&shown(value)),
            Self::Positions(list) => write!(f, "[{}]", joined(list, ", ")),
            Self::Rules(rules) => f.write_str(&joined(rules, " and ")),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Type(kind) => {
                let name = JsonType::ALL.iter().find(|(known, _)| known == kind);
                write!(f, "type {}", name.map_or("", |(_, name)| name))
            }
            Self::Exists => f.write_str("any value"),
            Self::Absent => f.write_str("nothing"),
            Self::Contains(part) => write!(f, "a value that contains {part:?}"),
            Self::Matches(regex) => write!(f, "/{regex}/"),
            Self::StartsWith(start) => write!(f, "a text that begins with {start:?}"),
            Self::EndsWith(end) => write!(f, "a text that ends with {end:?}"),
            Self::Compare(comparison, limit) => write!(f, "{comparison} {limit}"),
            Self::Count(comparison, limit) => write!(f, "{comparison} {limit} elements"),
            Self::AllOf(list) => f.write_str(&joined(list, " and ")),
            Self::AnyOf(list) => f.write_str(&joined(list, " or ")),
            Self::Not(assertion) => write!(f, "not {assertion}"),
            Self::Each(assertion) => write!(f, "a list, each with {assertion}"),
            Self::Items(assertion) => write!(f, "{assertion}"),
            Self::Member(name, assertion) => write!(f, "{name}: {assertion}"),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "exactly",
            Self::AtLeast => "at least",
            Self::AtMost => "at most",
            Self::More => "more than",
            Self::Less => "less than",
        })
    }
}

fn joined<T: fmt::Display>(list: &[T], between: &str) -> String {
    list.iter().map(T::to_string).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn verdict(assertion: &Value, value: Option<&Value>) -> bool {
        Assertion::parse(assertion).unwrap().check("", value).is_ok()
    }

    #[test]
    fn every_operator_can_succeed_and_fail() {
        let cases = [
            (json!("a"), json!("a"), json!("b")),
            (json!(1), json!(1.0), json!("1")),
            (json!(null), json!(null), json!(0)),
            (json!({"type": "string"}), json!("a"), json!(1)),
            (json!({"type": "number"}), json!(1), json!(true)),
            (json!({"type": "boolean"}), json!(true), json!(1)),
            (json!({"type": "array"}), json!([]), json!({})),
            (json!({"type": "object"}), json!({}), json!([])),
            (json!({"type": "null"}), json!(null), json!(false)),
            (json!({"a": {"exists": true}}), json!({"a": null}), json!({})),
            (json!({"a": {"absent": true}}), json!({}), json!({"a": null})),
            (json!({"contains": "b"}), json!("abc"), json!("ac")),
            (json!({"contains": "b"}), json!(["a", "b"]), json!(["ab"])),
            (json!({"matches": "^a+$"}), json!("aa"), json!("ab")),
            (json!({"starts_with": "a"}), json!("ab"), json!("ba")),
            (json!({"ends_with": "a"}), json!("ba"), json!("ab")),
            (json!({"gte": 2}), json!(2), json!(1)),
            (json!({"lte": 2}), json!(2), json!(3)),
            (json!({"gt": 2}), json!(3), json!(2)),
            (json!({"lt": 2}), json!(1), json!(2)),
            (json!({"count": 1}), json!([1]), json!([])),
            (json!({"count_gte": 1}), json!([1]), json!([])),
            (json!({"count_lte": 1}), json!([1]), json!([1, 2])),
            (json!({"one_of": ["a", "b"]}), json!("b"), json!("c")),
            (json!({"any_of": [{"type": "string"}, 1]}), json!(1), json!(2)),
            (json!({"all_of": [{"gt": 1}, {"lt": 3}]}), json!(2), json!(3)),
            (json!({"not": "a"}), json!("b"), json!("a")),
            (json!({"items": {"id": {"exists": true}}}), json!([{"id": 1}]), json!([{}])),
            (json!({"items": [{"gt": 1}]}), json!([2, 0]), json!([0, 2])),
            (json!([{"a": 1}]), json!([{"a": 1}, {}]), json!([{}, {"a": 1}])),
            (json!({"type": {"type": "string"}}), json!({"type": "x"}), json!("x")),
        ];
        for (assertion, good, bad) in cases {
            assert!(verdict(&assertion, Some(&good)), "{assertion} of {good}");
            assert!(!verdict(&assertion, Some(&bad)), "{assertion} of {bad}");
        }
        assert!(!verdict(&json!({"items": {"a": 1}}), None), "a missing list is not an empty one");
    }

    #[test]
    fn a_mismatch_names_the_path_and_both_values() {
        let assertion = Assertion::parse(&json!({"task": {"status": {"state": "done"}}})).unwrap();
        let seen = r#"{"task": {"status": {"state": "bell\u0007"}}}"#;
        let seen: Value = serde_json::from_str(seen).unwrap();
        let mismatch = assertion.check("", Some(&seen)).unwrap_err();
        assert_eq!(
            mismatch.to_string(),
            r#"task.status.state: expected "done", found "bell\u0007""#
        );
        let mismatch = assertion.check("", Some(&json!({}))).unwrap_err();
        assert_eq!(mismatch.to_string(), r#"task.status.state: expected "done", found nothing"#);
    }

    #[test]
    fn an_invalid_assertion_is_refused_when_it_is_read() {
        for text in [
            json!({"type": "text"}),
            json!({"matches": "("}),
            json!({"exists": false}),
            json!({"a": [{"type": "int"}]}),
        ] {
            assert!(Assertion::parse(&text).is_err(), "{text}");
        }
    }
}
