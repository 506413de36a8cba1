//! An open file.

use crate::client::Client;
use crate::compound::Ops;
use crate::error::ClientError;
use bytes::Bytes;
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::open::{Args, Claim, How, Res};
use zgate_nfs::v4::op::{close, open};
use zgate_nfs::v4::wire::{ClientId, Fattr, OpNum, StateOwner, Stateid};
use zgate_xdr::Opaque;

/// OPEN4_SHARE_ACCESS_WANT_NO_DELEG.
const WANT_NO_DELEGATION: u32 = 0x0400;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Reading what exists.
    Read,
    /// Writing; created when missing, emptied when not.
    Create,
}

/// An open file. Close it; a dropped one stays open until the client's lease
/// ends.
#[derive(Debug)]
pub struct File {
    fh: Fh,
    stateid: Stateid,
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
        let args = Args {
            seqid: 0,
            access: access | WANT_NO_DELEGATION,
            deny: 0,
            owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"zgate".to_vec()) },
            how,
            claim: Claim::Null(Opaque(name.as_bytes().to_vec())),
        };
        let ops = Ops::new().putfh(dir).op(OpNum::Open, &args).getfh();
        let mut results = client.call(ops, true).await?;
        results.skip(OpNum::Putfh)?;
        let opened: Res = results.next::<open::Res>(OpNum::Open)?;
        let fh = results.next(OpNum::Getfh)?;
        Ok(Self { fh, stateid: opened.stateid })
    }

    /// Its handle.
    #[must_use]
    pub fn fh(&self) -> &Fh {
        &self.fh
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
        let ops = Ops::new().putfh(&self.fh).read(self.stateid, offset, count);
        let mut results = client.call(ops, false).await?;
        results.skip(OpNum::Putfh)?;
        results.read()
    }

    /// Writes; returns how many bytes the server took. Call
    /// [`File::commit`] before relying on them.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn write(
        &self,
        client: &Client,
        offset: u64,
        data: Bytes,
    ) -> Result<u32, ClientError> {
        let ops = Ops::new().putfh(&self.fh).write(self.stateid, offset, 0, data);
        let mut results = client.call(ops, false).await?;
        results.skip(OpNum::Putfh)?;
        results.next::<WriteAnswer>(OpNum::Write).map(|answer| answer.count)
    }

    /// Brings everything to stable storage.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn commit(&self, client: &Client) -> Result<(), ClientError> {
        let ops = Ops::new().putfh(&self.fh).commit(0, 0);
        let mut results = client.call(ops, false).await?;
        results.skip(OpNum::Putfh)?;
        results.next::<[u8; 8]>(OpNum::Commit).map(|_| ())
    }

    /// Closes it.
    ///
    /// # Errors
    /// What the server or the connection says.
    pub async fn close(self, client: &Client) -> Result<(), ClientError> {
        let args = close::Args { seqid: 0, stateid: self.stateid };
        let ops = Ops::new().putfh(&self.fh).op(OpNum::Close, &args);
        let mut results = client.call(ops, true).await?;
        results.skip(OpNum::Putfh)?;
        results.next::<close::Res>(OpNum::Close).map(|_| ())
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
