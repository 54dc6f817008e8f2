//! Environment variables of flags: which apply, and errors that name them.

use std::ffi::OsString;

use clap::{
    Arg, Command, Error,
    builder::Resettable,
    error::{ContextKind, ContextValue},
};

/// Removes the variables that do not apply from the command: empty ones, switches that are off, and those that a
/// flag on the command line contradicts, since flags override variables.
pub(super) fn without_inapplicable(command: Command, arguments: &[OsString]) -> Command {
    let idle: Vec<_> = command
        .get_arguments()
        .filter(|arg| value(arg).is_some_and(|value| !applies(&command, arg, &value, arguments)))
        .map(|arg| arg.get_id().clone())
        .collect();
    command
        .mut_args(|arg| if idle.contains(arg.get_id()) { arg.env(Resettable::Reset) } else { arg })
        .mut_subcommands(|inner| without_inapplicable(inner, arguments))
}

fn applies(command: &Command, arg: &Arg, value: &str, arguments: &[OsString]) -> bool {
    let no = ["0", "f", "false", "n", "no", "off"];
    if value.is_empty() {
        return false;
    }
    if !arg.get_action().takes_values() && no.contains(&value.to_ascii_lowercase().as_str()) {
        return false;
    }
    let conflict = |one: &Arg, other: &Arg| {
        command.get_arg_conflicts_with(one).iter().any(|arg| arg.get_id() == other.get_id())
    };
    let others = command.get_arguments().filter(|other| is_given(other, arguments));
    others.filter(|other| conflict(arg, other) || conflict(other, arg)).count() == 0
}

/// The error with the variable in place of a flag that is not on the command line.
pub(super) fn named(mut error: Error, command: &Command, arguments: &[OsString]) -> Error {
    for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
        let variable = match error.get(kind) {
            Some(ContextValue::String(flag)) => variable(command, flag, arguments),
            Some(ContextValue::Strings(flags)) if flags.len() == 1 => {
                variable(command, &flags[0], arguments)
            }
            _ => None,
        };
        if let Some(variable) = variable {
            error.insert(kind, ContextValue::String(variable));
        }
    }
    error
}

/// The variable with the value of a flag.
fn variable(command: &Command, flag: &str, arguments: &[OsString]) -> Option<String> {
    let name = flag.trim_start_matches("--").split([' ', '=']).next();
    let here =
        command.get_arguments().find(|arg| arg.get_long().is_some() && arg.get_long() == name);
    let here = here.filter(|arg| value(arg).is_some() && !is_given(arg, arguments));
    let here = here.and_then(|arg| Some(arg.get_env()?.to_string_lossy().into_owned()));
    let below = || command.get_subcommands().find_map(|inner| variable(inner, flag, arguments));
    here.or_else(below)
}

fn value(arg: &Arg) -> Option<String> {
    Some(std::env::var_os(arg.get_env()?)?.to_string_lossy().into_owned())
}

fn is_given(arg: &Arg, arguments: &[OsString]) -> bool {
    let Some(long) = arg.get_long() else { return false };
    let mut words = arguments.iter().filter_map(|word| word.to_str()?.strip_prefix("--"));
    words.any(|word| word.split('=').next() == Some(long))
}
