//! Message of MCP, as far as the bridge has to know it.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A message of the client.
#[derive(Debug, Deserialize)]
pub(super) struct McpMessage {
    /// The id of a request; a notification has none.
    #[serde(default)]
    id: Option<Box<RawValue>>,
    #[serde(default)]
    method: Option<String>,
    #[serde(default)]
    params: Option<McpParams>,
}

#[derive(Debug, Deserialize)]
struct McpParams {
    #[serde(default, rename = "_meta")]
    meta: Option<McpMeta>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
}

#[derive(Debug, Deserialize)]
struct McpMeta {
    #[serde(default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<String>,
}

/// An error as the reply to a request.
#[derive(Debug, Serialize)]
struct McpFailure<'a> {
    jsonrpc: &'static str,
    id: Option<&'a RawValue>,
    error: McpError<'a>,
}

#[derive(Debug, Serialize)]
struct McpError<'a> {
    code: i32,
    message: &'a str,
}

/// The code of an error of the bridge, and of a message that is none.
pub(super) const BRIDGE_ERROR: i32 = -32000;
pub(super) const INVALID_REQUEST: i32 = -32600;

impl McpMessage {
    pub(super) fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    pub(super) fn is_initialize(&self) -> bool {
        self.method() == Some("initialize")
    }

    /// True if the client waits for a reply.
    pub(super) fn is_request(&self) -> bool {
        self.id.is_some() && self.method.is_some()
    }

    /// The version that the message itself names.
    pub(super) fn version(&self) -> Option<&str> {
        self.params.as_ref()?.meta.as_ref()?.version.as_deref()
    }

    /// The name of the tool, prompt or resource that is called.
    pub(super) fn name(&self) -> Option<&str> {
        let params = self.params.as_ref()?;
        match self.method()? {
            "tools/call" | "prompts/get" => params.name.as_deref(),
            "resources/read" => params.uri.as_deref(),
            _ => None,
        }
    }

    /// The reply with an error, as one line.
    pub(super) fn failure(&self, code: i32, message: &str) -> Vec<u8> {
        failure(self.id.as_deref(), code, message)
    }
}

/// A reply with an error, as one line.
pub(super) fn failure(id: Option<&RawValue>, code: i32, message: &str) -> Vec<u8> {
    let failure = McpFailure { jsonrpc: "2.0", id, error: McpError { code, message } };
    serde_json::to_vec(&failure).expect("an error has string keys")
}

/// The text of an error of JSON-RPC or of HTTP.
pub(super) fn error_text(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct ErrorReply {
        error: RefusalText,
    }
    #[derive(Deserialize)]
    struct RefusalText {
        message: String,
    }
    serde_json::from_slice::<ErrorReply>(body).ok().map(|reply| reply.error.message)
}

/// The version of the protocol in the reply to `initialize`.
pub(super) fn negotiated(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct InitializeReply {
        result: NegotiatedVersion,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct NegotiatedVersion {
        protocol_version: String,
    }
    let reply = serde_json::from_slice::<InitializeReply>(body).ok()?;
    Some(reply.result.protocol_version)
}
