//! Message of the caller as a coding agent gets it: text, images and files.

use std::io;

use base64::{Engine as _, prelude::BASE64_STANDARD as BASE64};
use herald_protocol::{Content, Message};

use super::dialect::Image;
use crate::{Input, exec::input::PreparedInput, process::Processes};

/// Images that are passed to the model, by type and size: most models accept 5 MB in base64. Other
/// images are passed as files.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const MAX_IMAGE: usize = 3_750_000;

/// A message of the caller as the agent gets it.
#[derive(Debug)]
pub(super) struct CodingPrompt {
    pub(super) text: String,
    pub(super) images: Vec<Image>,
    /// The files that the text names. They are removed with this.
    pub(super) input: PreparedInput,
}

impl CodingPrompt {
    /// Writes the files of the message, and formats it.
    pub(super) async fn prepare(message: &Message, processes: &Processes) -> io::Result<Self> {
        let input = Input::Text.prepare(message, processes).await?;
        let images = images(message, &input);
        Ok(Self { text: String::from_utf8_lossy(&input.stdin).into_owned(), images, input })
    }
}

/// The images of a message that models accept.
fn images(message: &Message, given: &PreparedInput) -> Vec<Image> {
    let parts = message.parts.iter().zip(&given.paths);
    let images = parts.filter_map(|(part, path)| {
        let (Content::Raw(bytes), Some(path)) = (&part.content, path) else { return None };
        let media_type = part.media_type.clone()?;
        let is_shown = IMAGES.contains(&media_type.as_str()) && bytes.len() <= MAX_IMAGE;
        is_shown.then(|| Image { media_type, path: path.clone(), data: BASE64.encode(bytes) })
    });
    images.collect()
}
