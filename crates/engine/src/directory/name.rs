//! Names of instances: `role:host:id`, and the checks of a name that a caller gives.

use herald_protocol::{AgentName, Error};

/// The longest instance id, in bytes.
const MAX_INSTANCE: usize = 190;
/// The longest part of an instance id between colons, in bytes.
const MAX_PART: usize = 100;
/// The most parts of an instance id.
const MAX_PARTS: usize = 4;

/// Checks the role of a registration.
pub(crate) fn check_role(role: &str) -> Result<AgentName, Error> {
    let name = AgentName::from(role);
    if name.is_segment() {
        return Ok(name);
    }
    let text = if role.contains(':') {
        "must be a role, not the name of an instance: the part before the first colon"
    } else {
        "must be 1 to 63 characters of a-z, 0-9 and -, because it is part of a URL"
    };
    Err(Error::field("role", text))
}

/// Checks an instance id, such as `dev-vm:abc123`.
pub(crate) fn check_instance(instance: &str) -> Result<(), Error> {
    let field = "instance_id";
    if instance.len() > MAX_INSTANCE {
        let text = format!("is too long: it has at most {MAX_INSTANCE} bytes");
        return Err(Error::field(field, text));
    }
    let parts: Vec<_> = instance.split(':').collect();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_plain = |part: &&str| (1..=MAX_PART).contains(&part.len()) && part.bytes().all(plain);
    if parts.len() > MAX_PARTS || !parts.iter().all(is_plain) {
        let text = format!(
            "must be host:id: parts of 1 to {MAX_PART} letters, digits, -, _ and ., separated by colons"
        );
        return Err(Error::field(field, text));
    }
    Ok(())
}

/// Checks a name that a caller gives beside its role and its instance id.
pub(crate) fn check_name(name: &str, role: &AgentName, instance: &str) -> Result<(), Error> {
    let expected = format!("{role}:{instance}");
    if name == expected {
        return Ok(());
    }
    let text = match name.split_once(':') {
        Some((given, _)) if given != role.as_str() => {
            "its part before the first colon is not the role of the registration".to_owned()
        }
        Some(_) | None => format!("must be {expected:?}: the role, a colon and the instance id"),
    };
    Err(Error::field("name", text))
}

/// The role in the name of an instance; `None` if the text has not the form of one.
pub fn role_of(name: &str) -> Option<AgentName> {
    let (role, instance) = name.split_once(':')?;
    let role = AgentName::from(role);
    (role.is_segment() && check_instance(instance).is_ok()).then_some(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_names_are_refused_with_the_reason() {
        let role = AgentName::from("code-reviewer");
        for good in ["dev-vm:abc123", "host-a:1", "h", "a.b_c:1:2", "dev-vm:ABC:7:x"] {
            check_instance(good).unwrap();
        }
        let long = "x".repeat(101);
        for bad in [
            "",
            ":",
            "a:",
            ":a",
            "a b",
            "a\n",
            "a\u{1b}[2J",
            "ü:1",
            "a/b",
            "a:b:c:d:e",
            &long,
            "%41",
        ] {
            let error = check_instance(bad).unwrap_err();
            assert!(error.message.starts_with("instance_id: "), "{bad:?}: {}", error.message);
        }
        for (name, word) in [
            ("other:dev-vm:abc123", "not the role"),
            ("code-reviewer:dev-vm:other", "must be"),
            ("code-reviewer", "must be"),
        ] {
            let error = check_name(name, &role, "dev-vm:abc123").unwrap_err();
            assert!(error.message.contains(word), "{name}: {}", error.message);
        }
        check_name("code-reviewer:dev-vm:abc123", &role, "dev-vm:abc123").unwrap();
        for bad in ["", "Code", "a b", "a:b:c", "a/b", &"x".repeat(64)] {
            assert!(check_role(bad).is_err(), "{bad}");
        }
        assert_eq!(role_of("code-reviewer:host-a:1"), Some(role));
        for none in ["code-reviewer", "a b:c", "a:b c", ":a"] {
            assert_eq!(role_of(none), None, "{none}");
        }
    }
}
