//! Requests of one connection that run at the same time.

use futures_util::future::LocalBoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A request and the bytes it is counted with.
struct Counted<T> {
    bytes: usize,
    /// In a box: it has kilobytes, and each move would copy them.
    request: LocalBoxFuture<'static, T>,
}

impl<T> Future for Counted<T> {
    type Output = (usize, T);

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        self.request.as_mut().poll(task).map(|outcome| (self.bytes, outcome))
    }
}

/// Pending requests, and the bytes they are counted with. [`Self::next`] must
/// not be polled while there are none.
pub(crate) struct InFlight<T> {
    waiting: FuturesUnordered<Counted<T>>,
    bytes: usize,
}

impl<T> Default for InFlight<T> {
    fn default() -> Self {
        Self { waiting: FuturesUnordered::new(), bytes: 0 }
    }
}

impl<T: 'static> InFlight<T> {
    /// Polls a request once. Returns the result of a request that completes at
    /// once, so that a burst of them is answered with one send; keeps any
    /// other.
    pub(crate) async fn start(
        &mut self,
        bytes: usize,
        mut request: LocalBoxFuture<'static, T>,
    ) -> Option<T> {
        let first =
            std::future::poll_fn(|task: &mut Context<'_>| Poll::Ready(request.as_mut().poll(task)));
        match first.await {
            Poll::Ready(outcome) => Some(outcome),
            Poll::Pending => {
                self.push(bytes, request);
                None
            }
        }
    }

    /// Keeps a request that is polled later.
    pub(crate) fn push(&mut self, bytes: usize, request: LocalBoxFuture<'static, T>) {
        self.bytes += bytes;
        self.waiting.push(Counted { bytes, request });
    }

    /// Waits for the next result; `None` if there are no requests. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<T> {
        let (bytes, outcome) = self.waiting.next().await?;
        self.bytes -= bytes;
        Some(outcome)
    }

    /// Number of pending requests.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true when none is kept.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes of the pending requests.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Completes all requests without their connection: their changes are made,
    /// and their replies are cached for a retry.
    pub(crate) fn finish_alone(mut self) {
        if !self.is_empty() {
            tokio::task::spawn_local(async move { while self.next().await.is_some() {} });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn what_needs_no_waiting_is_not_kept() {
        let mut running = InFlight::default();
        assert_eq!(running.start(5, Box::pin(async { 1 })).await, Some(1));
        assert!(running.is_empty() && running.bytes() == 0);
        assert_eq!(running.next().await, None);
    }

    #[tokio::test]
    async fn outcomes_come_as_they_are_there_and_bytes_with_them() {
        let mut running = InFlight::default();
        let (first, first_ends) = oneshot::channel();
        let (second, second_ends) = oneshot::channel();
        assert_eq!(
            running.start(5, Box::pin(async move { first_ends.await.unwrap() })).await,
            None
        );
        running.push(7, Box::pin(async move { second_ends.await.unwrap() }));
        assert_eq!((running.len(), running.bytes()), (2, 12));
        second.send("second").unwrap();
        assert_eq!(running.next().await, Some("second"));
        assert_eq!((running.len(), running.bytes()), (1, 5));
        first.send("first").unwrap();
        assert_eq!(running.next().await, Some("first"));
        assert_eq!((running.len(), running.bytes()), (0, 0));
    }

    #[tokio::test]
    async fn requests_outlive_their_connection() {
        let local = tokio::task::LocalSet::new();
        let (told, hears) = oneshot::channel();
        let (end, ends) = oneshot::channel::<()>();
        local
            .run_until(async {
                let mut running = InFlight::default();
                let request = async move {
                    ends.await.unwrap();
                    told.send("done").unwrap();
                };
                assert_eq!(running.start(1, Box::pin(request)).await, None);
                running.finish_alone();
                end.send(()).unwrap();
                assert_eq!(hears.await.unwrap(), "done");
            })
            .await;
    }
}
