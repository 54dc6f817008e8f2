//! `a2a-server`: Herald by another name and with fewer flags.

use std::process::ExitCode;

fn main() -> ExitCode {
    herald::a2a_server()
}
