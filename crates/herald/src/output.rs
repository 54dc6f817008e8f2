//! Output of client verbs: results on standard output as text or JSON, everything else on standard error.

mod json;
mod operator;
mod page;
mod plain;
pub(crate) mod table;
mod views;

use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    process::ExitCode,
};

use serde::Serialize;

use crate::{
    args::{Format, OutputArgs},
    client::error::{CliError, CliErrorKind},
};

pub(crate) use json::{line, pretty};
pub(crate) use operator::{LogColumns, show_question};
pub(crate) use page::{DetailLevel, TextPage};
pub(crate) use plain::{inline, is_active, lines, quoted};
pub(crate) use views::{describe, short};

/// Format and detail of printed results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// True to print each event when it arrives.
    pub(crate) stream: bool,
    pub(crate) detail: DetailLevel,
    /// True to show the messages of tasks.
    pub(crate) history: bool,
}

/// A result that can be printed in both formats: as JSON, and as fields and blocks.
pub(crate) trait Show: Serialize {
    fn show(&self, page: &mut TextPage);
}

impl Output {
    pub(crate) fn new(args: &OutputArgs) -> Self {
        let detail =
            if args.verbose == Some(true) { DetailLevel::Full } else { DetailLevel::Short };
        let history = detail == DetailLevel::Full;
        Self { format: args.format, stream: args.stream, detail, history }
    }

    /// Prints a result.
    pub(crate) fn show(&self, value: &(impl Show + ?Sized)) -> Result<(), CliError> {
        self.show_with(value, |_| {})
    }

    /// Prints a result, in the text format with the fields that `more` adds.
    pub(crate) fn show_with(
        &self,
        value: &(impl Show + ?Sized),
        more: impl FnOnce(&mut TextPage),
    ) -> Result<(), CliError> {
        let text = match self.format {
            Format::Json if self.stream => line(value),
            Format::Json => json::document(value),
            Format::Text => {
                let mut page = TextPage::new(self.detail);
                page.history = self.history;
                value.show(&mut page);
                more(&mut page);
                page.finish()
            }
        };
        print(&text)
    }

    /// Prints an error and returns the exit status.
    pub(crate) fn fail(&self, fault: &CliError) -> ExitCode {
        match self.format {
            Format::Json | Format::Text if fault.kind() == CliErrorKind::OutputClosed => {}
            Format::Json => {
                let envelope = fault.envelope();
                let text = if self.stream { line(&envelope) } else { json::document(&envelope) };
                // A closed standard output cannot be reported.
                let _ = print(&text);
            }
            Format::Text => {
                let code = fault.kind().code();
                note("Error", &format!("{} ({code})", fault.message()));
                if let Some(hint) = fault.advice() {
                    note("Hint", hint);
                }
            }
        }
        fault.exit_code()
    }
}

/// Writes one JSON document to standard output.
pub(crate) fn document(value: &impl Serialize) -> Result<(), CliError> {
    print(&json::document(value))
}

/// A JSON document without terminal control characters.
pub(crate) fn document_of(json: &str) -> String {
    json::finish(json)
}

/// Writes to standard output and flushes it. A closed output ends the verb without a message.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Err(CliError::new(CliErrorKind::OutputClosed, "standard output was closed"))
        }
        Err(error) => Err(CliError::internal(format!("cannot write the output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// Writes a labelled line to standard error, without terminal control characters.
pub(crate) fn note(label: &str, text: &str) {
    // A closed standard error cannot be reported.
    let _ = writeln!(io::stderr().lock(), "{label}: {}", inline(text));
}

/// Writes a warning to standard error.
pub(crate) fn warn(text: &str) {
    note("Warning", text);
}

/// Writes a progress line to standard error, if that is a terminal.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() {
        note("Progress", text);
    }
}
