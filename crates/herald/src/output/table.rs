//! Tables of the text format: aligned columns under a head.

use super::plain::inline;

/// Characters between two columns.
const GAP: &str = "  ";
/// The most characters of a cell that is not in the last column.
const WIDEST: usize = 48;

/// Rows as aligned columns. Control characters are escaped, so that no cell can imitate a row.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let rows: Vec<[String; N]> = rows
        .iter()
        .map(|row| std::array::from_fn(|column| cell(&row[column], column + 1 == N)))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
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

/// A cell in one line. An empty one gets a dash, so that columns can be counted.
pub(crate) fn cell(text: &str, is_last: bool) -> String {
    let text = inline(text).replace('\t', " ");
    if text.trim().is_empty() {
        return "-".to_owned();
    }
    if is_last || text.chars().count() <= WIDEST {
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
        let text = table(["ID", "NAME", "LAST"], &rows);
        let last = text.lines().last().unwrap();
        assert!(last.contains(&format!("{}…", "e".repeat(47))), "{last}");
        assert!(last.ends_with(&"f".repeat(99)), "{last}");
    }
}
