//! Whether the port is free, or who has it.

use std::{io, net::TcpListener, path::Path, time::Duration};

use super::{
    Finding,
    config::Subject,
    public::{self, Trust},
};

const CHECK: &str = "port";

/// Looks at the port, unless none is opened. Says whether our own server answers there.
pub(super) async fn check(
    subject: &Subject,
    store_in_use: bool,
    patience: Duration,
) -> (Option<Finding>, bool) {
    let settings = &subject.settings;
    let address = settings.address;
    if settings.stdio {
        return (None, false);
    }
    let fault = match TcpListener::bind(address) {
        Ok(_) if address.port() == 0 => {
            return (Some(Finding::ok(CHECK, "a free one is taken at the start")), false);
        }
        Ok(_) if store_in_use => {
            let seen = format!("{address} is free, although a herald has the store open");
            let remedy = "that one listens elsewhere: give the flags that it was started with";
            return (Some(Finding::warn(CHECK, seen, remedy)), false);
        }
        Ok(_) => return (Some(Finding::ok(CHECK, format!("{address} is free"))), false),
        Err(fault) => fault,
    };
    if fault.kind() == io::ErrorKind::AddrInUse {
        return held(subject, store_in_use, patience).await;
    }
    let seen = format!("{address} cannot be opened: {fault}");
    let remedy = match fault.kind() == io::ErrorKind::PermissionDenied {
        true => {
            "ports below 1024 need a privilege: choose one from 1024 on and let a proxy lead to it, or \
             give the program the capability CAP_NET_BIND_SERVICE"
        }
        false => "set --host or [server] host to an address of this machine",
    };
    (Some(Finding::fail(CHECK, seen, remedy)), false)
}

/// Finds out who has the port: our own server is as good as a free port.
async fn held(
    subject: &Subject,
    store_in_use: bool,
    patience: Duration,
) -> (Option<Finding>, bool) {
    let (address, local) = (subject.settings.address, subject.local_url());
    let holder = holder(address.port()).unwrap_or_else(|| "another program".to_owned());
    let card = public::fetch(&local, Trust::Anybody, patience).await.and_then(|answer| answer.card);
    if card.as_ref().is_ok_and(|card| store_in_use || *card == subject.card(&local)) {
        let seen = format!("{address} is served by {holder}");
        return (Some(Finding::ok(CHECK, seen)), true);
    }
    let what = card.map_or(String::new(), |card| format!(", which serves {:?}", card.name));
    let seen = format!("{address} is held by {holder}{what}");
    let remedy = "stop it, or choose another port with --port or [server] port";
    (Some(Finding::fail(CHECK, seen, remedy)), false)
}

/// The program that listens on a port, where the system tells: its name and its number.
fn holder(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let tables: String = tables.into_iter().flatten().collect();
    let sockets: Vec<_> = tables.lines().filter_map(|line| listening(line, port)).collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut processes = processes.map(|process| process.path());
    let process = processes.find(|process| has_one_of(process, &sockets))?;
    let name = std::fs::read_to_string(process.join("comm")).ok()?;
    let number = process.file_name()?.to_string_lossy().into_owned();
    Some(format!("{} (process {number})", name.trim()))
}

/// The socket of a line of the system's table, if it listens on this port.
fn listening(line: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    let fields: Vec<_> = line.split_whitespace().collect();
    let (_, local) = fields.get(1)?.rsplit_once(':')?;
    let same = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTEN;
    same.then_some(format!("socket:[{}]", fields.get(9)?))
}

/// Whether a process has one of these sockets open. Those of other users cannot be looked into.
fn has_one_of(process: &Path, sockets: &[String]) -> bool {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        sockets.iter().any(|socket| *socket == target)
    })
}
