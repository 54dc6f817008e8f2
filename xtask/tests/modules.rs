//! Imports between modules: the order of the engine's modules, and the import cycles that are left.
//!
//! An import is a path that begins with `crate`, `super` or `self`, in a `use` or in the code. Re-exports
//! (`pub use`), a module's use of its own submodules, and tests inside a file do not count.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The engine's modules, the dependent ones first: a module imports only modules below it.
const ENGINE: &[&str] = &[
    "lib",
    "builder",
    "telemetry",
    "engine",
    "operator::agents",
    "operator::tasks",
    "operator::keys",
    "operator::webhooks",
    "operator",
    "janitor",
    "roles",
    "workers::poll",
    "workers::writes",
    "workers::attach",
    "workers",
    "ops",
    "ops::send",
    "ops::routing",
    "ops::cancel",
    "ops::subscribe",
    "ops::list",
    "ops::push",
    "ops::get",
    "ops::reply",
    "turns",
    "turns::dispatcher",
    "turns::claim",
    "turns::recovery",
    "turns::supervisor",
    "turns::sink",
    "turns::conversation_lock",
    "turns::history",
    "turns::ending",
    "turns::state",
    "turns::last_pause",
    "turns::admission",
    "turns::failure",
    "turns::caught",
    "turns::answer",
    "webhooks",
    "webhooks::deliverer",
    "webhooks::payload",
    "webhooks::retry",
    "read",
    "read::feed",
    "read::subscription",
    "read::view",
    "heartbeat",
    "changes",
    "commit",
    "trace",
    "core",
    "directory::declaration",
    "directory::index",
    "directory",
    "directory::role_index",
    "directory::name",
    "webhooks::shared",
    "webhooks::sender",
    "membership",
    "cache",
    "wakers",
    "agents",
    "agents::registry",
    "workers::demands",
    "agents::runtime",
    "workers::pool",
    "workers::proxy",
    "workers::role",
    "agents::extended_card",
    "agents::profile",
    "turns::turn",
    "agents::error",
    "settings",
    "observer",
    "token",
    "idempotency",
    "fault",
    "audit",
    "keys",
    "caller",
    "codec",
    "rules",
    "store",
    "metrics",
    "budget",
    "clock",
    "model",
    "model::command",
    "model::record",
    "model::event",
    "model::run",
    "model::cause",
    "model::audit_chain",
    "model::audit",
    "model::api_key",
    "model::scopes",
    "model::registration",
    "model::webhook",
    "model::worker",
    "model::key",
    "model::member",
];

/// Modules that import each other, directly or by way of others, and the reason. Each line is one cycle.
const CYCLES: &[(&str, &[&str], &str)] = &[
    (
        "agents",
        &[
            "process",
            "process::process_tree",
            "process::process_tree::linux",
            "process::process_tree::portable",
            "process::record",
        ],
        "a program is ended by its process tree, whose grace period is a constant of programs",
    ),
    (
        "client",
        &["oauth", "oauth::authority"],
        "the flows and the server that grants tokens are one protocol in two files",
    ),
    (
        "conformance",
        &["error_name", "grpc", "operation", "suite", "target"],
        "a suite names operations and errors, and an operation reports errors by the names of a suite",
    ),
    (
        "engine",
        &[
            "store::sqlite::append",
            "store::sqlite::audit",
            "store::sqlite::dead_holders",
            "store::sqlite::files",
            "store::sqlite::job",
            "store::sqlite::locks",
            "store::sqlite::members",
            "store::sqlite::open",
            "store::sqlite::sweep",
            "store::sqlite::writer",
        ],
        "each job is a file that extends the writer's batch, and the writer runs every job",
    ),
    (
        "herald",
        &["serve::config::agent", "serve::config::error", "serve::config::schema"],
        "sections read their own errors, and errors quote the schema of the sections",
    ),
    (
        "protocol",
        &[
            "dialect",
            "dialect::legacy",
            "dialect::legacy::v01",
            "dialect::legacy::v03",
            "dialect::legacy::v03_read",
            "dialect::legacy::v03_request",
            "dialect::legacy::v03_rest",
            "dialect::legacy::v03_write",
        ],
        "the dialect dispatches to the older generations, which return its types",
    ),
    (
        "protocol",
        &["open::read", "open::writer"],
        "a value is read into the writer's text, and the writer takes values that were read",
    ),
];

/// The modules of a crate and what each imports.
type Imports = BTreeMap<String, BTreeSet<String>>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn sources(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The modules of a crate, as the paths of their files say.
fn imports(crate_name: &str) -> Imports {
    let src = root().join("crates").join(crate_name).join("src");
    let mut files = Vec::new();
    sources(&src, &mut files);
    let module = |file: &Path| {
        let path = file.strip_prefix(&src).unwrap().with_extension("");
        let names: Vec<_> = path.iter().map(|name| name.to_str().unwrap().to_owned()).collect();
        names.join("::")
    };
    let modules: BTreeSet<String> = files.iter().map(|file| module(file)).collect();
    let mut found = Imports::new();
    for file in &files {
        let name = module(file);
        if name.split("::").any(|part| part == "tests" || part == "generated") {
            continue;
        }
        let text = fs::read_to_string(file).unwrap();
        let code = without_tests_and_comments(&text);
        let imported = paths(&code).into_iter().filter_map(|path| resolve(&name, &path, &modules));
        found.insert(name.clone(), imported.filter(|other| *other != name).collect());
    }
    found
}

fn without_tests_and_comments(text: &str) -> String {
    // The tests of a file are its last item.
    let tests = text.rfind("\nmod tests {").and_then(|end| text[..end].rfind("#[cfg(test)]"));
    let code = &text[..tests.unwrap_or(text.len())];
    let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| format!("{line}\n")).collect()
}

