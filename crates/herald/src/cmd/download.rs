//! `herald task download`.

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
        fault::Fault,
    },
    output::{is_active, pretty, warn},
};

/// Where a task's metadata says which files were written.
const FILES: &str = "https://github.com/herald-a2a/herald/cli/files";
/// The longest name of a file that every file system takes.
const LONGEST_NAME: usize = 200;
/// No directory gets more files at once.
const MOST_FILES: usize = 10_000;

/// What becomes a file.
struct Piece {
    name: String,
    bytes: Vec<u8>,
}

/// Saves the artifacts of a task.
pub(crate) async fn run(args: &TaskDownload) -> Result<(), Fault> {
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
            // People asked for the files, not for their content on the screen.
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

/// Writes what there is to save beside the runtime, which keeps time and hears Ctrl-C meanwhile. Then
/// no further file is begun.
async fn write(task: &Task, args: &TaskDownload) -> Result<Vec<(PathBuf, usize)>, Fault> {
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
    writing.await.unwrap_or_else(|_| Err(Fault::internal("the files could not be written")))
}

/// What there is to save. Texts that follow each other are one, as a stream sends one text in pieces.
fn pieces(task: &Task, wanted: Option<&str>) -> Result<Vec<Piece>, Fault> {
    let artifacts = task.artifacts.as_deref().unwrap_or_default();
    let wanted =
        |artifact: &&Arc<Artifact>| wanted.is_none_or(|id| artifact.artifact_id.as_str() == id);
    let mut chosen = artifacts.iter().filter(wanted).peekable();
    if chosen.peek().is_none() {
        let ids: Vec<_> = artifacts.iter().map(|one| one.artifact_id.as_str()).collect();
        return Err(match ids.is_empty() {
            true => Fault::internal("the task has produced nothing")
                .hint("see its state with `herald task get`"),
            false => Fault::usage("the task has no such artifact")
                .hint(format!("there are: {}", ids.join(", "))),
        });
    }
    let mut pieces: Vec<Piece> = Vec::new();
    let mut names = Names::default();
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
                return Err(Fault::internal(text).hint("name one artifact with --artifact"));
            }
            let title = artifact.name.as_deref().unwrap_or(artifact.artifact_id.as_str());
            let name = match &part.filename {
                Some(name) => file_name(name),
                None => file_name(&format!("{title}{extension}")),
            };
            pieces.push(Piece { name: names.unique(name), bytes });
        }
    }
    Ok(pieces)
}

/// The bytes of a part and how a file of them is called by its end. What is elsewhere is left there:
/// an agent does not decide where this machine connects to.
fn content(part: &Part) -> Option<(&'static str, Vec<u8>)> {
    match &part.content {
        Content::Text(text) => Some((".txt", text.clone().into_bytes())),
        Content::Raw(bytes) => Some((".bin", bytes.clone())),
        Content::Data(value) => Some((".json", pretty(value).into_bytes())),
        Content::Url(url) => {
            warn(&format!("not fetched, it is elsewhere: {url}"));
            None
        }
    }
}

/// The last component of what an agent calls a file, without anything that is more than a name: what
/// terminals and people would take for something else, and what programs would take for an option. Of
/// one that is too long the end is kept, which says what kind of file it is.
fn file_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let mut room = LONGEST_NAME;
    let fits = |c: &char| {
        let left = room.checked_sub(c.len_utf8());
        room = left.unwrap_or(room);
        left.is_some()
    };
    let shown = last.chars().rev().filter(|c| !is_active(*c) && !is_unseen(*c) && *c != ':');
    let kept: Vec<char> = shown.take_while(fits).collect();
    let kept: String = kept.into_iter().rev().collect();
    let plain = kept.trim().trim_start_matches(['.', '-', ' ']);
    if plain.is_empty() { "artifact".to_owned() } else { plain.to_owned() }
}

/// Whether a character takes no room, so that two names look the same.
fn is_unseen(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{34f}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fe00}'..='\u{fe0f}' | '\u{e0000}'..='\u{e0fff}')
}

/// The names of the pieces so far.
#[derive(Default)]
struct Names {
    taken: BTreeSet<String>,
    /// The number that the next piece with a name gets.
    next: BTreeMap<String, usize>,
}

impl Names {
    /// A name that no other piece has. Numbers are not tried twice, so that many pieces with one name
    /// take no longer than others.
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

/// Writes a file. One that is there is replaced as a whole, and a link is not followed.
fn save(piece: &Piece, directory: &Path, force: bool) -> Result<PathBuf, Fault> {
    let path = directory.join(&piece.name);
    let target = match force {
        true => directory.join(format!(".{}.{}", piece.name, std::process::id())),
        false => path.clone(),
    };
    let opened = File::options().write(true).create_new(true).open(&target);
    let written = opened.and_then(|mut file| {
        let written = file.write_all(&piece.bytes);
        let done = written.and_then(|()| if force { fs::rename(&target, &path) } else { Ok(()) });
        if done.is_err() {
            // Half a file is of no use, and why there is none is said already.
            let _ = fs::remove_file(&target);
        }
        done
    });
    match written {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Fault::usage(format!("{} is there already", path.display()))
                .hint("name another directory with --dir, or replace it with --force"))
        }
        Err(error) => Err(unwritable(&path, &error)),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Fault {
    Fault::internal(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_but_into_the_directory() {
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
    fn two_pieces_do_not_share_a_name() {
        let mut names = Names::default();
        let given = ["a.txt", "a.txt", "a-2.txt", "b", "a.txt"];
        let names = given.map(|name| names.unique(name.to_owned()));
        assert_eq!(names, ["a.txt", "a-2.txt", "a-2-2.txt", "b", "a-3.txt"]);
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("a/b")).unwrap();
        let piece = Piece { name: "a".into(), bytes: b"x".to_vec() };
        assert!(save(&piece, directory.path(), true).is_err());
        let left: Vec<_> = fs::read_dir(directory.path()).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }
}
