//! `herald config`: effective client settings, and the JSON Schema of herald.toml.

use serde::{Serialize, Serializer, ser::SerializeSeq};

use crate::{
    args::{ConfigShow, Setting},
    client::{
        credentials::Logins,
        error::CliError,
        layers::{Layers, SECRETS},
    },
    output::{Output, Show, TextPage},
    serve::config,
};

/// Prints every setting.
pub(crate) fn show(
    args: &ConfigShow,
    layers: &Layers,
    settings: &[Setting],
) -> Result<(), CliError> {
    let logins = Logins::of_user().ok().filter(|logins| logins.path().exists());
    let logins = logins.map(|logins| logins.path().display().to_string());
    let files = layers.paths().map(|path| path.display().to_string()).chain(logins).collect();
    Output::new(&args.agent.output).show(&Effective { settings: SettingRows(settings), files })
}

/// The JSON Schema of herald.toml.
pub(crate) fn schema() -> String {
    let schema = serde_json::to_string_pretty(&config::schema());
    schema.expect("a schema is JSON") + "\n"
}

#[derive(Serialize)]
struct Effective<'a> {
    settings: SettingRows<'a>,
    /// The files that were read, in order of precedence.
    files: Vec<String>,
}

struct SettingRows<'a>(&'a [Setting]);

#[derive(Serialize)]
struct SettingRow<'a> {
    name: &'a str,
    value: Option<&'a str>,
    source: String,
}

impl<'a> SettingRows<'a> {
    fn rows(&self) -> impl Iterator<Item = SettingRow<'a>> {
        self.0.iter().map(|setting| {
            let secret = SECRETS.contains(&setting.flag.as_str()) || setting.flag == "svc-param";
            let value = setting.value.as_deref();
            let value = if secret { value.map(|_| "(hidden)") } else { value };
            SettingRow { name: &setting.flag, value, source: setting.origin.to_string() }
        })
    }
}

impl Serialize for SettingRows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for row in self.rows() {
            list.serialize_element(&row)?;
        }
        list.end()
    }
}

impl Show for Effective<'_> {
    fn show(&self, page: &mut TextPage) {
        for SettingRow { name, value, source } in self.settings.rows() {
            page.field(name, format!("{} ({source})", value.unwrap_or("not set")));
        }
        for file in &self.files {
            page.field("file", file);
        }
    }
}
