//! Whether the cores still serve: each is asked, and answers between its other
//! work. A core that hangs in a system call or turns in a circle does not.

use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

/// How long a core may take to answer `/healthz`.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Questions waiting for one core; more mean that it does not answer.
const MAX_QUESTIONS: usize = 16;

/// A question to a core; the answer is that it is answered.
pub(crate) type Question = oneshot::Sender<()>;

/// The way to all cores.
#[derive(Debug, Default)]
pub(crate) struct Health(OnceLock<Vec<mpsc::Sender<Question>>>);

impl Health {
    /// Opens the way to so many cores: what each is to be given.
    pub(crate) fn open(&self, cores: usize) -> Vec<mpsc::Receiver<Question>> {
        let (ways, ends) = (0..cores).map(|_| mpsc::channel(MAX_QUESTIONS)).unzip();
        // Opened once, when the gateway starts.
        let _ = self.0.set(ways);
        ends
    }

    /// Asks all cores; those that do not answer within `limit`, by number.
    pub(crate) async fn silent_cores(&self, limit: Duration) -> Vec<usize> {
        let deadline = Instant::now() + limit;
        let ask = |way: &mpsc::Sender<Question>| {
            let (question, answer) = oneshot::channel();
            way.try_send(question).ok().map(|()| answer)
        };
        let asked: Vec<_> = self.0.get().into_iter().flatten().map(ask).collect();
        let mut silent = Vec::new();
        for (core, answer) in asked.into_iter().enumerate() {
            let answered = match answer {
                Some(answer) => matches!(timeout_at(deadline, answer).await, Ok(Ok(()))),
                None => false,
            };
            if !answered {
                silent.push(core);
            }
        }
        silent
    }
}

/// Answers on a core, until nobody can ask any more.
pub(crate) async fn answer(mut questions: mpsc::Receiver<Question>) {
    while let Some(question) = questions.recv().await {
        // Who asked may have given up.
        let _ = question.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert!(begun.elapsed() <= ANSWER_TIMEOUT * 2 * MAX_QUESTIONS as u32);
        // It goes on: what was asked meanwhile is answered, too.
        let _back = tokio::spawn(answer(hung));
        tokio::task::yield_now().await;
        assert!(health.silent_cores(ANSWER_TIMEOUT).await.is_empty());
        // One that has ended does not answer either.
        serving[0].abort();
        tokio::task::yield_now().await;
        assert_eq!(health.silent_cores(ANSWER_TIMEOUT).await, [0]);
    }
}
