//! An open file.

use crate::client::Client;
use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::open_state::{OpenState, open_args};
use crate::transport::Landing;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::open::{Claim, How};
use zgate_nfs::v4::op::{close, open};
use zgate_nfs::v4::wire::{Fattr, OpNum, Stateid};
use zgate_xdr::Opaque;

/// Pauses while the server asks for patience: the first and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading what exists.
    Read,
    /// Writing; created when missing, emptied when not.
    Create,
}

/// The life of a server, as far as unstable writes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteVerifier(pub [u8; 8]);

/// An open file. Close it; a dropped one stays open until the client's lease
/// ends.
#[derive(Clone, Debug)]
pub struct File {
    open: Arc<OpenState>,
}

impl File {
    /// Opens `name` in `dir`.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn open(
        client: &Client,
        dir: &Fh,
        name: &str,
        mode: OpenMode,
    ) -> Result<Self, ClientError> {
        let (access, how) = match mode {
            OpenMode::Read => (1, How::NoCreate),
            OpenMode::Create => (3, How::Unchecked(empty_with_mode())),
        };
        let args = open_args(access, how, Claim::Null(Opaque(name.as_bytes().to_vec())));
        let ops = Ops::new().putfh(dir).op(OpNum::Open, &args).getfh();
        let (opened, fh) = patiently(client, async || {
            let mut results = client.call(ops.clone(), true).await?;
            results.skip(OpNum::Putfh)?;
            let opened: open::Res = results.next(OpNum::Open)?;
            Ok((opened, results.next(OpNum::Getfh)?))
        })
        .await?;
        let open = Arc::new(OpenState::new(fh, access, opened.stateid));
        client.remember(&open);
        Ok(Self { open })
    }

    /// Its handle.
    #[must_use]
    pub fn fh(&self) -> &Fh {
        &self.open.fh
    }

    /// Reads; shorter only at the end. Says whether it reached the end.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn read(
        &self,
        client: &Client,
        offset: u64,
        count: u32,
    ) -> Result<(bool, Bytes), ClientError> {
        let landing = Landing::new(BytesMut::zeroed(count as usize));
        let (result, landing) = self.read_into(client, offset, landing).await;
        let (eof, len) = result?;
        let memory = landing.and_then(Landing::into::<BytesMut>);
        let mut memory = memory.ok_or(ClientError::Garbled("READ"))?;
        memory.truncate(len);
        Ok((eof, memory.freeze()))
    }

    /// Reads into `landing` as much as fits; the data goes there straight from
    /// the wire. Says whether it reached the end and how much was read. The
    /// memory comes back whatever happens, unless the runtime is shut down.
    pub async fn read_into(
        &self,
        client: &Client,
        offset: u64,
        mut landing: Landing,
    ) -> (Result<(bool, usize), ClientError>, Option<Landing>) {
        let Ok(count) = u32::try_from(landing.length()) else {
            return (Err(ClientError::Garbled("READ")), Some(landing));
        };
        let mut landing = Some(landing);
        let build = |stateid| Ops::new().putfh(self.fh()).read(stateid, offset, count);
        let result = self
            .with_state(client, &mut landing, build, |results, landing| match landing {
                Some(landing) => results.read_into(landing),
                None => Err(ClientError::Garbled("READ")),
            })
            .await;
        (result, landing)
    }

    /// Writes; returns how many bytes the server took and its verifier. Call
    /// [`File::commit`] before relying on them: when that returns another
    /// verifier, the server has restarted, and they have to be written again
    /// (RFC 8881 §18.32.3).
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn write(
        &self,
        client: &Client,
        offset: u64,
        data: Bytes,
    ) -> Result<(u32, WriteVerifier), ClientError> {
        let build = |stateid| Ops::new().putfh(self.fh()).write(stateid, offset, 0, data.clone());
        let answer = |results: &mut Results, _: &mut Option<Landing>| {
            results
                .next::<WriteAnswer>(OpNum::Write)
                .map(|answer| (answer.count, WriteVerifier(answer.verifier)))
        };
        self.with_state(client, &mut None, build, answer).await
    }

    /// Brings everything to stable storage that was written under the verifier
    /// this returns.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn commit(&self, client: &Client) -> Result<WriteVerifier, ClientError> {
        let ops = Ops::new().putfh(self.fh()).commit(0, 0);
        patiently(client, async || {
            let mut results = client.call(ops.clone(), false).await?;
            results.skip(OpNum::Putfh)?;
            results.next(OpNum::Commit).map(WriteVerifier)
        })
        .await
    }

    /// Closes it. A server that does not know it any more has closed it.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn close(self, client: &Client) -> Result<(), ClientError> {
        let stateid = self.open.stateid(client).await?;
        let args = close::Args { seqid: 0, stateid };
        let ops = Ops::new().putfh(self.fh()).op(OpNum::Close, &args);
        let mut results = client.call(ops, true).await?;
        results.skip(OpNum::Putfh)?;
        match results.next::<close::Res>(OpNum::Close) {
            Err(error) if !error.is_state_lost() => Err(error),
            _ => Ok(()),
        }
    }

    /// Runs one operation that needs the open; opens again when the server has
    /// forgotten it.
    async fn with_state<T>(
        &self,
        client: &Client,
        landing: &mut Option<Landing>,
        build: impl Fn(Stateid) -> Ops,
        answer: impl Fn(&mut Results, &mut Option<Landing>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut waits = Waits::new(client);
        loop {
            let mut used = None;
            let result = match self.open.stateid(client).await {
                Ok(stateid) => {
                    used = Some(stateid);
                    match client.exchange(&build(stateid), false, landing).await {
                        Ok(mut results) => {
                            results.skip(OpNum::Putfh).and_then(|()| answer(&mut results, landing))
                        }
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            match (result, used) {
                (Err(error), Some(stateid)) if error.is_state_lost() => {
                    self.open.forget(stateid);
                    waits.next(error).await?;
                }
                (Err(error), _) if error.asks_for_patience() => waits.next(error).await?,
                (result, _) => return result,
            }
        }
    }
}

/// Repeats a request while the server asks for patience.
async fn patiently<T>(
    client: &Client,
    request: impl AsyncFn() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut waits = Waits::new(client);
    loop {
        match request().await {
            Err(error) if error.asks_for_patience() => waits.next(error).await?,
            result => return result,
        }
    }
}

/// Growing pauses up to the client's patience.
struct Waits {
    until: Instant,
    pause: Duration,
}

impl Waits {
    fn new(client: &Client) -> Self {
        Self { until: Instant::now() + client.patience(), pause: FIRST_PAUSE }
    }

    async fn next(&mut self, error: ClientError) -> Result<(), ClientError> {
        if Instant::now() + self.pause >= self.until {
            return Err(error);
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

/// Length zero, mode 0644.
fn empty_with_mode() -> Fattr {
    let mut values = Vec::with_capacity(12);
    values.extend_from_slice(&0u64.to_be_bytes());
    values.extend_from_slice(&0o644u32.to_be_bytes());
    Fattr { mask: zgate_nfs::v4::wire::Bitmap::of(&[4, 33]), values: Opaque(values) }
}

zgate_xdr::xdr_struct! {
    /// WRITE4resok.
    #[derive(Clone, Debug)]
    struct WriteAnswer {
        count: u32,
        committed: u32,
        verifier: [u8; 8],
    }
}
