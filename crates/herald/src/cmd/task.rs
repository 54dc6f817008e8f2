//! `herald task`: reads, lists, cancels and follows tasks, and manages their webhooks.

use herald_client::{Client, StreamEvent};
use herald_protocol::{
    ErrorKind, Reply, Request, Task, TaskPage, TaskState,
    push::{PushAuthentication, PushConfig},
    request::{CancelTask, GetTask, ListPushConfigs, ListTasks},
};
use serde::Serialize;

use super::{
    download,
    send::{finish, is_settled, poll, report, wait, watch},
    task_api,
};
use crate::{
    args::{
        OwnerArgs, PushCommand, PushCreate, PushList, PushNamed, TaskCancel, TaskCommand, TaskGet,
        TaskList, TaskSubscribe,
    },
    client::{
        contact::{Contact, subject},
        error::{CliError, CliErrorKind},
    },
    output::{Show, TextPage},
};

/// The most pages of one list, since an agent's list may never end.
const MOST_PAGES: usize = 10_000;
/// The most bytes of tasks that are held in memory until the last page.
const MOST_HELD: usize = 256 << 20;

/// Runs a `task` verb.
pub(crate) async fn run(command: &TaskCommand) -> Result<(), CliError> {
    match command {
        TaskCommand::Get(args) => get(args).await,
        TaskCommand::List(args) if lists_server(args) => task_api::list(args).await,
        TaskCommand::List(args) => list(args).await,
        TaskCommand::Cancel(args) if args.place.is_given() => task_api::cancel(args).await,
        TaskCommand::Cancel(args) => cancel(args).await,
        TaskCommand::Subscribe(args) => subscribe(args).await,
        TaskCommand::Download(args) => download::run(args).await,
        TaskCommand::PushConfig(PushCommand::Create(args)) => push_create(args).await,
        TaskCommand::PushConfig(PushCommand::Get(args)) => push_get(args).await,
        TaskCommand::PushConfig(PushCommand::List(args)) => push_list(args).await,
        TaskCommand::PushConfig(PushCommand::Delete(args)) => push_delete(args).await,
        TaskCommand::Show(args) => task_api::show(args).await,
        TaskCommand::Log(args) => task_api::log(args).await,
        TaskCommand::Answer(args) => task_api::answer(args).await,
        TaskCommand::Fail(args) => task_api::fail(args).await,
        TaskCommand::Retry(args) => task_api::retry(args).await,
    }
}

/// True if the tasks of a server are to be listed: one is named, or a flag needs one and no agent is named, so that
/// the server is found as for other verbs that operate one.
fn lists_server(args: &TaskList) -> bool {
    let TaskList { all_owners, failed_by, owner, .. } = args;
    let is_for_servers = *all_owners || failed_by.is_some() || owner.is_given();
    let has_agent = args.reference.is_some() || args.agent.again.named;
    args.place.is_given() || (is_for_servers && !has_agent)
}

async fn get(args: &TaskGet) -> Result<(), CliError> {
    let (reference, [id]) = subject(&args.name.words, &args.agent)?;
    let mut contact = Contact::new(&args.agent, reference)?;
    contact.out.history |= args.history.is_some();
    contact
        .within(async {
            let mut client = contact.connect().await?;
            if args.wait {
                contact.remember(&id.into());
                let (task, root) = wait(&contact, &client, id.into()).await?;
                if args.history.is_none() {
                    return show(&contact, &task);
                }
                client = root.unwrap_or(client);
            }
            let history_length = args.history;
            let get = GetTask { id: id.into(), history_length, ..GetTask::default() };
            show(&contact, &task(&contact, &client, Request::GetTask(get)).await?)
        })
        .await
}

