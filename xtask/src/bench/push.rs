//! Deliveries to webhooks: their rate and CPU, sends with and without a webhook, delays beside a receiver that hangs,
//! and sends while many webhooks are parked.

use std::time::{Duration, Instant};

use anyhow::ensure;

use super::{
    Options,
    install::Bench,
    load::{Case, Kind, Outcome},
    median, pause, print,
    probe::Cpu,
    receiver::Receiver,
    report::{Table, word},
    say,
    server::{Data, Running, Subject},
};

/// Sends of one measurement.
const SENDS: u64 = 4000;

/// Sends whose latency is compared, and the pause after each: they meet their own deliveries, not those of others.
const SINGLE: u64 = 500;
const PAUSE_MS: u64 = 20;

/// The deliveries of a send to the echo agent: the task, working, the artifact, completed.
const EVENTS: u64 = 4;

/// A send with a webhook may take this multiple of one without.
const SLOWER: f64 = 1.10;

/// Parked webhooks, and the receivers that they are for.
const PARKED: u64 = 100_000;
const CLOSED: u16 = 190;

/// Webhooks of the receiver that hangs.
const HANGING: u64 = 200;

/// The longest wait for deliveries.
const LIMIT: Duration = Duration::from_secs(900);

/// Sends and their server's CPU in microseconds for each.
struct Sends {
    p50_ms: f64,
    cpu_us: f64,
}

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    let share = if options.quick { 10 } else { 1 };
    let sends = SENDS / share;
    let receiver = Receiver::start()?;
    let mut table = Table::with_words_from(3);
    table.heading("\nDeliveries to webhooks");

    say("deliveries and sends");
    let data = Data::create(bench)?;
    data.configure(&allowed(&[receiver.address.to_string()]))?;
    let server = Running::start(bench, Subject::Herald, &data)?;
    let (eight, one) = (Case::new(Kind::Send, 8), Case::new(Kind::Send, 1));
    measure(bench, &server, eight, sends, "")?;
    let (mut without, mut with) = (Vec::new(), Vec::new());
    let single = one.with_pause(PAUSE_MS);
    for _ in 0..options.rounds.max(3) {
        without.push(measure(bench, &server, single, SINGLE / share, "")?);
        receiver.take_delays();
        with.push(measure(bench, &server, single, SINGLE / share, &receiver.url())?);
        wait_for(&receiver, SINGLE / share * EVENTS)?;
    }
    let p50 = |sends: &[Sends]| median(sends.iter().map(|one| one.p50_ms)).unwrap_or(f64::NAN);
    let ratio = p50(&with) / p50(&without);
    table.row("send without a webhook, p50", format!("{:.2} ms", p50(&without)), "");
    let verdict = format!("{ratio:.2}×, budget {SLOWER}: {}", word(ratio <= SLOWER));
    table.row("send with a webhook, p50", format!("{:.2} ms", p50(&with)), &verdict);

    let plain = measure(bench, &server, eight, sends, "")?;
    receiver.take_delays();
    let (begun, before) = (Instant::now(), Cpu::of(server.pid())?);
    eight.with_webhooks(bench, &server, sends, &receiver.url())?;
    wait_for(&receiver, sends * EVENTS)?;
    let took = begun.elapsed().as_secs_f64();
    let used = Cpu::of(server.pid())?.total() - before.total();
    let deliveries = (sends * EVENTS) as f64;
    let each = (used - plain.cpu_us * sends as f64) / deliveries;
    let rate = format!("{:.0} per second", deliveries / took);
    table.row("deliveries beside sends at 8", rate, "");
    table.row("CPU of a delivery", format!("{each:.0} µs"), "");

    say("a receiver that hangs");
    delays(bench, &mut table, &receiver, sends)?;

    say("parked webhooks");
    parked(bench, &mut table, sends, PARKED / share)?;
    print(table)
}

