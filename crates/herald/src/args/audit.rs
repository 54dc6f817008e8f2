//! Arguments of `herald audit`.

use clap::{Args, Subcommand};
use herald_protocol::Timestamp;

use super::{ServerArgs, key::since};

/// Verbs for the audit log.
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// List the newest records of the audit log
    #[command(after_help = LIST_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    List(AuditList),
    /// Verify the hash chain of the audit log; exit status 1 if a record was changed, removed or moved
    #[command(after_help = VERIFY_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Verify(AuditVerify),
    /// Write all records as JSON lines, the newest first, and the head of the chain as the last line
    #[command(after_help = EXPORT_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Export(AuditExport),
}

const LIST_EXAMPLES: &str = "\
Examples:
  herald audit list --since 1h                      of the server of ./herald-data
  herald audit list --action key. --principal ci    acts on keys, by one principal
  herald audit list --limit 500 --server https://agents.example.com -o json";

const VERIFY_EXAMPLES: &str = "\
Examples:
  herald audit verify                               names the first record with a fault
  herald audit verify --data /srv/herald            also while that server is stopped
  herald audit verify --number 120 --hash 4f1c...   also compares a record that was kept elsewhere

Somebody who can write to the database can write a whole new chain. Keep the number and the hash that
this prints somewhere else, and give them to the next verification.";

const EXPORT_EXAMPLES: &str = "\
Examples:
  herald audit export > audit.jsonl                 everything that is kept
  herald audit export --since 24h --data /srv/herald > today.jsonl";

/// Filters of records.
#[derive(Debug, Args)]
pub(crate) struct AuditFilterArgs {
    /// Only records of this time or later: a time, or a length of time before now such as 1h
    // The id differs from that of `task list`, which takes times only.
    #[arg(id = "audit_since", long = "since", value_name = "TIME", value_parser = since)]
    pub(crate) since: Option<Timestamp>,

    /// Only records whose act begins so, such as key. or key.create
    #[arg(long, value_name = "ACT")]
    pub(crate) action: Option<String>,

    /// Only records of this principal
    #[arg(long, value_name = "NAME")]
    pub(crate) principal: Option<String>,

    /// Only records of actors of this tenant
    #[arg(long, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct AuditList {
    #[command(flatten)]
    pub(crate) filter: AuditFilterArgs,

    /// The most records
    #[arg(long, value_name = "N", default_value_t = 50)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) limit: u32,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuditVerify {
    /// The number of a record that was kept elsewhere
    #[arg(long, value_name = "N", requires = "hash")]
    pub(crate) number: Option<u64>,

    /// Its hash
    #[arg(long, value_name = "HEX", requires = "number")]
    pub(crate) hash: Option<String>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuditExport {
    #[command(flatten)]
    pub(crate) filter: AuditFilterArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl AuditCommand {
    pub(crate) fn server(&self) -> &ServerArgs {
        match self {
            Self::List(args) => &args.server,
            Self::Verify(args) => &args.server,
            Self::Export(args) => &args.server,
        }
    }
}