async fn list(args: &TaskList) -> Result<(), CliError> {
    only_for_servers(args.all_owners || args.failed_by.is_some(), &args.owner)?;
    let mut contact = Contact::new(&args.agent, args.reference.as_deref())?;
    contact.out.history |= args.history.is_some();
    let query = ListTasks {
        context_id: args.context_id.as_deref().map(Into::into),
        status: args.status.unwrap_or_default(),
        page_size: args.page_size,
        page_token: args.page_token.clone(),
        history_length: args.history,
        status_timestamp_after: args.since,
        include_artifacts: args.artifacts.then_some(true),
        ..ListTasks::default()
    };
    contact
        .within(async {
            let client = contact.connect().await?;
            let mut pages = client.list(query);
            let (mut all, mut held) = (TaskPage::default(), 0);
            for _ in 0..if args.all { MOST_PAGES } else { 1 } {
                let page = pages.next().await.map_err(|error| contact.explain(&client, &error))?;
                let Some(mut page) = page else { break };
                if contact.out.stream {
                    for task in &page.tasks {
                        contact.out.show(task)?;
                    }
                    continue;
                }
                held += serde_json::to_vec(&page.tasks).map_or(0, |json| json.len());
                if held > MOST_HELD {
                    let text = "the list is larger than 256 MiB";
                    return Err(CliError::internal(text).hint("add --stream to print task by task"));
                }
                all.tasks.append(&mut page.tasks);
                all = TaskPage { tasks: all.tasks, ..page };
            }
            if contact.out.stream { Ok(()) } else { contact.out.show(&all) }
        })
        .await
}

async fn cancel(args: &TaskCancel) -> Result<(), CliError> {
    only_for_servers(false, &args.owner)?;
    let (reference, [id]) = subject(&args.name.words, &args.agent)?;
    let contact = Contact::new(&args.agent, reference)?;
    contact
        .within(async {
            let client = contact.connect().await?;
            contact.remember(&id.into());
            let metadata = args.metadata.clone();
            let cancel = CancelTask { id: id.into(), metadata, ..CancelTask::default() };
            let canceled = match client.call(Request::CancelTask(cancel)).await {
                Ok(answer) => one(answer)?,
                // A repeated cancel succeeds, as the specification of the command line requires.
                Err(error) if error.kind() == Some(ErrorKind::TaskNotCancelable) => {
                    match client.get(id).await {
                        Ok(task) if task.status.state == TaskState::Canceled => task,
                        Ok(_) | Err(_) => return Err(contact.explain(&client, &error)),
                    }
                }
                Err(error) => return Err(contact.explain(&client, &error)),
            };
            contact.out.show(&canceled)
        })
        .await
}

/// An error if a call to an agent has flags of a server.
fn only_for_servers(all_owners: bool, owner: &OwnerArgs) -> Result<(), CliError> {
    if !all_owners && !owner.is_given() {
        return Ok(());
    }
    let text = "--failed-by, --all-owners, --tenant and --principal need a server, not an agent";
    Err(CliError::usage(text).hint("name the server with --server URL or --data DIR"))
}

async fn subscribe(args: &TaskSubscribe) -> Result<(), CliError> {
    let (reference, [id]) = subject(&args.name.words, &args.agent)?;
    let contact = Contact::new(&args.agent, reference)?;
    contact
        .within(async {
            let client = contact.connect().await?;
            contact.remember(&id.into());
            let now = client.get(id).await.map_err(|error| contact.explain(&client, &error))?;
            let streams = client.card().capabilities.streaming == Some(true);
            if is_settled(now.status.state) || !streams {
                return show_end(&contact, poll(&contact, &client, id.into()).await?);
            }
            let fault = match followed(&contact, &client, id).await {
                Err(fault) if matches!(fault.kind(), CliErrorKind::Protocol(_)) => fault,
                followed => return followed,
            };
            // An ended task has no stream, and this one may have ended since it was read.
            match client.get(id).await {
                Ok(task) if is_settled(task.status.state) => show_end(&contact, task),
                Ok(_) | Err(_) => Err(fault),
            }
        })
        .await
}

/// Follows a task to its end and shows it.
async fn followed(contact: &Contact, client: &Client, id: &str) -> Result<(), CliError> {
    let explain = |error| contact.explain(client, &error);
    let mut events = client.subscribe(id).await.map_err(explain)?;
    if contact.out.stream {
        return watch(contact, client, events).await.map(drop);
    }
    while let Some(event) = events.next().await.map_err(explain)? {
        if event.state().is_some_and(is_settled) {
            break;
        }
    }
    show(contact, &poll(contact, client, id.into()).await?)
}

