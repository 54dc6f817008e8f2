//! Declarations of workers: their limits, and the profile of a role that its workers make together.

use std::time::Duration;

use herald_protocol::{AgentName, Error};

use crate::{
    agents::profile::{Profile, Recovery, Skill},
    store::{Declaration, DeclaredSkill},
};

use super::{RoleBase, RoleSummary};

const MAX_TEXT: usize = 4096;
const MAX_WORD: usize = 256;
const MAX_SKILLS: usize = 64;
const MAX_WORDS: usize = 32;
/// The most bytes of all texts of a declaration, which stay in memory while the worker is listed.
const MAX_BYTES: usize = 64 << 10;
/// The most turns that one worker may run at once.
const MAX_CONCURRENCY: u32 = 10_000;
/// The most attempts at one turn.
const MAX_ATTEMPTS: u32 = 100;
/// The most earlier tasks of a conversation that a turn gets.
const MAX_MEMORY: u32 = 100;
/// The most skills of one role, and the most media types of one direction, of all its workers together.
pub(crate) const MAX_ROLE_WORDS: usize = 256;

/// The time that a task of a role without a setting of its own waits for a worker.
pub(crate) const QUEUE_TIMEOUT: Duration = Duration::from_secs(3600);

/// Refuses a declaration that is too large, or whose texts could change the lines of a terminal or of a log.
pub(crate) fn check(declaration: &Declaration) -> Result<(), Error> {
    text("description", &declaration.description, MAX_TEXT)?;
    text("version", &declaration.version, MAX_WORD)?;
    if declaration.skills.len() > MAX_SKILLS {
        return Err(Error::field("skills", format!("must have at most {MAX_SKILLS} skills")));
    }
    for (index, skill) in declaration.skills.iter().enumerate() {
        let DeclaredSkill { id, name, description, tags, examples } = skill;
        if id.trim().is_empty() {
            return Err(Error::field("skills", "the id of a skill must not be empty"));
        }
        if declaration.skills[..index].iter().any(|earlier| earlier.id == *id) {
            return Err(Error::field("skills", format!("the id {id:?} is used twice")));
        }
        text("skills", id, MAX_WORD)?;
        text("skills", name, MAX_WORD)?;
        text("skills", description, MAX_TEXT)?;
        words("skills", tags, MAX_WORD)?;
        words("skills", examples, MAX_TEXT)?;
    }
    for (field, modes) in
        [("input_modes", &declaration.input_modes), ("output_modes", &declaration.output_modes)]
    {
        words(field, modes, MAX_WORD)?;
        if let Some(mode) = modes.iter().find(|mode| !mode.contains('/')) {
            return Err(Error::field(field, format!("{mode:?} is not a media type")));
        }
    }
    words("labels", &declaration.labels, MAX_WORD)?;
    if declaration.text_bytes() > MAX_BYTES {
        return Err(Error::field(
            "skills",
            format!("all texts together have more than {MAX_BYTES} bytes"),
        ));
    }
    for (field, value, most) in [
        ("concurrency", declaration.concurrency, MAX_CONCURRENCY),
        ("attempts", declaration.attempts, MAX_ATTEMPTS),
    ] {
        if !(1..=most).contains(&value) {
            return Err(Error::field(field, format!("must be 1 to {most}")));
        }
    }
    if declaration.memory > MAX_MEMORY {
        return Err(Error::field("memory", format!("must be at most {MAX_MEMORY}")));
    }
    recovery(declaration).map(|_| ())
}

fn words(field: &str, words: &[String], longest: usize) -> Result<(), Error> {
    if words.len() > MAX_WORDS {
        return Err(Error::field(
            field,
            format!("must have at most {MAX_WORDS} entries in a list"),
        ));
    }
    words.iter().try_for_each(|word| text(field, word, longest))
}

fn text(field: &str, text: &str, longest: usize) -> Result<(), Error> {
    if text.len() > longest {
        return Err(Error::field(field, format!("has a text of more than {longest} bytes")));
    }
    if text.chars().any(|letter| letter.is_control() && !matches!(letter, '\n' | '\t')) {
        return Err(Error::field(field, "must not have control characters"));
    }
    Ok(())
}

fn recovery(declaration: &Declaration) -> Result<Recovery, Error> {
    match (declaration.recovery.as_str(), declaration.attempts) {
        ("fail", _) | ("rerun", 1) => Ok(Recovery::Fail),
        ("rerun", attempts) => Ok(Recovery::Rerun(attempts)),
        ("resume", attempts) => Ok(Recovery::Resume(attempts)),
        _ => Err(Error::field("recovery", "must be resume, rerun or fail")),
    }
}

/// The profile of a role that its first worker creates. Everything that decides how turns run comes from that
/// worker.
pub(crate) fn role_profile(role: &AgentName, first: &Declaration) -> Profile {
    let mut profile = Profile::new(role.clone(), first.description.clone());
    if first.description.is_empty() {
        profile.description = format!("Tasks of the role {role}, which workers serve");
        profile.skills[0].description.clone_from(&profile.description);
    }
    profile.recovery = recovery(first).unwrap_or(Recovery::Fail);
    profile.serial = first.serial;
    profile.waits = first.waits;
    profile.memory = first.memory as usize;
    profile.queue_timeout = Some(QUEUE_TIMEOUT);
    profile
}

