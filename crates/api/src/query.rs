//! Queries of URLs: reading into a type and writing from it.

use herald_protocol::{Error, ErrorKind};
use serde::{Serialize, de::DeserializeOwned};

/// Reads a query. An unknown, repeated or malformed parameter is refused.
pub fn read<T: DeserializeOwned>(query: Option<&str>) -> Result<T, Error> {
    serde_html_form::from_str(query.unwrap_or_default()).map_err(|fault| {
        Error::new(ErrorKind::InvalidParams, format!("the query is invalid: {fault}"))
    })
}

/// Writes a query, which is empty without parameters.
pub(crate) fn write(query: &impl Serialize) -> String {
    serde_html_form::to_string(query).expect("the types of queries have plain fields")
}

#[cfg(test)]
mod tests {
    use herald_protocol::{TaskState, Timestamp};

    use super::*;
    use crate::tasks::TasksQuery;

    #[test]
    fn a_query_is_read_as_it_is_written() {
        let query = TasksQuery {
            tenant: Some("a&b=ü".to_owned()),
            state: Some(TaskState::Working),
            since: Some(Timestamp::from_millis(1_700_000_000_000)),
            page_size: Some(7),
            ..TasksQuery::default()
        };
        assert_eq!(read::<TasksQuery>(Some(&write(&query))), Ok(query));
        assert_eq!(read::<TasksQuery>(None), Ok(TasksQuery::default()));
    }

    #[test]
    fn unknown_repeated_and_malformed_parameters_are_refused() {
        for query in
            ["pagesize=1", "page_size=x", "page_size=-1", "state=x", "since=x", "agent=a&agent=b"]
        {
            let error = read::<TasksQuery>(Some(query)).unwrap_err();
            assert_eq!(error.kind, ErrorKind::InvalidParams, "{query}");
            assert!(error.message.starts_with("the query is invalid"), "{}", error.message);
        }
    }
}
