//! Tests of messages that an agent declines before its turn begins, over the wire.

use crate::{
    http::Client,
    support::{Herald, Options, uuid},
    wire::{Draft, Wire, state},
};

/// A handler that writes the state that its message names.
const HANDLER: &str = r#"
while read -r line; do
    turn=${line#*\"turn\":\"}
    turn=${turn%%\"*}
    case $line in
        *'"type":"hello"'*) printf '%s\n' '{"type":"hello","protocol":1}' ;;
        *'"type":"begin"'*)
            text=${line#*\"message\":}
            text=${text#*\"text\":\"}
            text=${text%%\"*}
            printf '%s\n' "{\"type\":\"status\",\"turn\":\"$turn\",\"state\":\"$text\",\"text\":\"Done.\"}" ;;
    esac
done
"#;

fn agents() -> Options {
    let handler = |name: &str, admission: bool| {
        format!(
            "[[agents]]\nname = \"{name}\"\nkind = \"handler\"\nadmission = {admission}\n\
             command = [\"sh\", \"-c\", '''{HANDLER}''']\n"
        )
    };
    let conformance = "[[agents]]\nname = \"conformance\"\nkind = \"conformance\"\n";
    Options::config([conformance, &handler("deciding", true), &handler("plain", false)].concat())
}

/// The states of a stream up to this one.
async fn states(herald: &Herald, wire: Wire, agent: &str, text: &str, last: &str) -> Vec<String> {
    let client: Client = herald.client().await;
    let call = wire.stream(&format!("/agents/{agent}"), &Draft::new(uuid(), text));
    let mut stream = client.open(&call).await.unwrap();
    let mut states = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        states.extend(wire.frame(&event).state());
        // At `auth-required` a stream of 1.0 stays open.
        if states.last().is_some_and(|state| state == last) {
            return states;
        }
    }
    panic!("the stream ended after {states:?}");
}

#[tokio::test]
async fn a_submitted_task_goes_straight_to_rejected_working_or_auth_required() {
    let herald = Herald::start(agents()).await;
    for wire in Wire::ALL {
        for (agent, text, expected) in [
            ("conformance", "tck-reject-task", &["submitted", "rejected"][..]),
            ("conformance", "tck-auth-required", &["submitted", "auth-required"]),
            ("conformance", "tck-complete-task", &["submitted", "working", "completed"]),
            ("deciding", "rejected", &["submitted", "rejected"]),
            ("deciding", "auth-required", &["submitted", "auth-required"]),
            ("deciding", "completed", &["submitted", "working", "completed"]),
            ("plain", "rejected", &["submitted", "working", "rejected"]),
        ] {
            let last = expected.last().unwrap();
            let seen = states(&herald, wire, agent, text, last).await;
            assert_eq!(seen, expected, "{wire:?} {agent} {text}");
        }
    }
    for wire in Wire::ALL {
        let asked = wire.send("/agents/deciding", &Draft::new(uuid(), "auth-required"), false);
        let asked = wire.sent(&herald.call(&asked).await).unwrap();
        assert_eq!(state(&asked), "auth-required");
        let answer = Draft::new(uuid(), "completed").to(crate::wire::id(&asked));
        let done = wire.send("/agents/deciding", &answer, false);
        assert_eq!(state(&wire.sent(&herald.call(&done).await).unwrap()), "completed");
    }
}
