//! `herald listen`: a webhook receiver that verifies, prints and forwards webhooks.

mod forward;
mod receipt;
mod receiver;
mod verification;

use std::{net::SocketAddr, sync::Arc};

use http::StatusCode;
use tokio::{net::TcpListener, signal};

use self::{
    forward::Forwarder,
    receipt::Printer,
    receiver::{Receiver, WebhookAnswer},
};
use crate::{
    args::Listen,
    client::error::{CliError, CliErrorKind},
    output::{Output, note, warn},
};

/// Receives webhooks until `--count` of them were verified, or Ctrl-C.
pub(crate) async fn run(args: &Listen) -> Result<(), CliError> {
    let verifier = verification::verifier(args).await?;
    let answer = match &args.forward {
        Some(url) => WebhookAnswer::Forward(Forwarder::new(url)?),
        None => WebhookAnswer::Status(args.status.unwrap_or(StatusCode::OK)),
    };
    let address = SocketAddr::new(args.host, args.port);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let text = format!("cannot listen on {address}: {error}");
        CliError::usage(text).hint("choose another --port, or 0 for a free one")
    })?;
    let address = listener.local_addr().map_err(|error| CliError::internal(error.to_string()))?;
    let printer = Printer::new(Output::new(&args.output), args.count);
    let receiver = Arc::new(Receiver { verifier, answer, printer });
    let connections = receiver::serve(listener, Arc::clone(&receiver));
    let receiving = async {
        introduce(args, address);
        receiver.printer.finished().await;
    };
    let interrupted = tokio::select! {
        // First, so that Ctrl-C counts from the introduction on.
        biased;
        _ = signal::ctrl_c() => true,
        () = receiving => false,
    };
    // The sender of the last webhook gets its answer.
    connections.stop().await;
    if interrupted && args.count.is_some() {
        return Err(CliError::new(CliErrorKind::Interrupted, "interrupted"));
    }
    receiver.printer.result()
}

/// Prints the URL, and the lines that lead webhooks to it. Standard output is for webhooks only.
fn introduce(args: &Listen, address: SocketAddr) {
    note("Listening", &format!("http://{address}/"));
    // The address of all interfaces is not one that a sender can call.
    let host = if address.ip().is_unspecified() {
        format!("HOST:{}", address.port())
    } else {
        address.to_string()
    };
    let token = if args.token.is_some() { " --token TOKEN" } else { "" };
    let command = format!("herald task push-config create AGENT ID --url http://{host}/{token}");
    note("Register", &command);
    let setting = format!("[push] allowed_hosts = [\"{host}\"]");
    note("Allow", &format!("{setting} in herald.toml of the agent's server"));
    note("Or set", &format!("PUSH_NOTIFICATION_ALLOWED_HOSTS={host}"));
    if !address.ip().is_loopback() && !args.is_verified() {
        warn("everyone who can reach this address can post to it; use --token, --secret or --jwks");
    }
}
