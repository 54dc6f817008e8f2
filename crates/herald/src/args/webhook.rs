//! Arguments of `herald webhook`.

use clap::{Args, Subcommand, ValueEnum};
use herald_protocol::Timestamp;

use super::{OutputArgs, OwnerArgs, ServerArgs, key::since};

/// Verbs for the webhooks of tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum WebhookCommand {
    /// List webhooks, with the state of their deliveries
    #[command(after_help = LIST_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    List(WebhookList),
    /// Show a webhook, with its latest attempts
    #[command(after_help = NAMED_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Show(WebhookNamed),
    /// Deliver events again
    #[command(after_help = REPLAY_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Replay(WebhookReplay),
    /// Enable webhooks that were parked or disabled. They continue after their last delivery
    #[command(after_help = NAMED_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Enable(WebhookSelected),
}

const LIST_EXAMPLES: &str = "\
Examples:
  herald webhook list                               your own, of the server of ./herald-data
  herald webhook list --all --state parked          of all owners, for administrators
  herald webhook list --server https://agents.example.com -o json

States: idle (all is delivered), ready (a delivery runs), waiting (a later attempt follows),
parked (all attempts failed), disabled (the receiver answered 410).";

const NAMED_EXAMPLES: &str = "\
Examples:
  herald webhook show ID                            `herald webhook list` shows the ids
  herald webhook enable ID ID2
  herald webhook enable --all --state parked        of all owners, for administrators";

const REPLAY_EXAMPLES: &str = "\
Examples:
  herald webhook replay ID --event 5                this event alone, now and once
  herald webhook replay ID ID2 --from 1             all events, in order
  herald webhook replay --all --since 1h            all webhooks, the events of the last hour

A receiver knows a repeated event by its `webhook-id`, which stays the same.";

#[derive(Debug, Args)]
pub(crate) struct WebhookList {
    #[command(flatten)]
    pub(crate) filter: WebhookFilter,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookFilter {
    /// The webhooks of all owners, for administrators
    #[arg(long, conflicts_with_all = ["tenant", "principal"])]
    pub(crate) all: bool,

    /// Only webhooks in this state
    #[arg(long, value_name = "STATE", value_enum)]
    pub(crate) state: Option<WebhookStateArg>,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct WebhookNamed {
    /// The webhook's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Some webhooks, by their ids or by a filter.
#[derive(Debug, Args)]
pub(crate) struct WebhookSelected {
    /// The webhooks' ids
    #[arg(value_name = "ID", required_unless_present_any = ["all", "state", "tenant", "principal"])]
    #[arg(conflicts_with_all = ["all", "state", "tenant", "principal"])]
    pub(crate) ids: Vec<String>,

    #[command(flatten)]
    pub(crate) filter: WebhookFilter,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
#[group(id = "events", required = true, multiple = false, args = ["event", "from", "since"])]
pub(crate) struct WebhookReplay {
    #[command(flatten)]
    pub(crate) selected: WebhookSelected,

    /// This event alone, now and once
    #[arg(long, value_name = "NUMBER")]
    pub(crate) event: Option<u64>,

    /// All events from this one on
    #[arg(long, value_name = "NUMBER")]
    pub(crate) from: Option<u64>,

    /// All events since a time, or for a length of time such as 1h
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Timestamp>,
}

/// The state of a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WebhookStateArg {
    /// All events are delivered
    Idle,
    /// A delivery runs
    Ready,
    /// A later attempt follows
    Waiting,
    /// All attempts failed
    Parked,
    /// The receiver answered 410
    Disabled,
}

impl WebhookStateArg {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Parked => "parked",
            Self::Disabled => "disabled",
        }
    }
}

impl WebhookCommand {
    pub(crate) fn output(&self) -> &OutputArgs {
        match self {
            Self::List(args) => &args.server.output,
            Self::Show(args) => &args.server.output,
            Self::Replay(args) => &args.selected.server.output,
            Self::Enable(args) => &args.server.output,
        }
    }
}
