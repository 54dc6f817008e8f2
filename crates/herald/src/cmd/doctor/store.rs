//! Check of the store: readable, intact, and of a supported version.

use std::{path::Path, time::Duration};

use bytesize::ByteSize;
use herald_engine::store::sqlite::{Health, Inspection, OpenError, SchemaStatus, Sqlite};

use crate::serve::settings::{ServerSettings, StoreKind};

use super::Finding;

const CHECK: &str = "store";

pub(super) async fn check(
    settings: &ServerSettings,
    timeout: Duration,
) -> (Finding, Option<Inspection>) {
    let path = match &settings.store {
        StoreKind::Memory => {
            let seen = "in memory only: all tasks are lost when the server stops";
            return (Finding::ok(CHECK, seen), None);
        }
        StoreKind::Sqlite(path) => path.clone(),
    };
    let inspect = {
        let path = path.clone();
        move || Sqlite::inspect(&path, timeout)
    };
    match tokio::task::spawn_blocking(inspect).await.expect("the check does not panic") {
        Ok(None) => {
            let seen = format!("the start creates {}", path.display());
            (Finding::ok(CHECK, seen), None)
        }
        Ok(Some(inspection)) => (describe(&path, &inspection), Some(inspection)),
        Err(fault) => (refused(&fault), None),
    }
}

fn describe(path: &Path, inspection: &Inspection) -> Finding {
    let Inspection { bytes, in_use, unclosed, schema, tasks, newest: _, health } = inspection;
    let mut seen = format!("{}: {tasks} tasks, {}", path.display(), ByteSize(*bytes));
    if *in_use {
        seen.push_str("; in use by a server");
    }
    if *unclosed {
        seen.push_str("; the last server did not close it, the next start recovers it");
    }
    if *schema == SchemaStatus::Older {
        seen.push_str("; of an earlier version, the next start migrates it");
    }
    match health {
        Health::Intact => Finding::ok(CHECK, seen),
        Health::IntactSoFar => {
            seen.push_str("; intact, as far as it was read");
            Finding::warn(CHECK, seen, "give the check more time with --timeout to read all of it")
        }
        Health::Damaged(faults) => {
            seen.push_str("; damaged:\n");
            seen.push_str(&faults.join("\n"));
            let remedy = "stop the server, keep a copy of the file and restore it from a backup";
            Finding::fail(CHECK, seen, remedy)
        }
    }
}

fn refused(fault: &OpenError) -> Finding {
    let said = fault.to_string();
    let (seen, remedy) = said.split_once("; ").unwrap_or((&said, "look at the file"));
    Finding::fail(CHECK, seen, remedy)
}
