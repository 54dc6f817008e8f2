//! Messages of a given size in the shapes that cost a server most memory for their bytes.
//!
//! Nothing but the standard library is used, so that a test of another package includes this very file:
//! `#[path = "../../../../bench/load/src/shapes.rs"] mod shapes;`.

/// The content that fills a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// A data part with an array of objects of one member, `{"":0}`.
    Objects,
    /// A data part with an array of empty arrays.
    Arrays,
    /// A data part with an array of numbers of one digit.
    Numbers,
    /// A data part with an array of empty strings.
    Strings,
    /// A data part with arrays nested to a depth.
    Nested,
    /// `Objects` in the metadata of the message instead of a part.
    Metadata,
    /// A thousand text parts.
    Parts,
}

/// How deep `Nested` goes, below the 128 levels that JSON parsers allow.
pub(crate) const DEPTH: usize = 90;

const PARTS: usize = 1000;

impl Shape {
    pub(crate) const ALL: [Self; 7] = [
        Self::Objects,
        Self::Arrays,
        Self::Numbers,
        Self::Strings,
        Self::Nested,
        Self::Metadata,
        Self::Parts,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::Arrays => "arrays",
            Self::Numbers => "numbers",
            Self::Strings => "strings",
            Self::Nested => "nested",
            Self::Metadata => "metadata",
            Self::Parts => "parts",
        }
    }

    /// The JSON of a message of A2A 1.0 with at most this many bytes, and few less.
    pub(crate) fn message(self, id: &str, bytes: usize, depth: usize) -> String {
        let head = format!(r#"{{"messageId":"{id}","role":"ROLE_USER","parts":["#);
        let free = bytes.saturating_sub(head.len() + 40);
        let data = |unit: &str| format!(r#"{head}{{"data":{}}}]}}"#, array(unit, free));
        match self {
            Self::Objects => data(r#"{"":0}"#),
            Self::Arrays => data("[]"),
            Self::Numbers => data("0"),
            Self::Strings => data(r#""""#),
            Self::Nested => {
                // Two levels are those of the array around and of the message.
                let depth = depth.saturating_sub(2);
                data(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)))
            }
            Self::Metadata => {
                let filling = array(r#"{"":0}"#, free);
                format!(r#"{head}{{"text":"x"}}],"metadata":{{"x":{filling}}}}}"#)
            }
            Self::Parts => {
                let text = "x".repeat((free / PARTS).saturating_sub(r#"{"text":""},"#.len()));
                let parts = vec![format!(r#"{{"text":"{text}"}}"#); PARTS];
                format!("{head}{}]}}", parts.join(","))
            }
        }
    }
}

/// `[unit,unit,…]` with at most this many bytes.
fn array(unit: &str, bytes: usize) -> String {
    let count = bytes.saturating_sub(2) / (unit.len() + 1);
    format!("[{}]", vec![unit; count.max(1)].join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shape_is_json_of_the_size_that_was_asked_for() {
        for shape in Shape::ALL {
            let message = shape.message("m", 1 << 20, DEPTH);
            assert!(message.len() <= 1 << 20, "{shape:?}: {}", message.len());
            assert!(message.len() > (1 << 20) - 2000, "{shape:?}: {}", message.len());
            let read: serde_json::Value = serde_json::from_str(&message).unwrap();
            assert_eq!(read["messageId"], "m");
        }
    }
}
