//! Approvals: the question to the caller when a coding agent needs a permission, and its answer.

use std::{fmt, sync::Arc};

use herald_protocol::{Content, Message, Part, Role};
use serde::Deserialize;
use serde_json::Value;

use super::dialect::{Approval, ApprovalAnswer, ApprovalChoice, ApprovalKind};
use crate::text::truncate;

/// Characters of an agent's prompt that are shown.
const MAX_PROMPT: usize = 2000;

const YES: &[&str] = &["y", "yes", "ok", "okay", "allow", "approve", "approved", "accept"];
const NO: &[&str] = &["n", "no", "deny", "denied", "reject", "refuse", "decline", "cancel"];

/// The member of a question's data that has the approval.
const APPROVAL: &str = "approval";

/// A message as the answer to a question.
#[derive(Debug, PartialEq)]
pub(super) enum AnswerReading {
    /// It decides.
    Decided(ApprovalAnswer),
    /// It names another question than the open one.
    OtherQuestion,
    /// Its meaning is not clear.
    Unclear,
}

/// An answer as data.
#[derive(Debug, Deserialize)]
struct AnswerData {
    choice: Option<Choices>,
    /// The id of the message with the question.
    question: Option<String>,
    /// The reason of a denial, or the answer in the caller's own words.
    text: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Choices {
    One(String),
    Many(Vec<String>),
}

impl Approval {
    /// The question, for people and for programs.
    pub(super) fn question(&self) -> Vec<Part> {
        self.parts("")
    }

    /// The same after an answer that is not one of the choices.
    pub(super) fn question_again(&self) -> Vec<Part> {
        self.parts("That is not one of the choices.\n")
    }

    /// The same after an answer to an earlier question.
    pub(super) fn question_changed(&self) -> Vec<Part> {
        self.parts("That answer was for an earlier question. The question is now:\n")
    }

    /// The beginning of the prompt, on one line.
    pub(super) fn prompt_line(&self) -> String {
        one_line(&truncate(&self.prompt, MAX_PROMPT))
    }

    fn parts(&self, before: &str) -> Vec<Part> {
        let prompt = truncate(&self.prompt, MAX_PROMPT);
        let line = self.prompt_line();
        let mut text = match self.kind {
            ApprovalKind::Permission => format!("{before}Approve: {line}?"),
            ApprovalKind::Question | ApprovalKind::MultipleChoice => format!("{before}{line}"),
        };
        for (position, choice) in (1..).zip(&self.choices) {
            let position = if self.is_numbered() { format!("{position}.") } else { "-".to_owned() };
            text.push_str(&format!("\n  {position} {}", one_line(&choice.to_string())));
        }
        if self.kind == ApprovalKind::MultipleChoice {
            text.push_str("\nSeveral are possible, separated by commas.");
        }
        let choices = self.choices.iter().map(|choice| {
            let (id, label) = (choice.id.as_str().into(), choice.label.as_str().into());
            let mut members = vec![("id", id), ("label", label), ("grants", choice.grants.into())];
            if !choice.rules.is_empty() {
                members.push(("rules", choice.rules.clone().into()));
            }
            object(members)
        });
        let (choices, request) = (choices.collect(), self.detail.clone());
        let mut members =
            vec![("prompt", prompt.as_ref().into()), ("choices", choices), ("request", request)];
        match self.kind {
            ApprovalKind::Permission => {}
            ApprovalKind::Question => members.push(("multiple", false.into())),
            ApprovalKind::MultipleChoice => members.push(("multiple", true.into())),
        }
        let data = Content::Data(object([(APPROVAL, object(members))]).into());
        vec![Part::text(text), Part::new(data)]
    }

    /// Reads a message as the answer to the question with this message id: a data part `{"choice": ID}`, or
    /// words.
    pub(super) fn read(&self, answer: &Message, question: &str) -> AnswerReading {
        // A file would be lost: the agent gets the decision only.
        let is_file = |part: &Part| matches!(part.content, Content::Raw(_) | Content::Url(_));
        if answer.parts.iter().any(is_file) {
            return AnswerReading::Unclear;
        }
        let decided = match answer_data(answer) {
            Some(data) if data.question.as_deref().is_some_and(|named| named != question) => {
                return AnswerReading::OtherQuestion;
            }
            Some(data) => self.chosen_by_data(data, &answer.text()),
            None => self.chosen_by_text(answer.text().trim()),
        };
        decided.map_or(AnswerReading::Unclear, AnswerReading::Decided)
    }

