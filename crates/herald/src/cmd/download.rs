//! `herald task download`: artifacts of a task as files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use herald_protocol::{Artifact, Content, Part, Task};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Format, TaskDownload},
    client::{
        contact::{Contact, subject},
        error::CliError,
    },
    output::{is_active, pretty, warn},
};

/// The key for the list of written files in a task's metadata.
const FILES: &str = "https://github.com/herald-a2a/herald/cli/files";
/// The longest file name, in bytes. All file systems accept it.
const LONGEST_NAME: usize = 200;
/// The most files of one download.
const MOST_FILES: usize = 10_000;

/// A file to write.
struct OutputFile {
    name: String,
    bytes: Vec<u8>,
}

/// Saves the artifacts of a task.
pub(crate) async fn run(args: &TaskDownload) -> Result<(), CliError> {
    let (reference, [id]) = subject(&args.name.words, &args.agent)?;
    let contact = Contact::new(&args.agent, reference)?;
    contact
        .within(async {
            let client = contact.connect().await?;
            let task = client.get(id).await;
            let mut task = task.map_err(|error| contact.explain(&client, &error))?;
            let written = write(&task, args).await?;
            let file = |(path, size): &(PathBuf, usize)| {
                let path = Value::from(path.display().to_string());
                Value::from_iter([("path", path), ("size", Value::from(*size))])
            };
            let files = Value::Array(written.iter().map(file).collect());
            task.metadata.get_or_insert_default().insert(FILES, files);
            // The text format names the files and leaves out their content.
            let shown = Task { artifacts: None, history: None, metadata: None, ..task.clone() };
            match contact.out.format {
                Format::Json => contact.out.show(&task),
                Format::Text => contact.out.show_with(&shown, |page| {
                    for (path, size) in &written {
                        page.field("Saved", format!("{} ({size} bytes)", path.display()));
                    }
                }),
            }
        })
        .await
}

/// Writes the files on a blocking thread, so that the timeout and Ctrl-C work meanwhile. After either, no further
/// file is written.
async fn write(task: &Task, args: &TaskDownload) -> Result<Vec<(PathBuf, usize)>, CliError> {
    let stopped = CancellationToken::new();
    let _stops = stopped.clone().drop_guard();
    let (task, dir, force) = (task.clone(), args.dir.clone(), args.force);
    let artifact = args.artifact.clone();
    let writing = tokio::task::spawn_blocking(move || {
        let pieces = pieces(&task, artifact.as_deref())?;
        fs::create_dir_all(&dir).map_err(|error| unwritable(&dir, &error))?;
        let mut written = Vec::new();
        for piece in pieces.iter().take_while(|_| !stopped.is_cancelled()) {
            written.push((save(piece, &dir, force)?, piece.bytes.len()));
        }
        Ok(written)
    });
    writing.await.unwrap_or_else(|_| Err(CliError::internal("the files could not be written")))
}

/// The files of a task. Adjacent texts are one file, since a stream sends one text in chunks.
fn pieces(task: &Task, wanted: Option<&str>) -> Result<Vec<OutputFile>, CliError> {
    let artifacts = task.artifacts.as_deref().unwrap_or_default();
    let wanted =
        |artifact: &&Arc<Artifact>| wanted.is_none_or(|id| artifact.artifact_id.as_str() == id);
    let mut chosen = artifacts.iter().filter(wanted).peekable();
    if chosen.peek().is_none() {
        let ids: Vec<_> = artifacts.iter().map(|one| one.artifact_id.as_str()).collect();
        return Err(if ids.is_empty() {
            CliError::internal("the task has no artifacts")
                .hint("see its state with `herald task get`")
        } else {
            CliError::usage("the task has no such artifact")
                .hint(format!("its artifacts: {}", ids.join(", ")))
        });
    }
    let mut pieces: Vec<OutputFile> = Vec::new();
    let mut names = FileNames::default();
    for artifact in chosen {
        let mut text_goes_on = false;
        for part in &artifact.parts {
            let text = matches!(part.content, Content::Text(_)) && part.filename.is_none();
            let Some((extension, bytes)) = content(part) else {
                text_goes_on = false;
                continue;
            };
            if let (true, true, Some(last)) = (text, text_goes_on, pieces.last_mut()) {
                last.bytes.extend(bytes);
                continue;
            }
            text_goes_on = text;
            if pieces.len() == MOST_FILES {
                let text = format!("the task has more than {MOST_FILES} files");
                return Err(CliError::internal(text).hint("select an artifact with --artifact"));
            }
            let title = artifact.name.as_deref().unwrap_or(artifact.artifact_id.as_str());
            let name = match &part.filename {
                Some(name) => file_name(name),
                None => file_name(&format!("{title}{extension}")),
            };
            pieces.push(OutputFile { name: names.unique(name), bytes });
        }
    }
    Ok(pieces)
}

