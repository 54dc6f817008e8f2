//! `herald conformance --tck`: the A2A project's test kit, which is a Python program.

use crate::{
    report::{Row, STEERED, conformance, report},
    support::{Herald, Options},
};

/// A script in place of the TCK, which is not ours to keep: it takes its arguments, looks at the server
/// and writes the report of its form.
const KIT: &str = r#"
import json, os, sys, urllib.request
host = [word.split("=", 1)[1] for word in sys.argv if word.startswith("--sut-host=")][0]
card = json.load(urllib.request.urlopen(host + ".well-known/agent-card.json"))
print("dots go here", sys.argv[2:], "A2ACLI_BEARER" in os.environ)
if "--level=must" in sys.argv:
    sys.exit(4)
row = lambda level, status, transports, errors: dict(
    level=level, status=status, transports=transports, errors=errors, test_ids=["a", "b"])
found = {
    "CARD-1": row("MUST", "PASS" if card["name"] else "FAIL", {"agent_card": "PASS"}, []),
    "SEND-1": row("MUST", "FAIL", {"grpc": "PASS", "jsonrpc": "FAIL"}, ["no", "no"]),
    "HTTP-1": row("SHOULD", "FAIL", {"http_json": "PASS"}, ["an earlier test"]),
    "PUSH-1": row("MUST", "SKIPPED", {"grpc": "SKIPPED"}, []),
    "SIGN-1": row("MAY", "NOT TESTED", {}, []),
}
if "--transport=http_json" in sys.argv:
    found["HTTP-1"] = row("SHOULD", "PASS", {"http_json": "PASS"}, [])
os.makedirs("reports", exist_ok=True)
json.dump({"summary": {}, "per_requirement": found}, open("reports/compatibility.json", "w"))
sys.exit(1)
"#;

#[tokio::test]
async fn the_tck_of_the_a2a_project_is_run_from_its_directory() {
    let herald = Herald::start(Options::config(STEERED)).await;
    let url = format!("http://{}", herald.address);
    let folder = tempfile::tempdir().unwrap();
    let kit = folder.path().to_str().unwrap();
    let run = [url.as_str(), "--tck", kit];
    let ended = conformance(&run).await;
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a checkout of github.com/a2aproject/a2a-tck"), "{ended:?}");
    std::fs::write(folder.path().join("run_tck.py"), KIT).unwrap();
    let (report, rows) = report(&run).await;
    assert_eq!(report["conformant"], false);
    let line = |row: &Row| {
        format!("{} {} {} {} {}", row.test, row.level, row.binding, row.result, row.said)
    };
    let mut seen: Vec<_> = rows.iter().map(line).collect();
    seen.sort();
    let expected = [
        "CARD-1 must rest pass ",
        "HTTP-1 should rest fail an earlier test",
        "PUSH-1 must grpc skip skipped by the TCK",
        "SEND-1 must grpc pass ",
        "SEND-1 must jsonrpc fail no",
        "SIGN-1 may rest skip the TCK has no test for it",
    ];
    assert_eq!(seen, expected);
    // A failed run without a reported failure is a failure.
    let ended = conformance(&[&run[..], &["--binding", "rest"]].concat()).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("dots go here ['--transport=http_json'] False"), "{ended:?}");
    assert!(ended.stdout.contains("reports no failure"), "{ended:?}");
    assert!(!ended.stdout.contains("grpc     1.0      pass"), "{ended:?}");
    // The report of an earlier run is not used.
    let ended = conformance(&[&run[..], &["--level", "must"]].concat()).await;
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("without a report"), "{ended:?}");
}
