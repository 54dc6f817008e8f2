//! Text from byte streams: UTF-8 decoding, bounded lines, the tail of a stream.

use std::borrow::Cow;

use herald_protocol::lines::{BoundedLine, LineSplitter};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};

/// UTF-8 decoder for pieces that may end in the middle of a character. Invalid bytes become U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    /// The first bytes of a character that is not complete yet.
    held: Vec<u8>,
}

impl Utf8Decoder {
    /// The text of the next piece, as far as it is complete.
    pub(crate) fn push(&mut self, piece: &[u8], is_last: bool) -> String {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        let (mut text, mut read) = (String::with_capacity(bytes.len()), 0);
        for chunk in bytes.utf8_chunks() {
            read += chunk.valid().len() + chunk.invalid().len();
            text.push_str(chunk.valid());
            let broken = chunk.invalid();
            let is_cut = std::str::from_utf8(broken).is_err_and(|why| why.error_len().is_none());
            if is_cut && !is_last && read == bytes.len() {
                self.held = broken.to_vec();
            } else if !broken.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }
}

/// Replaces the escapes of unpaired surrogates in JSON by U+FFFD. UTF-8 cannot represent them, and programs
/// that count in UTF-16, such as those in JavaScript, split emojis into two of them.
pub(crate) fn replace_unpaired_surrogates(json: &[u8]) -> Cow<'_, [u8]> {
    const REPLACEMENT: &[u8] = br"\ufffd";
    let (mut mended, mut done, mut at) = (Vec::new(), 0, 0);
    while let Some(next) = json.get(at..).and_then(|rest| rest.iter().position(|b| *b == b'\\')) {
        at += next;
        at += match (escaped(json, at), escaped(json, at + REPLACEMENT.len())) {
            (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => 2 * REPLACEMENT.len(),
            (Some(0xD800..=0xDFFF), _) => {
                mended.extend_from_slice(&json[done..at]);
                mended.extend_from_slice(REPLACEMENT);
                done = at + REPLACEMENT.len();
                REPLACEMENT.len()
            }
            // The backslash and the escaped character, which may be a backslash.
            (Some(_) | None, _) => 2,
        };
    }
    if done == 0 {
        return Cow::Borrowed(json);
    }
    mended.extend_from_slice(&json[done..]);
    Cow::Owned(mended)
}

/// The code unit of an escape such as `\ud83e` at this position.
fn escaped(json: &[u8], at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix(br"\u")?;
    let digits = str::from_utf8(digits).ok()?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_number.then(|| u16::from_str_radix(digits, 16).ok())?
}

/// The first `most` characters of a text; the last of them is `…` if there are more.
pub(crate) fn truncate(text: &str, most: usize) -> Cow<'_, str> {
    match text.chars().nth(most) {
        None => Cow::Borrowed(text),
        Some(_) => Cow::Owned(text.chars().take(most - 1).chain(['…']).collect()),
    }
}

/// A name such as `prompt_tokens` as the protocol spells names: `promptTokens`.
pub(crate) fn camel_case(name: &str) -> String {
    let mut words = name.split('_').filter(|word| !word.is_empty());
    let mut camel: String = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel.push_str(letters.as_str());
    }
    camel
}

/// Reads a stream to its end, and returns its last `most` bytes.
pub(crate) async fn tail(stream: impl AsyncRead + Unpin, most: usize) -> Vec<u8> {
    let mut tail = StreamTail::new(stream, most);
    tail.read_all().await;
    tail.kept().to_vec()
}

/// The last `most` bytes of a stream that is read as it arrives.
#[derive(Debug)]
pub(crate) struct StreamTail<R> {
    stream: R,
    most: usize,
    kept: Vec<u8>,
    is_over: bool,
}

impl<R: AsyncRead + Unpin> StreamTail<R> {
    pub(crate) fn new(stream: R, most: usize) -> Self {
        Self { stream, most, kept: Vec::new(), is_over: false }
    }

    /// Reads once more; after the end of the stream it never returns. Cancel safe.
    pub(crate) async fn read(&mut self) {
        if self.is_over {
            std::future::pending::<()>().await;
        }
        // A read error counts as the end of the stream.
        self.is_over = matches!(self.stream.read_buf(&mut self.kept).await, Ok(0) | Err(_));
        if self.kept.len() > 2 * self.most {
            self.kept.drain(..self.kept.len() - self.most);
        }
    }

    /// Reads to the end.
    pub(crate) async fn read_all(&mut self) {
        while !self.is_over {
            self.read().await;
        }
    }

