//! Which name was probably meant.

/// The name that is most like the given one, if it is alike at all.
pub(crate) fn near<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let alike = known.map(|name| (strsim::jaro_winkler(given, name), name));
    let best = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(alike, _)| *alike > 0.8).map(|(_, name)| name)
}
