//! Text views of the types of `/api`.

use bytesize::ByteSize;
use herald_api::{
    agents::{AgentList, AgentView, RegisteredAgent, RemovedAgents},
    audit::{AuditLogPage, AuditSubjectView, AuditVerification, AuditView},
    deliveries::{AttemptView, DeliveryDetail, DeliveryPage, DeliveryView},
    keys::{CreatedKey, KeyPage, KeyView, TenantPage, TenantView},
    status::{CallerIdentity, ServerStatus},
    store::StoreView,
    tasks::{CauseView, LogEntryView, OpenQuestion, TaskDetail, TaskHead, TaskHeadPage, TaskLog},
};
use herald_protocol::{Task, Timestamp};

use super::{
    Show, TextPage, short,
    table::{aligned, cell, table},
};

impl Show for ServerStatus {
    fn show(&self, page: &mut TextPage) {
        show_identity(page, &self.identity);
        page.field("Version", &self.version);
        page.field("Started", self.started);
        page.field("Features", list(&self.features));
        page.field("Protocol Versions", list(&self.protocol_versions));
        page.field("Largest Request", ByteSize(self.limits.body_bytes));
        page.field("Streams per Caller", self.limits.streams_per_caller);
        page.field("Largest Page", self.limits.page_size);
        if self.schemes.is_empty() {
            page.field("Credentials", "not needed");
        }
        for scheme in &self.schemes {
            page.field("Credentials", &scheme.usage);
        }
    }
}

fn show_identity(page: &mut TextPage, identity: &CallerIdentity) {
    let CallerIdentity {
        tenant,
        principal,
        scopes,
        agents,
        skills,
        visibility,
        credential,
        credential_id,
    } = identity;
    page.field("Tenant", or_none(tenant));
    page.field("Principal", or_none(principal));
    page.field("Credential", named(credential, credential_id.as_deref()));
    page.field("Scopes", list(scopes));
    page.field("Agents", allowed(agents.as_ref()));
    page.field("Skills", allowed(skills.as_ref()));
    page.field("Visible Tasks", visibility);
}

impl Show for AgentList {
    fn show(&self, page: &mut TextPage) {
        let row = |agent: &AgentView| {
            let is_default = if agent.is_default { "yes" } else { "" };
            [
                agent.name.clone(),
                agent.kind.clone(),
                is_default.to_owned(),
                format!("{}/{}", agent.running, agent.concurrency),
                last_seen(agent),
                agent.skills.join(","),
                agent.description.clone(),
            ]
        };
        let rows: Vec<_> = self.agents.iter().map(row).collect();
        let head = ["NAME", "KIND", "DEFAULT", "RUNNING", "LAST SEEN", "SKILLS", "DESCRIPTION"];
        page.table(&table(head, &rows));
    }
}

/// The last sign of life of a worker, or the state of an agent that has none.
fn last_seen(agent: &AgentView) -> String {
    if agent.card_changed {
        "card changed".to_owned()
    } else if !agent.available {
        "no worker".to_owned()
    } else if agent.kind == "local" {
        String::new()
    } else {
        agent.last_seen.to_string()
    }
}

impl Show for RegisteredAgent {
    fn show(&self, page: &mut TextPage) {
        page.field("Name", &self.name);
        page.field("Role", &self.role);
        page.optional("Session", self.session.as_ref());
        page.field("URL", &self.url);
        if self.session.is_some() {
            page.field("Heartbeat", format!("every {} s", self.heartbeat_seconds));
        }
    }
}

impl Show for RemovedAgents {
    fn show(&self, page: &mut TextPage) {
        for name in &self.removed {
            page.field("Removed", name);
        }
    }
}

impl Show for AgentView {
    fn show(&self, page: &mut TextPage) {
        page.field("Name", &self.name);
        page.field("Kind", &self.kind);
        if self.role != self.name {
            page.field("Role", &self.role);
        }
        page.field("Title", &self.title);
        page.field("Description", &self.description);
        page.field("URL", &self.url);
        page.field("Default", yes(self.is_default));
        page.field("Running Turns", format!("{} of {}", self.running, self.concurrency));
        page.field("Streaming", yes(self.capabilities.streaming));
        page.field("Push Notifications", yes(self.capabilities.push_notifications));
        page.field("Skills", list(&self.skills));
        page.field("Input Modes", list(&self.input_modes));
        page.field("Output Modes", list(&self.output_modes));
        page.optional("Labels", Some(list(&self.labels)).filter(|_| !self.labels.is_empty()));
        page.optional("Version", self.version.as_ref());
        page.field("Available", yes(self.available));
        page.field("Last Seen", self.last_seen);
        page.optional("Card URL", self.card_url.as_ref());
        page.optional("Card Digest", self.card_digest.as_ref());
        if self.card_changed {
            page.field("Card Changed", "yes; register the agent again to use the new card");
        }
    }
}

