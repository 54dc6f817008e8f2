//! Processes that agents run: none outlives its turn, and none outlives the server, even after a crash.

mod descriptors;
mod process_tree;
mod program;
mod record;

use std::{
    collections::HashMap,
    env, fs,
    future::ready,
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use herald_engine::Turn;
use tokio::{
    io::{copy, sink},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use uuid::Uuid;

use self::{
    process_tree::{MARK, ProcessIdentity, ProcessTree},
    record::{ServerRun, name},
};

pub use self::program::{Program, Workdir};

pub(crate) use self::descriptors::{
    DESCRIPTOR_WAIT, describe_limit, is_exhausted, wait_for_descriptors,
};

/// Prefix of the server's own variables, which programs do not inherit: tokens may be among them.
const OURS: &str = "HERALD_";

/// Prefix of the names of directories with callers' files.
const FILES: &str = "herald-";

/// The variable with the task id.
const TASK_ID: &str = "HERALD_TASK_ID";

/// Time that a killed program has to disappear, beyond its grace: the kernel may hold it up.
pub const STUCK: Duration = Duration::from_secs(3);

/// All programs of one server.
#[derive(Debug, Clone)]
pub struct Processes {
    inner: Arc<ProcessesInner>,
}

#[derive(Debug)]
struct ProcessesInner {
    /// Id of this server run: prefix of the marks of all its programs.
    run: String,
    /// Directory of the records of running programs, with a subdirectory per server run.
    records: Option<Records>,
    /// The processes that were started here and are waited for, by id.
    children: Mutex<Children>,
    closing: AtomicBool,
}

type Children = HashMap<i32, Option<ProcessIdentity>>;

#[derive(Debug)]
struct Records {
    all: PathBuf,
    own: PathBuf,
}

/// A running program. Dropping it kills it; [`Process::end`] sends SIGTERM first.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pid: i32,
    tree: ProcessTree,
    grace: Duration,
    /// The program and its task, for the log.
    program: PathBuf,
    task: Option<String>,
    processes: Processes,
    recorded: Option<PathBuf>,
    is_over: bool,
}

/// The standard streams of a program.
#[derive(Debug)]
pub struct Pipes {
    /// Standard input. Taking and dropping it closes it.
    pub stdin: Option<ChildStdin>,
    /// Standard output.
    pub stdout: ChildStdout,
    /// Standard error.
    pub stderr: ChildStderr,
}

impl Pipes {
    /// Reads and discards all output, and never returns: a program that is shutting down must neither
    /// block on a full pipe nor die of a closed one.
    pub async fn drain(&mut self) {
        let (mut nowhere, mut void) = (sink(), sink());
        let output = copy(&mut self.stdout, &mut nowhere);
        let _ = tokio::join!(output, copy(&mut self.stderr, &mut void));
        std::future::pending::<()>().await;
    }
}

impl Processes {
    /// Processes of a new server run. With a `records` directory they are found again after a crash.
    pub fn new(records: Option<PathBuf>) -> Self {
        let run = Uuid::new_v4().simple().to_string();
        let records = records.and_then(|all| {
            let own = ServerRun::own(&run)?.path(&all);
            Some(Records { all, own })
        });
        let (children, closing) = (Mutex::default(), AtomicBool::new(false));
        Self { inner: Arc::new(ProcessesInner { run, records, children, closing }) }
    }

    /// Ends the programs that earlier server runs left behind. Only the owner of the records
    /// directory may call this.
    pub async fn clear(&self, grace: Duration) -> io::Result<()> {
        let Some(records) = &self.inner.records else { return Ok(()) };
        for (run, path) in ServerRun::earlier(&records.all)? {
            let mut tree = ProcessTree::of_run(&run.id, run.survivors(&path));
            let left = tree.find_alive().len();
            if left > 0 {
                tracing::warn!(left, "ending programs that an earlier server run left behind");
                tree.end(grace).await;
            }
            remove_files(&run.id);
            fs::remove_dir_all(path)?;
        }
        Ok(())
    }

    /// Ends all programs. Their exit is not reported, since it is the server that ends them.
    pub async fn close(&self, grace: Duration) {
        self.inner.closing.store(true, Ordering::SeqCst);
        let known: Vec<_> = self.children().values().copied().flatten().collect();
        let all_ended = ProcessTree::of_run(&self.inner.run, known).end(grace).await;
        remove_files(&self.inner.run);
        if let (true, Some(records)) = (all_ended, &self.inner.records) {
            // If the directory stays, the next start finds no running program in it.
            let _ = fs::remove_dir_all(&records.own);
        }
    }

    /// Prefix of the names of this run's directories with callers' files; a later start finds them by it.
    pub(crate) fn file_prefix(&self) -> String {
        format!("{FILES}{}-", self.inner.run)
    }

    /// The server's data directory, if it has one.
    pub fn data_directory(&self) -> Option<&Path> {
        self.inner.records.as_ref()?.all.parent()
    }

    /// Starts a program in a process group of its own, with `more` in its environment. Where no file
    /// descriptors are free it waits for some, for a bounded time.
    pub async fn spawn(
        &self,
        program: &Program,
        more: &[(&str, String)],
    ) -> io::Result<(Process, Pipes)> {
        self.unless_closing().await;
        let mark = format!("{}-{}", self.inner.run, Uuid::new_v4().simple());
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).current_dir(program.directory.resolve()?).process_group(0);
        for (name, _) in env::vars_os() {
            if name.as_encoded_bytes().starts_with(OURS.as_bytes()) {
                command.env_remove(name);
            }
        }
        command
            .envs(&program.environment)
            .envs(more.iter().map(|(name, value)| (name, value)))
            .env(MARK, &mark);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = || ready(self.start(&mut command));
        let (mut child, pid, leader) = wait_for_descriptors(DESCRIPTOR_WAIT, start).await?;
        let pipes = Pipes {
            stdin: child.stdin.take(),
            stdout: child.stdout.take().expect("it was configured as a pipe"),
            stderr: child.stderr.take().expect("it was configured as a pipe"),
        };
        let process = Process {
            child,
            pid,
            tree: ProcessTree::of_program(&mark, leader),
            grace: program.grace,
            program: program.path.clone(),
            task: more.iter().find(|(name, _)| *name == TASK_ID).map(|(_, task)| task.clone()),
            processes: self.clone(),
            recorded: leader.and_then(|leader| self.record(leader)),
            is_over: false,
        };
        Ok((process, pipes))
    }

    /// Spawns it under the lock of the children, so that it is not reaped as an orphan before it is
    /// registered.
    fn start(&self, command: &mut Command) -> io::Result<(Child, i32, Option<ProcessIdentity>)> {
        let mut children = self.children();
        // One at a time: otherwise several would count the same spare descriptors.
        descriptors::check_spare()?;
        let child = command.spawn()?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.expect("a process that was not waited for has an id");
        let leader = ProcessIdentity::of(pid);
        children.insert(pid, leader);
        Ok((child, pid, leader))
    }

    fn children(&self) -> MutexGuard<'_, Children> {
        self.inner.children.lock().expect("nothing panics while it holds this lock")
    }

    /// Returns at once, or never if the server is shutting down.
    pub(crate) async fn unless_closing(&self) {
        if self.inner.closing.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
    }

    /// Records a program on disk. A failure is tolerable: the mark finds the program as well.
    fn record(&self, leader: ProcessIdentity) -> Option<PathBuf> {
        let own = &self.inner.records.as_ref()?.own;
        let path = own.join(name(leader));
        let created = fs::File::create(&path).or_else(|_| {
            fs::create_dir_all(own)?;
            fs::File::create(&path)
        });
        created.ok().map(|_| path)
    }
}