/// The file extension and the bytes of a part. A URL is not fetched, since an agent must not choose where this machine
/// connects to.
fn content(part: &Part) -> Option<(&'static str, Vec<u8>)> {
    match &part.content {
        Content::Text(text) => Some((".txt", text.clone().into_bytes())),
        Content::Raw(bytes) => Some((".bin", bytes.clone())),
        Content::Data(value) => Some((".json", pretty(value).into_bytes())),
        Content::Url(url) => {
            warn(&format!("a file is given by URL and was not fetched: {url}"));
            None
        }
    }
}

/// The last component of an agent's file name, without control and invisible characters and without a leading dash or
/// dot. Of a name that is too long the end is kept, since it has the extension.
fn file_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut remaining = LONGEST_NAME;
    let fits = |c: &char| {
        let left = remaining.checked_sub(c.len_utf8());
        remaining = left.unwrap_or(remaining);
        left.is_some()
    };
    let shown = last.chars().rev().filter(|c| !is_active(*c) && !is_unseen(*c) && *c != ':');
    let kept: Vec<char> = shown.take_while(fits).collect();
    let kept: String = kept.into_iter().rev().collect();
    let plain = kept.trim().trim_start_matches(['.', '-', ' ']);
    if plain.is_empty() { "artifact".to_owned() } else { plain.to_owned() }
}

/// True if a character is invisible, so that two names could look the same.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// File names in use.
#[derive(Default)]
struct FileNames {
    taken: BTreeSet<String>,
    /// The number for the next file with the same name.
    next: BTreeMap<String, usize>,
}

impl FileNames {
    /// A name that is not in use. The last number is stored for each name, so that many files of one name take linear time.
    fn unique(&mut self, name: String) -> String {
        if self.taken.insert(name.clone()) {
            return name;
        }
        let (stem, extension) = match name.rsplit_once('.') {
            Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
            Some(_) | None => (name.as_str(), String::new()),
        };
        let next = self.next.entry(name.clone()).or_insert(2);
        loop {
            let numbered = format!("{stem}-{next}{extension}");
            *next += 1;
            if self.taken.insert(numbered.clone()) {
                return numbered;
            }
        }
    }
}

/// Writes a file. With `force` an existing one is replaced atomically. Links are not followed.
fn save(piece: &OutputFile, directory: &Path, force: bool) -> Result<PathBuf, CliError> {
    let path = directory.join(&piece.name);
    let target = if force {
        directory.join(format!(".{}.{}", piece.name, std::process::id()))
    } else {
        path.clone()
    };
    let opened = File::options().write(true).create_new(true).open(&target);
    let written = opened.and_then(|mut file| {
        let written = file.write_all(&piece.bytes);
        let done = written.and_then(|()| if force { fs::rename(&target, &path) } else { Ok(()) });
        if done.is_err() {
            // The first error is returned; that of the clean-up is not.
            let _ = fs::remove_file(&target);
        }
        done
    });
    match written {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(CliError::usage(format!("{} exists already", path.display()))
                .hint("choose another directory with --dir, or replace the file with --force"))
        }
        Err(error) => Err(unwritable(&path, &error)),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> CliError {
    CliError::internal(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_cannot_leave_the_directory() {
        for (given, name) in [
            ("a.txt", "a.txt"),
            ("../../etc/passwd", "passwd"),
            ("..\\..\\x", "x"),
            ("/", "artifact"),
            ("..", "artifact"),
            (".bashrc", "bashrc"),
            ("a\u{1b}[2J\nb", "a[2Jb"),
            ("C:evil", "Cevil"),
            ("-rf", "rf"),
            ("\u{202e}gnp.exe", "gnp.exe"),
            ("\u{200b}", "artifact"),
            ("a\u{200d}\u{2060}b", "ab"),
            ("file\u{9b}31m", "file31m"),
        ] {
            assert_eq!(file_name(given), name, "{given:?}");
        }
        assert_eq!(file_name(&"é".repeat(500)).len(), LONGEST_NAME);
        let long = format!("{}.tar.gz", "x".repeat(2 << 20));
        assert!(file_name(&long).ends_with("x.tar.gz"));
    }

    #[test]
    fn file_names_are_unique() {
        let mut names = FileNames::default();
        let given = ["a.txt", "a.txt", "a-2.txt", "b", "a.txt"];
        let names = given.map(|name| names.unique(name.to_owned()));
        assert_eq!(names, ["a.txt", "a-2.txt", "a-2-2.txt", "b", "a-3.txt"]);
    }

    #[test]
    fn a_failed_replacement_leaves_no_temporary_file() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        let piece = OutputFile { name: "a".into(), bytes: b"x".to_vec() };
        assert!(save(&piece, directory.path(), true).is_err());
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
