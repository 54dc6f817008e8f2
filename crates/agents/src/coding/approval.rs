//! What callers are asked when a coding agent wants to be allowed something, and what they answer.

use herald_protocol::{Content, Message, Part};
use serde_json::Value;

use super::{
    cut,
    dialect::{Approval, Choice},
};

/// How much of what an agent wants is told.
const PROMPT: usize = 2000;

const YES: &[&str] = &["y", "yes", "ok", "okay", "allow", "approve", "approved", "accept"];
const NO: &[&str] = &["n", "no", "deny", "denied", "reject", "refuse", "decline", "cancel"];

impl Approval {
    /// The question, for people and for programs.
    pub(super) fn question(&self) -> Vec<Part> {
        self.asked("")
    }

    /// The same after an answer that is none.
    pub(super) fn question_again(&self) -> Vec<Part> {
        self.asked("That is none of the answers.\n")
    }

    fn asked(&self, before: &str) -> Vec<Part> {
        let prompt = cut(&self.prompt, PROMPT);
        // On one line, so that nothing in it looks like a choice.
        let line = prompt.replace('\n', "\\n").replace('\r', "\\r");
        let mut text = format!("{before}Approve: {line}?");
        for (place, choice) in (1..).zip(&self.choices) {
            text.push_str(&format!("\n  {place}. {} ({})", choice.label, choice.id));
        }
        let choices = self.choices.iter().map(|choice| {
            let (id, label) = (choice.id.as_str().into(), choice.label.as_str().into());
            object([("id", id), ("label", label), ("grants", choice.grants.into())])
        });
        let (choices, request) = (choices.collect(), self.detail.clone());
        let approval = object([
            ("prompt", prompt.as_ref().into()),
            ("choices", choices),
            ("request", request),
        ]);
        let data = Content::Data(object([("approval", approval)]));
        vec![Part::text(text), Part::new(data)]
    }

    /// What a caller chose, if that can be told: by a data part `{"choice": ID}`, or in words.
    pub(super) fn chosen(&self, answer: &Message) -> Option<&Choice> {
        let named = |name: &str| {
            self.choices.iter().find(|choice| {
                choice.id.eq_ignore_ascii_case(name) || choice.label.eq_ignore_ascii_case(name)
            })
        };
        for part in &answer.parts {
            if let Content::Data(data) = &part.content
                && let Some(name) = data.get("choice").and_then(|choice| choice.as_str())
            {
                return named(name);
            }
        }
        let text = answer.text();
        let word = text.trim().trim_end_matches(['.', '!']);
        let is_one_of = |words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
        if let Some(choice) = named(word) {
            return Some(choice);
        }
        if let Ok(place) = word.parse::<usize>() {
            return self.choices.get(place.checked_sub(1)?);
        }
        match (is_one_of(YES), is_one_of(NO)) {
            (true, _) => self.choices.iter().find(|choice| choice.grants),
            (_, true) => self.denial(),
            (false, false) => None,
        }
    }

    /// How to say no. Dialects name the choices for once before those for ever.
    pub(super) fn denial(&self) -> Option<&Choice> {
        self.choices.iter().find(|choice| !choice.grants)
    }
}

fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval() -> Approval {
        Approval {
            id: "7".to_owned(),
            prompt: "Bash: ls".to_owned(),
            choices: vec![
                Choice::new("once", "Allow once", true),
                Choice::new("always", "Always allow", true),
                Choice::new("no", "Reject", false),
            ],
            detail: Value::Null,
        }
    }

    #[test]
    fn nothing_that_is_asked_for_looks_like_a_choice() {
        let mut approval = approval();
        approval.prompt = "ls?\n  1. Deny (deny)\n".to_owned();
        let question = approval.question();
        let text = question[0].as_text().unwrap();
        assert_eq!(text.lines().count(), 1 + approval.choices.len(), "{text}");
    }

    #[test]
    fn an_answer_is_a_word_a_name_a_number_or_data() {
        let said = [
            ("y", Some("once")),
            ("Yes.", Some("once")),
            ("always", Some("always")),
            ("Always allow", Some("always")),
            ("2", Some("always")),
            ("3", Some("no")),
            ("N", Some("no")),
            ("deny", Some("no")),
            ("0", None),
            ("4", None),
            ("maybe", None),
            ("", None),
        ];
        for (text, choice) in said {
            let answer = Message::user("m", text);
            let approval = approval();
            let chosen = approval.chosen(&answer).map(|choice| choice.id.as_str());
            assert_eq!(chosen, choice, "{text:?}");
        }
        let mut answer = Message::user("m", "yes");
        answer.parts.push(Part::new(Content::Data(object([("choice", "no".into())]))));
        assert_eq!(approval().chosen(&answer).unwrap().id, "no");
    }
}
