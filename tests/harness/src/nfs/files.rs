//! File operations of a client, in one call each.

use super::client::Client;
use super::ops::{Ops, name};
use bytes::Bytes;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::open::{Claim, Delegated, How};
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Bitmap, ChangeInfo, Fattr, LockType, StableHow, Stateid, Status};
use zgate_store::Payload;
use zgate_store::file_store::NewNode;
use zgate_xdr::{Encoder, Opaque};

/// An fattr4 of attribute numbers, with values from the encoder.
pub fn attrs(bits: &[u32], write: impl FnOnce(&mut Encoder)) -> Fattr {
    let mut e = Encoder::new();
    write(&mut e);
    let values = Opaque(e.finish().flatten().unwrap().to_vec());
    Fattr { mask: Bitmap::of(bits), values }
}

/// Permission bits.
pub fn mode(bits: u32) -> Fattr {
    attrs(&[33], |e| e.u32(bits))
}

/// Arguments of an OPEN.
#[derive(Clone)]
pub struct OpenRequest {
    pub fh: Fh,
    pub claim: Claim,
    pub how: How,
    pub access: u32,
    pub deny: u32,
    pub owner: &'static str,
}

impl OpenRequest {
    /// To open an existing name for reading and writing.
    pub fn name(dir: &Fh, text: &str) -> Self {
        Self {
            fh: dir.clone(),
            claim: Claim::Null(name(text)),
            how: How::NoCreate,
            access: 3,
            deny: 0,
            owner: "owner",
        }
    }

    pub fn access(self, access: u32) -> Self {
        Self { access, ..self }
    }

    pub fn deny(self, deny: u32) -> Self {
        Self { deny, ..self }
    }

    pub fn owner(self, owner: &'static str) -> Self {
        Self { owner, ..self }
    }

    pub fn how(self, how: How) -> Self {
        Self { how, ..self }
    }

    pub fn claim(self, claim: Claim) -> Self {
        Self { claim, ..self }
    }
}

/// An open file.
#[derive(Clone, Debug)]
pub struct Opened {
    pub fh: Fh,
    pub stateid: Stateid,
    pub owner: &'static str,
    pub change: ChangeInfo,
    pub attrs_set: Bitmap,
    pub delegated: Delegated,
}

impl Opened {
    /// The stateid of the delegation that came with it.
    pub fn delegation(&self) -> Stateid {
        match self.delegated {
            Delegated::Read { stateid, .. } | Delegated::Write { stateid, .. } => stateid,
            _ => panic!("no delegation: {:?}", self.delegated),
        }
    }
}

/// A lock stateid.
#[derive(Clone, Debug)]
pub struct Locked {
    pub fh: Fh,
    pub stateid: Stateid,
    pub owner: &'static str,
}

impl Client {
    /// The root of `/export`.
    pub fn export(&self) -> Fh {
        self.harness.root_of("/export")
    }

    pub fn open_args(&self, wish: &OpenRequest) -> open::Args {
        open::Args {
            seqid: self.seqid(wish.owner),
            access: wish.access,
            deny: wish.deny,
            owner: self.owner(wish.owner),
            how: wish.how.clone(),
            claim: wish.claim.clone(),
        }
    }

    /// OPEN, and OPEN_CONFIRM if requested. An OPEN that has to be confirmed brings no
    /// delegation (RFC 7530 §9.1.11): a client that takes delegations sends another one.
    pub fn open(&self, wish: &OpenRequest) -> Result<Opened, Status> {
        let ops = Ops::new().at(&wish.fh).op::<Open>(&self.open_args(wish)).getfh();
        let reply = self.run(ops);
        self.advance(wish.owner, reply.status);
        let reply = reply.result()?;
        let res = reply.get::<Open>();
        let mut opened = Opened {
            fh: reply.get::<Getfh>(),
            stateid: res.stateid,
            owner: wish.owner,
            change: res.change,
            attrs_set: res.attrs_set,
            delegated: res.delegated,
        };
        if res.flags & open::RESULT_CONFIRM != 0 {
            let args = open_confirm::Args { stateid: res.stateid, seqid: self.seqid(wish.owner) };
            let ops = Ops::new().at(&opened.fh).op::<OpenConfirm>(&args);
            let reply = self.run(ops).ok();
            self.advance(wish.owner, Status::Ok);
            opened.stateid = reply.get::<OpenConfirm>().stateid;
            // One that denies what it does itself would be denied.
            let may_again = wish.access & wish.deny == 0 && matches!(wish.claim, Claim::Null(_));
            if self.is_callable.get()
                && may_again
                && let Ok(again) = self.open(&wish.clone().how(How::NoCreate))
            {
                (opened.stateid, opened.delegated) = (again.stateid, again.delegated);
            }
        }
        Ok(opened)
    }

