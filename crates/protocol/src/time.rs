//! Timestamps of the protocol: UTC, milliseconds, `Z`.

use std::{fmt, str::FromStr};

use jiff::{civil, fmt::temporal::DateTimePrinter, tz::TimeZone};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A time in milliseconds since the epoch, the precision of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

/// The error for a text that is not a timestamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidTimestamp;

/// The first time that RFC 3339 and protobuf can write.
const EARLIEST: i64 = -62_135_596_800_000;
/// The last whole second that jiff can print. Milliseconds within it are refused by jiff, though
/// its own maximum has them.
const LATEST: i64 = 253_402_207_200_000;

impl Timestamp {
    /// From milliseconds since the epoch; a value outside the calendar becomes its nearest end.
    pub fn from_millis(millis: i64) -> Self {
        Self(millis.clamp(EARLIEST, LATEST))
    }

    /// Milliseconds since the epoch.
    pub fn as_millis(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(3));
        let moment = jiff::Timestamp::from_millisecond(self.0).map_err(|_| fmt::Error)?;
        PRINTER.print_timestamp(&moment, jiff::fmt::StdFmtWrite(f)).map_err(|_| fmt::Error)
    }
}

impl FromStr for Timestamp {
    type Err = InvalidTimestamp;

    /// Reads any offset. A text without one is UTC: peers before 1.0 often left it out.
    fn from_str(text: &str) -> Result<Self, InvalidTimestamp> {
        if let Ok(moment) = text.parse::<jiff::Timestamp>() {
            return Ok(Self::from_millis(moment.as_millisecond()));
        }
        let zoneless: civil::DateTime = text.parse().map_err(|_| InvalidTimestamp)?;
        let moment = TimeZone::UTC.to_timestamp(zoneless).map_err(|_| InvalidTimestamp)?;
        Ok(Self::from_millis(moment.as_millisecond()))
    }
}

impl fmt::Display for InvalidTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be an ISO 8601 timestamp such as 2026-01-31T12:00:00.000Z")
    }
}

impl std::error::Error for InvalidTimestamp {}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TimestampVisitor;
        impl de::Visitor<'_> for TimestampVisitor {
            type Value = Timestamp;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an ISO 8601 timestamp")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Timestamp, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(TimestampVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: FMT-004, FMT-005
    #[test]
    fn prints_milliseconds_and_z() {
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            Timestamp::from_millis(1_700_000_000_007).to_string(),
            "2023-11-14T22:13:20.007Z"
        );
    }

    #[test]
    fn what_is_outside_the_calendar_becomes_its_nearest_end() {
        let first = Timestamp::from_millis(i64::MIN).to_string();
        assert_eq!(first, "0001-01-01T00:00:00.000Z");
        let last = Timestamp::from_millis(i64::MAX).to_string();
        assert_eq!(last, "9999-12-30T22:00:00.000Z");
        for text in ["9999-12-30T22:00:00.999Z", "-004000-01-01T00:00:00Z"] {
            let moment: Timestamp = text.parse().unwrap();
            assert!([&first, &last].contains(&&moment.to_string()));
        }
    }

    // proves: FMT-023
    #[test]
    fn reads_offsets_and_takes_a_missing_one_for_utc() {
        let same = ["2025-04-02T16:59:25.331Z", "2025-04-02T18:59:25.331+02:00"];
        for text in same {
            assert_eq!(text.parse::<Timestamp>().unwrap().to_string(), same[0]);
        }
        let zoneless: Timestamp = "2025-04-02T16:59:25.331844".parse().unwrap();
        assert_eq!(zoneless.to_string(), same[0]);
        assert!("yesterday".parse::<Timestamp>().is_err());
    }
}
