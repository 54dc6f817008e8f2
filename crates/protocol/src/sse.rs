//! Server-sent events: one JSON document per event, on a single `data:` line.

use std::sync::Arc;

/// Prefix of every keep-alive comment.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

/// Frames one event. `data` is given in pieces and must not contain a line break, which no compact
/// JSON does.
pub fn frame(out: &mut Vec<u8>, id: Option<&str>, event: Option<&str>, data: &[&[u8]]) {
    out.reserve(data.iter().map(|piece| piece.len()).sum::<usize>() + 64);
    if let Some(id) = id {
        out.extend_from_slice(b"id: ");
        out.extend_from_slice(id.as_bytes());
        out.push(b'\n');
    }
    if let Some(event) = event {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.as_bytes());
        out.push(b'\n');
    }
    out.extend_from_slice(b"data: ");
    for piece in data {
        debug_assert!(!piece.contains(&b'\n') && !piece.contains(&b'\r'), "data is one line");
        write_on_one_line(out, piece);
    }
    out.extend_from_slice(b"\n\n");
}

/// Writes JSON with U+0085, U+2028 and U+2029 escaped. JSON strings may contain them, and they end no line
/// of server-sent events, but common readers split lines at them (Python's `str.splitlines`, and with it
/// httpx and the official Python SDK) and get half a document.
fn write_on_one_line(out: &mut Vec<u8>, mut json: &[u8]) {
    // The check for ASCII takes a word at a time, the search below a byte.
    if json.is_ascii() {
        out.extend_from_slice(json);
        return;
    }
    while let Some(at) = json.iter().position(|byte| matches!(byte, 0xC2 | 0xE2)) {
        let (before, character) = json.split_at(at);
        out.extend_from_slice(before);
        let (written, length): (&[u8], usize) = match character {
            [0xC2, 0x85, ..] => (b"\\u0085", 2),
            [0xE2, 0x80, 0xA8, ..] => (b"\\u2028", 3),
            [0xE2, 0x80, 0xA9, ..] => (b"\\u2029", 3),
            other => (&other[..1], 1),
        };
        out.extend_from_slice(written);
        json = &character[length..];
    }
    out.extend_from_slice(json);
}

