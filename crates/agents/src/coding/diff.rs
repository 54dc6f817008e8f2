//! Unified diffs of two texts, for programs that report a changed file as its text before and after.

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The unified diff of a file: one hunk from the first to the last changed line. `None` is a file that does not
/// exist. The hunk is found in linear time, whatever the texts are.
pub(crate) fn unified(path: &str, old: Option<&str>, new: Option<&str>) -> String {
    let name = |text: Option<&str>| text.map_or("/dev/null", |_| path).to_owned();
    let mut diff = format!("--- {}\n+++ {}\n", name(old), name(new));
    let old: Vec<_> = old.unwrap_or_default().split_inclusive('\n').collect();
    let new: Vec<_> = new.unwrap_or_default().split_inclusive('\n').collect();
    let same = |(one, other): &(&&str, &&str)| one == other;
    let before = old.iter().zip(&new).take_while(same).count();
    let (old_rest, new_rest) = (&old[before..], &new[before..]);
    let after = old_rest.iter().rev().zip(new_rest.iter().rev()).take_while(same).count();
    let (old_end, new_end) = (old.len() - after, new.len() - after);
    if before == old_end && before == new_end {
        return diff;
    }
    let start = before.saturating_sub(CONTEXT);
    let shown_after = after.min(CONTEXT);
    let range = |end: usize| {
        let count = end + shown_after - start;
        // An empty range is named by the line before it.
        let first = if count == 0 { start } else { start + 1 };
        format!("{first},{count}")
    };
    diff += &format!("@@ -{} +{} @@\n", range(old_end), range(new_end));
    let mut push = |sign: char, lines: &[&str]| {
        for line in lines {
            diff.push(sign);
            diff += line;
            if !line.ends_with('\n') {
                diff += "\n\\ No newline at end of file\n";
            }
        }
    };
    push(' ', &old[start..before]);
    push('-', &old[before..old_end]);
    push('+', &new[before..new_end]);
    push(' ', &old[old_end..old_end + shown_after]);
    diff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_has_the_changed_lines_and_three_around_them() {
        let old = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        for (old, new, expected) in [
            (
                Some(old),
                Some("1\n2\n3\n4\nfive\n6\n7\n8\n9\n"),
                "--- a\n+++ a\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n",
            ),
            (Some("1\n"), Some("1\n2\n"), "--- a\n+++ a\n@@ -1,1 +1,2 @@\n 1\n+2\n"),
            (None, Some("1\n2\n"), "--- /dev/null\n+++ a\n@@ -0,0 +1,2 @@\n+1\n+2\n"),
            (Some("1\n"), None, "--- a\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-1\n"),
            (
                Some("1"),
                Some("2\n"),
                "--- a\n+++ a\n@@ -1,1 +1,1 @@\n-1\n\\ No newline at end of file\n+2\n",
            ),
            (Some("1\n1\n"), Some("1\n"), "--- a\n+++ a\n@@ -1,2 +1,1 @@\n 1\n-1\n"),
            (Some("1\n"), Some("1\n"), "--- a\n+++ a\n"),
        ] {
            assert_eq!(unified("a", old, new), expected, "{old:?} {new:?}");
        }
    }
}
