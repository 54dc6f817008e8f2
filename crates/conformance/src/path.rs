//! Paths into JSON: `task.artifacts[0].parts[*].text`.

use serde_json::Value;

/// One segment of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Member(String),
    Position(usize),
    Every,
}

/// A path into a JSON document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path(Vec<Segment>);

impl Path {
    /// Reads a path. The empty one is the document itself.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a path; write it as task.artifacts[0].parts[*]");
        let mut segments = Vec::new();
        for piece in text.split('.').filter(|_| !text.is_empty()) {
            let (name, mut brackets) = match piece.find('[') {
                Some(at) => piece.split_at(at),
                None => (piece, ""),
            };
            if name.is_empty() && brackets.is_empty() {
                return Err(wrong());
            }
            if !name.is_empty() {
                segments.push(Segment::Member(name.to_owned()));
            }
            while !brackets.is_empty() {
                let inside = brackets.strip_prefix('[').and_then(|rest| rest.split_once(']'));
                let (index, rest) = inside.ok_or_else(wrong)?;
                segments.push(match index {
                    "*" => Segment::Every,
                    digits => Segment::Position(digits.parse().map_err(|_| wrong())?),
                });
                brackets = rest;
            }
        }
        Ok(Self(segments))
    }

    /// All values at the path.
    pub(super) fn all<'a>(&self, root: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![root];
        for segment in &self.0 {
            found = found.into_iter().flat_map(|value| segment.below(value)).collect();
        }
        found
    }

    /// The first value at the path.
    pub(super) fn first<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        self.all(root).into_iter().next()
    }
}

impl Segment {
    fn below<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match self {
            Self::Member(name) => value.get(name).into_iter().collect(),
            Self::Position(index) => value.get(*index).into_iter().collect(),
            Self::Every => value.as_array().into_iter().flatten().collect(),
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_selects_members_positions_and_every_element() {
        let root = json!({"task": {"artifacts": [{"parts": [{"text": "a"}, {"text": "b"}]}]}});
        let all = |path: &str| -> Vec<Value> {
            Path::parse(path).unwrap().all(&root).into_iter().cloned().collect()
        };
        assert_eq!(all("task.artifacts[0].parts[1].text"), [json!("b")]);
        assert_eq!(all("task.artifacts[*].parts[*].text"), [json!("a"), json!("b")]);
        assert_eq!(all(""), std::slice::from_ref(&root));
        assert!(all("task.nothing").is_empty());
    }

    #[test]
    fn an_invalid_path_is_refused() {
        for text in ["a..b", "a[", "a[x]", "a[0", ".", "a[0]b"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
    }
}
