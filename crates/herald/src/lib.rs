//! Command line of Herald, as a library for its two binaries.

mod api;
mod args;
mod client;
mod cmd;
mod output;
mod serve;
mod spelling;

use std::{
    ffi::{OsStr, OsString},
    future::Future,
    io::Write,
    path::Path,
    process::ExitCode,
};

use clap::CommandFactory;
use tokio::runtime::{Builder, Runtime};

use crate::{
    args::{
        ArgsError, CardCommand, Cli, CliCommand, ConfigCommand, Doctor, Format, OutputArgs,
        ParsedArgs, Serve, Setting, StoreCommand, TenantCommand,
    },
    client::{error::CliError, layers::Layers},
    cmd::doctor::CheckVerdict,
    output::{DetailLevel, Output},
};

const A2A_SERVER: &str = "a2a-server";

/// Runs `herald`, or `a2a-server` if that is what the program is called.
pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let called = arguments.first().map(Path::new).and_then(Path::file_stem);
    if called.is_some_and(|name| name == A2A_SERVER) {
        return a2a_server();
    }
    match args::read(&arguments) {
        Ok(reading) => run(reading),
        Err(ArgsError::CliError(fault)) => unread(&arguments).fail(&fault),
        Err(ArgsError::Clap(error)) => refuse(&arguments, &error),
    }
}

/// Runs `a2a-server`.
pub fn a2a_server() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    match args::read_a2a_server(&arguments) {
        Ok(args) => serve(A2A_SERVER, args.into()),
        Err(error) => refuse(&arguments, &error),
    }
}

fn run(reading: ParsedArgs) -> ExitCode {
    let ParsedArgs { cli, layers, settings, unknown_settings } = reading;
    client::contact::warn_exposed(&layers);
    for remark in unknown_settings {
        output::warn(&output::inline(&remark));
    }
    let code = perform(cli.command, &layers, &settings);
    if code != ExitCode::SUCCESS {
        for remark in settings.iter().filter_map(Setting::remark) {
            output::note("Note", &remark);
        }
    }
    code
}

fn perform(command: CliCommand, layers: &Layers, settings: &[Setting]) -> ExitCode {
    match command {
        CliCommand::Serve(args) => serve("herald", args),
        CliCommand::Worker(args) => served("herald", Box::pin(cmd::worker::run(*args))),
        CliCommand::Card(command) => {
            let CardCommand::Get(args) = &command;
            client(&args.agent.output, cmd::card::run(&command))
        }
        CliCommand::Send(args) => client(&args.agent.output, cmd::send::run(&args)),
        CliCommand::Task(command) => client(command.output(), Box::pin(cmd::task::run(&command))),
        CliCommand::Chat(args) => client(&args.agent.output, cmd::chat::run(&args)),
        CliCommand::Auth(command) => client(command.output(), Box::pin(cmd::auth::run(&command))),
        CliCommand::Listen(args) => client(&args.output, cmd::listen::run(&args)),
        CliCommand::Mcp(args) => {
            // Standard output is for messages of MCP only, so that errors are never written there.
            let (format, detail) = (Format::Text, DetailLevel::Short);
            let out = Output { format, stream: false, detail, history: false };
            call(out, async { cmd::mcp::run(&args).await.map(|()| ExitCode::SUCCESS) })
        }
        CliCommand::DemoServer(args) => served("herald", Box::pin(cmd::demo::run(args))),
        CliCommand::Completion(args) => complete(args.shell),
        CliCommand::Version => printed(concat!("herald ", env!("CARGO_PKG_VERSION"), "\n")),
        CliCommand::Status(args) => client(&args.server.output, cmd::status::run(&args)),
        CliCommand::Key(command) => client(command.output(), cmd::key::run(&command)),
        CliCommand::Agent(command) => client(&command.server().output, cmd::agent::run(&command)),
        CliCommand::Tenant(command) => {
            let TenantCommand::List(args) = &command;
            client(&args.server.output, cmd::store::tenants(&command))
        }
        CliCommand::Webhook(command) => {
            client(command.output(), Box::pin(cmd::webhook::run(&command)))
        }
        CliCommand::Audit(command) => {
            call(Output::new(&command.server().output), cmd::audit::run(&command))
        }
        CliCommand::Store(command) => {
            let StoreCommand::Status(args) = &command;
            client(&args.server.output, cmd::store::run(&command))
        }
        CliCommand::Worktree(command) => client(command.output(), cmd::worktree::run(&command)),
        CliCommand::Doctor(args) => doctor(&args),
        CliCommand::Config(ConfigCommand::Show(args)) => {
            client(&args.agent.output, async { cmd::config::show(&args, layers, settings) })
        }
        CliCommand::Config(ConfigCommand::Schema) => printed(&cmd::config::schema()),
        CliCommand::Conformance(args) => {
            let format = args.output;
            let out = Output { format, stream: false, detail: DetailLevel::Short, history: false };
            call(out, Box::pin(cmd::conformance::run(args)))
        }
    }
}

