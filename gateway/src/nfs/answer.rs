//! Answers one record, also if serving it panics.

use super::dispatch::{self, Answer};
use super::record::Received;
use super::service::CallSource;
use crate::net::boundary::caught;
use crate::net::connection_end::Bug;
use zgate_rpc::message::rejection;
use zgate_rpc::{AcceptError, Rejection};

/// Serves one record. A request that panics is answered with SYSTEM_ERR (RFC 5531
/// §9).
pub(crate) fn answer(
    source: &CallSource,
    is_named: bool,
    received: Received,
) -> impl Future<Output = Answer> {
    let xid = received.xid();
    // The future of a request has kilobytes, and each move copies them: on its way
    // into a task it is moved five times. It is made here and not by the future that is
    // returned, which would have room for the record twice.
    let work = Box::pin(dispatch::answer(source, is_named, received));
    async move {
        match caught("request", work).await {
            Some(answer) => answer,
            None => failed(xid),
        }
    }
}

fn failed(xid: Option<u32>) -> Answer {
    let Some(xid) = xid else { return Answer::Close(Bug::Panicked.into()) };
    Answer::Reply(rejection(xid, Rejection::Accept(AcceptError::SystemError)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::{FuturesUnordered, StreamExt};

    #[tokio::test]
    async fn a_request_that_panics_leaves_its_neighbours_alone() {
        let mut running = FuturesUnordered::new();
        for xid in 0..3_u32 {
            running.push(async move {
                caught("request", async move {
                    tokio::task::yield_now().await;
                    assert!(xid != 1, "told to");
                    xid
                })
                .await
                .map_or_else(|| failed(Some(xid)), |_| Answer::Nothing)
            });
        }
        let (mut ended, mut refused) = (0, Vec::new());
        while let Some(answer) = running.next().await {
            ended += 1;
            if let Answer::Reply(message) = answer {
                refused = message.flatten().unwrap().to_vec();
            }
        }
        assert_eq!(ended, 3);
        // xid, REPLY, MSG_ACCEPTED, verifier AUTH_NONE, SYSTEM_ERR.
        let words: Vec<_> = refused.chunks(4).map(|word| word[3]).collect();
        assert_eq!(words, [1, 1, 0, 0, 0, 5]);
    }
}
