//! Usage of a run: tokens, cost and time, in one shape for every coding agent.

use serde::Serialize;
use serde_json::{Map, Value};

/// Tokens, cost and time of one run of a coding agent. Absent figures were not reported.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RunUsage {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) duration_ms: Option<u64>,
    /// Calls of the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost_usd: Option<f64>,
    /// All tokens of the input, those of the cache included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input_tokens: Option<u64>,
    /// All tokens of the output, those of reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) output_tokens: Option<u64>,
    /// The part of the input that was read from a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_read_tokens: Option<u64>,
    /// The part of the input that was written to a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cache_write_tokens: Option<u64>,
    /// The part of the output that is reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reasoning_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) total_tokens: Option<u64>,
    /// The program's own figures.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) raw: Map<String, Value>,
}

impl RunUsage {
    /// The usage with its total, computed if the program does not report one.
    pub(crate) fn with_total(mut self) -> Self {
        let sum = match (self.input_tokens, self.output_tokens) {
            (None, None) => None,
            (input, output) => Some(input.unwrap_or(0).saturating_add(output.unwrap_or(0))),
        };
        self.total_tokens = self.total_tokens.or(sum);
        self
    }

    /// True if nothing was reported.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The sum of two usages; their own figures stay those of `self`.
    pub(crate) fn plus(self, other: &Self) -> Self {
        Self {
            duration_ms: sum(self.duration_ms, other.duration_ms),
            turns: sum(self.turns, other.turns),
            cost_usd: match (self.cost_usd, other.cost_usd) {
                (Some(one), Some(two)) => Some(one + two),
                (one, two) => one.or(two),
            },
            input_tokens: sum(self.input_tokens, other.input_tokens),
            output_tokens: sum(self.output_tokens, other.output_tokens),
            cache_read_tokens: sum(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens: sum(self.cache_write_tokens, other.cache_write_tokens),
            reasoning_tokens: sum(self.reasoning_tokens, other.reasoning_tokens),
            total_tokens: sum(self.total_tokens, other.total_tokens),
            raw: self.raw,
        }
    }
}

/// The sum of two figures, if there is one.
pub(crate) fn sum(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.saturating_add(other)),
        (one, other) => one.or(other),
    }
}
