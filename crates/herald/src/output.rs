//! What a client verb prints: results on standard output in one of two formats, everything else on
//! standard error.

mod json;
mod page;
mod plain;
mod views;

use std::{
    io::{self, ErrorKind, IsTerminal, Write},
    process::ExitCode,
};

use serde::Serialize;

use crate::{
    args::{Format, OutputArgs},
    client::fault::{Fault, Kind},
};

pub(crate) use json::pretty;
pub(crate) use page::{Detail, Page};
pub(crate) use plain::{inline, is_active, lines, quoted};
pub(crate) use views::{describe, short};

/// How results are printed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    pub(crate) format: Format,
    /// Whether results come one by one, as they happen.
    pub(crate) stream: bool,
    pub(crate) detail: Detail,
    /// Whether the messages of tasks are shown.
    pub(crate) history: bool,
}

/// What can be shown in both formats: as itself, and as fields and blocks.
pub(crate) trait Show: Serialize {
    fn show(&self, page: &mut Page);
}

impl Output {
    pub(crate) fn new(args: &OutputArgs) -> Self {
        let detail = if args.verbose == Some(true) { Detail::Full } else { Detail::Short };
        let history = detail == Detail::Full;
        Self { format: args.format, stream: args.stream, detail, history }
    }

    /// Prints a result.
    pub(crate) fn show(&self, value: &(impl Show + ?Sized)) -> Result<(), Fault> {
        self.show_with(value, |_| {})
    }

    /// Prints a result and, for people, what `more` adds to it.
    pub(crate) fn show_with(
        &self,
        value: &(impl Show + ?Sized),
        more: impl FnOnce(&mut Page),
    ) -> Result<(), Fault> {
        let text = match self.format {
            Format::Json if self.stream => json::line(value),
            Format::Json => json::document(value),
            Format::Text => {
                let mut page = Page::new(self.detail);
                page.history = self.history;
                value.show(&mut page);
                more(&mut page);
                page.finish()
            }
        };
        print(&text)
    }

    /// Says how it ended and returns the exit status.
    pub(crate) fn fail(&self, fault: &Fault) -> ExitCode {
        match self.format {
            Format::Json | Format::Text if fault.kind() == Kind::Unread => {}
            Format::Json => {
                let envelope = fault.envelope();
                let text =
                    if self.stream { json::line(&envelope) } else { json::document(&envelope) };
                // Nothing can be done about a standard output that is gone.
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
pub(crate) fn document(value: &impl Serialize) -> Result<(), Fault> {
    print(&json::document(value))
}

/// The text of a JSON document, such that a terminal does not act on it.
pub(crate) fn document_of(json: &str) -> String {
    json::finish(json)
}

/// Writes to standard output at once. A reader who has gone has read enough.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            Err(Fault::new(Kind::Unread, "nobody reads the output any more"))
        }
        Err(error) => Err(Fault::internal(format!("cannot write the output: {error}"))),
        Ok(()) => Ok(()),
    }
}

/// A labelled line on standard error, whoever its text is from.
pub(crate) fn note(label: &str, text: &str) {
    // Nothing can be done about a standard error that is gone.
    let _ = writeln!(io::stderr().lock(), "{label}: {}", inline(text));
}

/// Something that the user should know, although the verb goes on.
pub(crate) fn warn(text: &str) {
    note("Warning", text);
}

/// A line about what is going on, for somebody who sits and waits.
pub(crate) fn progress(text: &str) {
    if io::stderr().is_terminal() {
        note("Progress", text);
    }
}
