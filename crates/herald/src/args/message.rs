//! Arguments of `herald send`: parts, context and waiting.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use herald_protocol::{Metadata, json, push::PushConfig};

use super::{AgentArgs, SecretArg};

pub(super) const EXAMPLES: &str = "\
Examples:
  herald send localhost:8000 \"Hello\"                  wait and print the result
  herald send localhost:8000 \"Hello\" --stream         print events when they arrive
  herald send localhost:8000 \"Hello\" --async          print the task's id and return at once
  herald send localhost:8000 --task-id ID \"Yes\"       answer a task that waits for you
  herald send localhost:8000 \"What is this?\" --file photo.bin --media-type image/png
  date | herald send localhost:8000 -                 the text is standard input
  herald send localhost:8000 \"Hello\" --async --webhook https://HOST/hook
  A2ACLI_AGENT_CARD=localhost:8000 herald send \"Hello\"

The exit status says whether the call worked; the task's state says whether the task did.
  0 success   1 failure   2 usage error   3 not reached   4 credentials   5 timeout";

/// `herald send`.
#[derive(Debug, Args)]
pub(crate) struct Send {
    #[command(flatten)]
    pub(crate) content: PartArgs,

    #[command(flatten)]
    pub(crate) message: MessageArgs,

    #[command(flatten)]
    pub(crate) waiting: WaitArgs,

    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// The webhook of the message.
#[derive(Debug, Clone, Args)]
pub(crate) struct WebhookArgs {
    /// Have the agent post the events of the task to this URL
    #[arg(long = "webhook", value_name = "URL", help_heading = "Webhook")]
    pub(crate) url: Option<String>,

    /// A secret that each of these posts carries, for the receiver to check
    #[arg(long = "webhook-token", value_name = "SECRET", requires = "url")]
    #[arg(help_heading = "Webhook")]
    pub(crate) token: Option<SecretArg>,
}

impl WebhookArgs {
    /// The push notification config of the message.
    pub(crate) fn config(&self) -> Option<PushConfig> {
        let token = self.token.as_ref().map(|token| token.0.clone());
        self.url.clone().map(|url| PushConfig { url, token, ..PushConfig::default() })
    }
}

/// Flags for the wait for the task.
#[derive(Debug, Clone, Args)]
pub(crate) struct WaitArgs {
    /// Do not wait: print the ids as soon as the task is accepted [default: false, wait]
    #[arg(long = "async", visible_aliases = ["no-wait", "return-immediately"])]
    #[arg(value_name = "BOOL", conflicts_with = "stream", help_heading = "Waiting")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    detach: Option<bool>,

    /// Wait until the task has ended or waits for you, which is the default; wins over A2ACLI_ASYNC
    #[arg(long, visible_alias = "watch", conflicts_with = "detach", help_heading = "Waiting")]
    wait: bool,
}

impl WaitArgs {
    /// True to return as soon as the task is accepted.
    pub(crate) fn detached(&self) -> bool {
        self.detach == Some(true) && !self.wait
    }
}

/// The task and context of the message, and its metadata.
#[derive(Debug, Clone, Args)]
pub(crate) struct MessageArgs {
    /// Start a new task in this context
    #[arg(long, value_name = "ID", help_heading = "Message")]
    pub(crate) context_id: Option<String>,

    /// Continue this task
    #[arg(long, value_name = "ID", help_heading = "Message")]
    pub(crate) task_id: Option<String>,

    /// The skill that the message is for; a credential can be limited to some
    #[arg(long, value_name = "ID", help_heading = "Message")]
    pub(crate) skill: Option<String>,

    /// Metadata of the request, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = metadata, help_heading = "Message")]
    pub(crate) metadata: Option<Metadata>,
}

/// The parts of a message in the order in which they were given.
#[derive(Debug)]
pub(crate) struct PartArgs {
    /// Arguments without a flag: the text, and optionally the agent before it.
    pub(crate) words: Vec<(usize, String)>,
    pub(crate) attachments: Vec<Attachment>,
    /// True if a flag names the agent, so that no argument does.
    pub(crate) flagged: bool,
}

/// One part, from a flag.
#[derive(Debug)]
pub(crate) struct Attachment {
    /// Its position on the command line.
    pub(crate) position: usize,
    pub(crate) source: PartSource,
    pub(crate) media_type: Option<String>,
}

/// The source of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PartSource {
    Text(String),
    /// A path, `-` for standard input, or a URL that the agent fetches.
    File(String),
    /// A file with JSON; `-` is standard input.
    Data(String),
}

impl Args for PartArgs {
    fn augment_args(command: Command) -> Command {
        let part = |name: &'static str| {
            Arg::new(name).long(name).action(ArgAction::Append).help_heading("Message")
        };
        command
            .arg(
                Arg::new("words")
                    .value_name("[REF] TEXT")
                    .action(ArgAction::Append)
                    // Surplus arguments are reported later, with a better message than clap's.
                    .num_args(0..)
                    .help(
                        "The text, `-` for standard input; before it the agent, unless -a names it",
                    ),
            )
            .arg(part("text").value_name("TEXT").help("A text part"))
            .arg(part("file").value_name("PATH|URL").help(
                "A file part: the bytes of a file, `-` for standard input, or a URL for the agent to \
                 fetch",
            ))
            .arg(
                part("data")
                    .value_name("PATH")
                    .help("A data part: a file of JSON; `-` is standard input"),
            )
            .arg(
                part("media-type").value_name("TYPE").help(
                    "The media type of the part before it [default: guessed from a file's name]",
                ),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for PartArgs {
    fn from_arg_matches(found: &ArgMatches) -> Result<Self, clap::Error> {
        let all = |name: &str| -> Vec<(usize, String)> {
            let values = found.get_many::<String>(name).into_iter().flatten().cloned();
            found.indices_of(name).into_iter().flatten().zip(values).collect()
        };
        let part = |name, make: fn(String) -> PartSource| {
            all(name).into_iter().map(move |(position, value)| Attachment {
                position,
                source: make(value),
                media_type: None,
            })
        };
        let mut attachments: Vec<Attachment> = part("text", PartSource::Text)
            .chain(part("file", PartSource::File))
            .chain(part("data", PartSource::Data))
            .collect();
        attachments.sort_by_key(|attachment| attachment.position);
        for (position, media_type) in all("media-type") {
            let before = attachments.iter_mut().rev().find(|one| one.position < position);
            let Some(part) = before.filter(|part| part.media_type.is_none()) else {
                return Err(clap::Error::raw(
                    clap::error::ErrorKind::MissingRequiredArgument,
                    "--media-type must come right after its --text, --file or --data; write a text with a media \
                     type as --text TEXT --media-type TYPE\n",
                ));
            };
            part.media_type = Some(media_type);
        }
        let flagged = found.value_source("agent_card") == Some(ValueSource::CommandLine);
        Ok(Self { words: all("words"), attachments, flagged })
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(found)?;
        Ok(())
    }
}

pub(super) fn metadata(text: &str) -> Result<Metadata, String> {
    serde_json::from_str(text).map_err(|fault| format!("the value {}", json::reason(&fault)))
}
