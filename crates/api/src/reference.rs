//! Text of `docs/api.md`, written from the route table.

use std::fmt::Write;

use serde_json::{Map, Value};

use crate::{
    openapi::{RouteSchemas, schemas},
    routes::{ApiRoute, ApiScope},
};

/// The text before the routes.
const INTRODUCTION: &str = include_str!("reference/introduction.md");

/// The whole page.
pub fn page() -> String {
    let (routes, types) = schemas();
    let mut page = format!("{INTRODUCTION}\n## Routes\n\n| Route | Scope | |\n|---|---|---|\n");
    for (route, _) in &routes {
        let (method, path, summary) = (route.method(), route.path(), route.summary());
        write_line(
            &mut page,
            format_args!("| `{method} {path}` | {} | {summary} |", scope(*route)),
        );
    }
    for (route, schemas) in &routes {
        describe(&mut page, *route, schemas);
    }
    page.push_str("\n## Types\n");
    for (name, schema) in &types {
        let Some(members) = schema["properties"].as_object() else { continue };
        write_line(&mut page, format_args!("\n### {name}\n\n{}\n", sentence(schema)));
        table(&mut page, members, &required(schema));
    }
    page
}

fn describe(page: &mut String, route: ApiRoute, schemas: &RouteSchemas) {
    let (method, path, summary) = (route.method(), route.path(), route.summary());
    write_line(page, format_args!("\n### {method} {path}\n\n{summary} Scope: {}.", scope(route)));
    if !schemas.query.is_empty() {
        page.push('\n');
        table(page, &schemas.query, &[]);
    }
    if let Some(body) = &schemas.body {
        write_line(page, format_args!("\nBody: {}.", kind(body)));
    }
    match &schemas.reply {
        Some(reply) => write_line(page, format_args!("\nReply: {}.", kind(reply))),
        None => write_line(page, format_args!("\nReply: the bytes of the part.")),
    }
}

fn scope(route: ApiRoute) -> &'static str {
    match route.scope() {
        ApiScope::Any => "any",
        ApiScope::Read => "`read`",
        ApiScope::Send => "`send`",
        ApiScope::Cancel => "`cancel`",
        ApiScope::Push => "`push`",
        ApiScope::Work => "`work`",
        ApiScope::WorkOrRegister => "`work`; `register` for a new role or a remote agent",
        ApiScope::Admin => "`admin`",
    }
}

/// A table of members.
fn table(page: &mut String, members: &Map<String, Value>, required: &[&str]) {
    page.push_str("| Member | Type | |\n|---|---|---|\n");
    for (name, schema) in members {
        let optional = if required.contains(&name.as_str()) || required.is_empty() {
            ""
        } else {
            ", optional"
        };
        let (kind, about) = (kind(schema), sentence(schema));
        write_line(page, format_args!("| `{name}` | {kind}{optional} | {about} |"));
    }
}

fn required(schema: &Value) -> Vec<&str> {
    schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// The description of a schema, on one line.
fn sentence(schema: &Value) -> String {
    let about = schema["description"].as_str().unwrap_or_default();
    about.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The type of a value, in words.
fn kind(schema: &Value) -> String {
    if let Some(target) = schema["$ref"].as_str() {
        let name = target.rsplit('/').next().unwrap_or_default();
        return format!("[{name}](#{})", name.to_lowercase());
    }
    let alternatives = schema["anyOf"].as_array().or(schema["allOf"].as_array());
    if let Some(first) = alternatives.and_then(|all| all.first()) {
        return kind(first);
    }
    let name = schema["type"].as_array().and_then(|types| types.first());
    let name = name.unwrap_or(&schema["type"]).as_str();
    match name {
        Some("array") => format!("list of {}", kind(&schema["items"])),
        Some("string") if schema["format"] == "date-time" => "time".to_owned(),
        Some("string") => "text".to_owned(),
        Some("integer") => "number".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some(name) => name.to_owned(),
        None => "object".to_owned(),
    }
}

fn write_line(page: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(page, "{line}").expect("a String takes everything");
}