    /// Creates a new, empty, open file in the root of `/export`.
    pub fn create(&self, text: &str) -> Opened {
        self.create_in(&self.export(), text)
    }

    pub fn create_in(&self, dir: &Fh, text: &str) -> Opened {
        self.open(&OpenRequest::name(dir, text).how(How::Unchecked(mode(0o644)))).unwrap()
    }

    /// Creates a new file with contents, closed.
    pub fn file(&self, dir: &Fh, text: &str, content: &[u8]) -> Fh {
        let opened = self.create_in(dir, text);
        self.write(&opened.fh, opened.stateid, 0, content).unwrap();
        self.close(&opened).unwrap();
        opened.fh
    }

    pub fn close(&self, opened: &Opened) -> Result<Stateid, Status> {
        let args = close::Args { seqid: self.seqid(opened.owner), stateid: opened.stateid };
        let reply = self.run(Ops::new().at(&opened.fh).op::<Close>(&args));
        self.advance(opened.owner, reply.status);
        Ok(reply.result()?.get::<Close>().stateid)
    }

    pub fn downgrade(&self, opened: &mut Opened, access: u32, deny: u32) -> Result<(), Status> {
        let args = open_downgrade::Args {
            stateid: opened.stateid,
            seqid: self.seqid(opened.owner),
            access,
            deny,
        };
        let reply = self.run(Ops::new().at(&opened.fh).op::<OpenDowngrade>(&args));
        self.advance(opened.owner, reply.status);
        opened.stateid = reply.result()?.get::<OpenDowngrade>().stateid;
        Ok(())
    }

    pub fn lock_args(
        &self,
        opened: &Opened,
        owner: &str,
        kind: LockType,
        (offset, length): (u64, u64),
    ) -> lock::Args {
        let locker = lock::Locker::New {
            open_seqid: self.seqid(opened.owner),
            open: opened.stateid,
            lock_seqid: self.seqid(owner),
            owner: self.owner(owner),
        };
        lock::Args { kind, reclaim: false, offset, length, locker }
    }

    /// Takes the first lock of an owner on a file.
    pub fn lock(
        &self,
        opened: &Opened,
        owner: &'static str,
        kind: LockType,
        range: (u64, u64),
    ) -> Result<Locked, Status> {
        let args = self.lock_args(opened, owner, kind, range);
        let reply = self.run(Ops::new().at(&opened.fh).op::<Lock>(&args));
        // It counts for both. Of a lock owner that it does not know the server takes any number.
        self.advance(opened.owner, reply.status);
        self.advance(owner, reply.status);
        let stateid = reply.result()?.get::<Lock>().stateid;
        Ok(Locked { fh: opened.fh.clone(), stateid, owner })
    }

    /// Takes a further lock.
    pub fn lock_more(
        &self,
        locked: &mut Locked,
        kind: LockType,
        (offset, length): (u64, u64),
    ) -> Result<(), Status> {
        let locker =
            lock::Locker::Existing { stateid: locked.stateid, seqid: self.seqid(locked.owner) };
        let args = lock::Args { kind, reclaim: false, offset, length, locker };
        let reply = self.run(Ops::new().at(&locked.fh).op::<Lock>(&args));
        self.advance(locked.owner, reply.status);
        locked.stateid = reply.result()?.get::<Lock>().stateid;
        Ok(())
    }