/// The profile of a role with its living workers, for its card: the description of the first one, unless the
/// configuration has one; the skills and media types of all.
pub(crate) fn merged(role: &RoleBase, workers: RoleSummary) -> Profile {
    let mut profile = role.base.clone();
    if !role.is_declared
        && let Some(description) = workers.description
    {
        profile.skills[0].description.clone_from(&description);
        profile.description = description;
    }
    let skills: Vec<_> = workers.skills.into_iter().map(skill).collect();
    if role.has_own_skills() {
        let own = |skill: &Skill| profile.skills.iter().any(|known| known.id == skill.id);
        let further: Vec<_> = skills.into_iter().filter(|skill| !own(skill)).collect();
        profile.skills.extend(further);
    } else if !skills.is_empty() {
        profile.skills = skills;
    }
    profile.version = profile.version.or(workers.version);
    add_new(&mut profile.input_modes, workers.input_modes);
    add_new(&mut profile.output_modes, workers.output_modes);
    profile.streaming &= workers.workers == 0 || workers.streaming;
    profile.push &= workers.workers == 0 || workers.push;
    profile.concurrency = workers.concurrency.max(1);
    profile
}

impl RoleBase {
    /// True if the configuration has skills, beside the one that every profile begins with.
    fn has_own_skills(&self) -> bool {
        let usual = Profile::new(self.base.name.clone(), self.base.description.clone());
        self.is_declared && self.base.skills != usual.skills
    }
}

fn add_new(modes: &mut Vec<String>, further: Vec<String>) {
    for mode in further {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
}

fn skill(declared: DeclaredSkill) -> Skill {
    let DeclaredSkill { id, name, description, tags, examples } = declared;
    let name = if name.is_empty() { id.clone() } else { name };
    let description = if description.is_empty() { name.clone() } else { description };
    Skill { id, name, description, tags, examples, ..Skill::default() }
}

#[cfg(test)]
mod tests {
    use herald_protocol::Timestamp;

    use super::*;
    use crate::{
        directory::Directory,
        store::{Owner, Registration},
    };

    /// The summary of these workers, the earliest first.
    fn summary(declarations: &[&Declaration]) -> RoleSummary {
        let directory = Directory::default();
        // The names have the other order than the ages.
        for (age, declaration) in declarations.iter().enumerate() {
            let now = Timestamp::from_millis(1 + i64::try_from(age).unwrap());
            directory.add(Registration {
                name: format!("r:h:{}", 9 - age).into(),
                role: "r".into(),
                instance: "h:1".to_owned(),
                owner: Owner { tenant: "t".into(), principal: "p".into() },
                declaration: Declaration::clone(declaration),
                session: None,
                card: None,
                created: now,
                last_seen: now,
            });
        }
        directory.summary(&"r".into(), Timestamp::from_millis(0))
    }

    fn declared(description: &str, skills: &[&str]) -> Declaration {
        let skill = |id: &&str| DeclaredSkill { id: (*id).to_owned(), ..DeclaredSkill::default() };
        Declaration {
            description: description.to_owned(),
            skills: skills.iter().map(skill).collect(),
            concurrency: 2,
            ..Declaration::default()
        }
    }

    fn ids(profile: &Profile) -> Vec<&str> {
        profile.skills.iter().map(|skill| skill.id.as_str()).collect()
    }

    #[test]
    fn the_profile_of_a_role_is_merged_from_its_workers() {
        let role = AgentName::from("r");
        let (mut one, mut two) = (declared("first", &["a", "b"]), declared("second", &["b", "c"]));
        one.input_modes = vec!["text/plain".to_owned(), "image/png".to_owned()];
        two.streaming = false;
        two.attempts = 1;
        let dynamic = RoleBase { base: role_profile(&role, &two), is_declared: false };
        assert_eq!(dynamic.base.recovery, Recovery::Fail);
        let merged_profile = merged(&dynamic, summary(&[&one, &two]));
        assert_eq!(merged_profile.description, "first");
        assert_eq!(ids(&merged_profile), ["a", "b", "c"]);
        assert_eq!(merged_profile.input_modes, ["text/plain", "image/png"]);
        assert!(merged_profile.streaming);
        assert_eq!(merged_profile.concurrency, 4);
        assert!(!merged(&dynamic, summary(&[&two])).streaming);
        assert!(merged(&dynamic, summary(&[])).streaming);
        let mut base = Profile::new("r", "configured");
        let plain = RoleBase { base: base.clone(), is_declared: true };
        assert_eq!(ids(&merged(&plain, summary(&[]))), ["r"]);
        base.skills[0].id = "own".to_owned();
        let configured = RoleBase { base, is_declared: true };
        let merged_profile = merged(&configured, summary(&[&one]));
        assert_eq!(merged_profile.description, "configured");
        assert_eq!(ids(&merged_profile), ["own", "a", "b"]);
    }

    #[test]
    fn a_declaration_beyond_the_limits_is_refused() {
        check(&declared("plain", &["a"])).unwrap();
        type Change = fn(&mut Declaration);
        let wrong: [(&str, Change); 9] = [
            ("description", |it| it.description = "x".repeat(5000)),
            ("description", |it| it.description = "\u{1b}[2J".to_owned()),
            ("skills", |it| it.skills.push(it.skills[0].clone())),
            ("skills", |it| it.skills[0].id = " ".to_owned()),
            ("skills", |it| it.skills[0].tags = vec![String::new(); 33]),
            ("input_modes", |it| it.input_modes = vec!["text".to_owned()]),
            ("concurrency", |it| it.concurrency = 0),
            ("attempts", |it| it.attempts = 101),
            ("recovery", |it| it.recovery = "hope".to_owned()),
        ];
        for (field, change) in wrong {
            let mut declaration = declared("plain", &["a"]);
            change(&mut declaration);
            let error = check(&declaration).unwrap_err();
            assert!(error.message.starts_with(field), "{field}: {}", error.message);
        }
    }
}