    fn chosen_by_data(&self, data: AnswerData, text: &str) -> Option<ApprovalAnswer> {
        let text = data.text.or_else(|| Some(text.to_owned()));
        let words = text.filter(|text| !text.trim().is_empty());
        match data.choice {
            Some(Choices::One(name)) => {
                let choice = self.named(&name)?.clone();
                // Words beside a permission are a remark, and the agent gets none.
                let words = words.filter(|_| !choice.grants);
                Some(ApprovalAnswer { choice, words })
            }
            Some(Choices::Many(names)) => self.several(names.iter().map(String::as_str)),
            None => self.chosen_by_text(words?.trim()),
        }
    }

    fn chosen_by_text(&self, text: &str) -> Option<ApprovalAnswer> {
        let word = text.trim_end_matches(['.', '!']);
        if let Some(choice) = self.named(text).or_else(|| self.named(word)) {
            return Some(choice.clone().into());
        }
        if let (true, Ok(position)) = (self.is_numbered(), word.parse::<usize>()) {
            return self.choices.get(position.checked_sub(1)?).cloned().map(ApprovalAnswer::from);
        }
        if text.is_empty() {
            return None;
        }
        match self.kind {
            ApprovalKind::Permission => self.permission(text, word),
            ApprovalKind::Question => self.own_words(text),
            ApprovalKind::MultipleChoice => {
                self.several(text.split(',').map(str::trim)).or_else(|| self.own_words(text))
            }
        }
    }

    /// Yes or no, or a denial with a reason. A single unknown word may be a slip, and words after a yes may
    /// limit it, so that both are asked again.
    fn permission(&self, text: &str, word: &str) -> Option<ApprovalAnswer> {
        let is_one_of =
            |word: &str, words: &[&str]| words.iter().any(|known| known.eq_ignore_ascii_case(word));
        if is_one_of(word, YES) {
            return self
                .choices
                .iter()
                .find(|choice| choice.grants)
                .cloned()
                .map(ApprovalAnswer::from);
        }
        if is_one_of(word, NO) {
            return self.denial().cloned().map(ApprovalAnswer::from);
        }
        let mut words =
            text.split(|char: char| !char.is_alphanumeric()).filter(|it| !it.is_empty());
        let first = words.next()?;
        if words.next().is_none() || is_one_of(first, YES) {
            return None;
        }
        Some(ApprovalAnswer { choice: self.denial()?.clone(), words: Some(text.to_owned()) })
    }

    /// Several choices, all of which must be the agent's own.
    fn several<'a>(&self, names: impl Iterator<Item = &'a str>) -> Option<ApprovalAnswer> {
        let by_position = |name: &str| {
            let position = name.parse::<usize>().ok().filter(|_| self.is_numbered())?;
            self.choices.get(position.checked_sub(1)?)
        };
        let chosen: Option<Vec<_>> =
            names.map(|name| self.named(name).or_else(|| by_position(name))).collect();
        let chosen = chosen.filter(|chosen| chosen.iter().all(|choice| choice.grants))?;
        let words =
            chosen.iter().map(|choice| choice.label.as_str()).collect::<Vec<_>>().join(", ");
        Some(ApprovalAnswer { choice: (*chosen.first()?).clone(), words: Some(words) })
    }

    /// The answer to a question in the caller's own words.
    fn own_words(&self, text: &str) -> Option<ApprovalAnswer> {
        let granting = self.choices.iter().find(|choice| choice.grants).cloned();
        // A question may have no choices of its own.
        let choice =
            granting.unwrap_or(ApprovalChoice { grants: true, ..ApprovalChoice::default() });
        Some(ApprovalAnswer { choice, words: Some(text.to_owned()) })
    }

