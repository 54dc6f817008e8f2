//! Feeds: readers of all tasks of a caller.

use std::sync::Arc;

use herald_engine::{
    Clock, Settings,
    store::{Store, flaky::Flaky},
};
use tokio::task::JoinSet;

use crate::support::{Bench, Script, profile, say, text};

#[tokio::test]
async fn feeds_that_are_far_behind_catch_up_one_at_a_time() {
    let store = Arc::new(Flaky::new().unwrap());
    let agent = Script::new(|turn| {
        Box::pin(async move {
            for number in 0..60 {
                turn.artifact(text(&number.to_string(), "said")).await?;
            }
            Ok(())
        })
    });
    let on = Arc::clone(&store) as Arc<dyn Store>;
    let bench = Bench::on(on, agent, profile(), Settings::default(), Clock::system()).await;
    for _ in 0..40 {
        bench.send(say("hello")).await.unwrap();
    }
    // Feeds that are close to the end do not wait for each other.
    store.count_feeds_before(1_000);
    let mut followers = JoinSet::new();
    for _ in 0..20 {
        let bench = bench.clone();
        followers.spawn(async move {
            let follow = bench.engine.follow(&bench.caller, &bench.route, Vec::new(), Some(0));
            let mut feed = follow.await.unwrap();
            let mut ended = 0;
            while ended < 40 {
                ended += usize::from(feed.next().await.unwrap().unwrap().closing);
            }
        });
    }
    followers.join_all().await;
    assert_eq!(store.most_feeds(), 1);
}
