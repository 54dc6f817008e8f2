//! `cargo xtask test`: everything the tests need, then all of them.

use std::process::Command;

use crate::{execute, prepare, root};

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let clients = prepare::clients()?;
    let servers = prepare::servers()?;
    let coding = prepare::coding()?;
    execute(
        Command::new(env!("CARGO"))
            .args(["test", "--workspace", "--locked"])
            .args(arguments)
            .env("HERALD_TEST_CLIENTS", clients)
            .env("HERALD_TEST_SERVERS", servers)
            .env("HERALD_TEST_CODING", coding)
            .current_dir(root()),
    )
}
