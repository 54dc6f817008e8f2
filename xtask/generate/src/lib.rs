//! Generator of committed files: the code of protobuf messages, without a protobuf compiler, and the page
//! of `/api`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use prost::Message;
use prost_build::{Config, Module};

/// Each service's file, the name of its package, and the module that is made of it.
const PROTOCOLS: [(&str, &str, &str); 2] =
    [("lf/a2a/v1/a2a.proto", "lf.a2a.v1", "v1.rs"), ("a2a/v1/a2a.proto", "a2a.v1", "v03.rs")];

/// A file that is generated.
#[derive(Debug)]
pub struct Generated {
    /// Its path.
    pub path: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
}

/// Makes everything: the messages of each version, the descriptors that reflection shows, and the page of
/// `/api`.
pub fn generate() -> anyhow::Result<Vec<Generated>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().context("the workspace is not where it was built")?;
    let sources = root.join("crates/protocol/proto");
    let mut files = Vec::new();
    for (source, package, name) in PROTOCOLS {
        let descriptors = protox::compile([source], [&sources])?;
        let requests = descriptors.file.into_iter();
        let requests =
            requests.map(|file| (Module::from_protobuf_package_name(file.package()), file));
        let mut code = messages().generate(requests.collect())?;
        let code = code.remove(&Module::from_protobuf_package_name(package));
        let code = code.context("the package has no messages")?;
        let path = root.join("crates/protocol/src/grpc/generated").join(name);
        files.push(Generated { path, content: code.into_bytes() });
    }
    let mut descriptors = protox::compile(PROTOCOLS.map(|(source, ..)| source), [&sources])?;
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    let path = root.join("crates/protocol/src/grpc/generated/descriptors.bin");
    files.push(Generated { path, content: descriptors.encode_to_vec() });
    let content = herald_api::reference::page().into_bytes();
    files.push(Generated { path: root.join("docs/api.md"), content });
    Ok(files)
}

fn messages() -> Config {
    let mut config = Config::new();
    // Comments belong to the protobuf files; in Rust, the types that these are converted to are documented.
    config.disable_comments(["."]).btree_map(["."]);
    // Open values are read without a tree of messages.
    for open in ["Struct", "Value"] {
        let path = format!(".google.protobuf.{open}");
        config.extern_path(path, "crate::grpc::value::ValueBytes");
    }
    config
}
