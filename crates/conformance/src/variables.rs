//! Variables of suites: `{{taskId}}` and its value.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use uuid::Uuid;

/// Prefixes of the environment variables that a suite may read, so that no suite can send a secret of this
/// machine to the server under test.
const ENVIRONMENT: [&str; 2] = ["A2A_", "ACTS_"];

/// The deepest nesting of variables.
const DEPTH: usize = 8;
/// The most bytes of one expanded value. Every variable counts one byte and the bytes of its value.
const LARGEST: usize = 4 << 20;

/// All variables of a test.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    /// Captures of earlier steps, as `step.name`.
    captured: HashMap<String, Value>,
    /// Values of the command line and of the suite file.
    texts: BTreeMap<String, String>,
}

impl Variables {
    /// The variables of a suite file. Those of the command line override them.
    pub(super) fn new(
        document: &BTreeMap<String, String>,
        given: &BTreeMap<String, String>,
        base: &str,
    ) -> Self {
        let mut texts = BTreeMap::from([
            ("SUT_BASE_URL".to_owned(), base.to_owned()),
            ("baseUrl".to_owned(), base.to_owned()),
        ]);
        texts.extend(document.clone());
        texts.extend(given.clone());
        Self { captured: HashMap::new(), texts }
    }

    /// Stores a captured value of a step.
    pub(super) fn capture(&mut self, step: &str, name: &str, value: Value) {
        self.captured.insert(format!("{step}.{name}"), value);
    }

    /// A value with every variable in it replaced.
    pub(super) fn fill(&self, value: &Value) -> Result<Value, String> {
        self.fill_within(value, &mut { LARGEST })
    }

    fn fill_within(&self, value: &Value, left: &mut usize) -> Result<Value, String> {
        if let Some(text) = value.as_str() {
            return self.fill_text(text, DEPTH, left);
        }
        if let Some(list) = value.as_array() {
            let filled = list.iter().map(|one| self.fill_within(one, left));
            return filled.collect::<Result<_, _>>().map(Value::Array);
        }
        let Some(map) = value.as_object() else { return Ok(value.clone()) };
        let filled = map.iter().map(|(key, one)| Ok((key.clone(), self.fill_within(one, left)?)));
        filled.collect::<Result<_, String>>().map(Value::Object)
    }

    /// A text with every variable in it replaced.
    pub(super) fn text(&self, text: &str) -> Result<String, String> {
        Ok(plain(&self.fill_text(text, DEPTH, &mut { LARGEST })?))
    }

    /// Expands a text. A text that is a single variable becomes its value, of any type.
    fn fill_text(&self, text: &str, depth: usize, left: &mut usize) -> Result<Value, String> {
        if depth == 0 {
            return Err("the variables refer to each other in a cycle".to_owned());
        }
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after
                .split_once("}}")
                .ok_or_else(|| format!("{text:?} does not close its {{{{"))?;
            let value = self.find(name.trim(), depth, left)?;
            *left = left.checked_sub(1 + plain(&value).len()).ok_or_else(|| {
                format!("the expanded variables are larger than {LARGEST} bytes, at {name:?}")
            })?;
            if before.is_empty() && after.is_empty() && filled.is_empty() {
                return Ok(value);
            }
            filled.push_str(before);
            filled.push_str(&plain(&value));
            rest = after;
        }
        Ok(Value::String(filled + rest))
    }

    fn find(&self, name: &str, depth: usize, left: &mut usize) -> Result<Value, String> {
        if let Some(value) = self.captured.get(name) {
            return Ok(value.clone());
        }
        if let Some(text) = self.texts.get(name) {
            return self.fill_text(text, depth - 1, left);
        }
        if name == "$uuid" {
            return Ok(Value::String(Uuid::new_v4().to_string()));
        }
        let allowed = |name: &str| ENVIRONMENT.iter().any(|start| name.starts_with(start));
        match name.strip_prefix("env.") {
            Some(name) if !allowed(name) => Err(format!(
                "a suite may not read {{{{env.{name}}}}}; only variables that begin with A2A_ or \
                 ACTS_ are allowed"
            )),
            Some(name) => std::env::var(name).map(Value::String).map_err(|_| {
                format!("the environment variable {name} is not set; export it first")
            }),
            None => Err(format!("{{{{{name}}}}} has no value; give it with --set {name}=VALUE")),
        }
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    fn variables() -> Variables {
        let document = BTreeMap::from([
            ("greeting".to_owned(), "hello {{name}}".to_owned()),
            ("name".to_owned(), "you".to_owned()),
            ("a".to_owned(), "{{b}}".to_owned()),
            ("b".to_owned(), "{{a}}".to_owned()),
        ]);
        let given = BTreeMap::from([("name".to_owned(), "me".to_owned())]);
        let mut variables = Variables::new(&document, &given, "http://x");
        variables.capture("send", "count", json!(3));
        variables
    }

    #[test]
    fn names_become_values_within_texts_lists_and_maps() {
        let filled = variables().fill(&json!({
            "whole": "{{send.count}}",
            "within": ["{{greeting}}, {{send.count}} times"],
            "base": "{{baseUrl}}/x",
            "plain": true,
        }));
        let expected = json!({
            "whole": 3,
            "within": ["hello me, 3 times"],
            "base": "http://x/x",
            "plain": true,
        });
        assert_eq!(filled.unwrap(), expected);
    }

    #[test]
    fn every_use_of_uuid_is_a_new_id() {
        let text = variables().text("{{$uuid}} {{$uuid}}").unwrap();
        let (left, right) = text.split_once(' ').unwrap();
        assert_ne!(left, right);
    }

    #[test]
    fn a_name_without_a_value_is_an_error_that_says_what_to_do() {
        let fault = variables().text("{{webhookUrl}}").unwrap_err();
        assert_eq!(fault, "{{webhookUrl}} has no value; give it with --set webhookUrl=VALUE");
        assert!(variables().text("{{a}}").unwrap_err().contains("cycle"));
        assert!(variables().text("{{name").is_err());
    }

    #[test]
    fn variables_that_multiply_each_other_are_not_filled_in() {
        for leaf in ["", "x"] {
            let mut document = BTreeMap::from([("v7".to_owned(), leaf.to_owned())]);
            for level in 1..7 {
                let text = format!("{{{{v{}}}}}", level + 1).repeat(1000);
                document.insert(format!("v{level}"), text);
            }
            let variables = Variables::new(&document, &BTreeMap::new(), "http://x");
            assert!(variables.text("{{v1}}").unwrap_err().contains("larger than"), "{leaf:?}");
        }
    }

    #[test]
    fn no_suite_can_read_the_secrets_of_this_machine() {
        assert!(variables().text("{{env.HOME}}").unwrap_err().contains("may not read"));
    }
}
