//! Questions to several gateways at the same time: the times that they take do not add up.

use super::Site;
use crate::limits::GATHER_SECONDS;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use tokio::time::timeout;
use tonic::Status;

/// A question to a gateway.
pub(super) struct Ask<'a, T> {
    site: &'a Site,
    answer: Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>,
}

impl<'a, T> Ask<'a, T> {
    pub(super) fn new(
        site: &'a Site,
        answer: impl Future<Output = Result<T, Status>> + Send + 'a,
    ) -> Self {
        Self { site, answer: Box::pin(answer) }
    }
}

/// Answer of a gateway; none yet.
pub(super) type Answer<T> = Option<Result<T, Status>>;

/// Asks all questions, and returns the answers in their order. A gateway that has not
/// answered within [`GATHER_SECONDS`] is UNAVAILABLE.
pub(super) async fn gather<T>(asks: Vec<Ask<'_, T>>) -> Vec<Result<T, Status>> {
    gather_enough(asks, |_| false).await
}

/// Does what [`gather`] does, until the answers that are there are enough. The others are
/// UNAVAILABLE then.
pub(super) async fn gather_enough<T>(
    mut asks: Vec<Ask<'_, T>>,
    is_enough: impl Fn(&[Answer<T>]) -> bool,
) -> Vec<Result<T, Status>> {
    let mut answers: Vec<Answer<T>> = asks.iter().map(|_| None).collect();
    let all = poll_fn(|task| {
        for (ask, answer) in asks.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(result) = ask.answer.as_mut().poll(task)
            {
                *answer = Some(result);
            }
        }
        let ends = answers.iter().all(Option::is_some) || is_enough(&answers);
        if ends { Poll::Ready(()) } else { Poll::Pending }
    });
    // Those that are late have no answer below.
    let _ = timeout(GATHER_SECONDS, all).await;
    let answers = asks.iter().zip(answers);
    answers.map(|(ask, answer)| answer.unwrap_or_else(|| Err(late(ask.site)))).collect()
}

fn late(site: &Site) -> Status {
    Status::unavailable(format!(
        "gateway {} has not answered within {} s; check that it runs and that its pools respond",
        site.settings.name,
        GATHER_SECONDS.as_secs()
    ))
}
