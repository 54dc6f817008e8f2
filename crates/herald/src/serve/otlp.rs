//! Exporter of spans over OTLP.
//!
//! The engine and the server put the trace context of a span into its fields `trace` and `parent`. When such a span
//! closes, it becomes a span of OpenTelemetry, whose batch processor queues spans (bounded; further ones are dropped) and
//! sends them from a thread of its own, so that a slow collector does not slow requests down.

mod collector;

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use anyhow::Context as _;
use herald_protocol::TraceContext;
use opentelemetry::{
    InstrumentationScope, KeyValue, SpanId, TraceFlags, TraceId, Value,
    trace::{SpanContext, SpanKind, Status, TraceState},
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    trace::{BatchSpanProcessor, SpanData, SpanEvents, SpanLinks, SpanProcessor},
};
use tracing::{
    Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    span,
};
use tracing_subscriber::{Layer, filter::filter_fn, layer::Context, registry::LookupSpan};

use crate::serve::settings::TraceSettings;

use self::collector::Collector;

/// The longest wait of a shutdown for the last spans to be sent.
const LAST_SPANS: Duration = Duration::from_secs(5);

/// Tracing layer that exports spans. Clones share one queue.
#[derive(Debug, Clone)]
pub(crate) struct Exporter {
    processor: Arc<BatchSpanProcessor>,
    scope: InstrumentationScope,
}

/// The data of an open span.
#[derive(Debug)]
struct OpenSpan {
    begun: SystemTime,
    trace: Option<TraceContext>,
    parent: Option<u64>,
    operation: Option<String>,
    agent: Option<String>,
    failed: bool,
    attributes: Vec<KeyValue>,
}

impl Exporter {
    /// Starts the exporter. Must be called on the runtime that sends the spans.
    pub(crate) fn start(settings: &TraceSettings) -> anyhow::Result<Self> {
        let headers = settings.headers.iter().map(|(name, value)| (name.clone(), value.0.clone()));
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Collector::new(settings.roots.as_deref())?)
            .with_endpoint(&settings.endpoint)
            .with_headers(headers.collect())
            .build()
            .context("cannot export traces")?;
        let mut processor = BatchSpanProcessor::builder(exporter).build();
        let resource = Resource::builder()
            .with_service_name(settings.service.clone())
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        processor.set_resource(&resource);
        let scope = InstrumentationScope::builder("herald").build();
        Ok(Self { processor: Arc::new(processor), scope })
    }

    /// The layer, for spans of calls, turns and deliveries only.
    pub(crate) fn layer<S>(self) -> impl Layer<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.with_filter(filter_fn(is_exported).with_max_level_hint(LevelFilter::ERROR))
    }

    /// Sends the remaining spans.
    pub(crate) async fn finish(self) {
        let last = move || self.processor.shutdown_with_timeout(LAST_SPANS);
        if !matches!(tokio::task::spawn_blocking(last).await, Ok(Ok(()))) {
            tracing::warn!("the last spans could not be sent");
        }
    }

    fn export(&self, name: &'static str, open: OpenSpan) {
        let Some(own) = open.trace.filter(|own| own.sampled) else { return };
        let is_call = name == CALL;
        let kind = match name {
            CALL => SpanKind::Server,
            DELIVERY => SpanKind::Client,
            _ => SpanKind::Internal,
        };
        let name = match (name, open.operation, open.agent) {
            (CALL, Some(operation), _) => operation.into(),
            (TURN, _, Some(agent)) => format!("invoke_agent {agent}").into(),
            (DELIVERY, _, _) => "deliver_webhook".into(),
            (other, _, _) => other.into(),
        };
        self.processor.on_end(SpanData {
            span_context: SpanContext::new(
                TraceId::from(own.trace.get()),
                SpanId::from(own.span.get()),
                TraceFlags::SAMPLED,
                false,
                TraceState::default(),
            ),
            parent_span_id: open.parent.map_or(SpanId::INVALID, SpanId::from),
            parent_span_is_remote: is_call && open.parent.is_some(),
            span_kind: kind,
            name,
            start_time: open.begun,
            end_time: now(),
            attributes: open.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: if open.failed { Status::error("") } else { Status::Unset },
            instrumentation_scope: self.scope.clone(),
        });
    }
}

const CALL: &str = "request";
const TURN: &str = "turn";
const DELIVERY: &str = "delivery";

fn is_exported(metadata: &Metadata<'_>) -> bool {
    metadata.is_span()
        && metadata.target().starts_with("herald")
        && matches!(metadata.name(), CALL | TURN | DELIVERY)
}

#[expect(
    clippy::disallowed_methods,
    reason = "spans are measured in microseconds by the machine's clock, and decide nothing"
)]
fn now() -> SystemTime {
    SystemTime::now()
}

impl<S> Layer<S> for Exporter
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(
        &self,
        attributes: &span::Attributes<'_>,
        id: &span::Id,
        context: Context<'_, S>,
    ) {
        let Some(span) = context.span(id) else { return };
        let mut open = OpenSpan {
            begun: now(),
            trace: None,
            parent: None,
            operation: None,
            agent: None,
            failed: false,
            attributes: Vec::new(),
        };
        attributes.record(&mut open);
        span.extensions_mut().insert(open);
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<OpenSpan>() {
            values.record(open);
        }
    }

    fn on_close(&self, id: span::Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let open = span.extensions_mut().remove::<OpenSpan>();
        if let Some(open) = open {
            self.export(span.name(), open);
        }
    }
}

impl OpenSpan {
    fn attribute(&mut self, key: &'static str, value: impl Into<Value>) {
        self.attributes.retain(|attribute| attribute.key.as_str() != key);
        self.attributes.push(KeyValue::new(key, value));
    }
}

/// Maps fields to the attribute names of OpenTelemetry's semantic conventions.
impl Visit for OpenSpan {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "trace" => self.trace = value.parse().ok(),
            "parent" => self.parent = u64::from_str_radix(value, 16).ok(),
            "operation" => {
                self.operation = Some(value.to_owned());
                self.attribute("a2a.operation", value.to_owned());
            }
            "agent" => {
                self.agent = Some(value.to_owned());
                self.attribute("gen_ai.agent.name", value.to_owned());
            }
            "state" => {
                self.failed = value == "TASK_STATE_FAILED";
                self.attribute("a2a.task.state", value.to_owned());
            }
            name => {
                if let Some(key) = key(name) {
                    self.attribute(key, value.to_owned());
                }
            }
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "failed" {
            self.failed = value;
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        if let (Some(key), Ok(value)) = (key(field.name()), i64::try_from(value)) {
            self.attribute(key, value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }
}

fn key(field: &str) -> Option<&'static str> {
    Some(match field {
        "id" => "herald.request.id",
        "method" => "http.request.method",
        "path" => "url.path",
        "status" => "http.response.status_code",
        "error" => "error.type",
        "version" => "a2a.version",
        "binding" => "a2a.binding",
        "tenant" => "a2a.tenant",
        "task" => "a2a.task.id",
        "context" => "gen_ai.conversation.id",
        "seq" => "a2a.seq",
        "attempt" => "a2a.attempt",
        "webhook" => "herald.webhook.id",
        _ => return None,
    })
}
