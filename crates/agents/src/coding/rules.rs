//! Permission rules: tool calls that are allowed, denied or asked about without regard to the program.
//!
//! A rule is the name of a tool, and in brackets a pattern of its subject: `Edit`, `Bash(npm run *)`,
//! `WebFetch(https://docs.rs/*)`. Names of tools differ between programs, so that a rule also matches every
//! tool of the kind that it names.

use std::{
    fmt,
    path::{Component, Path, PathBuf},
    str::FromStr,
};

use super::activity::ToolKind;

/// Names that stand for all tools of their kind. A rule with another name is for that tool alone: whoever
/// allows `WebSearch` does not allow `WebFetch`.
const KINDS: [&str; 7] = ["Bash", "Edit", "Read", "Search", "WebFetch", "Delete", "Agent"];

/// Characters that let a command line run more than one command, or write elsewhere.
const COMPOUND: [char; 9] = [';', '&', '|', '`', '$', '>', '<', '\n', '('];

/// A tool call, as rules see it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ToolSubject {
    /// The tool's name in the program.
    pub(crate) name: String,
    pub(crate) kind: ToolKind,
    /// The command, the path or the address; several paths are one on each line.
    pub(crate) subject: String,
}

/// Rules of one agent or one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PermissionRules {
    /// Calls that are allowed.
    pub allow: Vec<PermissionRule>,
    /// Calls that the caller is asked about, although `allow` or `force` has them.
    pub ask: Vec<PermissionRule>,
    /// Calls that are denied, although another list has them.
    pub deny: Vec<PermissionRule>,
}

/// A rule: the name of a tool, and a pattern of its subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PermissionRule {
    tool: String,
    /// The kind of tools with that name.
    kind: ToolKind,
    /// Text before and after each `*`; `None` for every subject.
    pattern: Option<Vec<String>>,
}

/// A text that is not a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidRule {
    rule: String,
}

/// RuleVerdict of the rules about a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleVerdict<'a> {
    Allow,
    Ask,
    Deny(&'a PermissionRule),
}

impl ToolSubject {
    /// The same call with its paths in one spelling: without `.` and `..`, and relative to `base` where they are
    /// below it. Links are not followed.
    fn with_plain_paths(&self, directory: &Path, base: Option<&Path>) -> Self {
        let plain = |path: &str| {
            if path.contains("://") {
                return path.to_owned();
            }
            let mut found = PathBuf::new();
            for part in directory.join(path).components() {
                match part {
                    Component::CurDir => {}
                    Component::ParentDir => drop(found.pop()),
                    Component::Prefix(_) | Component::RootDir | Component::Normal(_) => {
                        found.push(part);
                    }
                }
            }
            let below = base.and_then(|base| found.strip_prefix(base).ok());
            let shown = below.unwrap_or(&found);
            shown.to_string_lossy().into_owned()
        };
        let subject = match self.kind {
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move => {
                self.subject.trim().split('\n').map(plain).collect::<Vec<_>>().join("\n")
            }
            ToolKind::Search
            | ToolKind::Execute
            | ToolKind::Think
            | ToolKind::Fetch
            | ToolKind::Agent
            | ToolKind::Other => self.subject.clone(),
        };
        Self { subject, ..self.clone() }
    }
}

impl PermissionRules {
    /// True if some calls are denied or asked about.
    pub(crate) fn restricts(&self) -> bool {
        !self.deny.is_empty() || !self.ask.is_empty()
    }

    /// The verdict; `None` if no rule matches.
    pub(crate) fn decide(&self, call: &ToolSubject, directory: &Path) -> Option<RuleVerdict<'_>> {
        let forms = [
            call.with_plain_paths(directory, None),
            call.with_plain_paths(directory, Some(directory)),
        ];
        let is_part = |rule: &PermissionRule| forms.iter().any(|call| rule.matches_part(call));
        if let Some(rule) = self.deny.iter().find(|rule| is_part(rule)) {
            return Some(RuleVerdict::Deny(rule));
        }
        if self.ask.iter().any(is_part) {
            return Some(RuleVerdict::Ask);
        }
        let is_whole = |rule: &PermissionRule| forms.iter().any(|call| rule.matches(call));
        self.allow.iter().any(is_whole).then_some(RuleVerdict::Allow)
    }
}

impl PermissionRule {
    /// True if the rule covers all of the call.
    fn matches(&self, call: &ToolSubject) -> bool {
        let Some(pattern) = &self.pattern else { return self.names(call) };
        // A pattern of a command covers one command only: `npm run *` must not allow `npm run x; rm -r .`. A
        // pattern of a path covers no way out of it.
        let is_covered = |subject: &str| match call.kind {
            ToolKind::Execute => !subject.contains(COMPOUND),
            ToolKind::Read
            | ToolKind::Edit
            | ToolKind::Delete
            | ToolKind::Move
            | ToolKind::Search
            | ToolKind::Think
            | ToolKind::Fetch
            | ToolKind::Agent
            | ToolKind::Other => !subject.split('/').any(|segment| segment == ".."),
        };
        // Several files are one on each line.
        let is_file = call.kind != ToolKind::Execute;
        let mut subjects = call.subject.trim().split(|char| is_file && char == '\n');
        let is_all = subjects.all(|one| is_covered(one) && matches_pattern(pattern, one));
        self.names(call) && is_all
    }