    fn named(&self, name: &str) -> Option<&ApprovalChoice> {
        self.choices
            .iter()
            .find(|choice| choice.names().iter().any(|known| known.eq_ignore_ascii_case(name)))
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

/// The ids and labels of the choices of a question, if the message is one.
fn offered(question: &Message) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Asked {
        choices: Vec<Offered>,
    }
    #[derive(Deserialize)]
    struct Offered {
        id: String,
        label: String,
    }
    let data = question.parts.iter().find_map(|part| match &part.content {
        Content::Data(data) => data.get::<Asked>(APPROVAL),
        Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
    })?;
    Some(data.choices.into_iter().flat_map(|choice| [choice.id, choice.label]).collect())
}

/// True if the message is an answer to a question of its task that has been answered before. As a prompt such
/// a word would only confuse the agent.
pub(super) fn is_late(history: &[Arc<Message>], message: &Message) -> bool {
    let position = history.iter().rposition(|one| one.message_id == message.message_id);
    let before = &history[..position.unwrap_or(history.len())];
    let Some(asked) = before.iter().rposition(|one| offered(one).is_some()) else { return false };
    let is_answered = before[asked + 1..].iter().any(|one| one.role == Role::User);
    is_answered && is_answer_to(&before[asked], message)
}

/// True if the message can only be meant as an answer to this question.
pub(super) fn is_answer_to(question: &Message, message: &Message) -> bool {
    if let Some(data) = answer_data(message) {
        return data.question.is_none_or(|named| named == question.message_id.as_str());
    }
    let text = message.text();
    let word = text.trim().trim_end_matches(['.', '!']);
    let offered = offered(question).unwrap_or_default();
    // Each choice has an id and a label.
    if word.parse::<usize>().is_ok_and(|position| (1..=offered.len() / 2).contains(&position)) {
        return true;
    }
    let mut known =
        offered.iter().map(String::as_str).chain([YES, NO].into_iter().flatten().copied());
    known.any(|known| known.eq_ignore_ascii_case(word))
}

/// The data of an answer, if it has some.
fn answer_data(answer: &Message) -> Option<AnswerData> {
    answer.parts.iter().find_map(|part| match &part.content {
        Content::Data(data) => {
            data.read::<AnswerData>().ok().filter(|it| it.choice.is_some() || it.question.is_some())
        }
        Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
    })
}

impl ApprovalChoice {
    fn names(&self) -> [&str; 2] {
        [&self.id, &self.label]
    }
}

impl fmt::Display for ApprovalChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)?;
        if !self.rules.is_empty() {
            write!(f, ": {}", self.rules.join(", "))?;
        }
        if self.id == self.label { Ok(()) } else { write!(f, " ({})", self.id) }
    }
}

/// The text on one line, so that no part of it looks like a choice.
fn one_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r")
}

