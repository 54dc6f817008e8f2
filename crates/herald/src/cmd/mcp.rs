//! `herald mcp`: a bridge from standard input and output to `/mcp` of a server.
//!
//! Each line is one message of MCP, and is posted as it is. The server has no sessions and replies with one JSON
//! document, so that the bridge keeps nothing but the version of the protocol, which HTTP wants in a header.

mod message;
mod pump;

use bytes::Bytes;
use herald_api::ApiRoute;
use http::{HeaderValue, Request, StatusCode, header};
use serde::Deserialize;

use self::message::McpMessage;
use crate::{
    api::{self, Api},
    args::McpArgs,
    client::error::{CliError, CliErrorKind},
    output::note,
};

/// The name by which a server of Herald introduces itself.
const SERVER_NAME: &str = "herald";

/// A request that tells whether the server is Herald, and accepts the credential.
const PROBE: &[u8] =
    br#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",
"capabilities":{},"clientInfo":{"name":"herald mcp","version":"1"}}}"#;

/// Forwards messages until the input ends.
pub(crate) async fn run(args: &McpArgs) -> Result<(), CliError> {
    api::run(&args.server(), ApiRoute::GetStatus, |api| async move {
        check(&api).await?;
        note("Serving", &format!("MCP of {} on standard input and output", api.place()));
        pump::run(api).await
    })
    .await
}

/// Checks that the server is Herald, serves MCP and accepts the credential.
async fn check(api: &Api) -> Result<(), CliError> {
    #[derive(Deserialize)]
    struct ProbeReply {
        result: ProbedServer,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct ProbedServer {
        server_info: ServerInfo,
    }
    #[derive(Deserialize)]
    struct ServerInfo {
        name: String,
    }
    let response = api.forward(request(PROBE.into(), None)).await?;
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN {
        let text = message::error_text(response.body()).unwrap_or_else(|| status.to_string());
        let fault = CliError::new(CliErrorKind::AuthFailed, format!("{}: {text}", api.place()));
        return Err(fault.hint(
            "set A2ACLI_BEARER to a token or an API key of the server, in the environment that the MCP client gives \
             to this program; `herald key create` makes one",
        ));
    }
    let reply = serde_json::from_slice::<ProbeReply>(response.body());
    match reply {
        Ok(reply) if status.is_success() && reply.result.server_info.name == SERVER_NAME => Ok(()),
        Ok(_) | Err(_) => {
            let place = api.place();
            let text = format!("{place} does not serve MCP of Herald at /mcp ({status})");
            Err(CliError::new(CliErrorKind::Unreachable, text).hint(
                "is it a herald server of this version, and is [mcp] enabled in its herald.toml?",
            ))
        }
    }
}

/// The request with a message.
fn request(body: Bytes, message: Option<(&McpMessage, Option<&str>)>) -> Request<Bytes> {
    let mut request = Request::post("/mcp").body(body).expect("a path is a target");
    let headers = request.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(header::ACCEPT, both);
    let Some((message, negotiated)) = message else { return request };
    let version = message.version().or(negotiated);
    for (name, value) in [
        ("mcp-protocol-version", version.filter(|_| !message.is_initialize())),
        ("mcp-method", message.method()),
        ("mcp-name", message.name()),
    ] {
        // A text that is not allowed in a header is left out; the server names the header that it misses.
        if let Some(Ok(value)) = value.map(HeaderValue::from_str) {
            headers.insert(name, value);
        }
    }
    request
}
