//! An NFSv4.2 client of a gateway: one session on one connection.

use crate::{Gateway, own_credential, stream_from};
use std::net::IpAddr;
use std::time::Duration;
use zgate_loader::ClientError;
use zgate_loader::blocking::{Connection, Session};
use zgate_loader::compound::{Ops, Results};
use zgate_loader::session::SessionRequest;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::{close, open};
use zgate_nfs_wire::v4::{Bitmap, ClientId, Fattr, OpNum, StableHow, StateOwner, Stateid};
use zgate_xdr::Opaque;

/// The longest a reply is waited for.
const TIMEOUT: Duration = Duration::from_secs(30);
/// OPEN4_SHARE_ACCESS_WANT_NO_DELEG.
const WANT_NO_DELEGATION: u32 = 0x0400;

/// An open file.
#[derive(Clone, Debug)]
pub struct Opened {
    pub fh: Fh,
    pub stateid: Stateid,
}

/// Result of WRITE.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    pub count: u32,
    pub committed: u32,
    pub verifier: [u8; 8],
}

zgate_xdr::xdr_struct! {
    #[derive(Clone, Debug)]
    struct WriteAnswer {
        count: u32,
        committed: u32,
        verifier: [u8; 8],
    }
}

/// A client with one session on one connection.
pub struct Client {
    pub connection: Connection,
    pub session: Session,
    pub root: Fh,
}

impl Client {
    /// Connects; the same name continues the same client.
    pub fn connect(gateway: &Gateway, name: &str) -> Result<Self, ClientError> {
        Self::over(Connection::connect(gateway.address, TIMEOUT)?, name, "export")
    }

    /// The same from an address of this machine, at the root of another export.
    pub fn connect_from(
        gateway: &Gateway,
        host: IpAddr,
        name: &str,
        export: &str,
    ) -> Result<Self, ClientError> {
        let stream = stream_from(host, gateway.address).unwrap();
        Self::over(Connection::over(stream, gateway.address, TIMEOUT)?, name, export)
    }

    fn over(mut connection: Connection, name: &str, export: &str) -> Result<Self, ClientError> {
        let request = SessionRequest {
            owner: name.as_bytes().to_vec(),
            verifier: u64::from(std::process::id()).to_be_bytes(),
            minor: 2,
            credential: own_credential(),
            slots: 8,
            max_message_bytes: (1 << 20) + 4096,
        };
        let session = Session::create(&mut connection, &request)?;
        let mut client = Self { connection, session, root: Fh(Vec::new()) };
        let ops = Ops::new().putrootfh().lookup(export.as_bytes()).getfh();
        let mut results = client.call(ops)?;
        results.skip(OpNum::Putrootfh)?;
        results.skip(OpNum::Lookup)?;
        client.root = results.next(OpNum::Getfh)?;
        Ok(client)
    }

    /// The same, with reclaim completed.
    pub fn ready(gateway: &Gateway, name: &str) -> Self {
        let mut client = Self::connect(gateway, name).unwrap();
        client.session.reclaim_complete(&mut client.connection).unwrap();
        client
    }

    pub fn call(&mut self, ops: Ops) -> Result<Results, ClientError> {
        self.session.call(&mut self.connection, ops)
    }

    /// Opens or creates (`how`) with access 1, 2 or 3.
    pub fn open(
        &mut self,
        dir: &Fh,
        access: u32,
        how: open::How,
        claim: open::Claim,
    ) -> Result<Opened, ClientError> {
        let args = open::Args {
            seqid: 0,
            access: access | WANT_NO_DELEGATION,
            deny: 0,
            owner: StateOwner { clientid: ClientId(0), owner: Opaque(b"owner".to_vec()) },
            how,
            claim,
        };
        let mut results = self.call(Ops::new().putfh(dir).op(OpNum::Open, &args).getfh())?;
        results.skip(OpNum::Putfh)?;
        let opened: open::Res = results.next(OpNum::Open)?;
        Ok(Opened { fh: results.next(OpNum::Getfh)?, stateid: opened.stateid })
    }

    pub fn create(&mut self, dir: &Fh, name: &str) -> Result<Opened, ClientError> {
        let claim = open::Claim::Null(Opaque(name.as_bytes().to_vec()));
        self.open(dir, 3, open::How::Unchecked(mode_attr(0o644)), claim)
    }

    pub fn open_existing(&mut self, dir: &Fh, name: &str) -> Result<Opened, ClientError> {
        let claim = open::Claim::Null(Opaque(name.as_bytes().to_vec()));
        self.open(dir, 3, open::How::NoCreate, claim)
    }

    pub fn close(&mut self, file: &Opened) -> Result<(), ClientError> {
        let args = close::Args { seqid: 0, stateid: file.stateid };
        let mut results = self.call(Ops::new().putfh(&file.fh).op(OpNum::Close, &args))?;
        results.skip(OpNum::Putfh)?;
        results.next::<close::Res>(OpNum::Close).map(|_| ())
    }

    /// WRITE; `stable`: 0 unstable, 1 data, 2 file.
    pub fn write(
        &mut self,
        file: &Opened,
        offset: u64,
        stable: u32,
        data: &[u8],
    ) -> Result<Written, ClientError> {
        let data = bytes::Bytes::copy_from_slice(data);
        let stable = StableHow::from_u32(stable).unwrap();
        let ops = Ops::new().putfh(&file.fh).write(file.stateid, offset, stable, data);
        let mut results = self.call(ops)?;
        results.skip(OpNum::Putfh)?;
        let answer: WriteAnswer = results.next(OpNum::Write)?;
        Ok(Written { count: answer.count, committed: answer.committed, verifier: answer.verifier })
    }

    pub fn commit(&mut self, fh: &Fh) -> Result<[u8; 8], ClientError> {
        let mut results = self.call(Ops::new().putfh(fh).commit(0, 0))?;
        results.skip(OpNum::Putfh)?;
        results.next(OpNum::Commit)
    }

    /// READ of at most 1 MiB.
    pub fn read(
        &mut self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        count: u32,
    ) -> Result<(bool, Vec<u8>), ClientError> {
        let ops = Ops::new().putfh(fh).read(stateid, offset, count);
        let mut results = self.session.call_uncached(&mut self.connection, ops)?;
        results.skip(OpNum::Putfh)?;
        results.read().map(|(eof, data)| (eof, data.to_vec()))
    }

    pub fn lookup(&mut self, dir: &Fh, name: &str) -> Result<Fh, ClientError> {
        let mut results = self.call(Ops::new().putfh(dir).lookup(name.as_bytes()).getfh())?;
        results.skip(OpNum::Putfh)?;
        results.skip(OpNum::Lookup)?;
        results.next(OpNum::Getfh)
    }

    pub fn getattr(&mut self, fh: &Fh, want: &[u32]) -> Result<Fattr, ClientError> {
        let mut results = self.call(Ops::new().putfh(fh).getattr(&Bitmap::of(want)))?;
        results.skip(OpNum::Putfh)?;
        results.next(OpNum::Getattr)
    }
}

/// Returns an attribute list with only `mode`.
pub fn mode_attr(mode: u32) -> Fattr {
    Fattr { mask: Bitmap::of(&[33]), values: Opaque(mode.to_be_bytes().to_vec()) }
}