impl Show for CreatedKey {
    fn show(&self, page: &mut TextPage) {
        page.field("Key", &self.key);
        self.view.show(page);
    }
}

impl Show for KeyView {
    fn show(&self, page: &mut TextPage) {
        page.field("ID", &self.id);
        page.field("State", &self.state);
        page.optional("Label", Some(&self.label).filter(|label| !label.is_empty()));
        page.field("Tenant", or_none(&self.tenant));
        page.field("Principal", &self.principal);
        page.field("Scopes", list(&self.scopes));
        page.field("Agents", allowed(self.agents.as_ref()));
        page.field("Skills", allowed(self.skills.as_ref()));
        page.optional("Visible Tasks", self.visibility.as_ref());
        page.field("Created", format!("{} by {}", self.created, or_none(&self.created_by)));
        page.field("Expires", or_never(self.expires));
        page.field("Last Used", or_never(self.last_used));
        page.optional("Revoked", self.revoked);
    }
}

impl Show for KeyPage {
    fn show(&self, page: &mut TextPage) {
        let row = |key: &KeyView| {
            [
                key.id.clone(),
                key.state.clone(),
                owner(&key.tenant, &key.principal),
                key.scopes.join(","),
                limits(key),
                or_never(key.expires),
                or_never(key.last_used),
                key.label.clone(),
            ]
        };
        let rows: Vec<_> = self.keys.iter().map(row).collect();
        let head = ["ID", "STATE", "OWNER", "SCOPES", "LIMITS", "EXPIRES", "LAST USED", "LABEL"];
        if rows.iter().any(|[_, _, _, _, limits, ..]| !limits.is_empty()) {
            page.table(&table(head, &rows));
            return;
        }
        let without = |[id, state, owner, scopes, _, rest @ ..]: [String; 8]| {
            let [expires, used, label] = rest;
            [id, state, owner, scopes, expires, used, label]
        };
        let [id, state, owner, scopes, _, expires, used, label] = head;
        let head = [id, state, owner, scopes, expires, used, label];
        page.table(&table(head, &rows.into_iter().map(without).collect::<Vec<_>>()));
    }
}

