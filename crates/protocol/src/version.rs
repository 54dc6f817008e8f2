//! Protocol version and extensions that a request names.

use std::{fmt, str::FromStr};

use crate::error::{Error, ErrorKind};

/// The request header that names the version; also accepted as a query parameter.
pub const VERSION_HEADER: &str = "a2a-version";
/// The header that names extensions in 1.0.
pub const EXTENSIONS_HEADER: &str = "a2a-extensions";
/// The header that names extensions in 0.3.
pub const LEGACY_EXTENSIONS_HEADER: &str = "x-a2a-extensions";

/// A protocol version; patch digits play no part in negotiation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
}

impl Version {
    /// A2A 1.0.
    pub const V1_0: Self = Self { major: 1, minor: 0 };
    /// A2A 0.3, which is also what a missing version means.
    pub const V0_3: Self = Self { major: 0, minor: 3 };
    /// A2A 0.2, which is served as 0.3.
    pub const V0_2: Self = Self { major: 0, minor: 2 };
    /// A2A 0.1, which is recognised by its methods.
    pub const V0_1: Self = Self { major: 0, minor: 1 };
    /// Versions that a caller may request by name, newest first.
    pub const SUPPORTED: [Self; 2] = [Self::V1_0, Self::V0_3];
    /// All versions that are served, newest first.
    pub const SPOKEN: [Self; 3] = [Self::V1_0, Self::V0_3, Self::V0_1];

    /// Reads the value of the version header: empty or absent means 0.3, and so do versions that are older
    /// than the header.
    pub fn negotiate(value: Option<&str>) -> Result<Self, Error> {
        let value = value.map(str::trim).unwrap_or_default();
        if value.is_empty() {
            return Ok(Self::V0_3);
        }
        match value.parse() {
            Ok(version) if Self::SUPPORTED.contains(&version) => Ok(version),
            Ok(Self::V0_2 | Self::V0_1) => Ok(Self::V0_3),
            _ => Err(Self::unsupported(value)),
        }
    }

    /// The error for a version, with the list of supported ones.
    pub fn unsupported(value: &str) -> Error {
        let supported = Self::SUPPORTED.map(|version| version.to_string()).join(", ");
        let shown: String = value.chars().filter(|c| !c.is_control()).take(32).collect();
        Error::new(
            ErrorKind::VersionNotSupported,
            format!("A2A version {shown:?} is not supported; send A2A-Version: 1.0"),
        )
        .with("requestedVersion", shown)
        .with("supportedVersions", supported)
        .with("hint", "send A2A-Version: 1.0")
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = ();

    /// `Major.Minor`, with any patch digits after a second dot ignored.
    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            if digits { text.parse::<u16>().map_err(|_| ()) } else { Err(()) }
        };
        let mut parts = text.split('.');
        let major = number(parts.next().unwrap_or_default())?;
        let minor = number(parts.next().unwrap_or_default())?;
        match parts.next().map(number) {
            None | Some(Ok(_)) if parts.next().is_none() => Ok(Self { major, minor }),
            _ => Err(()),
        }
    }
}

/// The extension URIs in the values of an extensions header.
pub fn extensions<'a>(values: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    values
        .into_iter()
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .filter(|uri| !uri.is_empty())
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: VER-004, VER-005
    #[test]
    fn ver_004_005_a_missing_version_is_0_3_and_patch_digits_do_not_count() {
        assert_eq!(Version::negotiate(None), Ok(Version::V0_3));
        assert_eq!(Version::negotiate(Some("")), Ok(Version::V0_3));
        assert_eq!(Version::negotiate(Some("0.3.0")), Ok(Version::V0_3));
        assert_eq!(Version::negotiate(Some("1.0.7")), Ok(Version::V1_0));
    }

    // proves: VER-003
    #[test]
    fn ver_003_other_versions_are_refused_with_the_supported_list() {
        for value in ["0.5", "2.0", "99.0", "1", "1.", "1.0.0.0", "v1.0", "1.0-beta", "ünïcode"] {
            let error = Version::negotiate(Some(value)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::VersionNotSupported, "{value}");
            assert_eq!(error.detail.unwrap().metadata["supportedVersions"], "1.0, 0.3");
        }
    }

    // proves: EXT-003
    #[test]
    fn ext_003_several_uris_may_share_a_header() {
        assert_eq!(extensions(["a, b", "c"]), ["a", "b", "c"]);
        assert!(extensions([" , "]).is_empty());
    }
}
