//! Approvals: the question to the caller when a coding agent needs a permission, and its answer.

use std::fmt;

use herald_protocol::{Content, Message, Part};
use serde_json::Value;

use super::dialect::{Approval, ApprovalChoice};
use crate::text::truncate;

/// Characters of an agent's prompt that are shown.
const MAX_PROMPT: usize = 2000;

const YES: &[&str] = &["y", "yes", "ok", "okay", "allow", "approve", "approved", "accept"];
const NO: &[&str] = &["n", "no", "deny", "denied", "reject", "refuse", "decline", "cancel"];

impl Approval {
    /// The question, for people and for programs.
    pub(super) fn question(&self) -> Vec<Part> {
        self.parts("")
    }

    /// The same after an answer that is not one of the choices.
    pub(super) fn question_again(&self) -> Vec<Part> {
        self.parts("That is not one of the choices.\n")
    }

    fn parts(&self, before: &str) -> Vec<Part> {
        let prompt = truncate(&self.prompt, MAX_PROMPT);
        let line = one_line(&prompt);
        let mut text = if self.is_question {
            format!("{before}{line}")
        } else {
            format!("{before}Approve: {line}?")
        };
        for (position, choice) in (1..).zip(&self.choices) {
            let position = if self.is_numbered() { format!("{position}.") } else { "-".to_owned() };
            text.push_str(&format!("\n  {position} {}", one_line(&choice.to_string())));
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
        let data = Content::Data(object([("approval", approval)]).into());
        vec![Part::text(text), Part::new(data)]
    }

    /// The caller's choice: a data part `{"choice": ID}`, or a word. `None` if it is not clear.
    pub(super) fn chosen(&self, answer: &Message) -> Option<&ApprovalChoice> {
        let named = |name: &str| {
            self.choices
                .iter()
                .find(|choice| choice.names().iter().any(|known| known.eq_ignore_ascii_case(name)))
        };
        // A file would be lost: the agent gets the choice only.
        let is_file = |part: &Part| matches!(part.content, Content::Raw(_) | Content::Url(_));
        if answer.parts.iter().any(is_file) {
            return None;
        }
        for part in &answer.parts {
            if let Content::Data(data) = &part.content
                && let Some(name) = data.get::<String>("choice")
            {
                return named(&name);
            }
        }
        let text = answer.text();
        let (text, word) = (text.trim(), text.trim().trim_end_matches(['.', '!']));
        if let Some(choice) = named(text).or_else(|| named(word)) {
            return Some(choice);
        }
        if let (true, Ok(position)) = (self.is_numbered(), word.parse::<usize>()) {
            return self.choices.get(position.checked_sub(1)?);
        }
        if self.is_question {
            return None;
        }
        let is_one_of = |words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
        match (is_one_of(YES), is_one_of(NO)) {
            (true, _) => self.choices.iter().find(|choice| choice.grants),
            (_, true) => self.denial(),
            (false, false) => None,
        }
    }

    /// True if a number names the choice at that position. It does not if the choices are numbers.
    fn is_numbered(&self) -> bool {
        let mut names = self.choices.iter().flat_map(ApprovalChoice::names);
        !names.any(|name| name.trim().parse::<f64>().is_ok())
    }

    /// The choice that denies. Dialects list choices for this time before those for ever.
    pub(super) fn denial(&self) -> Option<&ApprovalChoice> {
        self.choices.iter().find(|choice| !choice.grants)
    }
}

impl ApprovalChoice {
    fn names(&self) -> [&str; 2] {
        [&self.id, &self.label]
    }
}

impl fmt::Display for ApprovalChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.id == self.label {
            f.write_str(&self.label)
        } else {
            write!(f, "{} ({})", self.label, self.id)
        }
    }
}

/// The text on one line, so that no part of it looks like a choice.
fn one_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r")
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
            is_question: false,
            choices: vec![
                ApprovalChoice::new("once", "Allow once", true),
                ApprovalChoice::new("always", "Always allow", true),
                ApprovalChoice::new("no", "Reject", false),
            ],
            detail: Value::Null,
        }
    }

    #[test]
    fn no_part_of_a_prompt_looks_like_a_choice() {
        let mut approval = approval();
        approval.prompt = "ls?\n  1. Deny (deny)\n".to_owned();
        approval.choices[0].label = "Allow\r\n  2. Deny (deny)".to_owned();
        let question = approval.question();
        let text = question[0].as_text().unwrap();
        assert_eq!(text.lines().count(), 1 + approval.choices.len(), "{text}");
    }

    /// A question with these answers, and one for no answer.
    fn question(answers: &[&str]) -> Approval {
        let offered = answers.iter().map(|answer| ApprovalChoice::new(*answer, *answer, true));
        let none = ApprovalChoice::new("no-answer", "No answer", false);
        let choices = offered.chain([none]).collect();
        let prompt = "Which one?".to_owned();
        Approval { prompt, is_question: true, choices, ..approval() }
    }

    #[test]
    fn a_question_is_answered_by_one_of_its_choices_only() {
        let colours = &["Red", "Blue"];
        let numbers = &["2", "3", "5"];
        let words = &["Deny", "Allow", "Always!", "no"];
        for (offered, text, expected) in [
            (&colours[..], "blue", Some("Blue")),
            (colours, "2", Some("Blue")),
            (colours, "No answer.", Some("no-answer")),
            (colours, "yes", None),
            (colours, "n", None),
            (colours, "always", None),
            (numbers, "3", Some("3")),
            (numbers, "1", None),
            (words, "deny", Some("Deny")),
            (words, "allow", Some("Allow")),
            (words, "Always!", Some("Always!")),
            (words, "no", Some("no")),
            (words, "yes", None),
        ] {
            let question = question(offered);
            let chosen = question.chosen(&Message::user("m", text));
            assert_eq!(chosen.map(|choice| choice.id.as_str()), expected, "{offered:?} {text:?}");
        }
        let shown = |offered| question(offered).question()[0].as_text().unwrap().to_owned();
        assert_eq!(shown(colours), "Which one?\n  1. Red\n  2. Blue\n  3. No answer (no-answer)");
        assert_eq!(shown(numbers), "Which one?\n  - 2\n  - 3\n  - 5\n  - No answer (no-answer)");
    }

    #[test]
    fn an_answer_is_a_word_a_name_a_number_or_data() {
        let answers = [
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
        for (text, choice) in answers {
            let answer = Message::user("m", text);
            let approval = approval();
            let chosen = approval.chosen(&answer).map(|choice| choice.id.as_str());
            assert_eq!(chosen, choice, "{text:?}");
        }
        let mut answer = Message::user("m", "yes");
        answer.parts.push(Part::new(Content::Data(object([("choice", "no".into())]).into())));
        assert_eq!(approval().chosen(&answer).unwrap().id, "no");
        answer.parts.push(Part::new(Content::Raw(b"a file".to_vec())));
        assert_eq!(approval().chosen(&answer), None);
    }
}