    /// The bytes that were read last.
    pub(crate) fn kept(&self) -> &[u8] {
        &self.kept[self.kept.len().saturating_sub(self.most)..]
    }
}

/// Reads lines of bounded length from a stream.
#[derive(Debug)]
pub(crate) struct LineReader<R> {
    stream: BufReader<R>,
    lines: LineSplitter,
}

impl<R: AsyncRead + Unpin> LineReader<R> {
    pub(crate) fn new(stream: R, limit: usize) -> Self {
        let stream = BufReader::with_capacity(64 << 10, stream);
        Self { stream, lines: LineSplitter::new(limit) }
    }

    /// The line that has begun and has not ended yet.
    pub(crate) fn unfinished(&self) -> &[u8] {
        self.lines.unfinished()
    }

    /// Discards the line that has not ended yet, as far as it was read.
    pub(crate) fn discard_unfinished(&mut self) {
        self.lines.finish();
    }

    /// The next line; `None` at the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<BoundedLine> {
        loop {
            // A read error counts as the end of the stream.
            let buffer = self.stream.fill_buf().await.unwrap_or_default();
            if buffer.is_empty() {
                return self.lines.finish();
            }
            let (taken, line) = self.lines.push(buffer);
            self.stream.consume(taken);
            if line.is_some() {
                return line;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_for_pieces_of_any_size() {
        let whole = [b"a \xc3\xa4 \xf0\x9f\xa6\x80 ".as_slice(), b"\xff\xe2\x82x\xf0\x9f"].concat();
        for cut in 0..=whole.len() {
            for second in cut..=whole.len() {
                let mut decoder = Utf8Decoder::default();
                let mut text = decoder.push(&whole[..cut], false);
                text += &decoder.push(&whole[cut..second], false);
                text += &decoder.push(&whole[second..], true);
                assert_eq!(text, String::from_utf8_lossy(&whole), "{cut} {second}");
            }
        }
    }

    #[test]
    fn unpaired_surrogates_in_json_are_replaced_and_nothing_else_is() {
        for (json, expected) in [
            (r#""\ud83e\udd80 \u00e4 \n \\""#, "\u{1f980} ä \n \\"),
            (r#""a\ud83e""#, "a\u{fffd}"),
            (r#""\uDD80a""#, "\u{fffd}a"),
            (r#""\udd80\ud83e\ud83e\udd80""#, "\u{fffd}\u{fffd}\u{1f980}"),
            // The backslash is escaped here, not the surrogate.
            (r#""\\ud83e""#, r"\ud83e"),
            (r#""\\\ud83e""#, "\\\u{fffd}"),
        ] {
            let read: String =
                serde_json::from_slice(&replace_unpaired_surrogates(json.as_bytes())).unwrap();
            assert_eq!(read, expected, "{json}");
        }
        for broken in [r#""\"#, r#""\ud8"#, r#""\u+d8f"#, "\"\\ä\"", "no JSON"] {
            assert_eq!(replace_unpaired_surrogates(broken.as_bytes()), broken.as_bytes());
        }
    }

    #[test]
    fn names_are_camel_case() {
        for (name, expected) in [
            ("prompt_tokens", "promptTokens"),
            ("completion_tokens_details", "completionTokensDetails"),
            ("inputTokens", "inputTokens"),
            ("_total__cost_usd_", "totalCostUsd"),
            ("", ""),
        ] {
            assert_eq!(camel_case(name), expected, "{name}");
        }
    }

    #[tokio::test]
    async fn the_tail_of_a_long_stream_is_kept() {
        let much: Vec<u8> = (0..100_000_u32).flat_map(u32::to_be_bytes).collect();
        assert_eq!(tail(&mut &much[..], 1000).await, &much[much.len() - 1000..]);
        assert_eq!(tail(&mut &much[..10], 1000).await, &much[..10]);
        assert_eq!(tail(&mut &much[..0], 1000).await, b"");
    }

    #[tokio::test]
    async fn a_line_over_the_limit_is_truncated_and_the_next_one_is_whole() {
        let long = "x".repeat(200_000);
        let text = format!("one\n{long}\ntwo\nend");
        let mut lines = LineReader::new(text.as_bytes(), 10);
        let whole = |text: &str| Some(BoundedLine::Whole(text.as_bytes().to_vec()));
        assert_eq!(lines.next().await, whole("one"));
        assert_eq!(lines.next().await, Some(BoundedLine::Truncated(b"xxxxxxxxxx".to_vec())));
        assert_eq!(lines.next().await, whole("two"));
        assert_eq!(lines.next().await, whole("end"));
        assert_eq!(lines.next().await, None);
    }
}
