//! Questions of Codex and of MCP servers that need more than yes or no: each field of a form is one question
//! to the caller.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::{Map, Number, Value};

use super::wire::{ACCEPT, DECLINE};
use crate::coding::dialect::{Approval, ApprovalAnswer, ApprovalChoice, ApprovalKind};

/// The choice of a caller who does not answer a question.
const NO_ANSWER: &str = "no-answer";

/// A form whose fields are asked about one after the other.
#[derive(Debug)]
pub(super) struct Form {
    kind: FormKind,
    /// Its fields without an answer.
    fields: VecDeque<FormField>,
    /// The answers by the names of the fields.
    answers: Map<String, Value>,
    /// The request, for programs.
    detail: Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FormKind {
    /// Questions of the model.
    UserInput,
    /// A form of an MCP server.
    Elicitation,
}

#[derive(Debug)]
struct FormField {
    name: String,
    prompt: String,
    kind: ApprovalKind,
    value: FieldValue,
    /// The labels of the choices, and their values.
    options: Vec<(String, Value)>,
    /// True if other words than the options are an answer.
    is_open: bool,
    is_required: bool,
}

/// Type of a field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FieldValue {
    Text,
    Number,
    Integer,
    Boolean,
    List,
}

/// State of a form after an answer.
#[derive(Debug)]
pub(super) enum FormState {
    /// The next question, or the same once more.
    Asking,
    /// The result for Codex.
    Over(Value),
}

/// Questions of the model.
#[derive(Debug, Deserialize)]
pub(super) struct UserInput {
    questions: Vec<UserQuestion>,
}

#[derive(Debug, Deserialize)]
struct UserQuestion {
    id: String,
    question: String,
    options: Option<Vec<UserOption>>,
}

#[derive(Debug, Deserialize)]
struct UserOption {
    label: String,
}

/// Form of an MCP server: the part of JSON Schema that MCP allows.
#[derive(Debug, Default, Deserialize)]
pub(super) struct FormSchema {
    #[serde(default)]
    properties: Map<String, Value>,
    #[serde(default)]
    required: Vec<String>,
}

/// Schema of one field.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FieldSchema {
    r#type: String,
    title: Option<String>,
    description: Option<String>,
    r#enum: Vec<Value>,
    enum_names: Vec<String>,
    one_of: Vec<TitledValue>,
    any_of: Vec<TitledValue>,
    /// Schema of the members of a list.
    items: Option<Box<Self>>,
}

#[derive(Debug, Deserialize)]
struct TitledValue {
    r#const: Value,
    #[serde(default)]
    title: String,
}

impl Form {
    /// The form for questions of the model.
    pub(super) fn of_questions(input: UserInput, detail: Value) -> Option<Self> {
        let fields = input.questions.into_iter().map(|question| FormField {
            name: question.id,
            prompt: question.question,
            kind: ApprovalKind::Question,
            value: FieldValue::Text,
            options: question
                .options
                .unwrap_or_default()
                .into_iter()
                .map(|option| (option.label.clone(), Value::from(option.label)))
                .collect(),
            is_open: true,
            is_required: false,
        });
        Self::new(FormKind::UserInput, fields.collect(), detail)
    }

    /// The form of an MCP server; `None` if one of its fields is unknown here.
    pub(super) fn of_schema(message: &str, schema: FormSchema, detail: Value) -> Option<Self> {
        let FormSchema { properties, required } = schema;
        let fields = properties.into_iter().map(|(name, schema)| {
            let is_required = required.contains(&name);
            FormField::new(message, name, &FieldSchema::deserialize(schema).ok()?, is_required)
        });
        Self::new(FormKind::Elicitation, fields.collect::<Option<_>>()?, detail)
    }

    fn new(kind: FormKind, fields: VecDeque<FormField>, detail: Value) -> Option<Self> {
        let is_some = !fields.is_empty();
        is_some.then(|| Self { kind, fields, answers: Map::new(), detail })
    }

    /// The current question.
    pub(super) fn approval(&self, id: &str) -> Option<Approval> {
        let field = self.fields.front()?;
        let offers = field.options.iter();
        let offers = offers.map(|(label, _)| ApprovalChoice::new(label, label, true));
        let none = ApprovalChoice::new(NO_ANSWER, "No answer", false);
        Some(Approval {
            id: id.to_owned(),
            prompt: field.prompt.clone(),
            kind: field.kind,
            choices: offers.chain([none]).collect(),
            detail: self.detail.clone(),
            ..Approval::default()
        })
    }

