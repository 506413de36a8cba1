//! The start of a client with a server that is not there, or says nothing. Time
//! is tokio's paused clock.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};
use zgate_loader::{Client, ClientError, ClientOptions, START_WAIT};
use zgate_test_harness::nfs::{Harness, TcpServer};
use zgate_test_harness::{free_port, loader_options};

fn options() -> ClientOptions {
    ClientOptions { wait: START_WAIT, ..loader_options(2) }
}

fn nobody() -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()))
}

/// Starts a client that must fail; returns the error, and how long it took.
async fn fail(address: SocketAddr, options: &ClientOptions) -> (ClientError, Duration) {
    let begun = Instant::now();
    let error = Client::connect(address, options).await.unwrap_err();
    (error, begun.elapsed())
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_server_that_refuses_connections_is_given_up() {
    let address = nobody();
    let (error, took) = fail(address, &options()).await;
    let ClientError::Unreachable { address: named, waited, source } = &error else {
        panic!("{error}")
    };
    assert_eq!(*named, address.to_string());
    assert_eq!(source.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(*waited <= took && took <= START_WAIT, "{took:?}");
    assert!(took > START_WAIT / 2, "{took:?}");
    let long = ClientOptions { wait: Duration::from_secs(3600), ..options() };
    let (_, took) = fail(address, &long).await;
    assert!(took > Duration::from_secs(3500), "{took:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_server_that_answers_nothing_is_given_up() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (error, took) = fail(address, &options()).await;
    assert!(matches!(error, ClientError::Silent { .. }), "{error}");
    // Nothing was registered that would have to be removed.
    assert!(took < START_WAIT + Duration::from_millis(100), "{took:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_server_that_comes_up_in_time_is_used() {
    let test = async {
        let harness = Harness::new();
        let server = TcpServer::start(&harness).await;
        let address = server.address;
        drop(server);
        let wait = ClientOptions { wait: Duration::from_secs(60), ..options() };
        let starting = async {
            sleep(Duration::from_secs(20)).await;
            TcpServer::start_at(&harness, address).await
        };
        let (client, _server) = tokio::join!(Client::connect(address, &wait), starting);
        client.unwrap().find("/export").await.unwrap();
    };
    tokio::task::LocalSet::new().run_until(test).await;
}
