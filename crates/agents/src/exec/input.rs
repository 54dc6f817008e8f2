//! Input of a program: a message as text or JSON on standard input, its files in a directory.

use std::{
    fs::{File, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use herald_protocol::{Content, Json, Message, Metadata, Part};
use serde::Serialize;
use tempfile::TempDir;

use crate::process::{DESCRIPTOR_WAIT, Processes, wait_for_descriptors};

/// Format of the messages that a program reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Input {
    /// Text: one line per part, with data as JSON, files as their path, and links.
    #[default]
    Text,
    /// The JSON of the message in A2A 1.0, with `path` in place of the bytes of files.
    Json,
}

/// The input of a program, and the files that it names. Dropping this removes them.
#[derive(Debug)]
pub(crate) struct PreparedInput {
    pub(crate) stdin: Vec<u8>,
    /// The path of each part that is a file.
    pub(crate) paths: Vec<Option<PathBuf>>,
    _files: Option<TempDir>,
}

/// A message whose files are on disk. A caller cannot set `path`: messages of the protocol have no such member.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OnDisk<'a> {
    message_id: &'a str,
    context_id: Option<&'a str>,
    task_id: Option<&'a str>,
    role: &'static str,
    parts: Vec<PartOnDisk<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    extensions: &'a [String],
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct PartOnDisk<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filename: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    media_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
}

impl Input {
    /// Writes the files of a message to a new directory, and formats the message.
    pub(crate) async fn prepare(
        self,
        message: &Message,
        processes: &Processes,
    ) -> io::Result<PreparedInput> {
        wait_for_descriptors(DESCRIPTOR_WAIT, || {
            let (message, prefix) = (message.clone(), processes.file_prefix());
            let prepared = tokio::task::spawn_blocking(move || self.write(&message, &prefix));
            async { prepared.await.map_err(io::Error::other).flatten() }
        })
        .await
    }

    /// The name of the directory begins with `prefix`.
    fn write(self, message: &Message, prefix: &str) -> io::Result<PreparedInput> {
        let is_file = |part: &Part| matches!(part.content, Content::Raw(_));
        let files = if message.parts.iter().any(is_file) {
            let private = Permissions::from_mode(0o700);
            Some(tempfile::Builder::new().prefix(prefix).permissions(private).tempdir()?)
        } else {
            None
        };
        let mut paths = Vec::new();
        for (index, part) in message.parts.iter().enumerate() {
            let path = match (&part.content, &files) {
                (Content::Raw(bytes), Some(files)) => {
                    let path = files.path().join(file_name(index, part));
                    write(&path, bytes)?;
                    Some(path)
                }
                _ => None,
            };
            paths.push(path);
        }
        let parts = message.parts.iter().zip(&paths);
        let stdin = match self {
            Self::Text => {
                let lines: Vec<String> = parts.map(|(part, path)| line(part, path)).collect();
                lines.join("\n").into_bytes()
            }
            Self::Json => serde_json::to_vec(&on_disk(message, parts.collect()))?,
        };
        Ok(PreparedInput { stdin, paths, _files: files })
    }
}

/// Writes a new file that only its owner may read.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)
}

fn line(part: &Part, path: &Option<PathBuf>) -> String {
    match (&part.content, path) {
        (Content::Text(text), _) => text.clone(),
        (Content::Data(data), _) => data.to_string(),
        (Content::Url(url), _) => url.clone(),
        (Content::Raw(_), path) => {
            path.as_ref().map(|path| path.display().to_string()).unwrap_or_default()
        }
    }
}

fn on_disk<'a>(message: &'a Message, parts: Vec<(&'a Part, &'a Option<PathBuf>)>) -> OnDisk<'a> {
    let part = |(part, path): (&'a Part, &'a Option<PathBuf>)| {
        let mut on_disk = PartOnDisk {
            filename: part.filename.as_deref(),
            media_type: part.media_type.as_deref(),
            metadata: part.metadata.as_ref(),
            ..PartOnDisk::default()
        };
        match &part.content {
            Content::Text(text) => on_disk.text = Some(text),
            Content::Data(data) => on_disk.data = Some(data),
            Content::Url(url) => on_disk.url = Some(url),
            Content::Raw(_) => on_disk.path = path.as_ref(),
        }
        on_disk
    };
    OnDisk {
        message_id: message.message_id.as_str(),
        context_id: message.context_id.as_ref().map(|id| id.as_str()),
        task_id: message.task_id.as_ref().map(|id| id.as_str()),
        role: message.role.proto_name(),
        parts: parts.into_iter().map(part).collect(),
        metadata: message.metadata.as_ref(),
        extensions: &message.extensions,
    }
}

/// A file name with the index of the part, so that names are unique, and the harmless characters of the
/// sender's name.
fn file_name(index: usize, part: &Part) -> String {
    let safe = |char: &char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
    let given: String = part.filename.iter().flat_map(|name| name.chars()).filter(safe).collect();
    let kept = given.len().saturating_sub(100);
    format!("{index}-{}", given[kept..].trim_start_matches('.'))
}
