//! The compiled protobuf files beside those of the official Python SDKs.

use std::{
    env,
    path::PathBuf,
    process::{Command, Stdio},
};

use prost::Message as _;
use prost_types::FileDescriptorProto;

use crate::difference::{differences, ours};

/// Prints the serialized file that a module of an SDK was generated from.
const PRINT: &str = "import importlib, sys
module = importlib.import_module(sys.argv[1])
sys.stdout.buffer.write(module.DESCRIPTOR.serialized_pb)";

#[test]
fn the_official_sdk_1_x_has_the_same_messages() {
    assert_same(&ours("lf.a2a.v1"), &official("python1", "a2a.types.a2a_pb2"));
}

#[test]
fn the_official_sdk_0_3_has_the_same_messages() {
    assert_same(&ours("a2a.v1"), &official("python03", "a2a.grpc.a2a_pb2"));
}

fn official(sdk: &str, module: &str) -> FileDescriptorProto {
    let installed = env::var_os("HERALD_TEST_CLIENTS");
    let installed = installed.expect("the official SDKs are not installed; run `cargo xtask test`");
    let python = PathBuf::from(installed).join(sdk).join("bin/python");
    let output = Command::new(python).args(["-c", PRINT, module]).stdin(Stdio::null()).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{sdk}: {}", String::from_utf8_lossy(&output.stderr));
    FileDescriptorProto::decode(&*output.stdout).unwrap()
}

fn assert_same(ours: &FileDescriptorProto, official: &FileDescriptorProto) {
    let found = differences(ours, official);
    assert!(found.is_empty(), "ours differs from the official file:\n{}", found.join("\n"));
}
