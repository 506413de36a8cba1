//! An open file.

use crate::background::give_back;
use crate::backoff::{Backoff, patiently};
use crate::client::Client;
use crate::compound::{Ops, Results};
use crate::error::ClientError;
use crate::state::open_state::{OpenState, open_args};
use crate::transport::ReadBuffer;
use bytes::{Bytes, BytesMut};
use std::sync::Arc;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::attr::{CHANGE, MODE, SIZE};
use zgate_nfs_wire::v4::op::open::{Claim, How};
use zgate_nfs_wire::v4::op::{open, write};
use zgate_nfs_wire::v4::{Bitmap, Fattr, OpNum, StableHow, Stateid};
use zgate_xdr::{Decoder, Opaque};

/// Purpose of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reads an existing file.
    Read,
    /// Writes; the file is created if missing, and truncated otherwise.
    Create,
}

/// Verifier of unstable writes, which changes when the server restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WriteVerifier(pub [u8; 8]);

/// An open file. Close it; a dropped one is closed in the background.
#[derive(Clone, Debug)]
pub struct File {
    open: Arc<OpenState>,
    size: u64,
}

impl File {
    /// Opens `name` in `dir`. For reading, a delegation is requested, so that
    /// the server recalls it before any change of the file.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn open(
        client: &Client,
        dir: &Fh,
        name: &str,
        mode: OpenMode,
    ) -> Result<Self, ClientError> {
        Self::open_for(client, dir, name, mode, mode == OpenMode::Read).await
    }

    /// Opens a file for a short time, without a delegation.
    pub(crate) async fn open_briefly(
        client: &Client,
        dir: &Fh,
        name: &str,
    ) -> Result<Self, ClientError> {
        Self::open_for(client, dir, name, OpenMode::Read, false).await
    }

    async fn open_for(
        client: &Client,
        dir: &Fh,
        name: &str,
        mode: OpenMode,
        delegate: bool,
    ) -> Result<Self, ClientError> {
        let (access, how) = match mode {
            OpenMode::Read => (1, How::NoCreate),
            OpenMode::Create => (3, How::Unchecked(empty_with_mode())),
        };
        let channel = client.channel();
        let delegations = channel.delegations();
        let delegate = delegate && channel.session().has_back();
        let _asking = delegate.then(|| delegations.asking());
        let claim = Claim::Null(Opaque(name.as_bytes().to_vec()));
        let owner = channel.open_owners().next();
        let args = open_args(owner, (access, delegate), how, claim);
        let want = Bitmap::of(&[CHANGE, SIZE]);
        let ops = Ops::new().putfh(dir).op(OpNum::Open, &args).getfh().getattr(&want);
        let (opened, fh, attrs) = patiently(client.patience(), async || {
            let mut results = client.call(ops.clone(), true).await?;
            results.skip(OpNum::Putfh)?;
            let opened: open::Res = results.next(OpNum::Open)?;
            let fh: Fh = results.next(OpNum::Getfh)?;
            Ok((opened, fh, results.next::<Fattr>(OpNum::Getattr)?))
        })
        .await?;
        let mut d = Decoder::new(&attrs.values.0);
        let garbled = |_| ClientError::Garbled("GETATTR");
        let (change, size) = (d.u64().map_err(garbled)?, d.u64().map_err(garbled)?);
        let open =
            Arc::new(OpenState::new(fh, (owner, access), opened.stateid, change, delegations));
        channel.remember(&open);
        delegations.accept(&open, &opened.delegated);
        Ok(Self { open, size })
    }

    /// Returns its length in bytes when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Returns its change attribute when it was opened: if it differs later,
    /// the file was changed.
    #[must_use]
    pub fn change(&self) -> u64 {
        self.open.change()
    }

    /// Returns whether it is unchanged since it was opened, by its change attribute.
    /// The server is not asked if a delegation has excluded changes all the time.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn is_unchanged(&self, client: &Client) -> Result<bool, ClientError> {
        if self.open.delegation().is_some() && !self.open.has_lost_delegation() {
            return Ok(true);
        }
        let ops = Ops::new().putfh(self.fh()).getattr(&Bitmap::of(&[CHANGE]));
        let mut backoff = Backoff::new(client.patience());
        let attrs: Fattr = loop {
            let mut results = client.call(ops.clone(), false).await?;
            match results.skip(OpNum::Putfh).and_then(|()| results.next(OpNum::Getattr)) {
                Err(error) if error.asks_for_patience() => backoff.next(error).await?,
                result => break result?,
            }
        };
        let change = Decoder::new(&attrs.values.0).u64();
        Ok(change.map_err(|_| ClientError::Garbled("GETATTR"))? == self.change())
    }

    /// Returns whether the server has delegated it, now or before.
    #[must_use]
    pub fn is_delegated(&self) -> bool {
        self.open.delegation().is_some() || self.open.has_lost_delegation()
    }

    /// Returns its handle.
    #[must_use]
    pub fn fh(&self) -> &Fh {
        &self.open.fh
    }

    /// Reads; less than requested only at the end. Also returns whether it
    /// reached the end.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn read(
        &self,
        client: &Client,
        offset: u64,
        count: u32,
    ) -> Result<(bool, Bytes), ClientError> {
        let read_buffer = ReadBuffer::new(BytesMut::zeroed(count as usize));
        let (result, read_buffer) = self.read_into(client, offset, read_buffer).await;
        let (eof, len) = result?;
        let memory = read_buffer.and_then(ReadBuffer::into::<BytesMut>);
        let mut memory = memory.ok_or(ClientError::Garbled("READ"))?;
        memory.truncate(len);
        Ok((eof, memory.freeze()))
    }

    /// Reads into `read_buffer` as much as fits; the data is received there
    /// directly. Returns whether it reached the end and the number of bytes
    /// read. The memory is returned in any case, unless the runtime is shut
    /// down.
    pub async fn read_into(
        &self,
        client: &Client,
        offset: u64,
        mut read_buffer: ReadBuffer,
    ) -> (Result<(bool, usize), ClientError>, Option<ReadBuffer>) {
        let Ok(count) = u32::try_from(read_buffer.length()) else {
            return (Err(ClientError::Garbled("READ")), Some(read_buffer));
        };
        let mut read_buffer = Some(read_buffer);
        let build = |stateid| Ops::new().putfh(self.fh()).read(stateid, offset, count);
        let result = self
            .with_state(client, true, &mut read_buffer, build, |results, read_buffer| {
                match read_buffer {
                    Some(read_buffer) => results.read_into(read_buffer),
                    None => Err(ClientError::Garbled("READ")),
                }
            })
            .await;
        (result, read_buffer)
    }

    /// Writes; returns the number of bytes the server accepted and its
    /// verifier. Call [`File::commit`] before relying on them: if it returns
    /// another verifier, the server has restarted, and they must be written
    /// again (RFC 8881 §18.32.3).
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn write(
        &self,
        client: &Client,
        offset: u64,
        data: Bytes,
    ) -> Result<(u32, WriteVerifier), ClientError> {
        let build = |stateid| {
            Ops::new().putfh(self.fh()).write(stateid, offset, StableHow::Unstable, data.clone())
        };
        let answer = |results: &mut Results, _: &mut Option<ReadBuffer>| {
            results
                .next::<write::Res>(OpNum::Write)
                .map(|answer| (answer.count, WriteVerifier(answer.verifier)))
        };
        self.with_state(client, false, &mut None, build, answer).await
    }

    /// Brings all data written under the returned verifier to stable storage.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn commit(&self, client: &Client) -> Result<WriteVerifier, ClientError> {
        let ops = Ops::new().putfh(self.fh()).commit(0, 0);
        patiently(client.patience(), async || {
            let mut results = client.call(ops.clone(), false).await?;
            results.skip(OpNum::Putfh)?;
            results.next(OpNum::Commit).map(WriteVerifier)
        })
        .await
    }

    /// Closes the file. If it is unknown to the server, it counts as closed.
    ///
    /// # Errors
    /// The error of the server or the connection.
    pub async fn close(self, client: &Client) -> Result<(), ClientError> {
        match self.open.take() {
            Some(state) => give_back::patiently(client.channel(), &state).await,
            None => Ok(()),
        }
    }

    /// Runs one operation that needs the open; opens the file again if the
    /// server has lost it.
    async fn with_state<T>(
        &self,
        client: &Client,
        reading: bool,
        read_buffer: &mut Option<ReadBuffer>,
        build: impl Fn(Stateid) -> Ops,
        answer: impl Fn(&mut Results, &mut Option<ReadBuffer>) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let mut backoff = Backoff::new(client.patience());
        loop {
            let mut used = None;
            let stateid = if reading {
                client.channel().stateid_to_read(&self.open).await
            } else {
                client.channel().stateid(&self.open).await
            };
            let result = match stateid {
                Ok(stateid) => {
                    used = Some(stateid);
                    match client.channel().exchange(&build(stateid), false, read_buffer).await {
                        Ok(mut results) => results
                            .skip(OpNum::Putfh)
                            .and_then(|()| answer(&mut results, read_buffer)),
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            };
            match (result, used) {
                (Err(error), Some(stateid)) if error.is_state_lost() => {
                    self.open.forget(stateid);
                    backoff.next(error).await?;
                }
                (Err(error), _) if error.asks_for_patience() => backoff.next(error).await?,
                (result, _) => return result,
            }
        }
    }
}

/// Attributes: length zero, mode 0644.
fn empty_with_mode() -> Fattr {
    let mut values = Vec::with_capacity(12);
    values.extend_from_slice(&0u64.to_be_bytes());
    values.extend_from_slice(&0o644u32.to_be_bytes());
    Fattr { mask: Bitmap::of(&[SIZE, MODE]), values: Opaque(values) }
}
