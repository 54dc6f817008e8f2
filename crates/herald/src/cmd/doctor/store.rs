//! Whether the store can be read, is whole, and fits this version.

use std::{path::Path, time::Duration};

use bytesize::ByteSize;
use herald_engine::store::sqlite::{Form, Health, Inspection, OpenError, Sqlite};

use crate::serve::settings::{Settings, StoreKind};

use super::Finding;

const CHECK: &str = "store";

pub(super) async fn check(
    settings: &Settings,
    patience: Duration,
) -> (Finding, Option<Inspection>) {
    let path = match &settings.store {
        StoreKind::Memory => {
            let seen = "in memory only: all tasks are lost when the server stops";
            return (Finding::ok(CHECK, seen), None);
        }
        StoreKind::Sqlite(path) => path.clone(),
    };
    let look = {
        let path = path.clone();
        move || Sqlite::inspect(&path, patience)
    };
    match tokio::task::spawn_blocking(look).await.expect("looking does not panic") {
        Ok(None) => (Finding::ok(CHECK, format!("{} is made at the start", path.display())), None),
        Ok(Some(inspection)) => (describe(&path, &inspection), Some(inspection)),
        Err(fault) => (refused(&fault), None),
    }
}

fn describe(path: &Path, inspection: &Inspection) -> Finding {
    let Inspection { bytes, in_use, unclosed, form, tasks, newest: _, health } = inspection;
    let mut seen = format!("{}: {tasks} tasks, {}", path.display(), ByteSize(*bytes));
    if *in_use {
        seen.push_str("; in use by a herald");
    }
    if *unclosed {
        seen.push_str("; the last herald did not close it, the next one puts it in order");
    }
    if *form == Form::Older {
        seen.push_str("; of an earlier version, the next start brings it up to date");
    }
    match health {
        Health::Whole => Finding::ok(CHECK, seen),
        Health::SoFar => {
            seen.push_str("; whole, as far as it was looked at");
            Finding::warn(CHECK, seen, "give it more time with --timeout to look at all of it")
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
