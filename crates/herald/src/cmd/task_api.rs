//! `herald task` verbs that operate a server: lists over all owners, logs, questions.

use std::time::Duration;

use herald_api::{
    ApiRoute,
    routes::{
        Nothing,
        calls::{AnswerTask, CancelTask, FailTask, GetTask, GetTaskLog, ListTasks, RetryTask},
    },
    tasks::{
        AnswerQuestion, FailTask as EndOfTask, TaskHeadPage, TaskLog, TaskLogQuery, TaskOwnerQuery,
        TasksQuery,
    },
};
use tokio::time::sleep;

use crate::{
    api::{self, Api, MOST_PAGES, PAGE},
    args::{
        Format, OwnerArgs, ServerArgs, TaskAnswer, TaskCancel, TaskFail, TaskList, TaskLogArgs,
        TaskRetry, TaskShow,
    },
    client::error::CliError,
    output::{LogColumns, line, print},
};

/// The pause between two reads of a log that is followed.
const FOLLOW: Duration = Duration::from_millis(500);

/// Lists the tasks of a server.
pub(crate) async fn list(args: &TaskList) -> Result<(), CliError> {
    let server = ServerArgs::of(&args.place, &args.agent);
    let everybody = !args.owner.is_given();
    api::run(&server, ApiRoute::ListTasks, async |api| {
        let mut all = TaskHeadPage { tasks: Vec::new(), next_page_token: args.page_token.clone() };
        for _ in 0..if args.all { MOST_PAGES } else { 1 } {
            let query = TasksQuery {
                owner: (args.all_owners && everybody).then(|| "*".to_owned()),
                tenant: args.owner.tenant.clone(),
                principal: args.owner.principal.clone(),
                state: args.status,
                context: args.context_id.clone(),
                since: args.since,
                reason: args.failed_by.clone(),
                page_size: args.page_size.and_then(|size| u32::try_from(size).ok()),
                page_token: all.next_page_token.take(),
                ..TasksQuery::default()
            };
            let mut page = api.call::<ListTasks>(&[], &query, &Nothing {}).await?;
            all.tasks.append(&mut page.tasks);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_none() {
                break;
            }
        }
        api.out.show(&all)
    })
    .await
}

/// Cancels a task of a server, also one of another owner.
pub(crate) async fn cancel(args: &TaskCancel) -> Result<(), CliError> {
    let server = ServerArgs::of(&args.place, &args.agent);
    let [id] = &args.name.words[..] else {
        return Err(CliError::usage("a task of a server is named by its id alone")
            .hint("leave the agent out; --server or --data names the server"));
    };
    if args.metadata.is_some() {
        let text = "--metadata belongs to a cancellation by the task's agent";
        return Err(CliError::usage(text).hint("leave it out with --server and --data"));
    }
    api::run(&server, ApiRoute::CancelTask, async |api| {
        let task = api.call::<CancelTask>(&[id], &owner(&args.owner), &Nothing {}).await?;
        api.out.show(&task)
    })
    .await
}

/// Shows a task of a server, with its open question.
pub(crate) async fn show(args: &TaskShow) -> Result<(), CliError> {
    api::run(&args.server, ApiRoute::GetTask, async |api| {
        let task = api.call::<GetTask>(&[&args.id], &owner(&args.owner), &Nothing {}).await?;
        api.out.show(&task)
    })
    .await
}

/// Answers the open question of a task.
pub(crate) async fn answer(args: &TaskAnswer) -> Result<(), CliError> {
    let answer = AnswerQuestion {
        question: args.question.clone(),
        choice: args.choice.clone(),
        text: args.text.clone(),
    };
    api::run(&args.server, ApiRoute::AnswerTask, async |api| {
        let task = api.call::<AnswerTask>(&[&args.id], &owner(&args.owner), &answer).await?;
        api.out.show(&task)
    })
    .await
}

/// Fails a task that has not ended.
pub(crate) async fn fail(args: &TaskFail) -> Result<(), CliError> {
    let end = EndOfTask { text: args.reason.clone() };
    api::run(&args.server, ApiRoute::FailTask, async |api| {
        let task = api.call::<FailTask>(&[&args.id], &owner(&args.owner), &end).await?;
        api.out.show(&task)
    })
    .await
}

/// Sends the message of a failed task again.
pub(crate) async fn retry(args: &TaskRetry) -> Result<(), CliError> {
    api::run(&args.server, ApiRoute::RetryTask, async |api| {
        let task = api.call::<RetryTask>(&[&args.id], &owner(&args.owner), &Nothing {}).await?;
        api.out.show(&task)
    })
    .await
}

/// Shows the log of a task, or follows it to the end of the task.
pub(crate) async fn log(args: &TaskLogArgs) -> Result<(), CliError> {
    api::run(&args.server, ApiRoute::GetTaskLog, async |api| {
        if args.follow { follow(&api, args).await } else { read(&api, args).await }
    })
    .await
}

async fn read(api: &Api, args: &TaskLogArgs) -> Result<(), CliError> {
    let mut all = page(api, args, args.after).await?;
    for _ in 0..MOST_PAGES {
        let mut more = page(api, args, Some(all.last)).await?;
        if more.entries.is_empty() {
            all.is_complete = more.is_complete;
            break;
        }
        (all.last, all.is_complete) = (more.last, more.is_complete);
        all.entries.append(&mut more.entries);
    }
    api.out.show(&all)
}

/// Prints each event when it is there, until no event can follow.
async fn follow(api: &Api, args: &TaskLogArgs) -> Result<(), CliError> {
    let mut after = args.after;
    if api.out.format == Format::Text {
        print(&LogColumns::head())?;
    }
    loop {
        let page = page(api, args, after).await?;
        for entry in &page.entries {
            match api.out.format {
                Format::Text => print(&LogColumns::row(entry))?,
                Format::Json => print(&line(entry))?,
            }
        }
        if page.is_complete {
            return Ok(());
        }
        after = Some(page.last);
        if page.entries.is_empty() {
            sleep(FOLLOW).await;
        }
    }
}

async fn page(api: &Api, args: &TaskLogArgs, after: Option<u64>) -> Result<TaskLog, CliError> {
    let query = TaskLogQuery {
        tenant: args.owner.tenant.clone(),
        principal: args.owner.principal.clone(),
        after,
        limit: Some(PAGE),
    };
    api.call::<GetTaskLog>(&[&args.id], &query, &Nothing {}).await
}

fn owner(args: &OwnerArgs) -> TaskOwnerQuery {
    TaskOwnerQuery { tenant: args.tenant.clone(), principal: args.principal.clone() }
}
