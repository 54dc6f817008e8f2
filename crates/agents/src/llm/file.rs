//! Files in a prompt: images as images, text files as text, and the names of all others.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use herald_protocol::{Content, Part};

use super::chat::ContentPart;

/// Media types of text beside `text/*`. A suffix such as `+json` counts as well.
const TEXT_TYPES: [&str; 8] =
    ["json", "xml", "yaml", "x-yaml", "toml", "javascript", "sql", "x-ndjson"];

/// Characters of a name, a type or a URL that the prompt shows.
const SHOWN: usize = 500;

/// The content part for a file: `images` says whether the model takes images.
pub(super) fn part(part: &Part, images: bool) -> Option<ContentPart> {
    let media_type = essence(part);
    let is_image = images && media_type.starts_with("image/");
    Some(match &part.content {
        Content::Raw(bytes) if is_image => {
            ContentPart::image(format!("data:{media_type};base64,{}", STANDARD.encode(bytes)))
        }
        Content::Url(url) if is_image => ContentPart::image(url.clone()),
        Content::Raw(bytes) => match text(&media_type, bytes) {
            Some(text) => ContentPart::text(format!("[{}]\n{text}", describe(part))),
            None => {
                let (what, size) = (describe(part), bytes.len());
                ContentPart::text(format!("[{what}, {size} bytes: its content is not shown]"))
            }
        },
        Content::Url(url) => {
            let (what, url) = (describe(part), one_line(url));
            ContentPart::text(format!("[{what} at {url}: its content is not shown]"))
        }
        Content::Text(_) | Content::Data(_) => return None,
    })
}

/// The media type without parameters, in lower case.
fn essence(part: &Part) -> String {
    let media_type = part.media_type.as_deref().unwrap_or_default();
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The text of a text file. A file without a type, or with the one for any bytes, is text if its bytes are.
fn text<'a>(media_type: &str, bytes: &'a [u8]) -> Option<Cow<'a, str>> {
    let subtype = media_type.strip_prefix("application/");
    let is_text = media_type.starts_with("text/")
        || subtype.is_some_and(|subtype| {
            let suffix = subtype.rsplit('+').next().unwrap_or(subtype);
            TEXT_TYPES.contains(&suffix)
        });
    if is_text {
        return Some(String::from_utf8_lossy(bytes));
    }
    let is_unknown = media_type.is_empty() || media_type == "application/octet-stream";
    let is_printable = |text: &&str| !text.chars().any(|c| c.is_control() && !c.is_whitespace());
    let text = std::str::from_utf8(bytes).ok().filter(is_printable);
    text.filter(|_| is_unknown).map(Cow::Borrowed)
}

/// The file's name and type, such as `file report.pdf, application/pdf`.
fn describe(part: &Part) -> String {
    let name = part.filename.as_deref().map_or_else(|| "without a name".to_owned(), one_line);
    match essence(part) {
        media_type if media_type.is_empty() => format!("file {name}"),
        media_type => format!("file {name}, {}", one_line(&media_type)),
    }
}

/// The text on one line, so that a name cannot look like another part of the prompt.
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: Option<&str>, media_type: Option<&str>, content: Content) -> Part {
        let mut part = Part::new(content);
        part.filename = name.map(str::to_owned);
        part.media_type = media_type.map(str::to_owned);
        part
    }

    fn shown(file: &Part) -> String {
        part(file, false).unwrap().as_text().unwrap().to_owned()
    }

    #[test]
    fn text_is_shown_and_other_content_is_named() {
        let raw = |bytes: &[u8]| Content::Raw(bytes.to_vec());
        for (name, media_type, bytes, expected) in [
            (
                Some("a.csv"),
                Some("text/csv; charset=utf-8"),
                &b"1,2"[..],
                "[file a.csv, text/csv]\n1,2",
            ),
            (
                Some("a.json"),
                Some("application/ld+json"),
                b"{}",
                "[file a.json, application/ld+json]\n{}",
            ),
            (None, None, b"plain\n", "[file without a name]\nplain\n"),
            (
                Some("a.pdf"),
                Some("application/pdf"),
                b"%PDF",
                "[file a.pdf, application/pdf, 4 bytes: its content is not shown]",
            ),
            (
                Some("a]\n[b"),
                Some("application/octet-stream"),
                b"\x00\x01",
                "[file a][b, application/octet-stream, 2 bytes: its content is not shown]",
            ),
            (
                None,
                Some("image/png"),
                b"x",
                "[file without a name, image/png, 1 bytes: its content is not shown]",
            ),
        ] {
            assert_eq!(shown(&file(name, media_type, raw(bytes))), expected);
        }
        let link = Content::Url("https://example.com/a.pdf".to_owned());
        let expected = "[file a.pdf at https://example.com/a.pdf: its content is not shown]";
        assert_eq!(shown(&file(Some("a.pdf"), None, link)), expected);
    }

    #[test]
    fn images_are_shown_to_models_that_take_them() {
        let image = file(None, Some("IMAGE/png"), Content::Raw(vec![0]));
        assert_eq!(
            part(&image, true),
            Some(ContentPart::image("data:image/png;base64,AA==".to_owned()))
        );
    }
}
