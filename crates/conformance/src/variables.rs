//! Values with names: `{{taskId}}` in a suite's texts.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;
use uuid::Uuid;

/// Only these are handed from the environment to a suite, so that no suite can send a secret of this
/// machine to the server it tests.
const ENVIRONMENT: [&str; 2] = ["A2A_", "ACTS_"];

/// How often a variable may lead to another one.
const DEPTH: usize = 8;
/// How much one value may come to, in bytes: every name counts as one and as what it stands for.
const LARGEST: usize = 4 << 20;

/// All names that a test can use.
#[derive(Debug, Clone, Default)]
pub(super) struct Variables {
    /// What earlier steps took from answers, as `step.name`.
    captured: HashMap<String, Value>,
    /// What the caller set, and what the document sets.
    texts: BTreeMap<String, String>,
}

impl Variables {
    /// The names of a document. What the caller sets wins.
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

    /// Remembers a value of a step.
    pub(super) fn capture(&mut self, step: &str, name: &str, value: Value) {
        self.captured.insert(format!("{step}.{name}"), value);
    }

    /// A value with every name in it replaced.
    pub(super) fn fill(&self, value: &Value) -> Result<Value, String> {
        self.fill_within(value, &mut { LARGEST })
    }

    fn fill_within(&self, value: &Value, room: &mut usize) -> Result<Value, String> {
        if let Some(text) = value.as_str() {
            return self.fill_text(text, DEPTH, room);
        }
        if let Some(list) = value.as_array() {
            let filled = list.iter().map(|one| self.fill_within(one, room));
            return filled.collect::<Result<_, _>>().map(Value::Array);
        }
        let Some(map) = value.as_object() else { return Ok(value.clone()) };
        let filled = map.iter().map(|(key, one)| Ok((key.clone(), self.fill_within(one, room)?)));
        filled.collect::<Result<_, String>>().map(Value::Object)
    }

    /// A text with every name in it replaced.
    pub(super) fn text(&self, text: &str) -> Result<String, String> {
        Ok(plain(&self.fill_text(text, DEPTH, &mut { LARGEST })?))
    }

    /// A text that is one name becomes its value, of whatever type; within a text it becomes text.
    fn fill_text(&self, text: &str, depth: usize, room: &mut usize) -> Result<Value, String> {
        if depth == 0 {
            return Err("the variables lead around in a circle".to_owned());
        }
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (name, after) = after
                .split_once("}}")
                .ok_or_else(|| format!("{text:?} does not close its {{{{"))?;
            let value = self.find(name.trim(), depth, room)?;
            *room = room.checked_sub(1 + plain(&value).len()).ok_or_else(|| {
                format!(
                    "the variables come to more than {LARGEST} bytes, so {name:?} is not filled in"
                )
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

    fn find(&self, name: &str, depth: usize, room: &mut usize) -> Result<Value, String> {
        if let Some(value) = self.captured.get(name) {
            return Ok(value.clone());
        }
        if let Some(text) = self.texts.get(name) {
            return self.fill_text(text, depth - 1, room);
        }
        if name == "$uuid" {
            return Ok(Value::String(Uuid::new_v4().to_string()));
        }
        let allowed = |name: &str| ENVIRONMENT.iter().any(|start| name.starts_with(start));
        match name.strip_prefix("env.") {
            Some(name) if !allowed(name) => Err(format!(
                "{{{{env.{name}}}}} is not handed to a suite; only variables that begin with A2A_ \
                 or ACTS_ are"
            )),
            Some(name) => std::env::var(name)
                .map(Value::String)
                .map_err(|_| format!("the environment has no variable {name}")),
            None => Err(format!("nothing has set {{{{{name}}}}}; give it with --set {name}=VALUE")),
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
    fn every_mention_of_a_new_id_is_another_one() {
        let text = variables().text("{{$uuid}} {{$uuid}}").unwrap();
        let (left, right) = text.split_once(' ').unwrap();
        assert_ne!(left, right);
    }

    #[test]
    fn a_name_without_a_value_is_an_error_that_says_what_to_do() {
        let fault = variables().text("{{webhookUrl}}").unwrap_err();
        assert_eq!(fault, "nothing has set {{webhookUrl}}; give it with --set webhookUrl=VALUE");
        assert!(variables().text("{{a}}").unwrap_err().contains("circle"));
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
            assert!(variables.text("{{v1}}").unwrap_err().contains("more than"), "{leaf:?}");
        }
    }

    #[test]
    fn no_suite_can_read_the_secrets_of_this_machine() {
        assert!(variables().text("{{env.HOME}}").unwrap_err().contains("not handed"));
    }
}
