//! `herald config`.

use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::{
    args::{ConfigShow, Setting},
    client::{
        credentials::Logins,
        fault::Fault,
        layers::{Layers, SECRETS},
    },
    output::{Output, Page, Show},
    serve::config,
};

/// Prints every setting. Nothing is changed.
pub(crate) fn show(args: &ConfigShow, layers: &Layers, settings: &[Setting]) -> Result<(), Fault> {
    let logins = Logins::of_user().ok().filter(|logins| logins.path().exists());
    let logins = logins.map(|logins| logins.path().display().to_string());
    let files = layers.paths().map(|path| path.display().to_string()).chain(logins).collect();
    Output::new(&args.agent.output).show(&Effective { settings: Settings(settings), files })
}

/// The JSON Schema of herald.toml.
pub(crate) fn schema() -> String {
    let schema = serde_json::to_string_pretty(&config::schema());
    schema.expect("a schema is JSON") + "\n"
}

#[derive(Serialize)]
struct Effective<'a> {
    settings: Settings<'a>,
    /// The files that were read, the strongest first.
    files: Vec<String>,
}

struct Settings<'a>(&'a [Setting]);

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    value: Option<&'a str>,
    source: String,
}

impl<'a> Settings<'a> {
    fn rows(&self) -> impl Iterator<Item = Row<'a>> {
        self.0.iter().map(|setting| {
            let secret = SECRETS.contains(&setting.flag.as_str()) || setting.flag == "svc-param";
            let value = setting.value.as_deref();
            let value = if secret { value.map(|_| "(hidden)") } else { value };
            Row { name: &setting.flag, value, source: setting.origin.to_string() }
        })
    }
}

impl Serialize for Settings<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for row in self.rows() {
            list.serialize_element(&row)?;
        }
        list.end()
    }
}

impl Show for Effective<'_> {
    fn show(&self, page: &mut Page) {
        for Row { name, value, source } in self.settings.rows() {
            page.field(name, format!("{} ({source})", value.unwrap_or("not set")));
        }
        for file in &self.files {
            page.field("file", file);
        }
    }
}