impl Process {
    /// Waits for the program's exit. Its children may still run.
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait().await;
        self.processes.unless_closing().await;
        status
    }

    /// Ends the program's process tree: SIGTERM, the grace period, then SIGKILL.
    pub async fn end(&mut self) {
        if self.is_over {
            return;
        }
        let reaped = timeout(self.grace + STUCK, self.child.wait());
        let (_, all_ended) = tokio::join!(reaped, self.tree.end(self.grace));
        if !all_ended {
            let (task, program) = (self.task.as_deref(), self.program.display());
            tracing::error!(task, %program, "cannot kill a program; the next server start tries again");
            self.recorded = None;
        }
        self.over();
    }

    fn over(&mut self) {
        self.is_over = true;
        if let Some(path) = self.recorded.take() {
            // A record that stays names a process that has exited, which does no harm.
            let _ = fs::remove_file(path);
        }
        let mut children = self.processes.children();
        children.remove(&self.pid);
        process_tree::reap(|pid| children.contains_key(&pid));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_over {
            self.tree.kill_all();
            self.over();
        }
    }
}

/// Removes callers' files that a server run left behind: their names contain the id of the run.
fn remove_files(run: &str) {
    let prefix = format!("{FILES}{run}-");
    for entry in fs::read_dir(env::temp_dir()).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            // Files that stay are readable for this user only.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// The environment variables of a program that works on a turn.
pub(crate) fn environment(turn: &Turn) -> Vec<(&'static str, String)> {
    let mut environment = vec![
        (TASK_ID, turn.task_id().to_string()),
        ("HERALD_CONTEXT_ID", turn.context_id().to_string()),
        ("HERALD_MESSAGE_ID", turn.message().message_id.to_string()),
    ];
    environment.extend(turn.trace().map(|trace| ("TRACEPARENT", trace.to_string())));
    environment
}

/// An exit status in words.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}