/// Writes the position of a stream without an event: a reader remembers an `id:` without `data:` and
/// reports no event.
pub fn mark(out: &mut Vec<u8>, id: &str) {
    out.extend_from_slice(b"id: ");
    out.extend_from_slice(id.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// The longest `id:` that is kept, in bytes. The client sends it back in a header, so longer ones are of
/// no use.
const LONGEST_ID: usize = 1024;

/// One event as a reader sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The last `id:` seen on the stream so far, unless it was longer than 1 KiB. All events up to the
    /// next one share it.
    pub id: Option<Arc<str>>,
    /// The `event:` of this event.
    pub event: Option<String>,
    /// Its `data:` lines, joined by newlines.
    pub data: String,
}

/// Reads events out of a byte stream that arrives in pieces of any size.
#[derive(Debug)]
pub struct Parser {
    line: Vec<u8>,
    pending: SseEvent,
    has_data: bool,
    after_cr: bool,
    limit: usize,
}

/// The error for an event over the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl Parser {
    /// A parser that fails on events larger than `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            line: Vec::new(),
            pending: SseEvent::default(),
            has_data: false,
            after_cr: false,
            limit,
        }
    }

    /// Parses the next piece and appends the events that it completes to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> Result<(), TooLarge> {
        for &byte in bytes {
            // A CR LF pair ends one line, also when it is split between two pieces.
            let skip = self.after_cr && byte == b'\n';
            self.after_cr = byte == b'\r';
            match byte {
                b'\n' if skip => {}
                b'\n' | b'\r' => self.end_line(out),
                _ => {
                    if self.line.len() + self.pending.data.len() >= self.limit {
                        return Err(TooLarge);
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(())
    }

    fn end_line(&mut self, out: &mut Vec<SseEvent>) {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let id = self.pending.id.clone();
            let event =
                std::mem::replace(&mut self.pending, SseEvent { id, ..SseEvent::default() });
            if std::mem::take(&mut self.has_data) {
                out.push(event);
            }
            return;
        }
        let text = String::from_utf8_lossy(&line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.pending.data.push('\n');
                }
                self.pending.data.push_str(value);
            }
            "id" if value.contains('\0') => {}
            "id" => self.pending.id = (value.len() <= LONGEST_ID).then(|| value.into()),
            "event" => self.pending.event = Some(value.to_owned()),
            _ => {} // comments, `retry:` and fields of the future
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8], piece: usize) -> Vec<SseEvent> {
        let (mut parser, mut out) = (Parser::new(1 << 20), Vec::new());
        for piece in bytes.chunks(piece) {
            parser.push(piece, &mut out).unwrap();
        }
        out
    }

    // proves: STR-025
    #[test]
    fn str_025_lines_are_joined_comments_ignored_and_pieces_may_fall_anywhere() {
        let text =
            b": hello\r\nid: 7\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\nevent: error\ndata:x\n\n:\n\n";
        for piece in 1..text.len() {
            let events = parse(text, piece);
            assert_eq!(events.len(), 2, "in pieces of {piece}");
            assert_eq!(events[0].data, "{\"a\":\n1}");
            assert_eq!(events[0].id.as_deref(), Some("7"));
            assert_eq!(events[1].event.as_deref(), Some("error"));
            assert_eq!(events[1].id.as_deref(), Some("7"), "an id lasts until the next one");
        }
    }

    #[test]
    fn characters_that_end_lines_elsewhere_are_escaped_and_nothing_else_is() {
        let text = "a\u{2028}b\u{2029}\u{85}\u{2028}\u{2027}\u{202a}\u{86}\u{a0} – €é漢😀";
        let json = serde_json::to_vec(text).unwrap();
        let mut out = Vec::new();
        frame(&mut out, None, None, &[&json]);
        let written = String::from_utf8(out).unwrap();
        let expected =
            "data: \"a\\u2028b\\u2029\\u0085\\u2028\u{2027}\u{202a}\u{86}\u{a0} – €é漢😀\"\n\n";
        assert_eq!(written, expected);
        let data = &parse(written.as_bytes(), 1)[0].data;
        assert_eq!(serde_json::from_str::<String>(data).unwrap(), text);
        // Half a character at the end is copied unchanged.
        let mut out = Vec::new();
        write_on_one_line(&mut out, b"\xE2\x80");
        assert_eq!(out, b"\xE2\x80");
    }

    #[test]
    fn what_frame_writes_the_parser_reads() {
        let mut bytes = Vec::new();
        frame(&mut bytes, Some("t:3"), None, &[br#"{"x""#, b":1}"]);
        bytes.extend_from_slice(KEEP_ALIVE);
        let events = parse(&bytes, 3);
        assert_eq!(
            events,
            [SseEvent { id: Some("t:3".into()), event: None, data: r#"{"x":1}"#.into() }]
        );
    }

    #[test]
    fn an_id_is_shared_by_the_events_after_it_and_a_huge_one_is_forgotten() {
        let events = parse(b"id: 7\ndata: a\n\ndata: b\n\n", 4);
        let [Some(first), Some(second)] = [0, 1].map(|one: usize| events[one].id.clone()) else {
            panic!("{events:?}");
        };
        assert!(Arc::ptr_eq(&first, &second));
        let huge = "x".repeat(LONGEST_ID + 1);
        let text = format!("id: 7\ndata: a\n\nid: {huge}\ndata: b\n\nid: 8\ndata: c\n\n");
        let ids: Vec<_> = parse(text.as_bytes(), 100).into_iter().map(|event| event.id).collect();
        assert_eq!(ids, [Some("7".into()), None, Some("8".into())]);
    }

    #[test]
    fn an_endless_line_is_refused() {
        let (mut parser, mut out) = (Parser::new(100), Vec::new());
        assert_eq!(parser.push(&[b'x'; 200], &mut out), Err(TooLarge));
    }
}
