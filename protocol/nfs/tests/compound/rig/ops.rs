//! COMPOUNDs to be sent, and their answers taken apart.

use bytes::Bytes;
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::op::*;
use zgate_nfs::v4::wire::{Bitmap, Component, OpNum, StableHow, Stateid, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

type Skip = fn(&mut Decoder<'_>) -> Result<(), XdrError>;

/// Operations to be sent in one COMPOUND.
#[derive(Default)]
pub(crate) struct Ops {
    body: Encoder,
    known: Vec<(u32, Skip)>,
}

fn skip<T: Decode>(d: &mut Decoder<'_>) -> Result<(), XdrError> {
    T::decode(d).map(|_| ())
}

/// A name as it stands on the wire.
pub(crate) fn name(text: impl AsRef<[u8]>) -> Component {
    text.as_ref().into()
}

impl Ops {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds an operation with its arguments.
    pub(crate) fn op<O: Operation>(mut self, args: &O::Args) -> Self {
        O::NUM.encode(&mut self.body);
        args.encode(&mut self.body);
        self.known.push((O::NUM as u32, skip::<O::Res>));
        self
    }

    /// Adds an operation number and whatever follows it.
    pub(crate) fn raw(mut self, number: u32, args: &[u8]) -> Self {
        self.body.u32(number);
        self.body.raw(args);
        self.known.push((number, skip::<()>));
        self
    }

    pub(crate) fn root(self) -> Self {
        self.op::<putrootfh::Putrootfh>(&())
    }

    pub(crate) fn at(self, fh: &Fh) -> Self {
        self.op::<putfh::Putfh>(fh)
    }

    pub(crate) fn save(self) -> Self {
        self.op::<savefh::Savefh>(&())
    }

    pub(crate) fn restore(self) -> Self {
        self.op::<restorefh::Restorefh>(&())
    }

    pub(crate) fn lookup(self, text: impl AsRef<[u8]>) -> Self {
        self.op::<lookup::Lookup>(&name(text))
    }

    pub(crate) fn getfh(self) -> Self {
        self.op::<getfh::Getfh>(&())
    }

    pub(crate) fn getattr(self, bits: &[u32]) -> Self {
        self.op::<getattr::Getattr>(&Bitmap::of(bits))
    }

    pub(crate) fn read(self, stateid: Stateid, offset: u64, count: u32) -> Self {
        self.op::<read::Read>(&read::Args { stateid, offset, count })
    }

    pub(crate) fn write(
        self,
        stateid: Stateid,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Self {
        let data = Bytes::copy_from_slice(data);
        self.op::<write::Write>(&write::Args { stateid, offset, stable, data })
    }

    pub(crate) fn remove(self, text: impl AsRef<[u8]>) -> Self {
        self.op::<remove::Remove>(&name(text))
    }

    pub(crate) fn link(self, text: impl AsRef<[u8]>) -> Self {
        self.op::<link::Link>(&name(text))
    }

    pub(crate) fn rename(self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Self {
        self.op::<rename::Rename>(&rename::Args { old: name(old), new: name(new) })
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// COMPOUND4args: tag, minor version, operations.
    pub(crate) fn encode(self, tag: &[u8], minor: u32) -> (Vec<u8>, Vec<(u32, Skip)>) {
        let mut e = Encoder::new();
        e.opaque(tag);
        e.u32(minor);
        e.u32(self.known.len() as u32);
        let mut bytes = e.finish().flatten().unwrap().to_vec();
        bytes.extend_from_slice(&self.body.finish().flatten().unwrap());
        (bytes, self.known)
    }

    /// These operations behind `first`.
    pub(crate) fn after(self, mut first: Self) -> Self {
        first.body.append(&self.body.finish());
        first.known.extend(self.known);
        first
    }
}

/// One operation's answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) num: u32,
    pub(crate) status: Status,
    pub(crate) body: Bytes,
}

/// The answer to a COMPOUND.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) answers: Vec<Answer>,
    /// What SEQUENCE said, when the client put one in front.
    pub(crate) sequence: Option<sequence::Res>,
    pub(crate) raw: Bytes,
}

impl Reply {
    /// Takes an answer apart; every byte of it must be accounted for.
    pub(crate) fn parse(raw: Bytes, sent: &[(u32, Skip)]) -> Self {
        let mut d = Decoder::new(&raw);
        let status = Status::decode(&mut d).unwrap();
        d.opaque(1024).unwrap();
        let count = d.u32().unwrap() as usize;
        assert!(count <= sent.len().max(1), "more answers than operations");
        let mut answers = Vec::new();
        for (index, (num, skip)) in sent.iter().take(count).enumerate() {
            let answered = d.u32().unwrap();
            let of = Status::decode(&mut d).unwrap();
            assert!(answered == *num || answered == OpNum::Illegal as u32, "op {index}");
            let at = d.position();
            if of == Status::Ok {
                skip(&mut d).unwrap_or_else(|e| panic!("op {num} answers badly: {e}"));
            } else {
                assert_eq!(index + 1, count, "operations run after a failure");
                d.take(d.remaining()).unwrap();
            }
            answers.push(Answer { num: answered, status: of, body: raw.slice(at..d.position()) });
        }
        d.finish().unwrap();
        if let Some(last) = answers.last() {
            assert_eq!(last.status, status, "the COMPOUND's status is its last operation's");
        }
        Self { status, answers, sequence: None, raw }
    }

    /// What the last operation of this kind answered.
    pub(crate) fn get<O: Operation>(&self) -> O::Res {
        let answer = self
            .answers
            .iter()
            .rev()
            .find(|answer| answer.num == O::NUM as u32 && answer.status == Status::Ok)
            .unwrap_or_else(|| panic!("{} was not answered: {:?}", O::NUM.name(), self.status));
        O::Res::decode(&mut Decoder::new(&answer.body)).unwrap()
    }

    /// What follows the status of the operation that failed.
    pub(crate) fn failure<T: Decode>(&self) -> T {
        let last = self.answers.last().unwrap();
        assert_ne!(last.status, Status::Ok);
        let mut d = Decoder::new(&last.body);
        let value = T::decode(&mut d).unwrap();
        d.finish().unwrap();
        value
    }

    /// The same, insisting on success.
    pub(crate) fn ok(self) -> Self {
        assert_eq!(self.status, Status::Ok, "after {} answers", self.answers.len());
        self
    }

    /// As a result.
    pub(crate) fn result(self) -> Result<Self, Status> {
        if self.status == Status::Ok { Ok(self) } else { Err(self.status) }
    }
}