    /// Takes the answer to the current question.
    pub(super) fn answer(&mut self, decision: &ApprovalAnswer) -> FormState {
        let Some(field) = self.fields.front() else { return self.over() };
        if !decision.choice.grants {
            // An MCP server cannot use a form without a field that it requires.
            if self.kind == FormKind::Elicitation && field.is_required {
                return FormState::Over(action(DECLINE, None));
            }
            self.fields.pop_front();
        } else if let Some(value) = field.read(decision) {
            self.answers.insert(field.name.clone(), value);
            self.fields.pop_front();
        }
        if self.fields.is_empty() { self.over() } else { FormState::Asking }
    }

    /// The result with all answers.
    fn over(&mut self) -> FormState {
        let answers = std::mem::take(&mut self.answers);
        FormState::Over(match self.kind {
            FormKind::Elicitation => action(ACCEPT, Some(answers.into())),
            FormKind::UserInput => {
                let answers = answers.into_iter().map(|(name, answer)| {
                    (name, object([("answers", Value::Array(vec![answer]))]))
                });
                object([("answers", answers.collect())])
            }
        })
    }
}

impl FormField {
    fn new(message: &str, name: String, schema: &FieldSchema, is_required: bool) -> Option<Self> {
        let value = match schema.r#type.as_str() {
            "string" => FieldValue::Text,
            "number" => FieldValue::Number,
            "integer" => FieldValue::Integer,
            "boolean" => FieldValue::Boolean,
            "array" => FieldValue::List,
            _ => return None,
        };
        let title = schema.title.clone().unwrap_or_else(|| name.clone());
        let title = match &schema.description {
            Some(description) => format!("{title} ({description})"),
            None => title,
        };
        let options = match value {
            FieldValue::Boolean => [("Yes", true), ("No", false)]
                .map(|(label, value)| (label.to_owned(), Value::from(value)))
                .to_vec(),
            FieldValue::List => schema.items.as_ref()?.options(),
            FieldValue::Text | FieldValue::Number | FieldValue::Integer => schema.options(),
        };
        let is_list = value == FieldValue::List;
        let kind = if is_list { ApprovalKind::MultipleChoice } else { ApprovalKind::Question };
        let prompt = format!("{message} – {title}");
        let is_open = options.is_empty();
        Some(Self { name, prompt, kind, value, options, is_open, is_required })
    }

    /// The value of an answer; `None` if the field does not take it.
    fn read(&self, decision: &ApprovalAnswer) -> Option<Value> {
        let words = decision.words.as_deref().unwrap_or(&decision.choice.label).trim();
        let option = |label: &str| {
            let found = self.options.iter().find(|(known, _)| known.eq_ignore_ascii_case(label));
            found.map(|(_, value)| value.clone())
        };
        if self.value == FieldValue::List {
            let values: Option<Vec<_>> = match option(words) {
                Some(value) => Some(vec![value]),
                None => words.split(',').map(|label| option(label.trim())).collect(),
            };
            return values.map(Value::Array);
        }
        if let Some(value) = option(words) {
            return Some(value);
        }
        match self.value {
            FieldValue::Text => self.is_open.then(|| words.into()),
            FieldValue::Number => words.parse().ok().and_then(Number::from_f64).map(Value::Number),
            FieldValue::Integer => words.parse::<i64>().ok().map(Value::from),
            FieldValue::Boolean | FieldValue::List => None,
        }
    }
}

impl FieldSchema {
    /// The labels and values of its options.
    fn options(&self) -> Vec<(String, Value)> {
        let titled = self.one_of.iter().chain(&self.any_of).map(|option| {
            let label = Some(option.title.clone()).filter(|title| !title.is_empty());
            (label.unwrap_or_else(|| text(&option.r#const)), option.r#const.clone())
        });
        let plain = self.r#enum.iter().enumerate().map(|(position, value)| {
            let name = self.enum_names.get(position).cloned();
            (name.unwrap_or_else(|| text(value)), value.clone())
        });
        titled.chain(plain).collect()
    }
}

/// The text of a value, without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The result of an elicitation.
fn action(action: &str, content: Option<Value>) -> Value {
    object([("action", action.into()), ("content", content.unwrap_or_default())])
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