/// Shows a settled task: as a result, or as the last event of a stream.
fn show_end(contact: &Contact, task: Task) -> Result<(), CliError> {
    if contact.out.stream {
        finish(contact, &StreamEvent::Task(task))
    } else {
        show(contact, &task)
    }
}

async fn push_create(args: &PushCreate) -> Result<(), CliError> {
    let (reference, [id]) = subject(&args.name.words, &args.agent)?;
    let contact = Contact::new(&args.agent, reference)?;
    contact.hide(args.token.iter().chain(&args.auth_credentials));
    let credentials = args.auth_credentials.as_ref().map(|secret| secret.0.clone());
    let scheme = args.auth_scheme.clone();
    let config = PushConfig {
        id: args.id.as_deref().map(Into::into),
        task_id: Some(id.into()),
        url: args.url.clone(),
        token: args.token.as_ref().map(|secret| secret.0.clone()),
        authentication: scheme.map(|scheme| PushAuthentication { scheme, credentials }),
        ..PushConfig::default()
    };
    contact
        .within(async {
            let client = pushing(&contact).await?;
            let created = client.create_push_config(config).await;
            contact.out.show(&created.map_err(|error| contact.explain(&client, &error))?)
        })
        .await
}

async fn push_get(args: &PushNamed) -> Result<(), CliError> {
    let (reference, [id, config]) = subject(&args.words, &args.agent)?;
    let contact = Contact::new(&args.agent, reference)?;
    contact
        .within(async {
            let client = pushing(&contact).await?;
            let found = client.push_config_of(id, config).await;
            contact.out.show(&found.map_err(|error| contact.explain(&client, &error))?)
        })
        .await
}

async fn push_list(args: &PushList) -> Result<(), CliError> {
    let (reference, [id]) = subject(&args.name.words, &args.agent)?;
    let contact = Contact::new(&args.agent, reference)?;
    let query = ListPushConfigs {
        task_id: id.into(),
        page_size: args.page_size,
        page_token: args.page_token.clone(),
        ..ListPushConfigs::default()
    };
    contact
        .within(async {
            let client = pushing(&contact).await?;
            let page = client.push_configs(query).await;
            contact.out.show(&page.map_err(|error| contact.explain(&client, &error))?)
        })
        .await
}

async fn push_delete(args: &PushNamed) -> Result<(), CliError> {
    let (reference, [id, config]) = subject(&args.words, &args.agent)?;
    let contact = Contact::new(&args.agent, reference)?;
    contact
        .within(async {
            let client = pushing(&contact).await?;
            let deleted = client.delete_push_config(id, config).await;
            deleted.map_err(|error| contact.explain(&client, &error))?;
            contact.out.show_with(&Deleted {}, |page| {
                page.field("Task ID", id);
                page.field("Push Config ID", config);
                page.field("Deleted", "yes");
            })
        })
        .await
}

/// The empty result of a deletion.
#[derive(Serialize)]
struct Deleted {}

impl Show for Deleted {
    fn show(&self, _page: &mut TextPage) {}
}

/// A client of an agent with push notifications, according to its card.
async fn pushing(contact: &Contact) -> Result<Client, CliError> {
    let client = contact.connect().await?;
    if client.card().capabilities.push_notifications == Some(true) {
        return Ok(client);
    }
    let kind = CliErrorKind::Protocol(ErrorKind::PushNotificationNotSupported);
    Err(CliError::new(kind, "the agent has no push notifications, according to its card").hint(
        "follow the task with `herald task subscribe`, or wait with `herald task get --wait`",
    ))
}

fn show(contact: &Contact, task: &Task) -> Result<(), CliError> {
    report(contact, task, task)
}

async fn task(contact: &Contact, client: &Client, request: Request) -> Result<Task, CliError> {
    let answer = client.call(request).await.map_err(|error| contact.explain(client, &error))?;
    one(answer)
}

/// The task in a reply.
fn one(answer: herald_client::Answer) -> Result<Task, CliError> {
    if let herald_client::Answer::Reply(reply) = answer
        && let Reply::Task(task) = *reply
    {
        return Ok(task);
    }
    Err(CliError::internal("the reply belongs to another operation"))
}
