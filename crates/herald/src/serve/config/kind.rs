//! Kinds of agents, and what is wrong with one.

use std::fmt::Display;

use herald_agents::Preset;

use crate::spelling::near;

/// What an agent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Echo,
    Conformance,
    Exec,
    Handler,
    A2a,
    Llm,
    Coding(Preset),
}

/// What is wrong with an agent, and which of its keys says so.
#[derive(Debug)]
pub(crate) struct Mistake {
    pub(crate) key: &'static str,
    pub(crate) said: String,
}

impl Kind {
    const PLAIN: [Self; 6] =
        [Self::Exec, Self::Handler, Self::A2a, Self::Llm, Self::Echo, Self::Conformance];

    /// The kind that goes by this name.
    pub(crate) fn read(name: &str) -> Result<Self, Mistake> {
        let known = Self::PLAIN.into_iter().chain(Preset::ALL.map(Self::Coding));
        let known: Vec<_> = known.collect();
        if let Some(kind) = known.iter().find(|kind| kind.name() == name) {
            return Ok(*kind);
        }
        if name == "worker" {
            return Err(Mistake::new("kind", "kind = \"worker\" is not part of this version"));
        }
        let meant = match near(name, known.iter().map(|kind| kind.name())) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => {
                let names: Vec<_> = known.iter().map(|kind| format!("{:?}", kind.name())).collect();
                format!("use one of {}", names.join(", "))
            }
        };
        Err(Mistake::new("kind", format!("unknown kind {name:?}; {meant}")))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Conformance => "conformance",
            Self::Exec => "exec",
            Self::Handler => "handler",
            Self::A2a => "a2a",
            Self::Llm => "llm",
            Self::Coding(preset) => preset.name(),
        }
    }

    /// Whether agents of this kind run a program.
    pub(crate) fn runs_programs(self) -> bool {
        match self {
            Self::Exec | Self::Handler | Self::Coding(_) => true,
            Self::Echo | Self::Conformance | Self::A2a | Self::Llm => false,
        }
    }
}

impl Mistake {
    pub(crate) fn new(key: &'static str, said: impl Display) -> Self {
        Self { key, said: said.to_string() }
    }

    /// The same about another fault: `workdir: there is no directory …`.
    pub(crate) fn of(key: &'static str, fault: impl Display) -> Self {
        Self::new(key, format!("{key}: {fault}"))
    }
}
