//! Variables that stand for flags: which of them count, and naming them when they are wrong.

use std::ffi::OsString;

use clap::{
    Arg, Command, Error,
    builder::Resettable,
    error::{ContextKind, ContextValue},
};

/// The command with the variables that count. One that is empty is not set; nor is a switch that
/// says no, nor one that a flag on the command line contradicts, since flags win.
pub(super) fn settle(command: Command, arguments: &[OsString]) -> Command {
    let idle: Vec<_> = command
        .get_arguments()
        .filter(|arg| value(arg).is_some_and(|value| !counts(&command, arg, &value, arguments)))
        .map(|arg| arg.get_id().clone())
        .collect();
    command
        .mut_args(|arg| match idle.contains(arg.get_id()) {
            true => arg.env(Resettable::Reset),
            false => arg,
        })
        .mut_subcommands(|inner| settle(inner, arguments))
}

fn counts(command: &Command, arg: &Arg, value: &str, arguments: &[OsString]) -> bool {
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

/// The same error with the variable in the place of a flag that nobody gave.
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

/// The variable that a flag's value comes from.
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
