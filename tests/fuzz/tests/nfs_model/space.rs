//! Operations of NFSv4.2 on file contents. Only the client of that version uses
//! them.

use super::step::{Index, Step};
use super::walk::{Outcome, Walk, expect};
use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::setxattr::{self, Option4};
use zgate_nfs_wire::v4::op::{
    Allocate, Clone as CloneOp, Copy as CopyOp, Deallocate, Removexattr, Seek, Setxattr, allocate,
    clone, copy, deallocate, seek,
};
use zgate_test_harness::nfs::{Opened, Ops, name};
use zgate_xdr::Opaque;

/// The client of minor version 2.
const CLIENT: usize = 2;

impl Walk {
    pub(super) fn on_space(&mut self, step: &Step) -> Outcome {
        let (Step::Allocate { file, .. }
        | Step::Deallocate { file, .. }
        | Step::Copy { to: file, .. }
        | Step::Clone { to: file, .. }
        | Step::Seek { file, .. }
        | Step::SetAttribute { file, .. }
        | Step::RemoveAttribute { file, .. }) = *step
        else {
            return Ok(Vec::new());
        };
        let Some((file, opened)) = self.held(CLIENT, file) else { return Ok(Vec::new()) };
        match *step {
            Step::Allocate { at, len, .. } => {
                let at = at.within(self.model.file(file).bytes.len());
                self.allocate(file, &opened, at, len)
            }
            Step::Deallocate { at, len, .. } => {
                let at = at.within(self.model.file(file).bytes.len());
                self.deallocate(file, &opened, at, len)
            }
            Step::Copy { .. } => self.copy(file, &opened, step),
            Step::Clone { from, at, into, count, .. } => {
                self.clone_range(file, &opened, from, (at, into, count))
            }
            Step::Seek { at, hole, .. } => {
                let at = at.within(self.model.file(file).bytes.len());
                self.seek(file, &opened, at, hole)
            }
            _ => self.attribute(file, &opened, step),
        }
    }

    /// RFC 7862 §15.1: the file grows if the range ends after it.
    fn allocate(&mut self, file: usize, opened: &Opened, offset: u64, length: u64) -> Outcome {
        let args = allocate::Args { stateid: opened.stateid, offset, length };
        let ops = Ops::new().at(&opened.fh).op::<Allocate>(&args);
        let may_write = self.may_write(file);
        expect("ALLOCATE", self.clients[CLIENT].run(ops).status, &[may_write])?;
        if may_write != Status::Ok {
            return Ok(Vec::new());
        }
        let bytes = &mut self.model.file_mut(file).bytes;
        let grows = offset + length > bytes.len() as u64;
        bytes.resize(bytes.len().max((offset + length) as usize), 0);
        Ok(if grows { vec![file] } else { Vec::new() })
    }

    /// RFC 7862 §15.4: writes zeros; the size is unchanged.
    fn deallocate(&mut self, file: usize, opened: &Opened, offset: u64, length: u64) -> Outcome {
        let args = deallocate::Args { stateid: opened.stateid, offset, length };
        let ops = Ops::new().at(&opened.fh).op::<Deallocate>(&args);
        let may_write = self.may_write(file);
        expect("DEALLOCATE", self.clients[CLIENT].run(ops).status, &[may_write])?;
        if may_write != Status::Ok {
            return Ok(Vec::new());
        }
        let bytes = &mut self.model.file_mut(file).bytes;
        let end = bytes.len().min((offset + length) as usize);
        if (offset as usize) < end {
            bytes[offset as usize..end].fill(0);
            return Ok(vec![file]);
        }
        Ok(Vec::new())
    }

    /// RFC 7862 §15.2: a count of 0 means to the end; beyond it is INVAL.
    fn copy(&mut self, to: usize, into: &Opened, step: &Step) -> Outcome {
        let Step::Copy { from, at, into: into_offset, count, .. } = *step else {
            return Ok(Vec::new());
        };
        let Some((from, source)) = self.held(CLIENT, from) else { return Ok(Vec::new()) };
        let size = self.model.file(from).bytes.len();
        let from_offset = at.within(size);
        let to_offset = into_offset.within(self.model.file(to).bytes.len());
        let args = copy::Args {
            from: source.stateid,
            to: into.stateid,
            from_offset,
            to_offset,
            count,
            consecutive: true,
            synchronous: true,
            servers: Vec::new(),
        };
        let ops = Ops::new().at(&source.fh).save().at(&into.fh).op::<CopyOp>(&args);
        let reply = self.clients[CLIENT].run(ops);
        if self.may_write(to) != Status::Ok {
            expect("COPY", reply.status, &[Status::Openmode, Status::Inval])?;
            return Ok(Vec::new());
        }
        let size = size as u64;
        let taken = if count == 0 { size.saturating_sub(from_offset) } else { count };
        let overlaps =
            from == to && from_offset < to_offset + taken && to_offset < from_offset + taken;
        if from_offset + taken > size || overlaps {
            expect("COPY", reply.status, &[Status::Inval])?;
            return Ok(Vec::new());
        }
        let what = format!("COPY {from_offset}+{taken} of {size} to {to_offset}");
        expect(&what, reply.status, &[Status::Ok])?;
        assert_eq!(reply.get::<CopyOp>().count, taken);
        self.take_over(from, from_offset, to, to_offset, taken);
        Ok(if taken > 0 { vec![to] } else { Vec::new() })
    }

