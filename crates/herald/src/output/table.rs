//! Tables of the text format: aligned columns under a head.

use super::plain::inline;

/// Characters between two columns.
const GAP: &str = "  ";
/// The most characters of a cell that is not in the last column, if the rows are wider than the terminal.
const WIDEST: usize = 48;

/// Rows as aligned columns. Control characters are escaped, so that no cell can imitate a row.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    fitted(head, rows, terminal_width())
}

/// The characters of a line of standard output, if that is a terminal.
fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Rows as aligned columns. Long cells are cut if the rows are wider than `width`.
fn fitted<const N: usize>(head: [&str; N], rows: &[[String; N]], width: Option<usize>) -> String {
    let cells = |cuts: bool| -> Vec<[String; N]> {
        let row = |row: &[String; N]| {
            std::array::from_fn(|column| cell(&row[column], !cuts || column + 1 == N))
        };
        rows.iter().map(row).collect()
    };
    let widths = |rows: &[[String; N]]| -> [usize; N] {
        std::array::from_fn(|column| {
            let cells = rows.iter().map(|row| row[column].chars().count());
            cells.chain([head[column].len()]).max().unwrap_or_default()
        })
    };
    let mut rows = cells(false);
    let total = widths(&rows).iter().sum::<usize>() + GAP.len() * N.saturating_sub(1);
    if width.is_some_and(|width| total > width) {
        rows = cells(true);
    }
    let widths = widths(&rows);
    let mut text = aligned(&head, &widths);
    for row in &rows {
        text.push_str(&aligned(&row.each_ref().map(String::as_str), &widths));
    }
    text
}

/// One line of a table with these widths.
pub(crate) fn aligned(cells: &[&str], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}"));
    let line = padded.collect::<Vec<_>>().join(GAP);
    format!("{}\n", line.trim_end())
}

/// A cell in one line, whole or cut. An empty one gets a dash, so that columns can be counted.
pub(crate) fn cell(text: &str, is_whole: bool) -> String {
    let text = inline(text).replace('\t', " ");
    if text.trim().is_empty() {
        return "-".to_owned();
    }
    if is_whole || text.chars().count() <= WIDEST {
        return text;
    }
    let cut: String = text.chars().take(WIDEST - 1).collect();
    format!("{cut}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_no_cell_is_two_rows() {
        let rows = [
            ["a".to_owned(), "long enough".to_owned(), "end".to_owned()],
            ["bcd".to_owned(), String::new(), "x\nfake  row".to_owned()],
            ["e".repeat(99), "é".to_owned(), "f".repeat(99)],
        ];
        let text = table(["ID", "NAME", "LAST"], &rows[..2]);
        let expected =
            "ID   NAME         LAST\na    long enough  end\nbcd  -            x\\nfake  row\n";
        assert_eq!(text, expected);
        let whole = fitted(["ID", "NAME", "LAST"], &rows, Some(300));
        assert!(whole.contains(&"e".repeat(99)), "a wide terminal shows everything: {whole}");
        let text = fitted(["ID", "NAME", "LAST"], &rows, Some(200));
        let last = text.lines().last().unwrap();
        assert!(last.contains(&format!("{}…", "e".repeat(47))), "{last}");
        assert!(last.ends_with(&"f".repeat(99)), "{last}");
    }
}
