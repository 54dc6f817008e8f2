//! Permission requests and questions of Claude Code, and the answers to them.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::tools;
use crate::coding::{
    activity::ToolKind,
    dialect::{Approval, ApprovalAnswer, ApprovalChoice, ApprovalKind},
    rules::ToolSubject,
};

/// The tool that asks the caller questions.
const QUESTION_TOOL: &str = "AskUserQuestion";

const ALWAYS: &str = "always";
const ALLOW_EDITS: &str = "allow-edits";

/// The permission mode in which edits need no permission.
const ACCEPT_EDITS: &str = "acceptEdits";

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
    /// True if it would not ask again about edits in another permission mode.
    offers_edits: bool,
    /// The working directory.
    directory: PathBuf,
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
#[serde(rename_all = "camelCase")]
struct ClaudeQuestion {
    question: String,
    options: Vec<QuestionOption>,
    #[serde(default)]
    multi_select: bool,
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
    pub(super) fn new(id: String, permission: ClaudePermission, directory: &Path) -> Self {
        let ClaudePermission { tool_name: tool, input, permission_suggestions } = permission;
        let questions = input.get("questions").filter(|_| tool == QUESTION_TOOL);
        let questions = questions.and_then(|list| VecDeque::deserialize(list).ok());
        let is_mode = |rule: &Value| rule.get("mode").is_some_and(|mode| mode == ACCEPT_EDITS);
        Self {
            id,
            tool,
            input,
            offers_edits: permission_suggestions.iter().any(is_mode),
            directory: directory.to_owned(),
            rules: permission_suggestions.into_iter().filter_map(limit_to_session).collect(),
            questions: questions.unwrap_or_default(),
            answers: Map::new(),
        }
    }

    /// The next question for the caller.
    pub(super) fn approval(&self) -> Approval {
        let tool = Value::from(self.tool.clone());
        let detail = [("tool", tool), ("input", self.input.clone().into())].into_iter().collect();
        let approval = Approval { id: self.id.clone(), detail, ..Approval::default() };
        let Some(question) = self.questions.front() else {
            let subject = self.subject();
            return Approval {
                prompt: format!("{}: {subject}", self.tool),
                choices: self.choices(),
                tool: Some(ToolSubject {
                    name: self.tool.clone(),
                    kind: ToolKind::of_name(&self.tool),
                    subject,
                }),
                ..approval
            };
        };
        let kind = if question.multi_select {
            ApprovalKind::MultipleChoice
        } else {
            ApprovalKind::Question
        };
        Approval {
            prompt: question.question.clone(),
            kind,
            choices: question.choices(),
            ..approval
        }
    }

    /// Takes the caller's answer. Returns the answer for Claude Code once nothing is left to ask.
    pub(super) fn answer(&mut self, decision: &ApprovalAnswer) -> Option<ControlResult> {
        let ApprovalAnswer { choice, words } = decision;
        if !choice.grants {
            let message = match words {
                Some(words) => format!("The user denied this: {words}"),
                None => "The user denied this.".to_owned(),
            };
            return Some(self.decided(PermissionDecision::Deny { message }));
        }
        let rules = match self.questions.pop_front() {
            Some(question) => {
                let answer = words.as_ref().unwrap_or(&choice.label);
                self.answers.insert(question.question, answer.clone().into());
                Vec::new()
            }
            None if choice.id == ALWAYS => self.rules.clone(),
            None if choice.id == ALLOW_EDITS => vec![accept_edits()],
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
        let rules: Vec<String> = self.rules.iter().flat_map(rule_texts).collect();
        if !rules.is_empty() {
            let label = "Allow, and do not ask again in this conversation for";
            choices.push(ApprovalChoice { rules, ..ApprovalChoice::new(ALWAYS, label, true) });
        }
        if self.offers_edits {
            let label =
                "Allow, and do not ask again in this conversation for edits in its directory";
            let rules = vec![format!("Edit({}/*)", self.directory.display())];
            choices.push(ApprovalChoice { rules, ..ApprovalChoice::new(ALLOW_EDITS, label, true) });
        }
        choices.push(ApprovalChoice::new("deny", "Deny", false));
        choices
    }

    /// The subject of the tool call, such as a command or a path.
    fn subject(&self) -> String {
        let input = Value::from(self.input.clone());
        // The plan is the subject of the end of planning.
        let plan = input.get("plan").and_then(Value::as_str).map(str::to_owned);
        plan.or_else(|| tools::subject(&input)).unwrap_or_else(|| input.to_string())
    }
}

impl ClaudeQuestion {
    fn choices(&self) -> Vec<ApprovalChoice> {
        let offers = self.options.iter();
        let offers = offers.map(|offer| ApprovalChoice::new(&offer.label, &offer.label, true));
        offers.chain([ApprovalChoice::new(NO_ANSWER, "No answer", false)]).collect()
    }
}

/// The rule limited to this run; `None` for other changes. A caller's answer must not change the settings of
/// this machine.
fn limit_to_session(mut rule: Value) -> Option<Value> {
    let adds = rule.get("type").is_some_and(|kind| kind == "addRules" || kind == "addDirectories");
    rule.as_object_mut()?.insert("destination".to_owned(), "session".into());
    adds.then_some(rule)
}

/// The change to the mode in which edits need no permission.
fn accept_edits() -> Value {
    let members = [("type", "setMode"), ("mode", ACCEPT_EDITS), ("destination", "session")];
    members.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
}

/// The rules of a change of permissions, as people write them: `Bash(npm run *)`.
fn rule_texts(change: &Value) -> Vec<String> {
    let rules = change.get("rules").and_then(Value::as_array).into_iter().flatten();
    let rules = rules.filter_map(|rule| {
        let tool = rule.get("toolName")?.as_str()?;
        let content = rule.get("ruleContent").and_then(Value::as_str);
        Some(content.map_or_else(|| tool.to_owned(), |content| format!("{tool}({content})")))
    });
    rules.collect()
}
