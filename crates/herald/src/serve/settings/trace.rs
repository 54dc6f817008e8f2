//! Settings of trace export, from the file and from OpenTelemetry's variables.

use anyhow::{Context, bail};

use crate::serve::config::{SecretValue, TraceSection};

use super::environment;

/// The collector and the sampling of spans.
#[derive(Debug)]
pub(crate) struct TraceSettings {
    /// The whole URL.
    pub(crate) endpoint: String,
    pub(crate) headers: Vec<(String, SecretValue)>,
    pub(crate) service: String,
    /// The fraction of new traces that is recorded.
    pub(crate) sample: f64,
    /// Certificate authorities to trust for the collector in addition to the system's, in PEM.
    pub(crate) roots: Option<Vec<u8>>,
}

impl TraceSettings {
    /// The settings of OpenTelemetry's variables, or else of the file.
    pub(super) fn merge(section: &TraceSection) -> anyhow::Result<Option<Self>> {
        let given = [
            environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
            environment("OTEL_EXPORTER_OTLP_ENDPOINT").map(|base| below(&base)),
            section.otlp.as_deref().map(below),
        ];
        let disabled = environment("OTEL_SDK_DISABLED").is_some_and(|text| text == "true");
        let Some(endpoint) = given.into_iter().flatten().next().filter(|_| !disabled) else {
            return Ok(None);
        };
        let host = endpoint.strip_prefix("http://").or(endpoint.strip_prefix("https://"));
        if host.is_none_or(|host| host.is_empty() || host.starts_with('/')) {
            bail!("{endpoint:?} is not the URL of a collector; try http://127.0.0.1:4318");
        }
        let sample = match sampler()? {
            Some(sample) => sample,
            None => section.sample.unwrap_or(1.0),
        };
        if !(0.0..=1.0).contains(&sample) {
            bail!("[trace] sample must be a number from 0 to 1, not {sample}");
        }
        let roots = [
            environment("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"),
            environment("OTEL_EXPORTER_OTLP_CERTIFICATE"),
            section.ca.clone(),
        ];
        let roots = roots.into_iter().flatten().next().map(|path| {
            std::fs::read(&path).with_context(|| format!("cannot read the certificate in {path:?}"))
        });
        let headers = section.headers.iter();
        let service = environment("OTEL_SERVICE_NAME").or_else(|| section.service.clone());
        Ok(Some(Self {
            endpoint,
            headers: headers.map(|(name, value)| (name.clone(), value.clone())).collect(),
            service: service.unwrap_or_else(|| "herald".to_owned()),
            sample,
            roots: roots.transpose()?,
        }))
    }
}

/// The URL for traces below the address of a collector.
fn below(base: &str) -> String {
    let base = base.trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

/// The fraction of new traces from OpenTelemetry's variables.
fn sampler() -> anyhow::Result<Option<f64>> {
    let Some(name) = environment("OTEL_TRACES_SAMPLER") else { return Ok(None) };
    match name.strip_prefix("parentbased_").unwrap_or(&name) {
        "always_on" => Ok(Some(1.0)),
        "always_off" => Ok(Some(0.0)),
        "traceidratio" => {
            let share = environment("OTEL_TRACES_SAMPLER_ARG").unwrap_or_else(|| "1".to_owned());
            let wrong = || format!("OTEL_TRACES_SAMPLER_ARG={share:?} is not a number from 0 to 1");
            Ok(Some(share.parse().with_context(wrong)?))
        }
        _ => bail!(
            "OTEL_TRACES_SAMPLER={name:?} is not supported; use always_on, always_off or traceidratio"
        ),
    }
}
