//! Words of decoding errors: those of JSON, not those of Rust.

use std::fs;

use herald_protocol::{Dialect, Error, Operation};
use serde_json::{Value, json};

use crate::{
    replaced::{has_plain_words, replaced},
    support::{golden_file, refuse},
};

/// Fails if any text of an error has a word of Rust.
#[track_caller]
fn is_plain(case: &str, error: &Error) {
    has_plain_words(case, &error.message);
    for violation in error.detail.iter().flat_map(|detail| &detail.violations) {
        has_plain_words(case, &violation.description);
    }
}

/// Parameters with every member, in the form of a dialect.
fn parameters(dialect: Dialect) -> Vec<(Operation, Value)> {
    let new = json!({
        "tenant": "t",
        "message": {
            "messageId": "m", "contextId": "c", "taskId": "t", "role": "ROLE_USER",
            "parts": [
                { "text": "x", "metadata": { "a": 1 }, "filename": "f", "mediaType": "text/plain" },
                { "raw": "aGk=" }, { "url": "https://example.com" }, { "data": { "a": [1] } },
            ],
            "metadata": { "a": 1 }, "extensions": ["urn:a"], "referenceTaskIds": ["t2"],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"], "historyLength": 3, "returnImmediately": true,
            "taskPushNotificationConfig": {
                "id": "p", "taskId": "t", "url": "https://example.com", "token": "k",
                "authentication": { "scheme": "Bearer", "credentials": "k" },
            },
        },
        "metadata": { "a": 1 },
    });
    let old = json!({
        "id": "t", "sessionId": "s",
        "message": {
            "kind": "message", "messageId": "m", "contextId": "c", "taskId": "t", "role": "user",
            "parts": [
                { "kind": "text", "type": "text", "text": "x", "metadata": { "a": 1 } },
                { "kind": "file", "type": "file", "file": { "bytes": "aGk=", "name": "f", "mimeType": "text/plain" } },
                { "kind": "file", "type": "file", "file": { "uri": "https://example.com" } },
                { "kind": "data", "type": "data", "data": { "a": [1] } },
            ],
            "metadata": { "a": 1 }, "extensions": ["urn:a"], "referenceTaskIds": ["t2"],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"], "historyLength": 3, "blocking": true,
            "pushNotificationConfig": {
                "id": "p", "url": "https://example.com", "token": "k",
                "authentication": { "schemes": ["Bearer"], "credentials": "k" },
            },
        },
        "metadata": { "a": 1 }, "historyLength": 3, "acceptedOutputModes": ["text/plain"],
        "pushNotification": { "url": "https://example.com", "token": "k" },
    });
    let named = json!({ "id": "t", "name": "t", "tenant": "t", "historyLength": 3, "metadata": { "a": 1 } });
    let listed = json!({
        "tenant": "t", "contextId": "c", "status": "TASK_STATE_WORKING", "pageSize": 3,
        "pageToken": "p", "historyLength": 3, "statusTimestampAfter": "2026-01-01T00:00:00Z",
        "includeArtifacts": true,
    });
    let config = json!({
        "tenant": "t", "taskId": "t", "id": "p", "url": "https://example.com", "token": "k",
        "authentication": { "scheme": "Bearer", "credentials": "k" },
        "pushNotificationConfig": {
            "id": "p", "url": "https://example.com", "token": "k",
            "authentication": { "schemes": ["Bearer"], "credentials": "k" },
        },
        "pushNotificationConfigId": "p", "pageSize": 3, "pageToken": "p",
    });
    let send = if dialect == Dialect::V1 { new } else { old };
    let of = |operation| match operation {
        Operation::SendMessage | Operation::SendStreamingMessage => &send,
        Operation::GetTask | Operation::CancelTask | Operation::SubscribeToTask => &named,
        Operation::ListTasks | Operation::GetExtendedAgentCard => &listed,
        Operation::CreateTaskPushNotificationConfig
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig => &config,
    };
    Operation::ALL.iter().map(|operation| (*operation, of(*operation).clone())).collect()
}

#[test]
fn errors_in_parameters_have_no_words_of_rust() {
    let mut refused = 0;
    for dialect in Dialect::ALL {
        for (operation, params) in parameters(dialect) {
            for (case, params) in replaced(&params) {
                let case = format!("{dialect:?} {operation:?} {case}");
                if let Err(error) = dialect.decode(operation, Some(params.to_string().as_bytes())) {
                    is_plain(&case, &error);
                    refused += 1;
                }
            }
        }
    }
    assert!(refused > 2000, "only {refused} of the parameters were refused");
}

#[test]
fn errors_in_replies_have_no_words_of_rust() {
    let mut refused = 0;
    for file in fs::read_dir(golden_file("")).unwrap() {
        let path = file.unwrap().path();
        let dialect = match path.to_str().unwrap().rsplit('.').nth(1) {
            Some("v03") => Dialect::V03,
            Some("v03rest") => Dialect::V03Rest,
            Some("v01") => Dialect::V01,
            _ => Dialect::V1,
        };
        let text = fs::read_to_string(path).unwrap();
        for (case, document) in replaced(&serde_json::from_str(&text).unwrap()) {
            let bytes = document.to_string().into_bytes();
            let errors = [
                dialect.decode_send_result(&bytes).err(),
                dialect.decode_task(&bytes).err(),
                dialect.decode_page(&bytes).err(),
                dialect.decode_event(&bytes).err(),
                dialect.decode_push_config(&bytes).err(),
                dialect.decode_push_page(&bytes).err(),
                dialect.decode_card(&bytes).err(),
            ];
            for error in errors.into_iter().flatten() {
                is_plain(&case, &error);
                refused += 1;
            }
        }
    }
    assert!(refused > 2000, "only {refused} of the replies were refused");
}

#[test]
fn an_error_says_what_a_field_must_be_and_what_it_is() {
    let send = |message: &str| {
        let params = format!(r#"{{"message":{message}}}"#);
        refuse(Dialect::V1, Operation::SendMessage, &params).message
    };
    let with = |member: &str| {
        send(&format!(
            r#"{{"messageId":"m","role":"ROLE_USER","parts":[{{"text":"x"}}],{member}}}"#
        ))
    };
    for (found, expected) in [
        (send(r#""hello""#), "message: must be an object, not a string"),
        (send("[]"), "message: must be an object, not an array"),
        (with(r#""contextId":5"#), "message.contextId: must be a string, not a number"),
        (with(r#""extensions":{}"#), "message.extensions: must be an array, not an object"),
        (with(r#""extensions":[null]"#), "message.extensions[0]: must be a string, not null"),
        (with(r#""metadata":true"#), "message.metadata: must be an object, not a boolean"),
        (with(r#""role":"robot""#), "message.role: is there twice"),
    ] {
        assert_eq!(found, expected);
    }
    let list =
        |member: &str| refuse(Dialect::V1, Operation::ListTasks, &format!("{{{member}}}")).message;
    for (found, expected) in [
        (list(r#""pageSize":"many""#), "pageSize: must be an integer, not a string"),
        (list(r#""pageSize":1.5"#), "pageSize: must be an integer, not a fraction"),
        (
            list(r#""pageSize":3000000000"#),
            "pageSize: must be an integer from -2147483648 to 2147483647",
        ),
        (list(r#""status":"busy""#), "status: must be a task state such as TASK_STATE_WORKING"),
        (
            list(r#""includeArtifacts":"yes""#),
            "includeArtifacts: must be true or false, not a string",
        ),
    ] {
        assert_eq!(found, expected);
    }
}