/// The paths in a file, with the trees of its `use`s spread out.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(start) =
        ["crate::", "super::", "self::"].iter().filter_map(|first| rest.find(first)).min()
    {
        let before = rest[..start].rsplit('\n').next().unwrap_or_default();
        let is_word = before.ends_with(|last: char| last.is_alphanumeric() || last == '_');
        let is_reexport = before.contains("pub use") || before.contains("pub(crate) use");
        let path = &rest[start..];
        let length = if before.trim_start().starts_with("use ") || is_reexport {
            path.find(';').unwrap_or(path.len())
        } else {
            let end = path.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            end.unwrap_or(path.len())
        };
        let is_visibility = before.ends_with("pub(in ");
        if !is_word && !is_reexport && !is_visibility {
            spread("", &path[..length], &mut found);
        }
        rest = &rest[start + length.max(1)..];
    }
    found
}

/// Spreads `a::{b, c::d}` into `a::b` and `a::c::d`.
fn spread(prefix: &str, tree: &str, found: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        let path = tree.split(" as ").next().unwrap_or_default().trim();
        found.push(format!("{prefix}{path}"));
        return;
    };
    let prefix = format!("{prefix}{}", &tree[..open]);
    let inner = &tree[open + 1..tree.rfind('}').unwrap_or(tree.len())];
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inner.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                spread(&prefix, &inner[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner[start..].trim().is_empty() {
        spread(&prefix, &inner[start..], found);
    }
}

/// The module that a path leads to: the longest part of it that is a file.
fn resolve(from: &str, path: &str, modules: &BTreeSet<String>) -> Option<String> {
    let mut base: Vec<&str> = from.split("::").collect();
    let mut parts = path.split("::").peekable();
    while let Some(part) = parts.next_if(|part| ["crate", "super", "self"].contains(part)) {
        match part {
            "crate" => base.clear(),
            "super" => {
                base.pop();
            }
            _ => {}
        }
    }
    let mut names: Vec<&str> = base;
    names.extend(parts.filter(|part| !part.is_empty()));
    while !names.is_empty() {
        let name = names.join("::");
        if modules.contains(&name) {
            return Some(name);
        }
        names.pop();
    }
    None
}

/// The sets of modules that import each other, found by what each can reach.
fn cycles(imports: &Imports) -> Vec<BTreeSet<&str>> {
    let reach = |from: &str| {
        let mut reached: BTreeSet<&str> = BTreeSet::new();
        let mut next: Vec<&str> = imports[from].iter().map(String::as_str).collect();
        while let Some(module) = next.pop() {
            if reached.insert(module) {
                next.extend(imports.get(module).into_iter().flatten().map(String::as_str));
            }
        }
        reached
    };
    let reached: BTreeMap<&str, _> =
        imports.keys().map(|name| (name.as_str(), reach(name))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (name, others) in &reached {
        if others.contains(name) && !found.iter().any(|cycle| cycle.contains(name)) {
            let mutual = others
                .iter()
                .filter(|other| reached.get(*other).is_some_and(|back| back.contains(name)));
            found.push(mutual.copied().collect());
        }
    }
    found
}

#[test]
fn the_engines_modules_import_only_what_is_below_them() {
    let place = |module: &str| ENGINE.iter().position(|known| *known == module);
    let mut upwards = Vec::new();
    for (module, imported) in imports("engine") {
        if module.starts_with("store::") {
            continue;
        }
        let own = place(&module).unwrap_or_else(|| panic!("{module} has no place in the order"));
        for other in imported {
            let other = if other.starts_with("store::") { "store" } else { other.as_str() };
            let other_place = place(other).unwrap();
            if own >= other_place {
                upwards.push(format!("{module} imports {other}"));
            }
        }
    }
    assert!(upwards.is_empty(), "imports of modules above: {upwards:#?}");
}

#[test]
fn import_cycles_are_listed_with_a_reason() {
    let mut listed: BTreeSet<(String, BTreeSet<String>)> = BTreeSet::new();
    for (crate_name, modules, reason) in CYCLES {
        assert!(!reason.is_empty());
        listed.insert((
            (*crate_name).to_owned(),
            modules.iter().map(|module| (*module).to_owned()).collect(),
        ));
    }
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let imports = imports(&name);
        for cycle in cycles(&imports) {
            found.insert((name.clone(), cycle.into_iter().map(str::to_owned).collect()));
        }
    }
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "modules import each other in a circle: {new:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "these cycles are gone; remove them from the list: {gone:#?}");
}
