//! Structured logs, on standard error.

use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt,
    layer::SubscriberExt,
    util::SubscriberInitExt,
};

use crate::args::{LogFormat, LogLevel};

/// Starts to log.
pub(crate) fn start(level: LogLevel, format: LogFormat) {
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
    let layer = fmt::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Text => {
            let colour = std::io::IsTerminal::is_terminal(&std::io::stderr());
            layer.with_ansi(colour).boxed()
        }
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(targets)).init();
    // A panic is a line of the log like any other, in the format of the others.
    std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
}
