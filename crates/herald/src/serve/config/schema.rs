//! JSON Schema of `herald.toml`, derived from the types that read it.

use clap::ValueEnum;
use herald_protocol::Version;
use schemars::{
    JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema,
    transform::RecursiveTransform,
};
use serde_json::{Map, Value};

use super::{
    AgentSection, CalledVersion, Dialects, FileConfig, PortRange, SecretValue, Size, TimeSpan,
    agent::all_keys,
};

/// The schema of the whole file.
pub(crate) fn schema() -> Schema {
    // TOML has no null: a key that is optional is left out.
    let settings = SchemaSettings::draft2020_12().with_transform(RecursiveTransform(without_null));
    let mut generator = settings.into_generator();
    // A manifest is one agent, so the schema of an agent has a name of its own.
    generator.subschema_for::<AgentSection>();
    generator.into_root_schema_for::<FileConfig>()
}

/// The table that a key belongs to, as it is written in the file.
pub(super) fn home(key: &str) -> Option<String> {
    let schema = schema();
    let has = |properties: Option<&Value>| {
        properties.and_then(Value::as_object).is_some_and(|keys| keys.contains_key(key))
    };
    for (section, content) in schema.get("properties")?.as_object()? {
        let pointer = content.get("$ref").and_then(Value::as_str).unwrap_or_default();
        let content = match pointer.strip_prefix('#') {
            Some(pointer) => schema.pointer(pointer)?,
            None => content,
        };
        if has(content.get("properties")) {
            return Some(format!("[{section}]"));
        }
    }
    all_keys().iter().any(|known| known == key).then(|| "[[agents]]".to_owned())
}

/// The keys of a table.
pub(super) fn keys<T: JsonSchema>() -> Vec<String> {
    properties(&T::json_schema(&mut SchemaGenerator::default()))
}

/// The properties of an object.
pub(super) fn properties(schema: &Schema) -> Vec<String> {
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flat_map(Map::keys).cloned().collect()
}

/// The values of a flag, in upper or lower case.
pub(super) fn choice_schema<T: ValueEnum>(_: &mut SchemaGenerator) -> Schema {
    let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    let names: Vec<_> = values.map(|value| value.get_name().to_owned()).collect();
    let any_case = |letter: char| match letter {
        'a'..='z' => format!("[{letter}{}]", letter.to_ascii_uppercase()),
        other => format!("[{other}]"),
    };
    let patterns: Vec<String> =
        names.iter().map(|name| name.chars().map(any_case).collect()).collect();
    let pattern = format!("^({})$", patterns.join("|"));
    json_schema!({ "anyOf": [{ "enum": names }, { "type": "string", "pattern": pattern }] })
}

/// The same for a list of values.
pub(super) fn choices_schema<T: ValueEnum>(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": choice_schema::<T>(generator), "minItems": 1 })
}

/// A second name for a key.
pub(super) fn alias(schema: &mut Schema, key: &str, other: &str) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties")
        && let Some(property) = properties.get(key).cloned()
    {
        properties.insert(other.to_owned(), property);
    }
}

fn without_null(schema: &mut Schema) {
    let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
    let Some(object) = schema.as_object_mut() else { return };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
        choices.retain(|choice| !is_null(choice));
        if let [Value::Object(only)] = &choices[..] {
            let only = only.clone();
            object.remove("anyOf");
            object.extend(only);
        }
    }
}

/// Schemas of types with a `Deserialize` of their own.
macro_rules! value_schema {
    ($type:ty, $name:literal, $schema:tt) => {
        impl JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        }
    };
}

value_schema!(TimeSpan, "Duration", {
    "description": "A length of time such as 30s, 10m, 12h or 30d.",
    "type": "string"
});
value_schema!(Size, "Size", {
    "description": "A number of bytes, also as 64KiB, 4MiB or 10GiB.",
    "type": ["string", "integer"],
    "minimum": 0
});
value_schema!(PortRange, "Ports", {
    "description": "A port such as 443, or a range such as 8000-8999.",
    "type": ["integer", "string"],
    "minimum": 1,
    "maximum": 65535,
    "pattern": "^ *[0-9]{1,5} *(- *[0-9]{1,5} *)?$"
});
value_schema!(SecretValue, "Secret", {
    "description": "A secret, written as a literal, as env:NAME or as file:PATH.",
    "type": "string",
    "minLength": 1
});
value_schema!(CalledVersion, "CalledVersion", {
    "description": "A protocol version for calls to another agent.",
    "type": "string",
    "pattern": r"^(1\.0|0\.[123])(\.[0-9]+)?$"
});

impl JsonSchema for Dialects {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Dialects".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let spoken = Version::SPOKEN
            .map(|version| (version.to_string(), json_schema!({ "type": "boolean" }).to_value()));
        json_schema!({
            "description": "Versions of A2A, and whether each is served.",
            "type": "object",
            "properties": Map::from_iter(spoken),
            "additionalProperties": false
        })
    }
}
