//! JSON with a value of another type in place of each value, and the words that no error may have.

use serde_json::{Value, json};

/// The text among the replacements. An error must not repeat it, since it may be a secret.
pub(crate) const GIVEN: &str = "zebra-4711";

/// The document once for each of its values and each type of JSON, with the path of the value.
pub(crate) fn replaced(document: &Value) -> Vec<(String, Value)> {
    let mut paths = Vec::new();
    collect(document, String::new(), &mut paths);
    let others = [
        json!(null),
        json!(true),
        json!(5),
        json!(-1.5),
        json!(u64::MAX),
        json!(GIVEN),
        json!([]),
        json!([5]),
        json!([GIVEN]),
        json!([{}]),
        json!({}),
        json!({ "zebra": GIVEN }),
    ];
    let mut found = Vec::new();
    for path in paths {
        for other in &others {
            let mut document = document.clone();
            *document.pointer_mut(&path).unwrap() = other.clone();
            found.push((format!("{path} = {other}"), document));
        }
    }
    found
}

fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect(value, format!("{path}/{name}"), paths);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect(item, format!("{path}/{index}"), paths);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    paths.push(path);
}

/// Words of Rust and of its JSON library. Callers know the words of JSON.
const FOREIGN: [&str; 28] = [
    "struct",
    "enum",
    "variant",
    "tuple",
    "newtype",
    "sequence",
    "map",
    "unit",
    "floating",
    "untagged",
    "identifier",
    "serde",
    "deserialize",
    "Option",
    "Vec",
    "u8",
    "u16",
    "u32",
    "u64",
    "usize",
    "i8",
    "i16",
    "i32",
    "i64",
    "f32",
    "f64",
    "str",
    "bool",
];

/// Fails if a text for callers has a word of Rust, or the text that they gave.
#[track_caller]
pub(crate) fn has_plain_words(case: &str, text: &str) {
    let mut words = text.split(|letter: char| !letter.is_alphanumeric());
    let foreign = words.find(|word| FOREIGN.contains(word));
    assert_eq!(foreign, None, "{case}: {text}");
    for phrase in ["invalid type", "invalid value", "::", " at line ", GIVEN] {
        assert!(!text.contains(phrase), "{case}: {text}");
    }
}
