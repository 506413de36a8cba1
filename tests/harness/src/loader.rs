//! The loader's client as tests use it.

use std::time::Duration;
use zgate_loader::ClientOptions;
use zgate_rpc::{AuthSys, Credential};

/// Returns options of a loader's client for this user.
pub fn loader_options(connections: usize) -> ClientOptions {
    ClientOptions {
        connections,
        credential: own_credential(),
        wait: Duration::from_secs(60),
        patience: Duration::from_secs(60),
        ..ClientOptions::default()
    }
}

/// Returns a runtime for a loader's client.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// Returns the identity this test runs under.
pub fn own_credential() -> Credential {
    Credential::Sys(AuthSys {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        ..AuthSys::default()
    })
}