/// Delays of deliveries to a receiver that answers, with and without one that hangs beside it.
fn delays(bench: &Bench, table: &mut Table, receiver: &Receiver, sends: u64) -> anyhow::Result<()> {
    let hanging = Receiver::hanging()?;
    let hosts = [receiver.address.to_string(), hanging.address.to_string()];
    let data = Data::create(bench)?;
    data.configure(&allowed(&hosts))?;
    let server = Running::start(bench, Subject::Herald, &data)?;
    measure(bench, &server, Case::new(Kind::Send, 1), sends, &receiver.url())?;
    pause(Duration::from_secs(1));
    let mut found = Vec::new();
    for beside in [false, true] {
        if beside {
            let case = Case::new(Kind::Send, 8);
            case.with_webhooks(bench, &server, HANGING, &hanging.url())?;
        }
        receiver.take_delays();
        Case::new(Kind::Send, 1).with_webhooks(bench, &server, sends, &receiver.url())?;
        wait_for(receiver, sends * EVENTS)?;
        let late = receiver.take_delays();
        ensure!(!late.is_empty(), "no delivery of a completed task");
        let at = |share: usize| late[(late.len() * share / 100).min(late.len() - 1)];
        let label = if beside {
            format!("delay beside a receiver that hangs, with {HANGING} webhooks")
        } else {
            "delay of a delivery, p50 and p99".to_owned()
        };
        table.row(&label, format!("{:.1} and {:.1} ms", at(50), at(99)), "");
        found.push(at(50));
    }
    table.row("ratio of p50", format!("{:.2}×", found[1] / found[0]), "");
    Ok(())
}

/// Sends without a webhook, before and after many webhooks were parked.
fn parked(bench: &Bench, table: &mut Table, sends: u64, count: u64) -> anyhow::Result<()> {
    let hosts: Vec<_> = (1..=CLOSED).map(|host| format!("127.0.1.{host}:1")).collect();
    let urls: Vec<_> = hosts.iter().map(|host| format!("http://{host}/")).collect();
    let data = Data::create(bench)?;
    data.configure(&format!("{}retry = []\nconfigs_per_tenant = 1000000\n", allowed(&hosts)))?;
    let server = Running::start(bench, Subject::Herald, &data)?;
    let one = Case::new(Kind::Send, 1);
    measure(bench, &server, Case::new(Kind::Send, 8), sends, "")?;
    let before = measure(bench, &server, one, sends, "")?;
    Case::new(Kind::Send, 64).with_webhooks(bench, &server, count, &urls.join(","))?;
    let begun = Instant::now();
    // Until the server is idle: every attempt has failed.
    loop {
        let used = Cpu::of(server.pid())?.total();
        pause(Duration::from_secs(1));
        if Cpu::of(server.pid())?.total() - used < 30_000.0 {
            break;
        }
        ensure!(begun.elapsed() < LIMIT, "the webhooks are not parked within {LIMIT:?}");
    }
    let after = measure(bench, &server, one, sends, "")?;
    let label = |count: u64| format!("send with {count} parked webhooks");
    let figures = |sends: &Sends| format!("{:.2} ms, {:.0} µs CPU", sends.p50_ms, sends.cpu_us);
    table.row(&label(0), figures(&before), "");
    let ratio = format!("{:.2}× CPU", after.cpu_us / before.cpu_us);
    table.row(&label(count), figures(&after), &ratio);
    Ok(())
}

/// The settings that allow these receivers.
fn allowed(hosts: &[String]) -> String {
    format!("[push]\nallowed_hosts = {hosts:?}\n")
}

fn measure(
    bench: &Bench,
    server: &Running,
    case: Case,
    sends: u64,
    webhook: &str,
) -> anyhow::Result<Sends> {
    let before = Cpu::of(server.pid())?;
    let outcome: Outcome = case.with_webhooks(bench, server, sends, webhook)?;
    let cpu = Cpu::of(server.pid())?.per_request(&before, sends);
    ensure!(outcome.errors == 0, "{:?}", outcome.error);
    let p50_ms = outcome.p50_us.unwrap_or(f64::NAN) / 1000.0;
    Ok(Sends { p50_ms, cpu_us: cpu.total() })
}

fn wait_for(receiver: &Receiver, deliveries: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    while receiver.deliveries() < deliveries {
        let got = receiver.deliveries();
        ensure!(begun.elapsed() < LIMIT, "{got} of {deliveries} deliveries within {LIMIT:?}");
        pause(Duration::from_millis(2));
    }
    Ok(())
}