    /// RFC 7862 §15.13: whole blocks, or up to the end of the source.
    fn clone_range(
        &mut self,
        to: usize,
        into: &Opened,
        from: Index,
        (from_offset, to_offset, count): (u64, u64, u64),
    ) -> Outcome {
        let Some((from, source)) = self.held(CLIENT, from) else { return Ok(Vec::new()) };
        let args =
            clone::Args { from: source.stateid, to: into.stateid, from_offset, to_offset, count };
        let ops = Ops::new().at(&source.fh).save().at(&into.fh).op::<CloneOp>(&args);
        let status = self.clients[CLIENT].run(ops).status;
        if self.may_write(to) != Status::Ok {
            expect("CLONE", status, &[Status::Openmode, Status::Inval])?;
            return Ok(Vec::new());
        }
        expect("CLONE", status, &[Status::Ok, Status::Inval])?;
        if status != Status::Ok {
            return Ok(Vec::new());
        }
        let size = self.model.file(from).bytes.len() as u64;
        let taken = if count == 0 { size.saturating_sub(from_offset) } else { count };
        assert!(from_offset + taken <= size, "more was cloned than there is");
        self.take_over(from, from_offset, to, to_offset, taken);
        Ok(if taken > 0 { vec![to] } else { Vec::new() })
    }

    /// Expected status of a write. Any open allows reading (RFC 8881 §18.22.3).
    fn may_write(&self, file: usize) -> Status {
        self.may(CLIENT, file, 2)
    }

    fn take_over(&mut self, from: usize, at: u64, to: usize, into: u64, count: u64) {
        let part = self.model.file(from).bytes[at as usize..(at + count) as usize].to_vec();
        if !part.is_empty() {
            self.model.file_mut(to).put(into, &part);
        }
    }

    /// RFC 7862 §15.11: a hole reported by SEEK reads as zeros, and all nonzero
    /// data is found as data.
    fn seek(&mut self, file: usize, opened: &Opened, at: u64, hole: bool) -> Outcome {
        let args = seek::Args { stateid: opened.stateid, offset: at, what: u32::from(hole) };
        let ops = Ops::new().at(&opened.fh).op::<Seek>(&args);
        let reply = self.clients[CLIENT].run(ops);
        let bytes = &self.model.file(file).bytes;
        let beyond = at >= bytes.len() as u64;
        expect("SEEK", reply.status, &[if beyond { Status::Nxio } else { Status::Ok }])?;
        if reply.status == Status::Ok {
            let res = reply.get::<Seek>();
            if !hole {
                let end = if res.eof { bytes.len() } else { res.offset as usize };
                let skipped = &bytes[at as usize..end];
                assert!(skipped.iter().all(|byte| *byte == 0), "data was called a hole");
            }
            assert!(res.eof || res.offset >= at);
        }
        Ok(Vec::new())
    }

    /// RFC 8276 §8: attributes can be set regardless of the open's access.
    fn attribute(&mut self, file: usize, opened: &Opened, step: &Step) -> Outcome {
        let client = &self.clients[CLIENT];
        let known = |key| self.model.file(file).xattrs.contains_key(key);
        match step {
            Step::RemoveAttribute { key, .. } => {
                let expected = if known(key) { Status::Ok } else { Status::Noxattr };
                let ops = Ops::new().at(&opened.fh).op::<Removexattr>(&name(key));
                expect("REMOVEXATTR", client.run(ops).status, &[expected])?;
                self.model.file_mut(file).xattrs.remove(key);
            }
            Step::SetAttribute { key, option, value, .. } => {
                let (option, expected) = match option {
                    0 => (Option4::Either, Status::Ok),
                    1 => (Option4::Create, if known(key) { Status::Exist } else { Status::Ok }),
                    _ => (Option4::Replace, if known(key) { Status::Ok } else { Status::Noxattr }),
                };
                let value = value.clone();
                let args =
                    setxattr::Args { option, name: name(key), value: Some(Opaque(value.clone())) };
                let ops = Ops::new().at(&opened.fh).op::<Setxattr>(&args);
                expect("SETXATTR", client.run(ops).status, &[expected])?;
                if expected == Status::Ok {
                    self.model.file_mut(file).xattrs.insert(key, value);
                }
            }
            _ => {}
        }
        Ok(Vec::new())
    }
}
