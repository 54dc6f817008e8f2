//! File descriptor limit: a program waits to be started while the server has too few descriptors.

use std::{fs::File, io, time::Duration};

use rustix::{
    io::Errno,
    process::{Resource, getrlimit},
};
use tokio::time::{Instant, sleep};

/// The longest wait of a program for descriptors before its task fails.
pub(crate) const DESCRIPTOR_WAIT: Duration = Duration::from_secs(60);

/// The pause between two attempts, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Descriptors that must be free before a program is started. It takes about ten for a moment and four
/// while it runs; the others are for connections, the database and the process tree in `/proc`.
const SPARE: usize = 16;

/// True if a call failed because the process or the system has no descriptors left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE))
}

/// The limit on descriptors, and how to raise it.
pub(crate) fn describe_limit() -> String {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or("none".to_owned(), |limit| limit.to_string());
    format!("the limit on open files is {limit}; raise it (ulimit -n, LimitNOFILE= in systemd)")
}

/// Fails where fewer than [`SPARE`] descriptors are free.
pub(super) fn check_spare() -> io::Result<()> {
    let spare: io::Result<Vec<File>> = (0..SPARE).map(|_| File::open("/dev/null")).collect();
    spare.map(|_| ())
}

/// Repeats an attempt that fails for lack of descriptors, for at most `wait`.
pub(crate) async fn wait_for_descriptors<T, F>(
    wait: Duration,
    mut attempt: impl FnMut() -> F,
) -> io::Result<T>
where
    F: Future<Output = io::Result<T>>,
{
    let deadline = Instant::now() + wait;
    let mut pause = FIRST_PAUSE;
    loop {
        match attempt().await {
            Err(error) if is_exhausted(&error) && Instant::now() < deadline => {
                tracing::debug!("a program waits for file descriptors: {}", describe_limit());
            }
            done => return done,
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use super::*;

    fn none_free() -> io::Error {
        io::Error::from_raw_os_error(Errno::MFILE.raw_os_error())
    }

    #[tokio::test]
    async fn an_attempt_is_repeated_while_descriptors_are_missing_and_not_for_ever() {
        let mut left = 4;
        let done = wait_for_descriptors(DESCRIPTOR_WAIT, || {
            left -= 1;
            ready(if left > 0 { Err(none_free()) } else { Ok(left) })
        });
        assert_eq!(done.await.unwrap(), 0);
        let mut tries = 0;
        let never = wait_for_descriptors(FIRST_PAUSE * 2, || {
            tries += 1;
            ready(Err::<(), _>(none_free()))
        });
        assert!(is_exhausted(&never.await.unwrap_err()));
        assert!(tries > 1);
        let mut tries = 0;
        let other = wait_for_descriptors(DESCRIPTOR_WAIT, || {
            tries += 1;
            ready(Err::<(), _>(io::Error::from(io::ErrorKind::NotFound)))
        });
        assert_eq!((other.await.unwrap_err().kind(), tries), (io::ErrorKind::NotFound, 1));
    }
}
