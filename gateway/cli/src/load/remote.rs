//! Resolution of a URL to a server, a path and a transport.

use clap::Args;
use clap::builder::RangedU64ValueParser;
use rustix::process::{getegid, geteuid, getgroups};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use zgate_loader::model::LoadError;
use zgate_loader::transport::TransportChoice;
use zgate_loader::{Advice, Client, ClientError, ClientOptions, NfsUrl, START_WAIT, explain};
use zgate_rpc::{AuthSys, Credential};

/// Most groups in AUTH_SYS (RFC 5531 appendix A).
const MAX_GROUPS: usize = 16;

/// Time for which `--wait` waits if no number is given, in seconds.
const WAIT_SECONDS: &str = "3600";

/// Longest time limit, in seconds: a year. A moment that is further away may not exist for the
/// clock.
const MAX_SECONDS: u64 = 365 * 24 * 3600;

/// Returns the parser of a request's time limit, in seconds.
pub(super) fn time_limit() -> RangedU64ValueParser<u64> {
    clap::value_parser!(u64).range(..=MAX_SECONDS)
}

/// Time limits of a command.
#[derive(Args, Debug)]
pub(super) struct WaitArgs {
    /// Wait for a server that does not answer yet: an hour, or this many
    /// seconds; otherwise 10 at most
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = WAIT_SECONDS,
        value_parser = seconds,
    )]
    wait: Option<u64>,
}

impl WaitArgs {
    /// Returns the time limit of the start, if that of a request is `patience`.
    fn start(&self, patience: Duration) -> Duration {
        self.wait.map_or(START_WAIT.min(patience), Duration::from_secs)
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    let seconds: u64 = text.parse().map_err(|_| {
        "not a number of seconds; write --wait=SECONDS, or --wait behind the address".to_owned()
    })?;
    if seconds > MAX_SECONDS {
        return Err(format!("{seconds} is not in 0..={MAX_SECONDS}"));
    }
    Ok(seconds)
}

/// A connected server and a path on it.
#[derive(Debug)]
pub(super) struct Remote {
    pub(super) client: Arc<Client>,
    pub(super) url: NfsUrl,
    /// Transport, and the reason for its choice.
    pub(super) transport: String,
}

/// The client unregisters in the background, however its use ended; tasks that
/// still have it fail. `zgate_loader::all_left` waits for it.
impl Drop for Remote {
    fn drop(&mut self) {
        self.client.leave();
    }
}

impl Remote {
    /// Connects to the server of a URL.
    ///
    /// # Errors
    /// The URL and the reason.
    pub(super) async fn open(
        url: &NfsUrl,
        args: &WaitArgs,
        timeout_seconds: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let patience = Duration::from_secs(timeout_seconds);
        let transport = TransportChoice::discover(url.rdma, url.rdma_port)
            .map_err(|error| format!("{url}: rdma=on: {error}"))?;
        let addresses = url.resolve().map_err(|error| format!("{url}: {error}"))?;
        let options = ClientOptions {
            connections: url.connections,
            credential: own_credential(),
            wait: args.start(patience),
            patience,
            transport,
            ..ClientOptions::default()
        };
        let client = Client::connect_all(&addresses, &options)
            .await
            .map_err(|error| explain(url, &error, Advice::CommandLine))?;
        let transport = client.transport().await;
        Ok(Self { client: Arc::new(client), url: url.clone(), transport })
    }

    /// Explains an error of the client.
    pub(super) fn failed(&self, error: &ClientError) -> String {
        explain(&self.url, error, Advice::CommandLine)
    }

    /// Explains an error of a load.
    pub(super) fn load_failed(&self, error: &LoadError) -> String {
        error.explain(&self.url, Advice::CommandLine)
    }
}

/// Returns the credential of the user who runs this process.
fn own_credential() -> Credential {
    let groups = getgroups().unwrap_or_default();
    Credential::Sys(AuthSys {
        uid: geteuid().as_raw(),
        gid: getegid().as_raw(),
        groups: groups.iter().take(MAX_GROUPS).map(|group| group.as_raw()).collect(),
        ..AuthSys::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_bounded() {
        assert_eq!(seconds("31536000"), Ok(MAX_SECONDS));
        let error = seconds("18446744073709551615").unwrap_err();
        assert!(error.ends_with("is not in 0..=31536000"), "{error}");
        assert!(seconds("soon").unwrap_err().contains("not a number"));
    }
}
