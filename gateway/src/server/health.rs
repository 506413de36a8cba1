//! Liveness of the cores: each is pinged, and answers between its other work. A
//! core that hangs in a system call or in a loop does not.

use futures_util::future::join_all;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// Most pings queued for one core; more wait for a place, within their time.
const MAX_QUESTIONS: usize = 16;

/// A ping to a core, answered through the channel.
pub(crate) type Question = oneshot::Sender<()>;

/// Ping channels of all cores.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<Vec<mpsc::Sender<Question>>>);

impl Health {
    /// Creates the channels of the cores; returns the receiver of each.
    pub(crate) fn open(&self, cores: usize) -> Vec<mpsc::Receiver<Question>> {
        let (ways, ends) = (0..cores).map(|_| mpsc::channel(MAX_QUESTIONS)).unzip();
        // Set once, when the gateway starts.
        let _ = self.0.set(ways);
        ends
    }

    /// Pings all cores; returns the numbers of those that do not answer within
    /// `limit`.
    pub(crate) async fn silent_cores(&self, limit: Duration) -> Vec<usize> {
        let deadline = Instant::now() + limit;
        let cores = self.0.get().into_iter().flatten();
        let asked: Vec<_> = cores.map(|way| is_answered(way, deadline)).collect();
        let answered = join_all(asked).await.into_iter().enumerate();
        answered.filter(|(_, in_time)| !in_time).map(|(core, _)| core).collect()
    }
}

/// Returns whether a core answers a ping until `deadline`. That its queue is full says nothing:
/// others have asked, too, and may have given up since.
async fn is_answered(way: &mpsc::Sender<Question>, deadline: Instant) -> bool {
    let (question, answer) = oneshot::channel();
    let asked = async { way.send(question).await.is_ok() && answer.await.is_ok() };
    timeout_at(deadline, asked).await.unwrap_or(false)
}

/// Answers pings on a core until the gateway ends.
pub(crate) async fn answer(mut questions: mpsc::Receiver<Question>) {
    while let Some(question) = questions.recv().await {
        // The sender may have given up.
        let _ = question.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::http::ANSWER_TIMEOUT;

    #[tokio::test(start_paused = true)]
    async fn a_core_that_does_not_answer_is_named() {
        let health = Health::default();
        assert!(health.silent_cores(ANSWER_TIMEOUT).await.is_empty());
        let mut ends = health.open(3);
        let hung = ends.remove(1);
        let serving: Vec<_> = ends.into_iter().map(|end| tokio::spawn(answer(end))).collect();
        let begun = Instant::now();
        for _ in 0..2 * MAX_QUESTIONS {
            assert_eq!(health.silent_cores(ANSWER_TIMEOUT).await, [1]);
        }
        assert!(begun.elapsed() <= ANSWER_TIMEOUT * (2 * MAX_QUESTIONS as u32 + 1));
        // The core continues: pings sent meanwhile are answered, too.
        let _back = tokio::spawn(answer(hung));
        tokio::task::yield_now().await;
        assert!(health.silent_cores(ANSWER_TIMEOUT).await.is_empty());
        // A core that has ended does not answer either.
        serving[0].abort();
        tokio::task::yield_now().await;
        assert_eq!(health.silent_cores(ANSWER_TIMEOUT).await, [0]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_core_that_answers_in_time_is_not_silent_however_many_ask() {
        let health = Health::default();
        let core = health.open(1).remove(0);
        // While it works, others ask who have no patience: their pings take all places.
        for _ in 0..2 * MAX_QUESTIONS {
            assert_eq!(health.silent_cores(Duration::from_millis(1)).await, [0]);
        }
        tokio::spawn(async move {
            tokio::time::sleep(ANSWER_TIMEOUT / 2).await;
            answer(core).await;
        });
        assert!(health.silent_cores(ANSWER_TIMEOUT).await.is_empty());
    }
}
