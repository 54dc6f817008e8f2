//! Id types: one per kind of id, so that the compiler rejects a mix-up.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Visitor};

/// Reads an id into its `Arc`, without a `String` in between.
struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = Arc<str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(text.into())
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Accepts any text; [`is_valid`](Self::is_valid) checks it.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// True if the id is empty, which the protocol does not distinguish from absent.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// True if the id is short enough and free of control characters.
            pub fn is_valid(&self) -> bool {
                valid(&self.0)
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self(Arc::default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_str(IdVisitor).map(Self)
            }
        }
    };
}

id!(
    /// Names a task among its owner's tasks.
    TaskId
);
id!(
    /// Groups the tasks of one conversation.
    ContextId
);
id!(
    /// Names a message; its sender chose it.
    MessageId
);
id!(
    /// Names an artifact within its task.
    ArtifactId
);
id!(
    /// Names a tenant.
    TenantId
);
id!(
    /// Names one of a task's push notification configurations.
    PushConfigId
);
id!(
    /// Names an agent or a role: the URL segment under `/agents/`.
    AgentName
);

/// The longest name accepted from the wire, in bytes.
pub const MAX_ID_BYTES: usize = 1024;

fn valid(text: &str) -> bool {
    text.len() <= MAX_ID_BYTES && !text.chars().any(char::is_control)
}

impl AgentName {
    /// True if the name is usable in a URL and in a role: `[a-z0-9-]{1,63}`.
    pub fn is_segment(&self) -> bool {
        (1..=63).contains(&self.0.len())
            && self.0.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
    }
}
