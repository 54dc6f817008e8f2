//! Times of the attempts at a delivery: a schedule with jitter.

use std::time::Duration;

use crate::store::WebhookId;

/// The share of a wait by which jitter can extend it, so that receivers that failed at the same time are
/// not called again at the same time.
const JITTER: f64 = 0.1;

/// The wait before the next attempt, after this number of failures; `None` if no attempt is left. The same
/// webhook and number give the same wait.
pub(crate) fn wait(
    schedule: &[Duration],
    id: WebhookId,
    failures: u32,
    retry_after: Option<Duration>,
) -> Option<Duration> {
    let index = usize::try_from(failures).unwrap_or(usize::MAX).checked_sub(1)?;
    let planned = *schedule.get(index)?;
    let mut seed = blake3::Hasher::new();
    seed.update(id.0.as_bytes());
    seed.update(&failures.to_be_bytes());
    let first = seed.finalize().as_bytes()[0];
    let planned = planned.mul_f64(1.0 + JITTER * f64::from(first) / 255.0);
    Some(retry_after.map_or(planned, |asked| asked.max(planned)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULE: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(100)];

    #[test]
    fn each_failure_waits_longer_until_no_attempt_is_left() {
        let id = WebhookId::random();
        let first = wait(&SCHEDULE, id, 1, None).unwrap();
        assert!((10.0..=11.0).contains(&first.as_secs_f64()), "{first:?}");
        let second = wait(&SCHEDULE, id, 2, None).unwrap();
        assert!((100.0..=110.0).contains(&second.as_secs_f64()), "{second:?}");
        assert_eq!(wait(&SCHEDULE, id, 3, None), None);
        assert_eq!(wait(&SCHEDULE, id, 1, None), Some(first), "the wait is stable");
    }

    #[test]
    fn a_receiver_can_ask_for_a_longer_wait_only() {
        let id = WebhookId::random();
        let hour = Duration::from_secs(3600);
        assert_eq!(wait(&SCHEDULE, id, 1, Some(hour)), Some(hour));
        let short = wait(&SCHEDULE, id, 1, Some(Duration::from_secs(1)));
        assert_eq!(short, wait(&SCHEDULE, id, 1, None));
    }
}