    pub fn unlock(&self, locked: &mut Locked, (offset, length): (u64, u64)) -> Result<(), Status> {
        let args = locku::Args {
            kind: LockType::Write,
            seqid: self.seqid(locked.owner),
            stateid: locked.stateid,
            offset,
            length,
        };
        let reply = self.run(Ops::new().at(&locked.fh).op::<Locku>(&args));
        self.advance(locked.owner, reply.status);
        locked.stateid = reply.result()?.get::<Locku>().stateid;
        Ok(())
    }

    pub fn lockt(
        &self,
        fh: &Fh,
        owner: &str,
        kind: LockType,
        (offset, length): (u64, u64),
    ) -> Result<(), Status> {
        let args = lockt::Args { kind, offset, length, owner: self.owner(owner) };
        self.run(Ops::new().at(fh).op::<Lockt>(&args)).result().map(|_| ())
    }

    pub fn delegreturn(&self, fh: &Fh, stateid: Stateid) -> Result<(), Status> {
        let args = delegreturn::Args { stateid };
        self.run(Ops::new().at(fh).op::<Delegreturn>(&args)).result().map(|_| ())
    }

    pub fn write(
        &self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        data: &[u8],
    ) -> Result<u32, Status> {
        let args = write::Args {
            stateid,
            offset,
            stable: StableHow::Unstable,
            data: Bytes::copy_from_slice(data),
        };
        let reply = self.run(Ops::new().at(fh).op::<Write>(&args)).result()?;
        Ok(reply.get::<Write>().count)
    }

    pub fn read(
        &self,
        fh: &Fh,
        stateid: Stateid,
        offset: u64,
        count: u32,
    ) -> Result<(bool, Bytes), Status> {
        let reply = self.run(Ops::new().at(fh).read(stateid, offset, count)).result()?;
        let res = reply.get::<Read>();
        let Payload::Bytes(data) = res.data else { panic!("the call requested bytes") };
        Ok((res.eof, data))
    }

    /// Reads the whole file, without an open.
    pub fn content(&self, fh: &Fh) -> Vec<u8> {
        self.read(fh, Stateid::ANONYMOUS, 0, 1 << 20).unwrap().1.to_vec()
    }

    /// The value of one numeric attribute, by its width.
    pub fn number(&self, fh: &Fh, bit: u32) -> u64 {
        let reply = self.run(Ops::new().at(fh).getattr(&[bit])).ok();
        let fattr = reply.get::<Getattr>();
        assert!(fattr.mask.contains(bit), "attribute {bit} is not there");
        fattr.values.0.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    pub fn lookup(&self, dir: &Fh, text: &str) -> Result<Fh, Status> {
        let reply = self.run(Ops::new().at(dir).lookup(text).getfh()).result()?;
        Ok(reply.get::<Getfh>())
    }

    pub fn make(&self, dir: &Fh, text: &str, kind: NewNode) -> Result<Fh, Status> {
        let attrs = mode(0o755);
        let args = create::Args { kind: create::Kind::Node(kind), name: name(text), attrs };
        let reply = self.run(Ops::new().at(dir).op::<Create>(&args).getfh()).result()?;
        Ok(reply.get::<Getfh>())
    }

    pub fn mkdir(&self, dir: &Fh, text: &str) -> Fh {
        self.make(dir, text, NewNode::Directory).unwrap()
    }

    pub fn remove(&self, dir: &Fh, text: &str) -> Result<ChangeInfo, Status> {
        let reply = self.run(Ops::new().at(dir).remove(text)).result()?;
        Ok(reply.get::<Remove>())
    }

    pub fn setattr(&self, fh: &Fh, stateid: Stateid, attrs: Fattr) -> Result<Bitmap, Status> {
        let args = setattr::Args { stateid, attrs };
        let reply = self.run(Ops::new().at(fh).op::<Setattr>(&args)).result()?;
        Ok(reply.get::<Setattr>())
    }

    pub fn truncate(&self, fh: &Fh, stateid: Stateid, size: u64) -> Result<Bitmap, Status> {
        self.setattr(fh, stateid, attrs(&[4], |e| e.u64(size)))
    }
}
