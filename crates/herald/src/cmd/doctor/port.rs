//! Check of the port: free, or held by this server or another program.

use std::{io, net::TcpListener, path::Path, time::Duration};

use super::{
    Finding,
    config::Subject,
    public::{self, CertificatePolicy},
};

const CHECK: &str = "port";

/// Checks the port, unless none is opened. The second value says whether this server answers there.
pub(super) async fn check(
    subject: &Subject,
    store_in_use: bool,
    timeout: Duration,
) -> (Option<Finding>, bool) {
    let settings = &subject.settings;
    let address = settings.address;
    if settings.stdio {
        return (None, false);
    }
    let fault = match TcpListener::bind(address) {
        Ok(_) if address.port() == 0 => {
            return (Some(Finding::ok(CHECK, "the start picks a free port")), false);
        }
        Ok(_) if store_in_use => {
            let seen = format!("{address} is free, although a server has the store open");
            let remedy =
                "that server listens on another address: give the flags that it was started with";
            return (Some(Finding::warn(CHECK, seen, remedy)), false);
        }
        Ok(_) => return (Some(Finding::ok(CHECK, format!("{address} is free"))), false),
        Err(fault) => fault,
    };
    if fault.kind() == io::ErrorKind::AddrInUse {
        return held(subject, store_in_use, timeout).await;
    }
    let seen = format!("{address} cannot be opened: {fault}");
    let remedy = if fault.kind() == io::ErrorKind::PermissionDenied {
        "ports below 1024 need a privilege: choose a port from 1024 on and put a proxy in front, or \
         give the program the capability CAP_NET_BIND_SERVICE"
    } else {
        "set --host or [server] host to an address of this machine"
    };
    (Some(Finding::fail(CHECK, seen, remedy)), false)
}

/// The finding for a port in use. It is fine if this server holds it.
async fn held(subject: &Subject, store_in_use: bool, timeout: Duration) -> (Option<Finding>, bool) {
    let (address, local) = (subject.settings.address, subject.local_url());
    let holder = holder(address.port()).unwrap_or_else(|| "another program".to_owned());
    let card =
        public::fetch(&local, CertificatePolicy::Any, timeout).await.and_then(|answer| answer.card);
    if card.as_ref().is_ok_and(|card| store_in_use || *card == subject.card(&local)) {
        let seen = format!("{address} is served by {holder}");
        return (Some(Finding::ok(CHECK, seen)), true);
    }
    let what = card.map_or(String::new(), |card| format!(", which serves {:?}", card.name));
    let seen = format!("{address} is held by {holder}{what}");
    let remedy = "stop it, or choose another port with --port or [server] port";
    (Some(Finding::fail(CHECK, seen, remedy)), false)
}

/// The name and process id of the program that listens on a port, from Linux's `/proc`.
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

/// The socket in a line of `/proc/net/tcp`, if it listens on this port.
fn listening(line: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    let fields: Vec<_> = line.split_whitespace().collect();
    let (_, local) = fields.get(1)?.rsplit_once(':')?;
    let same = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTEN;
    same.then_some(format!("socket:[{}]", fields.get(9)?))
}

/// True if a process has one of these sockets open. Processes of other users cannot be inspected.
fn has_one_of(process: &Path, sockets: &[String]) -> bool {
    let files = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        sockets.iter().any(|socket| *socket == target)
    })
}
