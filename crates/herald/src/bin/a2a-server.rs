//! Binary `a2a-server`: `herald serve` under the name and with the defaults of a2a-server.

use std::process::ExitCode;

fn main() -> ExitCode {
    herald::a2a_server()
}
