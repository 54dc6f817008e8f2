//! Binary `herald`.

use std::process::ExitCode;

fn main() -> ExitCode {
    herald::main()
}