/// Runs a verb that calls an agent.
fn client(args: &OutputArgs, verb: impl Future<Output = Result<(), CliError>>) -> ExitCode {
    call(Output::new(args), async { verb.await.map(|()| ExitCode::SUCCESS) })
}

/// Runs a client verb. A runtime with one thread is enough for it and starts faster.
fn call(out: Output, verb: impl Future<Output = Result<ExitCode, CliError>>) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    let done = runtime
        .map_err(|error| CliError::internal(format!("cannot start: {error}")))
        .and_then(|runtime| finish(runtime, verb));
    done.unwrap_or_else(|fault| out.fail(&fault))
}

/// Runs the checks. It succeeds if none of them fails.
fn doctor(args: &Doctor) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    let done = runtime
        .map_err(|error| CliError::internal(format!("cannot start: {error}")))
        .and_then(|runtime| finish(runtime, cmd::doctor::run(args)));
    match done {
        Ok(CheckVerdict::Ok | CheckVerdict::Warn) => ExitCode::SUCCESS,
        Ok(CheckVerdict::Fail) => ExitCode::FAILURE,
        Err(fault) => fault.exit_code(),
    }
}

fn serve(name: &str, args: Serve) -> ExitCode {
    served(name, Box::pin(cmd::serve::run(args)))
}

/// Runs a server verb.
fn served(name: &str, verb: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| finish(runtime, verb));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // A closed standard error cannot be reported.
            let _ = writeln!(std::io::stderr(), "{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn finish<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(work);
    // Tasks that did not stop in time are dropped; a server's claims end with the process.
    runtime.shutdown_background();
    done
}

fn complete(shell: clap_complete::Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "herald", &mut script);
    printed(&String::from_utf8_lossy(&script))
}

fn printed(text: &str) -> ExitCode {
    match output::print(text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => fault.exit_code(),
    }
}

/// Prints help, the version, or an error in the arguments.
fn refuse(arguments: &[OsString], error: &clap::Error) -> ExitCode {
    let out = unread(arguments);
    if error.use_stderr() && out.format == Format::Json {
        return out.fail(&args::wrong(error));
    }
    // Closed standard streams cannot be reported.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2).into()
}

/// The output format for an error in the arguments, which is found without parsing them.
fn unread(arguments: &[OsString]) -> Output {
    let given = |word: &OsString, name: &str| word == OsStr::new(name);
    let mut pairs = arguments.windows(2);
    let json = pairs.any(|pair| {
        (given(&pair[0], "-o") || given(&pair[0], "--output")) && given(&pair[1], "json")
    });
    let joined = ["-ojson", "-o=json", "--output=json"];
    let joined = arguments.iter().any(|word| joined.iter().any(|name| given(word, name)));
    let variable =
        std::env::var(client::layers::variable("output")).is_ok_and(|value| value == "json");
    let format = if json || joined || variable { Format::Json } else { Format::Text };
    let stream = arguments.iter().any(|word| given(word, "--stream"));
    Output { format, stream, detail: DetailLevel::Short, history: false }
}