fn object<'a>(members: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    const QUESTION: &str = "q-2";

    fn approval() -> Approval {
        Approval {
            id: "7".to_owned(),
            prompt: "Bash: ls".to_owned(),
            choices: vec![
                ApprovalChoice::new("once", "Allow once", true),
                ApprovalChoice::new("always", "Always allow", true),
                ApprovalChoice::new("no", "Reject", false),
            ],
            ..Approval::default()
        }
    }

    /// A question with these answers, and one for no answer.
    fn question(answers: &[&str], kind: ApprovalKind) -> Approval {
        let offered = answers.iter().map(|answer| ApprovalChoice::new(*answer, *answer, true));
        let none = ApprovalChoice::new("no-answer", "No answer", false);
        let choices = offered.chain([none]).collect();
        Approval { prompt: "Which one?".to_owned(), kind, choices, ..approval() }
    }

    /// The id of the choice, and the words.
    fn read(approval: &Approval, answer: &Message) -> Option<(String, Option<String>)> {
        match approval.read(answer, QUESTION) {
            AnswerReading::Decided(ApprovalAnswer { choice, words }) => Some((choice.id, words)),
            AnswerReading::OtherQuestion | AnswerReading::Unclear => None,
        }
    }

    fn data(value: Value) -> Message {
        Message { parts: vec![Part::new(Content::Data(value.into()))], ..Message::user("m", "") }
    }

    #[test]
    fn no_part_of_a_prompt_looks_like_a_choice() {
        let mut approval = approval();
        approval.prompt = "ls?\n  1. Deny (deny)\n".to_owned();
        approval.choices[0].label = "Allow\r\n  2. Deny (deny)".to_owned();
        approval.choices[1].rules = vec!["Bash(ls)\n  3. Deny".to_owned()];
        let question = approval.question();
        let text = question[0].as_text().unwrap();
        assert_eq!(text.lines().count(), 1 + approval.choices.len(), "{text}");
    }

    #[test]
    fn a_permission_is_answered_by_a_word_a_name_or_a_number() {
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
            ("yes, but only once", None),
            ("", None),
        ];
        for (text, choice) in answers {
            let read = read(&approval(), &Message::user("m", text));
            assert_eq!(read, choice.map(|choice| (choice.to_owned(), None)), "{text:?}");
        }
    }

    #[test]
    fn other_words_deny_a_permission_and_are_the_reason() {
        for text in ["no, use npm instead of touch", "Please use npm."] {
            let read = read(&approval(), &Message::user("m", text));
            assert_eq!(read, Some(("no".to_owned(), Some(text.to_owned()))));
        }
        let answer = data(json!({"choice": "no", "text": "use npm"}));
        assert_eq!(read(&approval(), &answer), Some(("no".to_owned(), Some("use npm".to_owned()))));
    }

    #[test]
    fn a_question_is_answered_by_its_choices_or_by_words() {
        let (one, many) = (ApprovalKind::Question, ApprovalKind::MultipleChoice);
        let colours = &["Red", "Blue"][..];
        let numbers = &["2", "3", "5"][..];
        for (offered, kind, text, expected) in [
            (colours, one, "blue", ("Blue", None)),
            (colours, one, "2", ("Blue", None)),
            (colours, one, "No answer.", ("no-answer", None)),
            (colours, one, "yes", ("Red", Some("yes"))),
            (colours, one, "a dark green", ("Red", Some("a dark green"))),
            (numbers, one, "3", ("3", None)),
            (numbers, one, "4", ("2", Some("4"))),
            (colours, many, "Red, Blue", ("Red", Some("Red, Blue"))),
            (colours, many, "2,1", ("Blue", Some("Blue, Red"))),
            (colours, many, "Red, Green", ("Red", Some("Red, Green"))),
        ] {
            let read = read(&question(offered, kind), &Message::user("m", text));
            let expected = (expected.0.to_owned(), expected.1.map(str::to_owned));
            assert_eq!(read, Some(expected), "{offered:?} {text:?}");
        }
        let answer = data(json!({"choice": ["Red", "Blue"]}));
        let read = read(&question(colours, many), &answer);
        assert_eq!(read, Some(("Red".to_owned(), Some("Red, Blue".to_owned()))));
        let shown = |kind| question(colours, kind).question()[0].as_text().unwrap().to_owned();
        let choices = "Which one?\n  1. Red\n  2. Blue\n  3. No answer (no-answer)";
        assert_eq!(shown(one), choices);
        assert_eq!(shown(many), format!("{choices}\nSeveral are possible, separated by commas."));
    }

    #[test]
    fn an_answer_as_data_may_name_its_question() {
        let named = |question| data(json!({"choice": "always", "question": question}));
        assert_eq!(read(&approval(), &named(QUESTION)), Some(("always".to_owned(), None)));
        let other = approval().read(&named("q-1"), QUESTION);
        assert_eq!(other, AnswerReading::OtherQuestion);
        let mut answer = Message::user("m", "yes");
        answer.parts.push(Part::new(Content::Data(json!({"choice": "no"}).into())));
        assert_eq!(read(&approval(), &answer), Some(("no".to_owned(), Some("yes".to_owned()))));
        answer.parts.push(Part::new(Content::Raw(b"a file".to_vec())));
        assert_eq!(approval().read(&answer, QUESTION), AnswerReading::Unclear);
    }

    #[test]
    fn a_second_answer_to_a_question_is_late() {
        let asked = Message { parts: approval().question(), ..Message::agent("q", "") };
        let user = |id: &str, text: &str| Arc::new(Message::user(id, text));
        let history = |texts: &[&str]| {
            let mut history = vec![user("m0", "work"), Arc::new(asked.clone())];
            history.extend(texts.iter().zip(1..).map(|(text, n)| user(&format!("m{n}"), text)));
            history
        };
        for (texts, expected) in [
            (&["deny"][..], false),
            (&["allow", "deny"][..], true),
            (&["allow", "Always allow"][..], true),
            (&["allow", "2"][..], true),
            (&["allow", "9"][..], false),
            (&["allow", "and now run the tests"][..], false),
        ] {
            let history = history(texts);
            let last = history.last().unwrap();
            assert_eq!(is_late(&history, last), expected, "{texts:?}");
        }
        let other = data(json!({"choice": "no", "question": "another"}));
        assert!(!is_answer_to(&asked, &other));
    }
}
