//! Tests of docs/cli-compliance.md: every requirement has a row, its tests exist, its sums are right, and the skill
//! for coding agents follows the specification.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

mod written;

use std::{collections::BTreeSet, fs};

use written::{root, tests};

/// The requirements of version 0.2, revised on 2026-08-17: how many there are of each tier.
const TIERS: [(&str, usize); 3] = [("4. Tier 1", 39), ("5. Tier 2", 15), ("6. Tier 3", 12)];

#[test]
fn every_requirement_has_a_row_and_every_row_that_passes_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/cli-compliance.md")).unwrap();
    let machine = fs::read_to_string(root().join("docs/cli-compliance.yaml")).unwrap();
    let tests = tests();
    let mut seen = BTreeSet::new();
    for (title, count) in TIERS {
        let section = text.split(&format!("## {title}")).nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let rows: Vec<_> = section.lines().filter(|line| line.starts_with("| `A2ACLI_")).collect();
        assert_eq!(rows.len(), count, "{title}");
        let mut passed = 0;
        for row in rows {
            let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
            let [id, _text, _section, status, notes] = cells[..] else { panic!("{row}") };
            let id = id.trim_matches('`');
            assert!(seen.insert(id.to_owned()), "{id} has two rows");
            let block =
                machine.split(&format!("  {id}:\n")).nth(1).unwrap_or_else(|| panic!("{id}"));
            let block = block.split("\n  A2ACLI_").next().unwrap();
            if status != "✅ Pass" {
                assert!(!notes.is_empty(), "{id} does not say why");
                assert!(!block.contains("status: pass"), "{id} passes in one of two files");
                continue;
            }
            passed += 1;
            assert!(block.contains("status: pass"), "{id} passes in one of two files");
            let named: Vec<_> = notes.split('`').skip(1).step_by(2).collect();
            assert!(!named.is_empty(), "{id} names no test");
            for name in named {
                let (file, test) = name.split_once("::").unwrap();
                let exists = tests.get(file).is_some_and(|tests| tests.contains(test));
                assert!(exists, "{id} names {name}, which does not exist");
            }
        }
        let tier = title.split(". ").nth(1).unwrap();
        let summary = format!("| {tier} ");
        let row = text.lines().find(|line| line.starts_with(&summary)).unwrap();
        let cells: Vec<_> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        assert_eq!(cells[1..3], [count.to_string(), passed.to_string()], "{row}");
    }
}

#[test]
fn there_is_one_skill_and_it_leaves_the_commands_to_help() {
    let skills: Vec<_> = fs::read_dir(root().join("skills")).unwrap().collect();
    assert_eq!(skills.len(), 1);
    let skill = fs::read_to_string(root().join("skills/herald/SKILL.md")).unwrap();
    assert!(skill.starts_with("---\nname: herald\ndescription: "));
    assert!(skill.contains("\ncompatibility: "));
    assert!(skill.len() < 4000, "it is always loaded, and has {} bytes", skill.len());
    for needed in
        ["herald help", "-o json", "--stream", "--task-id", "--context-id", "A2ACLI_BEARER"]
    {
        assert!(skill.contains(needed), "no {needed}");
    }
    for command in ["push-config", "completion", "config show", "demo-server", "MUST", "SHALL"] {
        assert!(!skill.contains(command), "{command} is for help and the specification to say");
    }
    assert!(root().join("skills/herald/references/examples.md").is_file());
}
