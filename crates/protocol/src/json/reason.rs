//! Reasons why JSON cannot be read, in the words of JSON.
//!
//! Serde reports a mistake as text, with the names of Rust types and the values of the sender in it. Callers
//! know neither the types, nor should a value, which may be a secret, reach a log.

/// The reason of an error, without its position.
pub fn reason(fault: &serde_json::Error) -> String {
    Reason::of(fault).text
}

/// The reason of an error, and the member of the object that it is about.
pub(super) struct Reason {
    /// A member that is missing, unknown or there twice.
    pub(super) member: Option<String>,
    /// True if the reader had reached the member, so that the path of the error ends with it.
    pub(super) is_reached: bool,
    pub(super) text: String,
}

impl Reason {
    pub(super) fn of(fault: &serde_json::Error) -> Self {
        let text = fault.to_string();
        if fault.is_data() {
            // Without line and column: they would count within the parameters, not within the body.
            Self::read(text.rfind(" at line ").map_or(&text, |end| &text[..end]))
        } else {
            Self { member: None, is_reached: false, text: syntax(&text).to_owned() }
        }
    }

    /// Reads a message of serde. Any other text is one of our own and stays as it is.
    fn read(said: &str) -> Self {
        let (kind, rest) = said.split_once([':', '`']).unwrap_or((said, ""));
        // A given value may contain the words that divide the message; what is expected does not.
        let (given, expected) = rest.rsplit_once(", expected ").unwrap_or((rest, ""));
        let of = |text: String| Self { member: None, is_reached: false, text };
        let member = |text: &str, is_reached| {
            let name = rest.split('`').next().filter(|name| name.len() <= MAX_NAME);
            Self { member: name.map(str::to_owned), is_reached, text: text.to_owned() }
        };
        match kind {
            "invalid type" => {
                let (expected, given) = (required(expected), given_type(given.trim_start()));
                of(format!("must be {expected}, not {given}"))
            }
            "invalid value" => of(match range(expected) {
                Some((least, most)) => format!("must be an integer from {least} to {most}"),
                None => format!("must be {}", required(expected)),
            }),
            "missing field " => member("is required", false),
            "unknown field " => member("is not known", true),
            "duplicate field " => member("is there twice", false),
            "unknown variant " => of(format!("must be {}", listed(expected))),
            _ if kind.starts_with("invalid length ") => of("has the wrong length".to_owned()),
            _ if kind.starts_with("data did not match any variant") => {
                of("has none of the known forms".to_owned())
            }
            _ => of(said.to_owned()),
        }
    }
}

/// The longest name of a member that is repeated in an error.
const MAX_NAME: usize = 64;

/// An error in the syntax, or a value beyond the limits of the parser.
fn syntax(said: &str) -> &'static str {
    if said.starts_with("recursion limit exceeded") {
        "is nested too deeply"
    } else if said.starts_with("number out of range") {
        "has a number that is too large"
    } else {
        "is not valid JSON"
    }
}

/// The JSON for a type that serde names.
fn required(name: &str) -> &str {
    let first = name.split(' ').next().unwrap_or_default();
    match name {
        "a map" | "map" => "an object",
        "a sequence" => "an array",
        "a boolean" => "true or false",
        "a borrowed string" | "a character" | "variant identifier" | "field identifier" => {
            "a string"
        }
        "unit" | "option" => "null",
        "any valid JSON value" | "any value" => "a JSON value",
        "string or map" => "a string or an object",
        _ if ["internally", "adjacently", "struct"].contains(&first) => "an object",
        _ if ["tuple", "newtype"].contains(&first) || name.starts_with("a tuple") => "an array",
        _ if first == "enum" => "a string",
        _ if first == "unit" => "null",
        _ if ["f32", "f64"].contains(&name) => "a number",
        _ if range(name).is_some() => "an integer",
        _ => name,
    }
}

/// The least and the largest number of an integer type.
fn range(name: &str) -> Option<(i128, i128)> {
    let bounds = |bits: u32, is_signed: bool| {
        if is_signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
    };
    let name = name.strip_prefix("a nonzero ").unwrap_or(name);
    let (is_signed, bits) = match name.split_at_checked(1)? {
        ("i", bits) => (true, bits),
        ("u", bits) => (false, bits),
        _ => return None,
    };
    match bits {
        "8" | "16" | "32" | "64" => Some(bounds(bits.parse().ok()?, is_signed)),
        "size" => Some(bounds(64, is_signed)),
        _ => None,
    }
}

/// The type of a value that serde describes: `string "abc"`, `integer `5``. The value itself is left out.
fn given_type(given: &str) -> &'static str {
    let kinds = [
        ("null", "null"),
        ("unit", "null"),
        ("Option", "null"),
        ("boolean", "a boolean"),
        ("integer", "a number"),
        ("floating point", "a fraction"),
        ("string", "a string"),
        ("character", "a string"),
        ("sequence", "an array"),
        ("map", "an object"),
    ];
    let found = kinds.iter().find(|(name, _)| given.starts_with(name));
    found.map_or("this value", |(_, ours)| ours)
}

/// The names that serde lists: ``one of `a`, `b` ``, ``` `a` or `b` ```.
fn listed(expected: &str) -> String {
    let names: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    match names.split_last() {
        None => "a known name".to_owned(),
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
    }
}
