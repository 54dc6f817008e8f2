//! Permission requests and questions of Claude Code, and the answers to them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::coding::dialect::{Approval, ApprovalChoice};

/// The tool whose use is a question to the caller.
const QUESTIONS: &str = "AskUserQuestion";

const ALWAYS: &str = "always";

/// The choice of none that a question offers.
const NO_ANSWER: &str = "no-answer";

/// One thing that it waits for.
#[derive(Debug)]
pub(super) struct PermissionRequest {
    id: String,
    tool: String,
    input: Map<String, Value>,
    /// The rules under which it would not ask again while it runs.
    rules: Vec<Value>,
    /// What is still to be asked, where the tool is that for questions.
    questions: VecDeque<ClaudeQuestion>,
    /// What they were answered with, by question.
    answers: Map<String, Value>,
}

/// Whether it may use a tool.
#[derive(Debug, Deserialize)]
pub(super) struct ClaudePermission {
    tool_name: String,
    #[serde(default)]
    input: Map<String, Value>,
    #[serde(default)]
    permission_suggestions: Vec<Value>,
}

#[derive(Debug, Clone, Deserialize)]
struct ClaudeQuestion {
    question: String,
    options: Vec<QuestionOption>,
}

#[derive(Debug, Clone, Deserialize)]
struct QuestionOption {
    label: String,
}

/// What it is told about a request.
#[derive(Debug, Serialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum ControlResult {
    Success { request_id: String, response: PermissionDecision },
    Error { request_id: String, error: String },
}

#[derive(Debug, Serialize)]
#[serde(tag = "behavior", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum PermissionDecision {
    Allow { updated_input: Map<String, Value>, updated_permissions: Vec<Value> },
    Deny { message: String },
}

impl PermissionRequest {
    pub(super) fn new(id: String, permission: ClaudePermission) -> Self {
        let ClaudePermission { tool_name: tool, input, permission_suggestions } = permission;
        let questions = input.get("questions").filter(|_| tool == QUESTIONS);
        let questions = questions.and_then(|list| VecDeque::deserialize(list).ok());
        Self {
            id,
            tool,
            input,
            rules: permission_suggestions.into_iter().filter_map(for_now).collect(),
            questions: questions.unwrap_or_default(),
            answers: Map::new(),
        }
    }

    /// What to ask the caller next.
    pub(super) fn approval(&self) -> Approval {
        let question = self.questions.front();
        let (prompt, choices) = match question {
            Some(question) => (question.question.clone(), question.choices()),
            None => (format!("{}: {}", self.tool, self.subject()), self.choices()),
        };
        let tool = Value::from(self.tool.clone());
        let detail = [("tool", tool), ("input", self.input.clone().into())].into_iter().collect();
        let is_question = question.is_some();
        Approval { id: self.id.clone(), prompt, is_question, choices, detail }
    }

    /// Takes the answer to that. What to say to the program, once everything is answered.
    pub(super) fn answer(&mut self, choice: &ApprovalChoice) -> Option<ControlResult> {
        if !choice.grants {
            return Some(
                self.decided(PermissionDecision::Deny { message: "The user said no.".to_owned() }),
            );
        }
        let rules = match self.questions.pop_front() {
            Some(question) => {
                self.answers.insert(question.question, choice.label.clone().into());
                Vec::new()
            }
            None if choice.id == ALWAYS => self.rules.clone(),
            None => Vec::new(),
        };
        self.questions.is_empty().then(|| self.allowed(rules))
    }

    /// What to say to a program that may do everything. Its questions stay unanswered.
    pub(super) fn granted(&self) -> ControlResult {
        self.allowed(Vec::new())
    }

    fn allowed(&self, updated_permissions: Vec<Value>) -> ControlResult {
        let mut updated_input = self.input.clone();
        if !self.answers.is_empty() {
            updated_input.insert("answers".to_owned(), self.answers.clone().into());
        }
        self.decided(PermissionDecision::Allow { updated_input, updated_permissions })
    }

    fn decided(&self, response: PermissionDecision) -> ControlResult {
        ControlResult::Success { request_id: self.id.clone(), response }
    }

    fn choices(&self) -> Vec<ApprovalChoice> {
        let mut choices = vec![ApprovalChoice::new("allow", "Allow", true)];
        if !self.rules.is_empty() {
            let label = "Allow, and do not ask for the like while you work on this";
            choices.push(ApprovalChoice::new(ALWAYS, label, true));
        }
        choices.push(ApprovalChoice::new("deny", "Deny", false));
        choices
    }

    /// What the tool is to be used on.
    fn subject(&self) -> String {
        let named = ["command", "file_path", "notebook_path", "url", "query"]
            .iter()
            .find_map(|member| self.input.get(*member)?.as_str().map(str::to_owned));
        named.unwrap_or_else(|| Value::from(self.input.clone()).to_string())
    }
}

impl ClaudeQuestion {
    fn choices(&self) -> Vec<ApprovalChoice> {
        let offers = self.options.iter();
        let offers = offers.map(|offer| ApprovalChoice::new(&offer.label, &offer.label, true));
        offers.chain([ApprovalChoice::new(NO_ANSWER, "No answer", false)]).collect()
    }
}

/// The same rule for as long as the program runs. Who answers a question changes neither how this
/// machine is set up nor the mode that everything runs in.
fn for_now(mut rule: Value) -> Option<Value> {
    let adds = rule.get("type").is_some_and(|kind| kind == "addRules" || kind == "addDirectories");
    rule.as_object_mut()?.insert("destination".to_owned(), "session".into());
    adds.then_some(rule)
}
