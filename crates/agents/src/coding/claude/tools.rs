//! Tool calls of Claude Code: their kind, their title, their plan and their diff.

use serde::Deserialize;
use serde_json::Value;

use crate::coding::{
    activity::{AgentActivity, PlanStep, StepStatus, ToolKind, ToolLocation, ToolStart},
    dialect::{AgentEvent, DialectOutput},
};

/// The tool that writes the to-do list.
const TODO_TOOL: &str = "TodoWrite";

/// Members of an input that name its subject, in the order of preference.
const SUBJECTS: [&str; 7] =
    ["command", "file_path", "notebook_path", "url", "query", "pattern", "description"];

#[derive(Deserialize)]
struct TodoList {
    todos: Vec<TodoEntry>,
}

#[derive(Deserialize)]
struct TodoEntry {
    content: String,
    status: StepStatus,
}

/// A change of one file, as the tools for edits report it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FileChange {
    file_path: String,
    /// The whole new file, if it is new.
    content: Option<String>,
    structured_patch: Vec<Hunk>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Hunk {
    old_start: u64,
    old_lines: u64,
    new_start: u64,
    new_lines: u64,
    lines: Vec<String>,
}

/// Emits the start of a tool call, and the plan if the call changes it.
pub(super) fn start(
    id: String,
    parent: Option<String>,
    name: String,
    input: Value,
    out: &mut DialectOutput,
) {
    let plan = if name == TODO_TOOL { TodoList::deserialize(&input).ok() } else { None };
    let path =
        ["file_path", "notebook_path"].iter().find_map(|member| input.get(*member)?.as_str());
    let locations = path.map(|path| ToolLocation { path: path.to_owned(), line: None });
    out.event(AgentEvent::Activity(AgentActivity::ToolStarted(ToolStart {
        id,
        parent,
        kind: ToolKind::of_name(&name),
        title: subject(&input),
        locations: locations.into_iter().collect(),
        name,
        input: Some(input),
    })));
    if let Some(TodoList { todos }) = plan {
        let step = |todo: TodoEntry| PlanStep { text: todo.content, status: todo.status };
        out.event(AgentEvent::Activity(AgentActivity::Plan(todos.into_iter().map(step).collect())));
    }
}

/// The subject of a tool call, such as a command or a path.
pub(super) fn subject(input: &Value) -> Option<String> {
    SUBJECTS.iter().find_map(|member| input.get(*member)?.as_str().map(str::to_owned))
}

/// The unified diff of a result, if the tool has changed a file.
pub(super) fn diff(result: &Value) -> Option<String> {
    let change = FileChange::deserialize(result).ok()?;
    let path = &change.file_path;
    if let (true, Some(content)) = (change.structured_patch.is_empty(), &change.content) {
        let lines: Vec<_> = content.lines().map(|line| format!("+{line}\n")).collect();
        let count = lines.len();
        return Some(format!(
            "--- /dev/null\n+++ {path}\n@@ -0,0 +1,{count} @@\n{}",
            lines.concat()
        ));
    }
    let mut diff = format!("--- {path}\n+++ {path}\n");
    for Hunk { old_start, old_lines, new_start, new_lines, lines } in change.structured_patch {
        diff += &format!("@@ -{old_start},{old_lines} +{new_start},{new_lines} @@\n");
        for line in lines {
            diff += &line;
            diff.push('\n');
        }
    }
    Some(diff)
}