/// The agents, skills and visibility of a key, if it is limited to some.
fn limits(key: &KeyView) -> String {
    let names = |what: &str, names: &Option<Vec<String>>| {
        names.as_ref().map(|names| format!("{what} {}", list(names)))
    };
    let visibility = key.visibility.as_ref().map(|visibility| format!("tasks of {visibility}"));
    let all = [names("agents", &key.agents), names("skills", &key.skills), visibility];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

impl Show for DeliveryPage {
    fn show(&self, page: &mut TextPage) {
        let row = |webhook: &DeliveryView| {
            [
                webhook.id.clone(),
                webhook.state.clone(),
                webhook.cursor.to_string(),
                webhook.failures.to_string(),
                webhook.next_attempt.map(|at| at.to_string()).unwrap_or_default(),
                webhook.task.clone(),
                webhook.url.clone(),
            ]
        };
        let rows: Vec<_> = self.deliveries.iter().map(row).collect();
        let head = ["ID", "STATE", "DELIVERED", "FAILURES", "NEXT ATTEMPT", "TASK", "URL"];
        page.table(&table(head, &rows));
    }
}

impl Show for DeliveryDetail {
    fn show(&self, page: &mut TextPage) {
        let DeliveryView {
            id,
            task,
            tenant,
            principal,
            config,
            url,
            state,
            cursor,
            failures,
            attempts,
            created,
            next_attempt,
        } = &self.delivery;
        page.field("ID", id);
        page.field("State", state);
        page.field("URL", url);
        page.field("Task", task);
        page.field("Config", config);
        page.field("Owner", owner(tenant, principal));
        page.field("Created", created);
        page.field("Delivered up to Event", cursor);
        page.field("Failures of the Next Event", failures);
        page.optional("Next Attempt", next_attempt.as_ref());
        page.field("Attempts", attempts);
        let row = |attempt: &AttemptView| {
            [
                attempt.at.to_string(),
                attempt.event.to_string(),
                attempt.outcome.clone(),
                attempt.status.map(|status| status.to_string()).unwrap_or_default(),
                attempt.millis.map(|millis| format!("{millis} ms")).unwrap_or_default(),
                attempt.detail.clone().unwrap_or_default(),
            ]
        };
        let rows: Vec<_> = self.attempts.iter().map(row).collect();
        if !rows.is_empty() {
            page.table(&table(["TIME", "EVENT", "OUTCOME", "STATUS", "TOOK", "CAUSE"], &rows));
        }
    }
}

impl Show for TenantPage {
    fn show(&self, page: &mut TextPage) {
        let row = |one: &TenantView| {
            [
                or_none(&one.tenant).to_owned(),
                or_none(&one.principal).to_owned(),
                one.tasks.to_string(),
                one.active.to_string(),
                one.queued.to_string(),
                ByteSize(one.bytes).to_string(),
            ]
        };
        let rows: Vec<_> = self.tenants.iter().map(row).collect();
        let head = ["TENANT", "PRINCIPAL", "TASKS", "ACTIVE", "QUEUED", "SIZE"];
        page.table(&table(head, &rows));
    }
}

impl Show for AuditLogPage {
    fn show(&self, page: &mut TextPage) {
        let row = |record: &AuditView| {
            [
                record.number.to_string(),
                record.at.to_string(),
                record.action.clone(),
                owner(&record.tenant, &record.principal),
                named(&record.credential, record.credential_id.as_deref()),
                record.address.clone().unwrap_or_default(),
                record.subject.as_ref().map(subject).unwrap_or_default(),
                record.refused.clone().unwrap_or_default(),
            ]
        };
        let rows: Vec<_> = self.records.iter().map(row).collect();
        let head = ["NUMBER", "TIME", "ACT", "ACTOR", "CREDENTIAL", "ADDRESS", "OBJECT", "REFUSED"];
        page.table(&table(head, &rows));
        if self.next_page_token.is_some() {
            page.field("More", "there are older records; raise --limit");
        }
    }
}

impl Show for AuditVerification {
    fn show(&self, page: &mut TextPage) {
        page.field("Intact", yes(self.ok));
        if let Some(fault) = &self.fault {
            page.field("Fault at Record", fault.number);
            page.field("Fault", &fault.message);
        }
        page.field("Verified Records", self.records);
        page.field("Removed by Retention", self.removed);
        page.field("Last Record", self.last);
        page.field("Hash", &self.hash);
    }
}

impl Show for StoreView {
    fn show(&self, page: &mut TextPage) {
        page.field("Durable", yes(self.is_durable));
        page.field("Shared", yes(self.is_shared));
        page.field("Writable", yes(self.is_writable));
        page.field("Size", ByteSize(self.bytes));
        page.field("Write-Ahead Log", ByteSize(self.log_bytes));
        page.optional("Free", self.free_bytes.map(ByteSize));
        page.field("Schema", self.schema);
        page.field(
            "Tasks",
            format!("{} ({} active, {} queued)", self.tasks, self.active, self.queued),
        );
        page.optional("Oldest Event", self.oldest);
        page.field("Last Audit Record", self.audit_records);
    }
}

impl Show for TaskHeadPage {
    fn show(&self, page: &mut TextPage) {
        let row = |head: &TaskHead| {
            [
                head.id.clone(),
                short(head.state).to_owned(),
                head.agent.clone(),
                owner(&head.tenant, &head.principal),
                head.changed.to_string(),
                head.preview.clone(),
            ]
        };
        let rows: Vec<_> = self.tasks.iter().map(row).collect();
        page.table(&table(["ID", "STATE", "AGENT", "OWNER", "CHANGED", "MESSAGE"], &rows));
        page.optional("Next Page Token", self.next_page_token.as_ref());
    }
}

impl Show for TaskDetail {
    fn show(&self, page: &mut TextPage) {
        let head = &self.head;
        page.field("Owner", owner(&head.tenant, &head.principal));
        page.field("Agent", &head.agent);
        page.field("Created", head.created);
        page.field("Changed", head.changed);
        page.optional("Reason", head.reason.as_ref());
        page.field("Events", format!("{} ({})", head.seq, ByteSize(head.bytes)));
        if let Some(turn) = &head.turn {
            let held = if turn.is_held { "running" } else { "ended" };
            page.field("Turn", format!("of event {}, attempt {}, {held}", turn.seq, turn.attempt));
        }
        page.field("Unread Messages", head.unread);
        match serde_json::from_str::<Task>(self.task.get()) {
            Ok(task) => task.show(page),
            // A task of a newer version.
            Err(_) => page.block("Task", self.task.get()),
        }
        if let Some(question) = &self.question {
            show_question(page, question);
        }
    }
}

/// Shows a question with its choices.
pub(crate) fn show_question(page: &mut TextPage, question: &OpenQuestion) {
    page.field("Question", &question.question);
    page.optional("Asked", question.asked);
    page.block("Prompt", &question.prompt);
    for choice in &question.choices {
        page.field("Choice", format!("{}: {}", choice.id, choice.label));
    }
    if let Some(request) = &question.request {
        page.block("Request", request.get());
    }
}

impl Show for TaskLog {
    fn show(&self, page: &mut TextPage) {
        let rows: Vec<_> = self.entries.iter().map(LogColumns::cells).collect();
        page.table(&table(LogColumns::HEAD, &rows));
        page.field("Complete", yes(self.is_complete));
    }
}

/// The columns of a log, for a table and for single lines.
#[derive(Debug)]
pub(crate) struct LogColumns;

impl LogColumns {
    const HEAD: [&str; 6] = ["SEQ", "TIME", "KIND", "STATE", "SIZE", "CAUSE"];
    /// The widths of single lines, which are printed before later ones are known.
    const WIDTHS: [usize; 6] = [5, 24, 8, 14, 9, 0];

    fn cells(entry: &LogEntryView) -> [String; 6] {
        [
            entry.seq.to_string(),
            entry.at.map(|at| at.to_string()).unwrap_or_default(),
            entry.kind.clone(),
            entry.state.map(|state| short(state).to_owned()).unwrap_or_default(),
            ByteSize(entry.bytes).to_string(),
            entry.cause.as_ref().map(cause).unwrap_or_default(),
        ]
    }

    /// The head as a single line.
    pub(crate) fn head() -> String {
        aligned(&Self::HEAD, &Self::WIDTHS)
    }

    /// An entry as a single line.
    pub(crate) fn row(entry: &LogEntryView) -> String {
        let cells = Self::cells(entry).map(|text| cell(&text, true));
        aligned(&cells.each_ref().map(String::as_str), &Self::WIDTHS)
    }
}

fn cause(cause: &CauseView) -> String {
    let CauseView { actor, principal, request, binding } = cause;
    let mut text = named(actor, principal.as_deref());
    for (label, part) in [("over", binding), ("request", request)] {
        if let Some(part) = part {
            text = format!("{text} {label} {part}");
        }
    }
    text
}

fn subject(subject: &AuditSubjectView) -> String {
    let AuditSubjectView { kind, id, tenant, principal } = subject;
    match (tenant, principal) {
        (None, None) => format!("{kind} {id}"),
        (tenant, principal) => {
            let (tenant, principal) = (tenant.as_deref(), principal.as_deref());
            let of = owner(tenant.unwrap_or_default(), principal.unwrap_or_default());
            format!("{kind} {id} of {of}")
        }
    }
}

fn owner(tenant: &str, principal: &str) -> String {
    match (tenant, principal) {
        ("", principal) => principal.to_owned(),
        (tenant, principal) => format!("{tenant}/{principal}"),
    }
}

fn named(kind: &str, id: Option<&str>) -> String {
    id.map_or_else(|| kind.to_owned(), |id| format!("{kind} {id}"))
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "(none)".to_owned() } else { names.join(", ") }
}

fn allowed(names: Option<&Vec<String>>) -> String {
    names.map_or_else(|| "all".to_owned(), |names| list(names))
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "(none)" } else { text }
}

fn or_never(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "never".to_owned(), |time| time.to_string())
}

fn yes(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
