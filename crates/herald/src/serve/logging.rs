//! Structured logs on standard error: levels, formats and the panic hook.

use std::fmt;

use herald_engine::Clock;
use tracing::{Event, Level, Subscriber, field::Field};
use tracing_subscriber::{
    Layer,
    field::MakeExt,
    filter::{LevelFilter, Targets},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Writer, debug_fn},
    },
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::{
    args::{LogFormat, LogLevel},
    serve::otlp::Exporter,
};

/// Installs the subscriber for logs and exported spans.
pub(crate) fn start(level: LogLevel, format: LogFormat, spans: Option<Exporter>) {
    let of_tasks = task_lines(level, format);
    let level = filter(level);
    // Our own lines at the given level, those of libraries at `warn` at most.
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_targets(
        ["herald", "herald_agents", "herald_engine", "herald_protocol", "herald_server"]
            .map(|target| (target, level)),
    );
    // The SDK warns about every mistake of a client, with the content of its message.
    let targets = targets.with_target("rmcp", level.min(LevelFilter::ERROR));
    let targets = targets.with_target("a2a", of_tasks);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Text => {
            // As in https://no-color.org: any value counts, except an empty one.
            let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let colour = !unwanted && std::io::IsTerminal::is_terminal(&std::io::stderr());
            if colour {
                layer.with_ansi(true).boxed()
            } else {
                // The default fields look up a style for each part, which is a large share of the cost of
                // a request's span.
                layer.with_ansi(false).fmt_fields(debug_fn(plain_field).delimited(" ")).boxed()
            }
        }
        // The innermost span has all fields, so the list of spans would repeat them.
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
        LogFormat::Classic => layer.with_ansi(false).event_format(Classic).boxed(),
    };
    let registry = tracing_subscriber::registry();
    match spans {
        Some(spans) => registry.with(layer.with_filter(targets)).with(spans.layer()).init(),
        // A filter of one layer looks up the span each time a request enters or leaves it; a filter of all
        // layers decides once for each line of the code.
        None => registry.with(layer).with(targets).init(),
    }
    // A panic is logged in the format of all other lines.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// The filter of a level.
fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// The filter of the lines in the format of a2a-server. It logs two lines per task at level info, which is
/// too much for a busy server, so other formats have them from level debug on.
pub(super) fn task_lines(level: LogLevel, format: LogFormat) -> LevelFilter {
    match (format, level) {
        (LogFormat::Text | LogFormat::Json, LogLevel::Info) => LevelFilter::WARN,
        (LogFormat::Classic | LogFormat::Text | LogFormat::Json, level) => filter(level),
    }
}

/// A field of a log line: its value, with its name unless it is the message.
fn plain_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        writer.write_str(field.name())?;
        writer.write_char('=')?;
    }
    write!(writer, "{value:?}")
}

/// Lines in the format of a2a-server, for existing searches and alerts:
/// `2026-11-16 08:05:09,120 INFO a2a.server.methods: Task created …`. Times are UTC.
#[derive(Debug)]
struct Classic;

impl<S, N> FormatEvent<S, N> for Classic
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let time = Clock::system().now().to_string().replace('T', " ").replace('.', ",");
        let level = match *event.metadata().level() {
            Level::ERROR => "ERROR",
            Level::WARN => "WARNING",
            Level::INFO => "INFO",
            Level::DEBUG => "DEBUG",
            Level::TRACE => "TRACE",
        };
        let logger = event.metadata().target().replace("::", ".").replace('_', ".");
        write!(writer, "{} {level} {logger}: ", time.trim_end_matches('Z'))?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}
