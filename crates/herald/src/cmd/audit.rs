//! `herald audit`: the audit log of a server.

use std::process::ExitCode;

use herald_api::{
    ApiRoute,
    audit::{AuditFilter, AuditLogPage, AuditVerification, AuditVerifyQuery},
    routes::{
        Nothing,
        calls::{ListAudit, VerifyAudit},
    },
};
use serde::Serialize;

use crate::{
    api::{self, Api, PAGE},
    args::{AuditCommand, AuditExport, AuditFilterArgs, AuditList, AuditVerify},
    client::error::CliError,
    output::{line, note, print},
};

/// Runs an `audit` verb.
pub(crate) async fn run(command: &AuditCommand) -> Result<ExitCode, CliError> {
    match command {
        AuditCommand::List(args) => list(args).await.map(|()| ExitCode::SUCCESS),
        AuditCommand::Verify(args) => verify(args).await,
        AuditCommand::Export(args) => export(args).await,
    }
}

async fn list(args: &AuditList) -> Result<(), CliError> {
    let limit = args.limit as usize;
    api::run(&args.server, ApiRoute::ListAudit, async |api| {
        let mut all = AuditLogPage { records: Vec::new(), next_page_token: None };
        loop {
            let missing = u32::try_from(limit - all.records.len()).unwrap_or(PAGE);
            let mut filter = filter(&args.filter);
            filter.page_size = Some(missing.min(PAGE));
            filter.page_token = all.next_page_token.take();
            let mut page = api.call::<ListAudit>(&[], &filter, &Nothing {}).await?;
            all.records.append(&mut page.records);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_none() || all.records.len() >= limit {
                break;
            }
        }
        api.out.show(&all)
    })
    .await
}

async fn verify(args: &AuditVerify) -> Result<ExitCode, CliError> {
    let kept = AuditVerifyQuery { number: args.number, hash: args.hash.clone() };
    api::run(&args.server, ApiRoute::VerifyAudit, async |api| {
        let found = api.call::<VerifyAudit>(&[], &kept, &Nothing {}).await?;
        api.out.show(&found)?;
        Ok(if found.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
    .await
}

/// Writes the records, and then the head of the chain as it was before the first of them was read.
async fn export(args: &AuditExport) -> Result<ExitCode, CliError> {
    api::run(&args.server, ApiRoute::ListAudit, async |api| {
        let head = api.call::<VerifyAudit>(&[], &AuditVerifyQuery::default(), &Nothing {}).await?;
        let records = write_records(&api, &args.filter, &head).await?;
        let end = ExportEnd {
            head: ExportHead { number: head.last, hash: &head.hash },
            records,
            ok: head.ok,
        };
        print(&line(&end))?;
        let Some(fault) = &head.fault else { return Ok(ExitCode::SUCCESS) };
        note("Error", &format!("the audit log has a fault: {}", fault.message));
        Ok(ExitCode::FAILURE)
    })
    .await
}

/// Writes the records up to the head. Returns their number.
async fn write_records(
    api: &Api,
    wanted: &AuditFilterArgs,
    head: &AuditVerification,
) -> Result<u64, CliError> {
    let (mut written, mut page_token) = (0, None);
    loop {
        let filter = AuditFilter { page_size: Some(PAGE), page_token, ..filter(wanted) };
        let page = api.call::<ListAudit>(&[], &filter, &Nothing {}).await?;
        // After a fault nothing is verified, and everything is written.
        let known = |number: u64| number <= head.last || !head.ok;
        for record in page.records.iter().filter(|record| known(record.number)) {
            print(&line(record))?;
            written += 1;
        }
        page_token = page.next_page_token;
        if page_token.is_none() {
            return Ok(written);
        }
    }
}

fn filter(args: &AuditFilterArgs) -> AuditFilter {
    AuditFilter {
        tenant: args.tenant.clone(),
        principal: args.principal.clone(),
        action: args.action.clone(),
        since: args.since,
        ..AuditFilter::default()
    }
}

/// The last line of an export.
#[derive(Debug, Serialize)]
struct ExportEnd<'a> {
    head: ExportHead<'a>,
    /// The number of records before this line.
    records: u64,
    /// True if the chain was verified without a fault.
    ok: bool,
}

#[derive(Debug, Serialize)]
struct ExportHead<'a> {
    number: u64,
    hash: &'a str,
}
