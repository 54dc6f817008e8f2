//! Permission requests and questions of Claude Code, and the answers to them.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::coding::dialect::{Approval, ApprovalChoice};

/// The tool that asks the caller questions.
const QUESTION_TOOL: &str = "AskUserQuestion";

const ALWAYS: &str = "always";

/// The choice of a caller who does not answer a question.
const NO_ANSWER: &str = "no-answer";

/// A permission request or a set of questions that Claude Code waits for.
#[derive(Debug)]
pub(super) struct PermissionRequest {
    id: String,
    tool: String,
    input: Map<String, Value>,
    /// The rules with which it would not ask again during this run.
    rules: Vec<Value>,
    /// The questions without an answer, if the tool is [`QUESTION_TOOL`].
    questions: VecDeque<ClaudeQuestion>,
    /// The answers by question.
    answers: Map<String, Value>,
}

/// A request for the permission to use a tool.
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

/// The answer to a control request.
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
        let questions = input.get("questions").filter(|_| tool == QUESTION_TOOL);
        let questions = questions.and_then(|list| VecDeque::deserialize(list).ok());
        Self {
            id,
            tool,
            input,
            rules: permission_suggestions.into_iter().filter_map(limit_to_session).collect(),
            questions: questions.unwrap_or_default(),
            answers: Map::new(),
        }
    }

    /// The next question for the caller.
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

    /// Takes the caller's answer. Returns the answer for Claude Code once nothing is left to ask.
    pub(super) fn answer(&mut self, choice: &ApprovalChoice) -> Option<ControlResult> {
        if !choice.grants {
            return Some(self.decided(PermissionDecision::Deny {
                message: "The user denied this.".to_owned(),
            }));
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

    /// The answer with `force`: the permission is granted, and questions stay without an answer.
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
            let label = "Allow, and do not ask again for similar requests in this task";
            choices.push(ApprovalChoice::new(ALWAYS, label, true));
        }
        choices.push(ApprovalChoice::new("deny", "Deny", false));
        choices
    }

    /// The subject of the tool call, such as a command or a path.
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

/// The rule limited to this run; `None` for other changes. A caller's answer must change neither the settings
/// of this machine nor the permission mode.
fn limit_to_session(mut rule: Value) -> Option<Value> {
    let adds = rule.get("type").is_some_and(|kind| kind == "addRules" || kind == "addDirectories");
    rule.as_object_mut()?.insert("destination".to_owned(), "session".into());
    adds.then_some(rule)
}
