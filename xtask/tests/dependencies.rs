//! Test of the direct dependencies of each crate: a new one is a reviewed line here.

use std::{collections::BTreeMap, process::Command};

/// Each crate's direct dependencies, those of tests apart.
const ALLOWED: &[(&str, &str)] = &[
    (
        "herald-protocol",
        "base64 jiff prost prost-types serde serde_json serde_json_canonicalizer \
         serde_path_to_error strsim",
    ),
    ("herald-api", "herald-protocol schemars serde serde_html_form serde_json"),
    (
        "herald-engine",
        "async-trait base64 blake3 bytes herald-protocol refinery rusqlite rustix serde serde_json \
         tempfile thiserror tokio tokio-util tracing uuid",
    ),
    (
        "herald-agents",
        "async-trait backon base64 herald-api herald-client herald-engine herald-protocol reqwest rustix \
         serde serde_json tempfile tokio tokio-util tracing uuid",
    ),
    (
        "herald-client",
        "async-trait aws-lc-rs backon base64 bytes futures-util herald-protocol http \
         http-body http-body-util jsonwebtoken reqwest rustix serde serde_json tokio \
         tokio-rustls tokio-tungstenite tokio-util tower tracing uuid",
    ),
    (
        "herald-conformance",
        "bytes herald-protocol http http-body-util prost regex reqwest serde serde-saphyr \
         serde_json serde_path_to_error tokio uuid",
    ),
    (
        "herald-server",
        "async-trait aws-lc-rs base64 blake3 bytes futures-util governor herald-api herald-engine herald-protocol http http-acl http-body \
         http-body-util hyper hyper-util ipnet jsonwebtoken pem prost reqwest rmcp schemars serde serde_json socket2 subtle thiserror \
         tokio tokio-rustls tokio-tungstenite tokio-util tonic tonic-reflection tower tracing \
         uuid x509-parser",
    ),
    (
        "herald",
        "anyhow async-trait blake3 bytes bytesize clap clap_complete herald-agents herald-api herald-client \
         herald-conformance herald-engine herald-protocol herald-server http http-body-util humantime hyper \
         hyper-util jiff opentelemetry opentelemetry-http opentelemetry-otlp \
         opentelemetry_sdk reqwest rustix schemars serde serde_json strsim tokio tokio-util toml tower tracing tracing-subscriber uuid",
    ),
    ("xtask", "anyhow serde serde_json"),
    ("generate", "anyhow herald-api prost prost-build protox"),
];

#[test]
fn every_crate_depends_on_what_the_architecture_allows_and_nothing_else() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .output()
        .unwrap();
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        let direct = package["dependencies"].as_array().unwrap().iter();
        let direct = direct.filter(|dependency| dependency["kind"].is_null());
        let mut names: Vec<_> =
            direct.map(|dependency| dependency["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        found.insert(package["name"].as_str().unwrap(), names);
    }
    let allowed: BTreeMap<&str, Vec<&str>> =
        ALLOWED.iter().map(|(name, list)| (*name, list.split_whitespace().collect())).collect();
    assert_eq!(found, allowed);
}
