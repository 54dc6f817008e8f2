//! `herald task download`.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use herald_protocol::{Artifact, Content, Part, Task};
use serde_json::Value;

use crate::{
    args::{Format, TaskDownload},
    contact::{Contact, subject},
    fault::Fault,
    output::{inline, warn},
};

/// Where a task's metadata says which files were written.
const FILES: &str = "https://github.com/herald-a2a/herald/cli/files";
/// The longest name of a file that every file system takes.
const LONGEST_NAME: usize = 200;

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
            let pieces = pieces(&task, args.artifact.as_deref())?;
            fs::create_dir_all(&args.dir).map_err(|error| unwritable(&args.dir, &error))?;
            let mut written = Vec::new();
            for piece in &pieces {
                written.push((save(piece, &args.dir, args.force)?, piece.bytes.len()));
            }
            let file = |(path, size): &(PathBuf, usize)| {
                let path = Value::from(path.display().to_string());
                Value::from_iter([("path", path), ("size", Value::from(*size))])
            };
            let files = Value::Array(written.iter().map(file).collect());
            task.metadata.get_or_insert_default().insert(FILES.to_owned(), files);
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

/// What there is to save. Texts that follow each other are one, as a stream sends one text in pieces.
fn pieces(task: &Task, wanted: Option<&str>) -> Result<Vec<Piece>, Fault> {
    let artifacts = task.artifacts.as_deref().unwrap_or_default();
    let wanted = |artifact: &&Artifact| wanted.is_none_or(|id| artifact.artifact_id.as_str() == id);
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
    let mut taken = BTreeSet::new();
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
            let title = artifact.name.as_deref().unwrap_or(artifact.artifact_id.as_str());
            let name = match &part.filename {
                Some(name) => file_name(name),
                None => file_name(&format!("{title}{extension}")),
            };
            pieces.push(Piece { name: unique(&name, &mut taken), bytes });
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
        Content::Data(value) => {
            let text = serde_json::to_string_pretty(value).expect("a value is JSON");
            Some((".json", text.into_bytes()))
        }
        Content::Url(url) => {
            warn(&format!("not fetched, it is elsewhere: {}", inline(url)));
            None
        }
    }
}

/// The last component of what an agent calls a file, without anything that is more than a name.
fn file_name(given: &str) -> String {
    let last = given.rsplit(['/', '\\']).next().unwrap_or_default();
    let plain: String = last.chars().filter(|c| !c.is_control() && *c != ':').collect();
    let mut plain = plain.trim().trim_start_matches('.').to_owned();
    while plain.len() > LONGEST_NAME {
        plain.remove(0);
    }
    if plain.is_empty() { "artifact".to_owned() } else { plain }
}

/// A name that no other piece has.
fn unique(name: &str, taken: &mut BTreeSet<String>) -> String {
    let (stem, extension) = match name.rsplit_once('.') {
        Some((stem, extension)) if !stem.is_empty() => (stem, format!(".{extension}")),
        Some(_) | None => (name, String::new()),
    };
    let numbered = (2..).map(|number| format!("{stem}-{number}{extension}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).expect("numbers do not end");
    taken.insert(free.clone());
    free
}

/// Writes a file. One that is there is replaced as a whole, and a link is not followed.
fn save(piece: &Piece, directory: &Path, force: bool) -> Result<PathBuf, Fault> {
    let path = directory.join(&piece.name);
    let target = match force {
        true => directory.join(format!(".{}.{}", piece.name, std::process::id())),
        false => path.clone(),
    };
    let written =
        File::options().write(true).create_new(true).open(&target).and_then(|mut file| {
            file.write_all(&piece.bytes)?;
            if force { fs::rename(&target, &path) } else { Ok(()) }
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
        ] {
            assert_eq!(file_name(given), name, "{given:?}");
        }
        assert_eq!(file_name(&"é".repeat(500)).len(), LONGEST_NAME);
    }

    #[test]
    fn two_pieces_do_not_share_a_name() {
        let mut taken = BTreeSet::new();
        let names = ["a.txt", "a.txt", "a-2.txt", "b"].map(|name| unique(name, &mut taken));
        assert_eq!(names, ["a.txt", "a-2.txt", "a-2-2.txt", "b"]);
    }
}
