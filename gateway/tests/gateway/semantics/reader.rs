//! A client that takes read delegations: the loader's.

use super::Outcome;
use super::document::Word;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use zgate_loader::{Client, File, OpenMode};
use zgate_test_harness::{Gateway, loader_options, runtime};

/// The longest a delegation is waited for to go.
const TIMEOUT: Duration = Duration::from_secs(20);

pub(super) struct Reader {
    runtime: Runtime,
    client: Client,
    files: Vec<File>,
}

impl Reader {
    pub(super) fn new(gateway: &Gateway) -> Self {
        let (runtime, address): (_, SocketAddr) = (runtime(), gateway.address);
        let client = runtime.block_on(Client::connect(address, &loader_options(1))).unwrap();
        Self { runtime, client, files: Vec::new() }
    }

    pub(super) fn act(&mut self, verb: &str, arguments: &[Word]) -> Option<Outcome> {
        match (verb, arguments) {
            ("open", [name]) => {
                let name = std::str::from_utf8(&name.0).ok()?;
                let opened = self.runtime.block_on(async {
                    let dir = self.client.find("/data").await?.fh;
                    File::open(&self.client, &dir, name, OpenMode::Read).await
                });
                Some(match opened {
                    Ok(file) => {
                        self.files.push(file);
                        Ok(String::new())
                    }
                    Err(error) => Err(error.to_string()),
                })
            }
            ("holds", [count, _]) => {
                let count = super::number(count)?;
                let until = Instant::now() + TIMEOUT;
                while self.client.delegations().held != count && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                let held = self.client.delegations().held;
                Some(if held == count { Ok(String::new()) } else { Err(held.to_string()) })
            }
            _ => None,
        }
    }
}
