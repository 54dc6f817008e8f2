//! Text views of the protocol's types.

use herald_protocol::{
    AgentCard, Artifact, Content, Message, Metadata, Part, Role, SendResult, StreamEvent, Task,
    TaskPage, TaskState, TaskStatus,
    card::{AgentExtension, AgentInterface, AgentSkill},
    push::{PushConfig, PushConfigPage},
    security::{OAuthFlow, SecurityScheme},
};

use super::{DetailLevel, Show, TextPage, pretty};

/// The name of a state without the common prefix.
pub(crate) fn short(state: TaskState) -> &'static str {
    let name = state.proto_name();
    name.strip_prefix("TASK_STATE_").unwrap_or(name)
}

impl Show for Task {
    fn show(&self, page: &mut TextPage) {
        page.field("Task ID", &self.id);
        page.field("Context ID", &self.context_id);
        status(page, &self.status);
        for artifact in self.artifacts.iter().flatten() {
            show_artifact(page, artifact);
        }
        if page.history {
            for message in self.history.iter().flatten() {
                show_message(page, "History", message);
            }
        }
        metadata(page, self.metadata.as_ref());
    }
}

impl Show for Message {
    fn show(&self, page: &mut TextPage) {
        show_message(page, "Message", self);
    }
}

impl Show for SendResult {
    fn show(&self, page: &mut TextPage) {
        match self {
            Self::Task(task) => task.show(page),
            Self::Message(message) => message.show(page),
        }
    }
}

impl Show for StreamEvent {
    fn show(&self, page: &mut TextPage) {
        match self {
            Self::Task(task) => {
                page.field("Event", "task");
                task.show(page);
            }
            Self::Message(message) => {
                page.field("Event", "message");
                message.show(page);
            }
            Self::StatusUpdate(update) => {
                page.field("Event", "status");
                page.field("Task ID", &update.task_id);
                page.field("Context ID", &update.context_id);
                status(page, &update.status);
                metadata(page, update.metadata.as_ref());
            }
            Self::ArtifactUpdate(update) => {
                page.field("Event", "artifact");
                page.field("Task ID", &update.task_id);
                page.field("Context ID", &update.context_id);
                if page.detail == DetailLevel::Full {
                    page.field("Append", update.append);
                    page.field("Last Chunk", update.last_chunk);
                }
                show_artifact(page, &update.artifact);
                metadata(page, update.metadata.as_ref());
            }
        }
    }
}

impl Show for TaskPage {
    fn show(&self, page: &mut TextPage) {
        // The time distinguishes the tasks of a list.
        page.times = true;
        for task in &self.tasks {
            task.show(page);
            page.gap();
        }
        page.field("Total", self.total_size);
        let token = Some(&self.next_page_token).filter(|token| !token.is_empty());
        page.optional("Next Page Token", token);
    }
}

impl Show for PushConfig {
    fn show(&self, page: &mut TextPage) {
        page.optional("Push Config ID", self.id.as_ref());
        page.optional("Task ID", self.task_id.as_ref());
        page.field("URL", &self.url);
        if self.token.is_some() {
            page.field("Token", "(set)");
        }
        page.optional("Authentication", self.authentication.as_ref().map(|one| &one.scheme));
    }
}

impl Show for PushConfigPage {
    fn show(&self, page: &mut TextPage) {
        for config in &self.configs {
            config.show(page);
            page.gap();
        }
        page.field("Total", self.configs.len());
        let token = Some(&self.next_page_token).filter(|token| !token.is_empty());
        page.optional("Next Page Token", token);
    }
}

impl Show for AgentCard {
    fn show(&self, page: &mut TextPage) {
        page.field("Name", &self.name);
        page.field("Description", &self.description);
        page.field("Version", &self.version);
        page.optional("Provider", self.provider.as_ref().map(|one| &one.organization));
        page.optional("Documentation", self.documentation_url.as_ref());
        let capabilities = &self.capabilities;
        page.field("Streaming", yes(capabilities.streaming));
        page.field("Push Notifications", yes(capabilities.push_notifications));
        page.field("Extended Card", yes(capabilities.extended_agent_card));
        for extension in &capabilities.extensions {
            show_extension(page, extension);
        }
        for interface in &self.supported_interfaces {
            show_interface(page, interface);
        }
        for (name, scheme) in &self.security_schemes {
            page.field("Security Scheme", format!("{name}: {}", describe(scheme)));
        }
        for requirement in &self.security_requirements {
            let names: Vec<_> = requirement.schemes.keys().map(String::as_str).collect();
            page.field("Required", names.join(" and "));
        }
        page.field("Input Modes", self.default_input_modes.join(", "));
        page.field("Output Modes", self.default_output_modes.join(", "));
        for skill in &self.skills {
            show_skill(page, skill);
        }
    }
}

