//! Accepts a connection request.

use crate::net::drain::Drain;
use std::io;
use zgate_fabric::{Connection, Request, Setup};

/// Accepts a request. The client has to confirm the answer, and may have gone: a gateway that
/// stops does not wait for it.
///
/// # Errors
/// The fabric's error, or the gateway stops.
pub(crate) async fn establish(
    request: Box<dyn Request>,
    setup: Setup,
    drain: &Drain,
) -> io::Result<Box<dyn Connection>> {
    tokio::select! {
        biased;
        accepted = request.accept(setup) => accepted,
        () = drain.wait() => {
            let text = "the gateway stops before the client has confirmed the connection";
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::BoxFuture;
    use std::net::SocketAddr;

    /// A client that does not confirm.
    #[derive(Debug)]
    struct Gone;

    impl Request for Gone {
        fn peer_address(&self) -> SocketAddr {
            ([192, 0, 2, 1], 1).into()
        }

        fn local_address(&self) -> Option<SocketAddr> {
            None
        }

        fn private_data(&self) -> &[u8] {
            &[]
        }

        fn accept(
            self: Box<Self>,
            _: Setup,
        ) -> BoxFuture<'static, io::Result<Box<dyn Connection>>> {
            Box::pin(std::future::pending())
        }

        fn reject(self: Box<Self>, _: Vec<u8>) -> BoxFuture<'static, ()> {
            Box::pin(std::future::ready(()))
        }
    }

    #[tokio::test]
    async fn a_client_that_has_gone_does_not_hold_up_the_end() {
        let drain = Drain::default();
        let (accepted, ()) =
            tokio::join!(establish(Box::new(Gone), Setup::default(), &drain), async {
                tokio::task::yield_now().await;
                drain.begin();
            });
        assert_eq!(accepted.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }
}