    /// True if the rule covers a part of the call: one of the commands of a command line, or of the files.
    fn matches_part(&self, call: &ToolSubject) -> bool {
        let Some(pattern) = &self.pattern else { return self.names(call) };
        let subject = call.subject.trim();
        let is_command = call.kind == ToolKind::Execute;
        let separates = |char| if is_command { COMPOUND.contains(&char) } else { char == '\n' };
        let mut parts = subject.split(separates).map(str::trim);
        let is_part = |part: &str| matches_pattern(pattern, part);
        self.names(call) && (is_part(subject) || parts.any(is_part))
    }

    fn names(&self, call: &ToolSubject) -> bool {
        self.tool.eq_ignore_ascii_case(&call.name)
            || (self.kind != ToolKind::Other && self.kind == call.kind)
    }
}

/// True if the text is the pieces with any text between them. `npm run *` also matches `npm run` alone.
fn matches_pattern(pieces: &[String], text: &str) -> bool {
    if let [command, last] = pieces
        && last.is_empty()
        && command.strip_suffix(' ') == Some(text)
    {
        return true;
    }
    let Some((first, rest)) = pieces.split_first() else { return false };
    let Some(mut text) = text.strip_prefix(first.as_str()) else { return false };
    let Some((last, middle)) = rest.split_last() else { return text.is_empty() };
    for piece in middle {
        let Some(position) = text.find(piece.as_str()) else { return false };
        text = &text[position + piece.len()..];
    }
    text.ends_with(last.as_str())
}

impl FromStr for PermissionRule {
    type Err = InvalidRule;

    fn from_str(text: &str) -> Result<Self, InvalidRule> {
        let invalid = || InvalidRule { rule: text.to_owned() };
        let trimmed = text.trim();
        let (tool, pattern) = match trimmed.split_once('(') {
            None => (trimmed, None),
            Some((tool, rest)) => (tool, Some(rest.strip_suffix(')').ok_or_else(invalid)?)),
        };
        let is_name = |char: char| char.is_alphanumeric() || "_-.:/".contains(char);
        // A pattern of Claude Code for addresses, which would match nothing here.
        let is_domain = pattern.is_some_and(|pattern| pattern.starts_with("domain:"));
        if tool.is_empty() || !tool.chars().all(is_name) || pattern == Some("") || is_domain {
            return Err(invalid());
        }
        // `Bash(npm run:*)` is Claude Code's older form of `Bash(npm run *)`.
        let pattern = pattern.map(|pattern| match pattern.strip_suffix(":*") {
            Some(command) => vec![format!("{command} "), String::new()],
            // Claude Code writes absolute paths with two slashes.
            None => {
                let pattern =
                    pattern.strip_prefix('/').filter(|it| it.starts_with('/')).unwrap_or(pattern);
                pattern.split('*').map(str::to_owned).collect()
            }
        });
        let is_kind = KINDS.iter().any(|known| known.eq_ignore_ascii_case(tool));
        let kind = if is_kind { ToolKind::of_name(tool) } else { ToolKind::Other };
        Ok(Self { tool: tool.to_owned(), kind, pattern })
    }
}

impl fmt::Display for PermissionRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.pattern {
            None => f.write_str(&self.tool),
            Some(pattern) => write!(f, "{}({})", self.tool, pattern.join("*")),
        }
    }
}

impl fmt::Display for InvalidRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = &self.rule;
        write!(
            f,
            "{rule:?} is not a rule; a rule is a tool, as in \"Edit\", or a tool with a pattern, as in \"Bash(npm run *)\""
        )
    }
}

impl std::error::Error for InvalidRule {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The working directory.
    const REPO: &str = "/repo";

    fn call(name: &str, subject: &str) -> ToolSubject {
        let (name, kind) = (name.to_owned(), ToolKind::of_name(name));
        ToolSubject { name, kind, subject: subject.to_owned() }
    }

    fn rules(texts: &[&str]) -> Vec<PermissionRule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_rule_matches_the_tool_of_its_kind_in_every_program() {
        let rules = PermissionRules { allow: rules(&["Edit"]), ..PermissionRules::default() };
        for tool in ["Edit", "Write", "apply_patch"] {
            assert_eq!(
                rules.decide(&call(tool, "a.rs"), Path::new(REPO)),
                Some(RuleVerdict::Allow),
                "{tool}"
            );
        }
        assert_eq!(rules.decide(&call("Bash", "ls"), Path::new(REPO)), None);
        assert_eq!(rules.decide(&call("mcp__mail__send", "x"), Path::new(REPO)), None);
    }

    #[test]
    fn a_rule_with_another_name_is_for_that_tool_alone() {
        let allow = rules(&["WebSearch", "BashOutput", "LS"]);
        let rules = PermissionRules { allow, ..PermissionRules::default() };
        assert_eq!(
            rules.decide(&call("WebSearch", "x"), Path::new(REPO)),
            Some(RuleVerdict::Allow)
        );
        for tool in ["WebFetch", "Bash", "Read"] {
            assert_eq!(rules.decide(&call(tool, "x"), Path::new(REPO)), None, "{tool}");
        }
    }

