//! OpenAPI 3.1 document, written from the route table.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::routes::{ApiCall, ApiRoute, Download, Nothing, RouteVisitor};

/// The schemas of one route.
#[derive(Debug)]
pub(crate) struct RouteSchemas {
    /// The schema of each parameter in the query, with its description.
    pub(crate) query: Map<String, Value>,
    /// The schema of the body, if there is one.
    pub(crate) body: Option<Value>,
    /// The schema of the reply; `None` for a download.
    pub(crate) reply: Option<Value>,
}

/// Collects the schemas of a route. Types that have names are added to the generators.
struct SchemaCollector<'a> {
    requests: &'a mut SchemaGenerator,
    replies: &'a mut SchemaGenerator,
}

impl RouteVisitor for SchemaCollector<'_> {
    type Output = RouteSchemas;

    fn visit<C: ApiCall>(self) -> RouteSchemas {
        let Self { requests, replies } = self;
        let query = C::Query::json_schema(requests);
        let query = query.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let body = (C::Body::schema_name() != Nothing::schema_name())
            .then(|| requests.subschema_for::<C::Body>().to_value());
        let reply = (C::Reply::schema_name() != Download::schema_name())
            .then(|| replies.subschema_for::<C::Reply>().to_value());
        RouteSchemas { query, body, reply }
    }
}

/// The schemas of every route, and those of all types that have names.
pub(crate) fn schemas() -> (Vec<(ApiRoute, RouteSchemas)>, Map<String, Value>) {
    // The members that are required differ between requests and replies.
    let (mut requests, mut replies) = (
        settings().for_deserialize().into_generator(),
        settings().for_serialize().into_generator(),
    );
    let routes = ApiRoute::ALL.iter().map(|route| {
        let collector = SchemaCollector { requests: &mut requests, replies: &mut replies };
        (*route, route.visit(collector))
    });
    let routes = routes.collect();
    let mut named = requests.take_definitions(true);
    named.extend(replies.take_definitions(true));
    (routes, named)
}

fn settings() -> SchemaSettings {
    SchemaSettings::draft2020_12().with(|settings| {
        settings.definitions_path = "/components/schemas".into();
        settings.meta_schema = None;
    })
}

/// The document, for a server of this version.
pub fn document(version: &str) -> Value {
    let (routes, mut schemas) = schemas();
    let mut paths = Map::new();
    for (route, schemas) in routes {
        let path = paths.entry(route.path()).or_insert_with(|| json!({}));
        path[route.method().to_ascii_lowercase()] = operation(route, schemas);
    }
    schemas.insert("Error".to_owned(), error_schema());
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Herald",
            "version": version,
            "description": "Herald's own interface. `/api/…` and `/api/v1/…` are the same.",
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "bearer": [] }, { "key": [] }],
        "paths": paths,
        "components": {
            "schemas": schemas,
            "responses": { "Error": {
                "description": "An error",
                "content": { "application/json": {
                    "schema": { "$ref": "#/components/schemas/Error" },
                } },
            } },
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "key": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn operation(route: ApiRoute, schemas: RouteSchemas) -> Value {
    let in_path = path_parameters(route).map(|name| {
        json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } })
    });
    let in_query = schemas.query.into_iter().map(|(name, mut schema)| {
        let about = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        json!({ "name": name, "in": "query", "description": about, "schema": schema })
    });
    let content = match schemas.reply {
        Some(schema) => json!({ "application/json": { "schema": schema } }),
        None => json!({ "*/*": {} }),
    };
    let scope = match route.scope().name() {
        Some(scope) => format!("Needs the scope `{scope}`."),
        None => "Needs no scope.".to_owned(),
    };
    let mut operation = json!({
        "operationId": route.name(),
        "summary": route.summary(),
        "description": scope,
        "parameters": in_path.chain(in_query).collect::<Vec<_>>(),
        "responses": {
            (route.status().to_string()): { "description": "OK", "content": content },
            "default": { "$ref": "#/components/responses/Error" },
        },
    });
    if let Some(schema) = schemas.body {
        operation["requestBody"] = json!({
            "required": true,
            "content": { "application/json": { "schema": schema } },
        });
    }
    operation
}

/// The names of the parameters in a path.
fn path_parameters(route: ApiRoute) -> impl Iterator<Item = &'static str> {
    route.path().split('{').skip(1).filter_map(|rest| rest.split('}').next())
}

/// The body of every error: `google.rpc.Status` with a machine-readable reason.
fn error_schema() -> Value {
    json!({
        "type": "object",
        "required": ["error"],
        "properties": { "error": {
            "type": "object",
            "required": ["code", "status", "message"],
            "properties": {
                "code": { "type": "integer", "description": "The HTTP status." },
                "status": { "type": "string", "description": "The name of the status, as gRPC has it." },
                "message": { "type": "string" },
                "details": { "type": "array", "items": { "type": "object", "properties": {
                    "@type": { "type": "string" },
                    "reason": { "type": "string", "description": "The key to branch on." },
                } } },
            },
        } },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every `$ref` in a value.
    fn references(value: &Value, found: &mut Vec<String>) {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            found.push(target.to_owned());
        }
        let members = value.as_object().into_iter().flat_map(Map::values);
        let items = value.as_array().into_iter().flatten();
        members.chain(items).for_each(|inner| references(inner, found));
    }

    #[test]
    fn the_document_has_every_route_and_every_reference_leads_somewhere() {
        let document = document("1.2.3");
        for route in ApiRoute::ALL {
            let operation = &document["paths"][route.path()][route.method().to_lowercase()];
            assert_eq!(operation["operationId"], route.name());
        }
        let mut found = Vec::new();
        references(&document, &mut found);
        assert!(found.len() > ApiRoute::ALL.len());
        for target in found {
            let target = target.strip_prefix('#').unwrap();
            assert!(document.pointer(target).is_some(), "{target}");
        }
    }

    #[test]
    fn requests_refuse_unknown_members_and_say_so() {
        let document = document("1.2.3");
        let schemas = &document["components"]["schemas"];
        for name in ["CreateKey", "AnswerQuestion"] {
            assert_eq!(schemas[name]["additionalProperties"], false, "{name}");
        }
        assert_eq!(schemas["AnswerQuestion"]["required"], json!(["question"]));
        assert!(schemas["ServerStatus"].get("additionalProperties").is_none());
    }
}
