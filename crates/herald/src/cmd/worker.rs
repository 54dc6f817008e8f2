//! `herald worker`: an agent of this machine that works on the tasks of a server elsewhere.

use std::{env, path::PathBuf, time::Duration};

use anyhow::anyhow;
use herald_agents::{Worker, WorkerError, WorkerSettings, process::Processes};
use rustix::system::uname;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    api,
    args::WorkerArgs,
    client::error::CliError,
    cmd::serve::Signals,
    serve::{
        logging,
        settings::{packages, recovery, worker_agent},
    },
};

/// The most turns at once without `--concurrency`.
const MOST_TURNS: usize = 64;
/// The time that programs have to end before they are killed.
const PROGRAM_GRACE: Duration = Duration::from_secs(2);

/// Works until a signal stops it.
pub(crate) async fn run(args: WorkerArgs) -> anyhow::Result<()> {
    logging::start(args.log_level, args.log_format, None);
    let mut signals = Signals::listen()?;
    let connection = api::worker_connection(&args.connection()).map_err(|fault| plain(&fault))?;
    let processes = Processes::new(records());
    if let Err(error) = processes.clear(PROGRAM_GRACE).await {
        tracing::warn!(%error, "programs that a killed worker left behind may still run");
    }
    let agent = args.agent();
    let packaged = packages(&agent.basics).await?;
    let role = &args.agent_name;
    let mut found =
        worker_agent(&agent, packaged, role, args.agent_description.as_deref(), &processes)?;
    found.profile.recovery = recovery(args.attempts.map(Into::into), found.profile.recovery);
    let concurrency =
        args.concurrency.map_or(found.profile.concurrency.min(MOST_TURNS), Into::into);
    let settings = WorkerSettings {
        instance_id: instance_id(args.instance.as_deref()),
        labels: args.labels.clone(),
        concurrency,
        drain_timeout: args.drain_timeout,
    };
    let kind = found.kind.name();
    tracing::info!(role, agent = kind, server = args.server, "starting a worker");
    let worker = Worker::new(found.profile, found.agent, settings, connection);
    let draining = CancellationToken::new();
    let stopped = async {
        signals.next().await;
        tracing::info!("stopping; a second signal stops at once");
        draining.cancel();
        signals.next().await;
    };
    let ended = tokio::select! {
        ended = worker.run(draining.clone()) => ended.map_err(|error| refused(&error)),
        () = stopped => {
            tracing::warn!("stopped at once; the server gives the running turns to other workers");
            processes.close(Duration::ZERO).await;
            return Ok(());
        }
    };
    processes.close(PROGRAM_GRACE).await;
    ended
}

/// The directory with the records of running programs, which the workers of a user share. A worker that
/// was killed leaves its programs behind, and the next worker ends them.
fn records() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = || set("HOME").map(|home| home.join(".local/state"));
    Some(set("XDG_STATE_HOME").or_else(home)?.join("herald/workers"))
}

/// The instance: the name of this host, and the given or a random id.
fn instance_id(id: Option<&str>) -> String {
    let host = uname().nodename().to_string_lossy().to_lowercase();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    let host: String = host.chars().filter(|letter| is_plain(*letter)).take(64).collect();
    let host = if host.is_empty() { "host" } else { &host };
    match id {
        Some(id) => format!("{host}:{id}"),
        None => format!("{host}:{}", &Uuid::new_v4().simple().to_string()[..8]),
    }
}

/// An error of the command line in one line.
fn plain(fault: &CliError) -> anyhow::Error {
    match fault.advice() {
        Some(hint) => anyhow!("{}; {hint}", fault.message()),
        None => anyhow!("{}", fault.message()),
    }
}

/// The error for a worker that the server does not take.
fn refused(error: &WorkerError) -> anyhow::Error {
    let hint = match error.status {
        401 => "; give an API key or a token with A2ACLI_BEARER, see `herald key create --help`",
        403 => {
            "; the credential needs the scope work, and register for a role that the server does not \
             know yet, and it must be allowed to use the role: `herald status` shows what it may do"
        }
        404 => "; is it a herald of this version or newer?",
        _ => "",
    };
    anyhow!("the server refused the worker: {error}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_has_its_host_and_its_id() {
        let (host, id) = instance_id(Some("w1")).split_once(':').map(owned).unwrap();
        assert!(!host.is_empty());
        assert_eq!(id, "w1");
        assert_ne!(instance_id(None), instance_id(None));
    }

    fn owned((host, id): (&str, &str)) -> (String, String) {
        (host.to_owned(), id.to_owned())
    }
}