    #[test]
    fn a_pattern_of_a_command_never_allows_a_second_command() {
        let allow = rules(&["Bash(npm run *)", "Bash(make test)", "Bash(git log:*)"]);
        let rules = PermissionRules { allow, ..PermissionRules::default() };
        for (command, is_allowed) in [
            ("npm run build", true),
            ("npm run", true),
            ("npm runner", false),
            ("npm run build --watch", true),
            ("npm install", false),
            ("make test", true),
            ("make test2", false),
            ("git log --oneline", true),
            ("git logx", false),
            ("npm run build; rm -r .", false),
            ("npm run build && rm -r .", false),
            ("npm run build | sh", false),
            ("npm run $(rm -r .)", false),
            ("npm run `rm -r .`", false),
            ("npm run build > /etc/passwd", false),
            ("npm run build\nrm -r .", false),
            ("npm run build & rm -r .", false),
        ] {
            let verdict = rules.decide(&call("shell", command), Path::new(REPO));
            assert_eq!(verdict == Some(RuleVerdict::Allow), is_allowed, "{command}");
        }
    }

    #[test]
    fn a_denied_command_is_denied_anywhere_in_a_command_line() {
        let (allow, deny) = (rules(&["Bash"]), rules(&["Bash(rm *)", "WebFetch"]));
        let rules = PermissionRules { allow, deny, ..PermissionRules::default() };
        for command in ["rm -r .", "ls; rm -r .", "ls && rm x", "echo $(rm x)", "ls\nrm x"] {
            let verdict = rules.decide(&call("Bash", command), Path::new(REPO));
            assert!(matches!(verdict, Some(RuleVerdict::Deny(_))), "{command}");
        }
        assert_eq!(rules.decide(&call("Bash", "ls rm"), Path::new(REPO)), Some(RuleVerdict::Allow));
        assert!(matches!(
            rules.decide(&call("web_search", "x"), Path::new(REPO)),
            Some(RuleVerdict::Deny(_))
        ));
    }

    #[test]
    fn a_pattern_of_a_path_covers_no_way_out_of_it() {
        let rules =
            PermissionRules { allow: rules(&["Read(//etc/**)"]), ..PermissionRules::default() };
        assert_eq!(
            rules.decide(&call("Read", "/etc/hostname"), Path::new(REPO)),
            Some(RuleVerdict::Allow)
        );
        assert_eq!(rules.decide(&call("Read", "/etc/../home/me/.ssh/id"), Path::new(REPO)), None);
        assert_eq!(rules.decide(&call("Read", "/home/me/x"), Path::new(REPO)), None);
    }

    #[test]
    fn a_call_for_several_files_is_allowed_if_all_are_and_denied_if_one_is() {
        let (allow, deny) = (rules(&["Edit(src/*)"]), rules(&["Edit(*.lock)"]));
        let rules = PermissionRules { allow, deny, ..PermissionRules::default() };
        let decide = |files: &str| rules.decide(&call("apply_patch", files), Path::new(REPO));
        assert_eq!(decide("src/a\nsrc/b"), Some(RuleVerdict::Allow));
        assert_eq!(decide("src/a\n/etc/passwd"), None);
        assert!(matches!(decide("a.lock\nsrc/b"), Some(RuleVerdict::Deny(_))));
    }

    #[test]
    fn every_spelling_of_a_path_is_the_same_path() {
        let (allow, deny) =
            (rules(&["Edit(/repo/*)"]), rules(&["Edit(src/secret/*)", "Read(/etc/*)"]));
        let rules = PermissionRules { allow, deny, ..PermissionRules::default() };
        for (tool, path, is_denied) in [
            ("Write", "/repo/src/secret/a", true),
            ("Write", "/repo/./src/secret/a", true),
            ("Write", "src/x/../secret/a", true),
            ("Read", "/tmp/../etc/passwd", true),
            ("Write", "/repo/src/open/a", false),
            ("Write", "src/open/a", false),
        ] {
            let verdict = rules.decide(&call(tool, path), Path::new(REPO));
            assert_eq!(matches!(verdict, Some(RuleVerdict::Deny(_))), is_denied, "{path}");
            assert_eq!(verdict == Some(RuleVerdict::Allow), !is_denied, "{path}");
        }
        assert_eq!(rules.decide(&call("Write", "/repo/../home/a"), Path::new(REPO)), None);
    }

    #[test]
    fn a_text_without_a_tool_is_not_a_rule() {
        for text in [
            "",
            "Bash(",
            "Bash()",
            "(x)",
            "Bash(x",
            "two words",
            "Bash(x)y",
            "WebFetch(domain:a.b)",
        ] {
            assert!(text.parse::<PermissionRule>().is_err(), "{text:?}");
        }
        for text in ["Bash", "Bash(npm run *)", "mcp__mail__send", "Read(src/*.rs)"] {
            assert_eq!(text.parse::<PermissionRule>().unwrap().to_string(), text);
        }
    }
}
