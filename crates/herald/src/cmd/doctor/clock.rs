//! Whether the machine's clock can be believed. Deadlines, retention and what clients see go by it.

use std::time::{Instant, UNIX_EPOCH};

use herald_engine::{Clock, store::sqlite::Inspection};
use herald_protocol::Timestamp;

use crate::serve::settings::{Settings, StoreKind};

use super::Finding;

const CHECK: &str = "clock";

/// Before this was written.
const TOO_EARLY: &str = "2026-01-01T00:00:00.000Z";
/// Milliseconds that clocks may differ before somebody should look, and before things go wrong.
const ODD: i64 = 5_000;
const WRONG: i64 = 60_000;

const REMEDY: &str = "set the clock and have it kept, with `timedatectl set-ntp true` or the like";

/// Watches the clock while the other checks run.
#[derive(Debug)]
pub(super) struct Watch {
    begun: Timestamp,
    steady: Instant,
}

/// When another machine, or another program here, says it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Date {
    pub(super) said: Timestamp,
    pub(super) heard: Timestamp,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { begun: Clock::system().now(), steady: Instant::now() }
    }

    pub(super) fn check(
        self,
        settings: &Settings,
        store: Option<&Inspection>,
        date: Option<Date>,
    ) -> Finding {
        let now = Clock::system().now();
        let shown = now.to_string();
        let early = TOO_EARLY.parse().is_ok_and(|early: Timestamp| now < early);
        if early {
            return Finding::fail(CHECK, format!("it says {shown}, which is long ago"), REMEDY);
        }
        let written = [store.and_then(|store| store.newest), last_write(settings)];
        let ahead = written.into_iter().flatten().max();
        if let Some(later) = ahead.filter(|time| time.as_millis() > now.as_millis() + WRONG) {
            let seen = format!("it says {shown}, but the store was written at {later}");
            return Finding::fail(CHECK, seen, REMEDY);
        }
        if let Some(Date { said, heard }) = date {
            // HTTP knows whole seconds only.
            let apart = heard.as_millis() - said.as_millis();
            let seen = format!("it says {heard}, and the address of the card says {said}");
            if apart.abs() > WRONG {
                return Finding::fail(CHECK, seen, REMEDY);
            }
            if apart.abs() > ODD {
                return Finding::warn(CHECK, seen, REMEDY);
            }
        }
        let steady = i64::try_from(self.steady.elapsed().as_millis()).unwrap_or(i64::MAX);
        let jump = now.as_millis() - self.begun.as_millis() - steady;
        if jump.abs() > 1_000 {
            let seen = format!("it jumped by {jump} ms while it was looked at");
            return Finding::warn(CHECK, seen, REMEDY);
        }
        Finding::ok(CHECK, format!("it says {shown}"))
    }
}

/// When the store was last written, as its file system knows it.
fn last_write(settings: &Settings) -> Option<Timestamp> {
    let StoreKind::Sqlite(path) = &settings.store else { return None };
    let written = std::fs::metadata(path).and_then(|file| file.modified()).ok()?;
    let since = written.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}
