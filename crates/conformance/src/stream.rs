//! Checks of streams: number, order and content of events.

use serde_json::{Map, Value};

use super::{
    assertion::{Assertion, Mismatch, Unmet},
    suite::{ExpectStream, Ordering, Pattern},
};

/// The members of a stream's items, and their names in suites.
const ITEMS: [(&str, &str); 4] = [
    ("task", "task"),
    ("message", "message"),
    ("statusUpdate", "status_update"),
    ("artifactUpdate", "artifact_update"),
];

/// The terminal states of 1.0 and of earlier versions.
const TERMINAL: [&str; 9] = [
    "TASK_STATE_COMPLETED",
    "TASK_STATE_FAILED",
    "TASK_STATE_CANCELED",
    "TASK_STATE_CANCELLED",
    "TASK_STATE_REJECTED",
    "completed",
    "failed",
    "canceled",
    "rejected",
];

/// Checks the events of a stream. `fill` replaces variables by their values.
pub(super) fn check(
    expect: &ExpectStream,
    events: &[Value],
    ended: bool,
    fill: &dyn Fn(&Value) -> Result<Assertion, String>,
) -> Result<(), Unmet> {
    let count = |expected: String| Mismatch {
        path: "events".to_owned(),
        expected,
        actual: format!("{} of them", events.len()),
    };
    if let Some(least) = expect.min_count.filter(|least| events.len() < *least) {
        return Err(count(format!("at least {least} events")).into());
    }
    if let Some(most) = expect.max_count.filter(|most| events.len() > *most) {
        return Err(count(format!("at most {most} events")).into());
    }
    if !ended && expect.stop_after.is_none_or(|enough| events.len() < enough) {
        return Err(count("the end of the stream".to_owned()).into());
    }
    match expect.ordering {
        Some(Ordering::MonotonicState) => monotonic(events)?,
        None => {}
    }
    let holds = |index: usize, assertion: &Assertion| {
        let seen = events.get(index).map(flattened);
        assertion.check(&format!("events[{index}]"), seen.as_ref())
    };
    let at = |index: usize, pattern: &Pattern| -> Result<(), Unmet> {
        Ok(holds(index, &fill(&pattern.0)?)?)
    };
    for claim in &expect.events {
        match claim.index {
            Some(index) => at(index, &claim.pattern)?,
            None => anywhere(&fill(&claim.pattern.0)?, events)?,
        }
    }
    if let Some(pattern) = &expect.each_event {
        let assertion = fill(&pattern.0)?;
        (0..events.len()).try_for_each(|index| holds(index, &assertion))?;
    }
    match &expect.final_event {
        Some(pattern) => at(events.len().saturating_sub(1), pattern),
        None => Ok(()),
    }
}

fn anywhere(assertion: &Assertion, events: &[Value]) -> Result<(), Mismatch> {
    if events.iter().any(|event| assertion.check("", Some(&flattened(event))).is_ok()) {
        Ok(())
    } else {
        Err(Mismatch {
            path: "events".to_owned(),
            expected: format!("one with {assertion}"),
            actual: format!("none among {}", events.len()),
        })
    }
}

/// An event with the members of its item beside the item itself, since suites refer to both.
fn flattened(event: &Value) -> Value {
    let mut flat = Map::new();
    for (name, alias) in ITEMS {
        if let Some(item) = event.get(name) {
            flat.extend(item.as_object().cloned().unwrap_or_default());
            flat.insert(alias.to_owned(), item.clone());
        }
    }
    flat.extend(event.as_object().cloned().unwrap_or_default());
    Value::Object(flat)
}

/// States never follow a terminal one, and nothing goes back to `submitted`.
fn monotonic(events: &[Value]) -> Result<(), Mismatch> {
    let mut before: Option<String> = None;
    for (index, event) in events.iter().enumerate() {
        let flat = flattened(event);
        let state = flat.get("status").and_then(|status| status.get("state")?.as_str());
        let Some(state) = state else { continue };
        let path = format!("events[{index}].status.state");
        let wrong = |expected: String| Mismatch { path, expected, actual: state.to_owned() };
        if let Some(before) = &before {
            if TERMINAL.contains(&before.as_str()) {
                return Err(wrong(format!("nothing after {before}")));
            }
            let first = ["TASK_STATE_SUBMITTED", "submitted"].contains(&state);
            if first && before != state {
                return Err(wrong(format!("no way back from {before}")));
            }
        }
        before = Some(state.to_owned());
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    fn verdict(expect: &Value, events: &[Value], ended: bool) -> Result<(), String> {
        let expect: ExpectStream = serde_json::from_str(&expect.to_string()).unwrap();
        match check(&expect, events, ended, &Assertion::parse) {
            Ok(()) => Ok(()),
            Err(Unmet::Mismatch(mismatch)) => Err(mismatch.to_string()),
            Err(Unmet::Broken(why)) => panic!("{why}"),
        }
    }

    fn status(state: &str) -> Value {
        json!({"statusUpdate": {"taskId": "t", "status": {"state": state}}})
    }

    #[test]
    fn every_rule_about_a_stream_can_hold_and_fail() {
        let events = [
            json!({"task": {"id": "t", "status": {"state": "TASK_STATE_SUBMITTED"}}}),
            status("TASK_STATE_WORKING"),
            status("TASK_STATE_COMPLETED"),
        ];
        let cases = [
            (json!({"min_count": 3}), json!({"min_count": 4})),
            (json!({"max_count": 3}), json!({"max_count": 2})),
            (
                json!({"events": [{"index": 0, "task": {"id": "t"}}]}),
                json!({"events": [{"index": 1, "task": {"id": "t"}}]}),
            ),
            (
                json!({"events": [{"match": "any_position", "status_update": {"taskId": "t"}}]}),
                json!({"events": [{"match": "any_position", "message": {"exists": true}}]}),
            ),
            (
                json!({"final_event": {"status": {"state": "TASK_STATE_COMPLETED"}}}),
                json!({"final_event": {"statusUpdate": {"absent": true}}}),
            ),
            (
                json!({"each_event": {"status": {"exists": true}}}),
                json!({"each_event": {"task": {"exists": true}}}),
            ),
        ];
        for (good, bad) in cases {
            assert_eq!(verdict(&good, &events, true), Ok(()), "{good}");
            assert!(verdict(&bad, &events, true).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_stream_that_does_not_end_fails_unless_stop_after_is_reached() {
        let events = [status("TASK_STATE_WORKING")];
        assert!(verdict(&json!({}), &events, false).is_err());
        assert_eq!(verdict(&json!({"stop_after": 1}), &events, false), Ok(()));
        assert!(verdict(&json!({"stop_after": 2}), &events, false).is_err());
    }

    #[test]
    fn states_do_not_go_back() {
        let order = json!({"ordering": "monotonic_state"});
        let states = |list: &[&str]| -> Vec<Value> { list.iter().map(|one| status(one)).collect() };
        let good = [
            "TASK_STATE_SUBMITTED",
            "TASK_STATE_WORKING",
            "TASK_STATE_INPUT_REQUIRED",
            "TASK_STATE_WORKING",
            "TASK_STATE_COMPLETED",
        ];
        assert_eq!(verdict(&order, &states(&good), true), Ok(()));
        for bad in [
            ["TASK_STATE_COMPLETED", "TASK_STATE_WORKING"],
            ["TASK_STATE_WORKING", "TASK_STATE_SUBMITTED"],
            ["completed", "completed"],
        ] {
            assert!(verdict(&order, &states(&bad), true).is_err(), "{bad:?}");
        }
    }
}
