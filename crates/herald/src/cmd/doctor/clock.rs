//! Check of the machine's clock, which deadlines, retention and timestamps depend on.

use std::time::{Instant, UNIX_EPOCH};

use herald_engine::{Clock, store::sqlite::Inspection};
use herald_protocol::Timestamp;

use crate::serve::settings::{ServerSettings, StoreKind};

use super::Finding;

const CHECK: &str = "clock";

/// A clock before this time is wrong, since this program did not exist then.
const TOO_EARLY: &str = "2026-01-01T00:00:00.000Z";
/// Differences between clocks in milliseconds that cause a warning and a failure.
const ODD: i64 = 5_000;
const WRONG: i64 = 60_000;

const REMEDY: &str =
    "set the clock and keep it synchronised, for example with `timedatectl set-ntp true`";

/// Measures the clock while the other checks run.
#[derive(Debug)]
pub(super) struct ClockCheck {
    begun: Timestamp,
    steady: Instant,
}

/// The `Date` header of a response.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerDate {
    pub(super) said: Timestamp,
    pub(super) heard: Timestamp,
}

impl ClockCheck {
    pub(super) fn start() -> Self {
        Self { begun: Clock::system().now(), steady: Instant::now() }
    }

    pub(super) fn check(
        self,
        settings: &ServerSettings,
        store: Option<&Inspection>,
        date: Option<ServerDate>,
    ) -> Finding {
        let now = Clock::system().now();
        let shown = now.to_string();
        let early = TOO_EARLY.parse().is_ok_and(|early: Timestamp| now < early);
        if early {
            return Finding::fail(CHECK, format!("the clock is behind: {shown}"), REMEDY);
        }
        let written = [store.and_then(|store| store.newest), last_write(settings)];
        let ahead = written.into_iter().flatten().max();
        if let Some(later) = ahead.filter(|time| time.as_millis() > now.as_millis() + WRONG) {
            let seen = format!("the clock is at {shown}, but the store was written at {later}");
            return Finding::fail(CHECK, seen, REMEDY);
        }
        if let Some(ServerDate { said, heard }) = date {
            // The header has whole seconds only.
            let apart = heard.as_millis() - said.as_millis();
            let seen = format!("the clock is at {heard}, that at the card's address at {said}");
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
            let seen = format!("the clock jumped by {jump} ms during the checks");
            return Finding::warn(CHECK, seen, REMEDY);
        }
        Finding::ok(CHECK, shown)
    }
}

/// The time of the last write to the store, from the file system.
fn last_write(settings: &ServerSettings) -> Option<Timestamp> {
    let StoreKind::Sqlite(path) = &settings.store else { return None };
    let written = std::fs::metadata(path).and_then(|file| file.modified()).ok()?;
    let since = written.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_millis(i64::try_from(since.as_millis()).ok()?))
}
