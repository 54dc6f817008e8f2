//! Schema of the A2A 1.0 card, member by member, for strict validation. Readers are lenient and do not
//! use it.

use serde_json::{Map, Value};

use crate::error::Violation;

/// Type of a member.
#[derive(Debug, Clone, Copy)]
enum FieldShape {
    Text,
    Flag,
    Texts,
    /// Any object.
    Open,
    Object(&'static [FieldRule]),
    List(&'static [FieldRule]),
    Map(&'static [FieldRule]),
    /// An object with exactly one of these members.
    One(&'static [FieldRule]),
    /// A map of such objects.
    MapOfOne(&'static [FieldRule]),
}

/// A member: name, type, and true if it is required.
type FieldRule = (&'static str, FieldShape, bool);

use FieldShape as S;

const CARD: &[FieldRule] = &[
    ("name", S::Text, true),
    ("description", S::Text, true),
    ("supportedInterfaces", S::List(INTERFACE), true),
    ("provider", S::Object(PROVIDER), false),
    ("version", S::Text, true),
    ("documentationUrl", S::Text, false),
    ("capabilities", S::Object(CAPABILITIES), true),
    ("securitySchemes", S::MapOfOne(SCHEME), false),
    ("securityRequirements", S::List(REQUIREMENT), false),
    ("defaultInputModes", S::Texts, true),
    ("defaultOutputModes", S::Texts, true),
    ("skills", S::List(SKILL), true),
    ("signatures", S::List(SIGNATURE), false),
    ("iconUrl", S::Text, false),
];
const INTERFACE: &[FieldRule] = &[
    ("url", S::Text, true),
    ("protocolBinding", S::Text, true),
    ("tenant", S::Text, false),
    ("protocolVersion", S::Text, true),
];
const PROVIDER: &[FieldRule] = &[("url", S::Text, true), ("organization", S::Text, true)];
const CAPABILITIES: &[FieldRule] = &[
    ("streaming", S::Flag, false),
    ("pushNotifications", S::Flag, false),
    ("extensions", S::List(EXTENSION), false),
    ("extendedAgentCard", S::Flag, false),
];
const EXTENSION: &[FieldRule] = &[
    ("uri", S::Text, false),
    ("description", S::Text, false),
    ("required", S::Flag, false),
    ("params", S::Open, false),
];
const SKILL: &[FieldRule] = &[
    ("id", S::Text, true),
    ("name", S::Text, true),
    ("description", S::Text, true),
    ("tags", S::Texts, true),
    ("examples", S::Texts, false),
    ("inputModes", S::Texts, false),
    ("outputModes", S::Texts, false),
    ("securityRequirements", S::List(REQUIREMENT), false),
];
const REQUIREMENT: &[FieldRule] = &[("schemes", S::Map(SCOPES), false)];
const SCOPES: &[FieldRule] = &[("list", S::Texts, false)];
const SIGNATURE: &[FieldRule] =
    &[("protected", S::Text, true), ("signature", S::Text, true), ("header", S::Open, false)];
const SCHEME: &[FieldRule] = &[
    ("apiKeySecurityScheme", S::Object(API_KEY), false),
    ("httpAuthSecurityScheme", S::Object(HTTP), false),
    ("oauth2SecurityScheme", S::Object(OAUTH2), false),
    ("openIdConnectSecurityScheme", S::Object(OIDC), false),
    ("mtlsSecurityScheme", S::Object(DESCRIBED), false),
];
const DESCRIBED: &[FieldRule] = &[("description", S::Text, false)];
const API_KEY: &[FieldRule] =
    &[("description", S::Text, false), ("location", S::Text, true), ("name", S::Text, true)];
const HTTP: &[FieldRule] =
    &[("description", S::Text, false), ("scheme", S::Text, true), ("bearerFormat", S::Text, false)];
const OAUTH2: &[FieldRule] = &[
    ("description", S::Text, false),
    ("flows", S::One(FLOWS), true),
    ("oauth2MetadataUrl", S::Text, false),
];
const OIDC: &[FieldRule] = &[("description", S::Text, false), ("openIdConnectUrl", S::Text, true)];
const FLOWS: &[FieldRule] = &[
    ("authorizationCode", S::Object(AUTHORIZATION_CODE), false),
    ("clientCredentials", S::Object(CLIENT_CREDENTIALS), false),
    ("deviceCode", S::Object(DEVICE_CODE), false),
    ("implicit", S::Open, false),
    ("password", S::Open, false),
];
const AUTHORIZATION_CODE: &[FieldRule] = &[
    ("authorizationUrl", S::Text, true),
    ("tokenUrl", S::Text, true),
    ("refreshUrl", S::Text, false),
    ("scopes", S::Open, true),
    ("pkceRequired", S::Flag, false),
];
const CLIENT_CREDENTIALS: &[FieldRule] =
    &[("tokenUrl", S::Text, true), ("refreshUrl", S::Text, false), ("scopes", S::Open, true)];
const DEVICE_CODE: &[FieldRule] = &[
    ("deviceAuthorizationUrl", S::Text, true),
    ("tokenUrl", S::Text, true),
    ("refreshUrl", S::Text, false),
    ("scopes", S::Open, true),
];

/// All members of a card that violate A2A 1.0. Unknown members are allowed.
pub fn violations(document: &[u8]) -> Vec<Violation> {
    let mut found = Vec::new();
    match serde_json::from_slice(document) {
        Ok(card) => check(&card, S::Object(CARD), "", &mut found),
        Err(fault) => add(&mut found, "", &format!("is not JSON: {fault}")),
    }
    found
}

fn add(found: &mut Vec<Violation>, field: &str, description: &str) {
    let field = if field.is_empty() { "the card" } else { field };
    found.push(Violation { field: field.to_owned(), description: description.to_owned() });
}

fn check(value: &Value, shape: FieldShape, path: &str, found: &mut Vec<Violation>) {
    match (shape, value) {
        (S::Text, Value::String(_)) | (S::Flag, Value::Bool(_)) | (S::Open, Value::Object(_)) => {}
        (S::Text, _) => add(found, path, "must be a text"),
        (S::Flag, _) => add(found, path, "must be true or false"),
        (S::Texts, Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check(item, S::Text, &format!("{path}[{index}]"), found);
            }
        }
        (S::List(members), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check(item, S::Object(members), &format!("{path}[{index}]"), found);
            }
        }
        (S::Texts | S::List(_), _) => add(found, path, "must be a list"),
        (S::Object(members), Value::Object(object)) => object_of(object, members, path, found),
        (S::One(members), Value::Object(object)) => one_of(object, members, path, found),
        (S::Map(members), Value::Object(object)) => {
            for (name, item) in object {
                check(item, S::Object(members), &format!("{path}.{name}"), found);
            }
        }
        (S::MapOfOne(members), Value::Object(object)) => {
            for (name, item) in object {
                check(item, S::One(members), &format!("{path}.{name}"), found);
            }
        }
        (S::Open | S::Object(_) | S::One(_) | S::Map(_) | S::MapOfOne(_), _) => {
            add(found, path, "must be an object");
        }
    }
}

fn object_of(
    object: &Map<String, Value>,
    members: &'static [FieldRule],
    path: &str,
    found: &mut Vec<Violation>,
) {
    for (name, shape, required) in members {
        let path = if path.is_empty() { (*name).to_owned() } else { format!("{path}.{name}") };
        match object.get(*name).filter(|value| !value.is_null()) {
            Some(value) => {
                let blank = value.as_str().is_some_and(str::is_empty)
                    || path == "supportedInterfaces" && value.as_array().is_some_and(Vec::is_empty);
                if *required && blank {
                    add(found, &path, "must not be empty");
                } else {
                    check(value, *shape, &path, found);
                }
            }
            None if *required => add(found, &path, "is required"),
            None => {}
        }
    }
}

fn one_of(
    object: &Map<String, Value>,
    members: &'static [FieldRule],
    path: &str,
    found: &mut Vec<Violation>,
) {
    let there = members.iter().filter(|(name, ..)| object.contains_key(*name)).count();
    if there != 1 {
        let names: Vec<_> = members.iter().map(|(name, ..)| *name).collect();
        add(found, path, &format!("must hold exactly one of {}", names.join(", ")));
    }
    object_of(object, members, path, found);
}
