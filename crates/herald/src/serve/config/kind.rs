//! Kinds of agents, and errors in the keys of an agent.

use std::{borrow::Cow, fmt::Display};

use herald_agents::Preset;

use crate::spelling::near;

/// The kind of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AgentKind {
    Echo,
    Conformance,
    Exec,
    Handler,
    A2a,
    Llm,
    Worker,
    Coding(Preset),
}

/// An error in a key of an agent.
#[derive(Debug)]
pub(crate) struct KeyError {
    /// The key, or the path to one below it: `skills.0.name`.
    pub(crate) key: Cow<'static, str>,
    pub(crate) message: String,
}

impl AgentKind {
    const PLAIN: [Self; 7] = [
        Self::Exec,
        Self::Handler,
        Self::A2a,
        Self::Llm,
        Self::Worker,
        Self::Echo,
        Self::Conformance,
    ];

    /// The kind with this name.
    pub(crate) fn read(name: &str) -> Result<Self, KeyError> {
        let known = Self::PLAIN.into_iter().chain(Preset::ALL.map(Self::Coding));
        let known: Vec<_> = known.collect();
        if let Some(kind) = known.iter().find(|kind| kind.name() == name) {
            return Ok(*kind);
        }
        let meant = match near(name, known.iter().map(|kind| kind.name())) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => {
                let names: Vec<_> = known.iter().map(|kind| format!("{:?}", kind.name())).collect();
                format!("use one of {}", names.join(", "))
            }
        };
        Err(KeyError::new("kind", format!("unknown kind {name:?}; {meant}")))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Conformance => "conformance",
            Self::Exec => "exec",
            Self::Handler => "handler",
            Self::A2a => "a2a",
            Self::Llm => "llm",
            Self::Worker => "worker",
            Self::Coding(preset) => preset.name(),
        }
    }

    /// True if agents of this kind run a program.
    pub(crate) fn runs_programs(self) -> bool {
        match self {
            Self::Exec | Self::Handler | Self::Coding(_) => true,
            Self::Echo | Self::Conformance | Self::A2a | Self::Llm | Self::Worker => false,
        }
    }
}

impl KeyError {
    pub(crate) fn new(key: impl Into<Cow<'static, str>>, message: impl Display) -> Self {
        Self { key: key.into(), message: message.to_string() }
    }

    /// An error with its key before it: `workdir: there is no directory …`.
    pub(crate) fn of(key: impl Into<Cow<'static, str>>, fault: impl Display) -> Self {
        let key = key.into();
        let message = format!("{key}: {fault}");
        Self { key, message }
    }
}
