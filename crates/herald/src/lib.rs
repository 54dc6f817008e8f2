//! The command line of Herald. It is a library only so that two binaries can be made of it.

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
        CardCommand, Cli, Command, ConfigCommand, Doctor, Format, OutputArgs, Reading, Serve,
        Setting, Unread,
    },
    client::{fault::Fault, layers::Layers},
    cmd::doctor::Verdict,
    output::{Detail, Output},
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
        Err(Unread::Fault(fault)) => unread(&arguments).fail(&fault),
        Err(Unread::Clap(error)) => refuse(&arguments, &error),
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

fn run(reading: Reading) -> ExitCode {
    let Reading { cli, layers, settings, strangers } = reading;
    client::contact::warn_exposed(&layers);
    for stranger in strangers {
        output::warn(&output::inline(&stranger));
    }
    let code = perform(cli.command, &layers, &settings);
    if code != ExitCode::SUCCESS {
        for remark in settings.iter().filter_map(Setting::remark) {
            output::note("Note", &remark);
        }
    }
    code
}

fn perform(command: Command, layers: &Layers, settings: &[Setting]) -> ExitCode {
    match command {
        Command::Serve(args) => serve("herald", args),
        Command::Card(command) => {
            let CardCommand::Get(args) = &command;
            client(&args.agent.output, cmd::card::run(&command))
        }
        Command::Send(args) => client(&args.agent.output, cmd::send::run(&args)),
        Command::Task(command) => {
            client(&command.agent().output, Box::pin(cmd::task::run(&command)))
        }
        Command::Chat(args) => client(&args.agent.output, cmd::chat::run(&args)),
        Command::Auth(command) => client(command.output(), Box::pin(cmd::auth::run(&command))),
        Command::Listen(args) => client(&args.output, cmd::listen::run(&args)),
        Command::DemoServer(args) => served("herald", Box::pin(cmd::demo::run(args))),
        Command::Completion(args) => complete(args.shell),
        Command::Version => printed(concat!("herald ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Doctor(args) => doctor(&args),
        Command::Config(ConfigCommand::Show(args)) => {
            client(&args.agent.output, async { cmd::config::show(&args, layers, settings) })
        }
        Command::Config(ConfigCommand::Schema) => printed(&cmd::config::schema()),
        Command::Conformance(args) => {
            let format = args.output;
            let out = Output { format, stream: false, detail: Detail::Short, history: false };
            call(out, Box::pin(cmd::conformance::run(args)))
        }
    }
}

/// Runs a verb that calls an agent.
fn client(args: &OutputArgs, verb: impl Future<Output = Result<(), Fault>>) -> ExitCode {
    call(Output::new(args), async { verb.await.map(|()| ExitCode::SUCCESS) })
}

/// Runs a verb that calls others. One thread is enough for it and quicker to start.
fn call(out: Output, verb: impl Future<Output = Result<ExitCode, Fault>>) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    let done = runtime
        .map_err(|error| Fault::internal(format!("cannot start: {error}")))
        .and_then(|runtime| finish(runtime, verb));
    done.unwrap_or_else(|fault| out.fail(&fault))
}

/// Runs the checks. It succeeds if none of them fails.
fn doctor(args: &Doctor) -> ExitCode {
    let runtime = Builder::new_current_thread().enable_all().build();
    let done = runtime
        .map_err(|error| Fault::internal(format!("cannot start: {error}")))
        .and_then(|runtime| finish(runtime, cmd::doctor::run(args)));
    match done {
        Ok(Verdict::Ok | Verdict::Warn) => ExitCode::SUCCESS,
        Ok(Verdict::Fail) => ExitCode::FAILURE,
        Err(fault) => fault.exit_code(),
    }
}

fn serve(name: &str, args: Serve) -> ExitCode {
    served(name, Box::pin(cmd::serve::run(args)))
}

/// Runs a verb that serves.
fn served(name: &str, verb: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    let runtime = Builder::new_multi_thread().enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| finish(runtime, verb));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing can be done about a standard error that is gone.
            let _ = writeln!(std::io::stderr(), "{name}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn finish<T>(runtime: Runtime, work: impl Future<Output = T>) -> T {
    let done = runtime.block_on(work);
    // What did not stop in time is dropped; a server's claims die with the process.
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

/// Prints help or a version, or says what is wrong with the arguments.
fn refuse(arguments: &[OsString], error: &clap::Error) -> ExitCode {
    let out = unread(arguments);
    if error.use_stderr() && out.format == Format::Json {
        return out.fail(&args::wrong(error));
    }
    // Nothing can be done about standard streams that are gone.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2).into()
}

/// How to print while the arguments are not understood: as far as they can be.
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
    Output { format, stream, detail: Detail::Short, history: false }
}
