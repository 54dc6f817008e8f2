//! Suggestions for misspelt names.

/// Names from other programs, and our names for the same.
const SYNONYMS: [(&str, &str); 26] = [
    ("args", "command"),
    ("cmd", "command"),
    ("program", "command"),
    ("script", "command"),
    ("cwd", "workdir"),
    ("dir", "workdir"),
    ("directory", "workdir"),
    ("repo", "workdir"),
    ("environment", "env"),
    ("prompt", "system"),
    ("instructions", "system"),
    ("base_url", "url"),
    ("endpoint", "url"),
    ("key", "api_key"),
    ("id", "name"),
    ("type", "kind"),
    ("adapter", "kind"),
    ("anthropic", "claude-code"),
    ("command", "exec"),
    ("program", "exec"),
    ("shell", "exec"),
    ("python", "handler"),
    ("proxy", "a2a"),
    ("remote", "a2a"),
    ("ollama", "llm"),
    ("openai", "llm"),
];

/// The known name for which the given one is a synonym, or else the most similar one, if any is similar.
pub(crate) fn near<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let known: Vec<_> = known.collect();
    let same = |(word, ours): &(&str, &str)| {
        let ours = known.iter().find(|name| *name == ours)?;
        (given == *word).then_some(*ours)
    };
    let alike = known.iter().map(|name| (strsim::jaro_winkler(given, name), *name));
    let best = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    let best = best.filter(|(alike, _)| *alike > 0.8).map(|(_, name)| name);
    SYNONYMS.iter().find_map(same).or(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_synonym_is_suggested_only_if_our_name_is_known() {
        let kinds = ["exec", "llm", "claude-code"];
        let keys = ["command", "name"];
        assert_eq!(near("program", kinds.into_iter()), Some("exec"));
        assert_eq!(near("program", keys.into_iter()), Some("command"));
        assert_eq!(near("claude", kinds.into_iter()), Some("claude-code"));
        assert_eq!(near("cmd", kinds.into_iter()), None);
    }
}