fn show_interface(page: &mut TextPage, interface: &AgentInterface) {
    let AgentInterface { url, protocol_binding, protocol_version, tenant } = interface;
    let tenant = tenant.as_ref().map(|tenant| format!(" tenant {tenant}")).unwrap_or_default();
    // The agent is then called at the origin of its card.
    let url = if url.is_empty() { "(no URL)" } else { url };
    page.field("Interface", format!("{protocol_binding} {protocol_version} {url}{tenant}"));
}

fn show_extension(page: &mut TextPage, extension: &AgentExtension) {
    let required = if extension.required { " (required)" } else { "" };
    page.field("Extension", format!("{}{required}", extension.uri));
    if page.detail == DetailLevel::Full {
        page.optional("Extension Description", extension.description.as_ref());
    }
}

fn show_skill(page: &mut TextPage, skill: &AgentSkill) {
    page.field("Skill", format!("{}: {}", skill.id, skill.name));
    page.field("Skill Description", &skill.description);
    if page.detail == DetailLevel::Full {
        page.field("Skill Tags", skill.tags.join(", "));
        for example in &skill.examples {
            page.field("Skill Example", example);
        }
    }
}

/// A short description of a security scheme.
pub(crate) fn describe(scheme: &SecurityScheme) -> String {
    match scheme {
        SecurityScheme::ApiKey(key) => format!("API key in {} {}", key.location, key.name),
        SecurityScheme::Http(http) => format!("HTTP {}", http.scheme),
        SecurityScheme::OAuth2(oauth) => match &oauth.flows {
            Some(OAuthFlow::AuthorizationCode(_)) => "OAuth 2.0 authorization code".to_owned(),
            Some(OAuthFlow::ClientCredentials(_)) => "OAuth 2.0 client credentials".to_owned(),
            Some(OAuthFlow::DeviceCode(_)) => "OAuth 2.0 device code".to_owned(),
            Some(OAuthFlow::Implicit(_) | OAuthFlow::Password(_)) | None => "OAuth 2.0".to_owned(),
        },
        SecurityScheme::OpenIdConnect(oidc) => {
            format!("OpenID Connect {}", oidc.open_id_connect_url)
        }
        SecurityScheme::MutualTls(_) => "mutual TLS".to_owned(),
    }
}

fn yes(value: Option<bool>) -> &'static str {
    if value == Some(true) { "yes" } else { "no" }
}

fn status(page: &mut TextPage, status: &TaskStatus) {
    page.field("State", short(status.state));
    if page.times {
        page.optional("Updated", status.timestamp.as_ref());
    }
    if let Some(message) = &status.message {
        show_message(page, "Message", message);
    }
}

fn show_artifact(page: &mut TextPage, artifact: &Artifact) {
    page.field("Artifact", &artifact.artifact_id);
    if page.detail == DetailLevel::Full {
        page.optional("Artifact Name", artifact.name.as_ref());
        page.optional("Artifact Description", artifact.description.as_ref());
    }
    parts(page, &artifact.parts);
    metadata(page, artifact.metadata.as_ref());
}

fn show_message(page: &mut TextPage, label: &str, message: &Message) {
    let role = match message.role {
        Role::User => "user",
        Role::Agent => "agent",
        Role::Unspecified => "unspecified",
    };
    page.field(label, role);
    if page.detail == DetailLevel::Full {
        page.field("Message ID", &message.message_id);
        for extension in &message.extensions {
            page.field("Extension", extension);
        }
    }
    parts(page, &message.parts);
    metadata(page, message.metadata.as_ref());
}

/// Shows every part. The short view joins adjacent texts, since a stream sends one text in chunks.
fn parts(page: &mut TextPage, parts: &[Part]) {
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        if let (DetailLevel::Short, Content::Text(piece)) = (page.detail, &part.content) {
            text.push_str(piece);
            continue;
        }
        flush(page, &mut text);
        if page.detail == DetailLevel::Full {
            page.field("Part", index + 1);
        }
        show_part(page, part);
    }
    flush(page, &mut text);
}

fn flush(page: &mut TextPage, text: &mut String) {
    if !text.is_empty() {
        page.block("Text", text);
        text.clear();
    }
}

fn show_part(page: &mut TextPage, part: &Part) {
    match &part.content {
        Content::Text(_) | Content::Data(_) => {
            if page.detail == DetailLevel::Full {
                page.optional("Media Type", part.media_type.as_ref());
            }
        }
        Content::Raw(_) | Content::Url(_) => {
            page.field("File", part.filename.as_deref().unwrap_or("(unnamed)"));
            page.field("Media Type", part.media_type.as_deref().unwrap_or("(unknown)"));
        }
    }
    match &part.content {
        Content::Text(text) => page.block("Text", text),
        Content::Data(value) => {
            page.block("Data", &pretty(value));
        }
        Content::Raw(bytes) => page.field("Size", format!("{} bytes", bytes.len())),
        Content::Url(url) => page.field("URL", url),
    }
    metadata(page, part.metadata.as_ref());
}

fn metadata(page: &mut TextPage, metadata: Option<&Metadata>) {
    if let (DetailLevel::Full, Some(metadata)) = (page.detail, metadata) {
        page.block("Metadata", &pretty(metadata));
    }
}
