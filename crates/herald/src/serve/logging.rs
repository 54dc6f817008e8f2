//! Structured logs, on standard error.

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

/// Starts to log, and to export spans.
pub(crate) fn start(level: LogLevel, format: LogFormat, spans: Option<Exporter>) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    // Our own words at the level asked for; those of libraries only when they warn.
    let targets = Targets::new().with_default(level.min(LevelFilter::WARN)).with_targets(
        ["herald", "herald_agents", "herald_engine", "herald_protocol", "herald_server"]
            .map(|target| (target, level)),
    );
    // The story of each task is two lines even at level info, which is what earlier servers wrote
    // and more than a busy one wants.
    let story = match format {
        LogFormat::Classic => level,
        LogFormat::Text | LogFormat::Json if level < LevelFilter::DEBUG => LevelFilter::WARN,
        LogFormat::Text | LogFormat::Json => level,
    };
    let targets = targets.with_target("a2a", story.min(level));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Text => {
            // As https://no-color.org says: whatever it is set to, unless that is empty.
            let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            let colour = !unwanted && std::io::IsTerminal::is_terminal(&std::io::stderr());
            if colour {
                layer.with_ansi(true).boxed()
            } else {
                // The usual fields look for a style of each part, which costs a good part of the span of
                // a request.
                layer.with_ansi(false).fmt_fields(debug_fn(plain_field).delimited(" ")).boxed()
            }
        }
        // The innermost span says it all; the list of them would say it again.
        LogFormat::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
        LogFormat::Classic => layer.with_ansi(false).event_format(Classic).boxed(),
    };
    let spans = spans.map(Exporter::layer);
    tracing_subscriber::registry().with(layer.with_filter(targets)).with(spans).init();
    // A panic is a line of the log like any other, in the format of the others.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}

/// A field of a log line: its value, with its name unless it is the message.
fn plain_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    if field.name() != "message" {
        writer.write_str(field.name())?;
        writer.write_char('=')?;
    }
    write!(writer, "{value:?}")
}

/// Lines as Python programs log them, which is what searches and alarms of earlier A2A servers
/// expect: `2026-11-16 08:05:09,120 INFO a2a.server.methods: Task created …`. Times are UTC.
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
