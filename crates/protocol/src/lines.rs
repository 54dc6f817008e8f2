//! Lines of bounded length, split from bytes in pieces of any size: the framing of messages on standard streams.

/// One line, without its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BoundedLine {
    /// A whole line.
    Whole(Vec<u8>),
    /// The beginning of a line that is longer than the limit; the rest was discarded.
    Truncated(Vec<u8>),
}

/// Splits bytes into lines of at most `limit` bytes. It holds one unfinished line.
#[derive(Debug)]
pub struct LineSplitter {
    limit: usize,
    line: Vec<u8>,
    is_too_long: bool,
}

impl LineSplitter {
    /// A splitter at the start of a line.
    pub fn new(limit: usize) -> Self {
        Self { limit, line: Vec::new(), is_too_long: false }
    }

    /// Takes bytes up to the end of the current line. Returns how many it took, and the line if they
    /// complete it.
    pub fn push(&mut self, bytes: &[u8]) -> (usize, Option<BoundedLine>) {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        let free = self.limit - self.line.len();
        self.is_too_long |= piece.len() > free;
        self.line.extend_from_slice(&piece[..piece.len().min(free)]);
        (piece.len() + usize::from(end.is_some()), end.map(|_| self.take()))
    }

    /// The unfinished line at the end of the input, if it has any bytes.
    pub fn finish(&mut self) -> Option<BoundedLine> {
        (!self.line.is_empty()).then(|| self.take())
    }

    /// The unfinished line, as far as it has come.
    pub fn unfinished(&self) -> &[u8] {
        &self.line
    }

    /// True once the current line is known to be longer than the limit. A reader that does not want to
    /// wait for its end can stop there.
    pub fn is_too_long(&self) -> bool {
        self.is_too_long
    }

    fn take(&mut self) -> BoundedLine {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            BoundedLine::Truncated(line)
        } else {
            BoundedLine::Whole(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of an input that comes in pieces of this size.
    fn split(input: &[u8], size: usize, limit: usize) -> Vec<BoundedLine> {
        let (mut lines, mut found) = (LineSplitter::new(limit), Vec::new());
        for mut piece in input.chunks(size) {
            while !piece.is_empty() {
                let (taken, line) = lines.push(piece);
                found.extend(line);
                piece = &piece[taken..];
            }
        }
        found.extend(lines.finish());
        found
    }

    #[test]
    fn lines_are_the_same_for_pieces_of_any_size_and_none_exceeds_the_limit() {
        let input = b"a\n\n12345\n123456\nb\r\n1234567890123\nlast";
        let whole = |text: &str| BoundedLine::Whole(text.as_bytes().to_vec());
        let truncated = BoundedLine::Truncated(b"12345".to_vec());
        let expected = [
            whole("a"),
            whole(""),
            whole("12345"),
            truncated.clone(),
            whole("b\r"),
            truncated.clone(),
            whole("last"),
        ];
        for size in 1..=input.len() {
            assert_eq!(split(input, size, 5), expected, "{size} bytes at a time");
        }
        assert_eq!(split(b"123456", 2, 5), [truncated]);
        assert_eq!(split(b"", 1, 5), []);
        assert_eq!(split(b"x\n", 1, 0), [BoundedLine::Truncated(Vec::new())]);
    }

    #[test]
    fn a_line_over_the_limit_is_known_before_its_end() {
        let mut lines = LineSplitter::new(3);
        assert_eq!(lines.push(b"abc"), (3, None));
        assert!(!lines.is_too_long());
        assert_eq!(lines.push(b"d"), (1, None));
        assert!(lines.is_too_long());
        assert_eq!(lines.push(b"\nnext"), (1, Some(BoundedLine::Truncated(b"abc".to_vec()))));
        assert!(!lines.is_too_long());
    }
}
