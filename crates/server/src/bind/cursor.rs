//! Stream cursor: the `Last-Event-ID` from which a stream resumes.

use herald_protocol::{Error, TaskId, percent, request::Cursor};
use http::{HeaderName, request::Parts};

const FIELD: &str = "Last-Event-ID";
pub(crate) static LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The cursor of a request: its `Last-Event-ID` header or, since not every client can set headers,
/// its `lastEventId` parameter.
pub(crate) fn of(parts: &Parts) -> Result<Option<Cursor>, Error> {
    let text = match parts.headers.get(&LAST_EVENT_ID) {
        Some(value) => value.to_str().map_err(|_| malformed())?,
        None => super::query(parts, "lastEventId").unwrap_or_default(),
    };
    if text.is_empty() {
        return Ok(None);
    }
    parse(text).map(Some).ok_or_else(malformed)
}

/// Refuses a cursor that belongs to another task.
pub(crate) fn check(cursor: Option<&Cursor>, task: &TaskId) -> Result<(), Error> {
    match cursor.and_then(|cursor| cursor.task.as_ref()) {
        Some(named) if named != task => Err(Error::field(FIELD, "belongs to another task")),
        Some(_) | None => Ok(()),
    }
}

/// The text before the number in the `id:` of every event of a task.
pub(crate) fn prefix(task: &TaskId) -> String {
    let mut prefix = String::with_capacity(task.as_str().len() + 1);
    percent::encode(&mut prefix, task.as_str());
    prefix.push(':');
    prefix
}

fn parse(text: &str) -> Option<Cursor> {
    // In a query the colon itself may be escaped, and then the rest of the id is so twice.
    let decoded;
    let text = if text.contains(':') || !text.contains('%') {
        text
    } else {
        decoded = percent::decode(text)?;
        &decoded
    };
    let (task, seq) = match text.rsplit_once(':') {
        Some((task, seq)) => (Some(TaskId::from(percent::decode(task)?.as_ref())), seq),
        None => (None, text),
    };
    let digits = !seq.is_empty() && seq.bytes().all(|byte| byte.is_ascii_digit());
    Some(Cursor { task, seq: seq.parse().ok().filter(|_| digits)? })
}

fn malformed() -> Error {
    Error::field(FIELD, "must be the id of an event of this task")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        for task in ["0198-ab", "a:b", "täsk/../%3A", " "] {
            let id = format!("{}7", prefix(&TaskId::from(task)));
            assert!(id.is_ascii() && !id.contains(char::is_whitespace), "{id}");
            let cursor = parse(&id).unwrap();
            assert_eq!((cursor.task.clone(), cursor.seq), (Some(TaskId::from(task)), 7));
            assert!(check(Some(&cursor), &TaskId::from(task)).is_ok());
            assert!(check(Some(&cursor), &TaskId::from("other")).is_err());
        }
    }

    #[test]
    fn a_bare_number_and_an_escaped_colon_will_do() {
        assert_eq!(parse("12"), Some(Cursor { task: None, seq: 12 }));
        assert_eq!(parse("t%3A12"), Some(Cursor { task: Some("t".into()), seq: 12 }));
    }

    #[test]
    fn anything_else_is_malformed() {
        for text in ["x", "t:", "t:-1", "t:+1", "t:1x", "99999999999999999999", "%FF:1", ":"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
