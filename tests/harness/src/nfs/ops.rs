//! COMPOUNDs to be sent, and their decoded answers.

use bytes::Bytes;
use zgate_nfs_wire::v4::Fh;
use zgate_nfs_wire::v4::op::*;
use zgate_nfs_wire::v4::{Bitmap, Component, OpNum, StableHow, Stateid, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError};

type Skip = fn(&mut Decoder<'_>) -> Result<(), XdrError>;

/// Operations to be sent in one COMPOUND.
#[derive(Default)]
pub struct Ops {
    body: Encoder,
    known: Vec<(u32, Skip)>,
}

fn skip<T: Decode>(d: &mut Decoder<'_>) -> Result<(), XdrError> {
    T::decode(d).map(|_| ())
}

/// A name in wire format.
pub fn name(text: impl AsRef<[u8]>) -> Component {
    text.as_ref().into()
}

impl Ops {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operation with its arguments.
    pub fn op<O: Operation>(mut self, args: &O::Args) -> Self {
        O::NUM.encode(&mut self.body);
        args.encode(&mut self.body);
        self.known.push((O::NUM as u32, skip::<O::Res>));
        self
    }

    /// Adds an operation number and arbitrary bytes.
    pub fn raw(mut self, number: u32, args: &[u8]) -> Self {
        self.body.u32(number);
        self.body.raw(args);
        self.known.push((number, skip::<()>));
        self
    }

    pub fn root(self) -> Self {
        self.op::<Putrootfh>(&())
    }

    pub fn at(self, fh: &Fh) -> Self {
        self.op::<Putfh>(fh)
    }

    pub fn save(self) -> Self {
        self.op::<Savefh>(&())
    }

    pub fn restore(self) -> Self {
        self.op::<Restorefh>(&())
    }

    pub fn lookup(self, text: impl AsRef<[u8]>) -> Self {
        self.op::<Lookup>(&name(text))
    }

    pub fn getfh(self) -> Self {
        self.op::<Getfh>(&())
    }

    pub fn getattr(self, bits: &[u32]) -> Self {
        self.op::<Getattr>(&Bitmap::of(bits))
    }

    pub fn read(self, stateid: Stateid, offset: u64, count: u32) -> Self {
        self.op::<Read>(&read::Args { stateid, offset, count })
    }

    pub fn write(self, stateid: Stateid, offset: u64, data: &[u8], stable: StableHow) -> Self {
        let data = Bytes::copy_from_slice(data);
        self.op::<Write>(&write::Args { stateid, offset, stable, data })
    }

    pub fn remove(self, text: impl AsRef<[u8]>) -> Self {
        self.op::<Remove>(&name(text))
    }

    pub fn link(self, text: impl AsRef<[u8]>) -> Self {
        self.op::<Link>(&name(text))
    }

    pub fn rename(self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Self {
        self.op::<Rename>(&rename::Args { old: name(old), new: name(new) })
    }

    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// COMPOUND4args: tag, minor version, operations.
    pub fn encode(self, tag: &[u8], minor: u32) -> (Vec<u8>, Vec<(u32, Skip)>) {
        let mut e = Encoder::new();
        e.opaque(tag);
        e.u32(minor);
        e.u32(self.known.len() as u32);
        let mut bytes = e.finish().flatten().unwrap().to_vec();
        bytes.extend_from_slice(&self.body.finish().flatten().unwrap());
        (bytes, self.known)
    }

    /// These operations after `first`.
    pub fn after(self, mut first: Self) -> Self {
        first.body.append(&self.body.finish());
        first.known.extend(self.known);
        first
    }
}

/// One operation's answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub num: u32,
    pub status: Status,
    pub body: Bytes,
}

/// The answer to a COMPOUND.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: Status,
    pub answers: Vec<Answer>,
    /// Result of SEQUENCE, if the client added one.
    pub sequence: Option<sequence::Res>,
    pub raw: Bytes,
}

impl Reply {
    /// Decodes an answer; all bytes must be consumed.
    pub fn parse(raw: Bytes, sent: &[(u32, Skip)]) -> Self {
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

    /// Result of the last operation of this type.
    pub fn get<O: Operation>(&self) -> O::Res {
        let answer = self
            .answers
            .iter()
            .rev()
            .find(|answer| answer.num == O::NUM as u32 && answer.status == Status::Ok)
            .unwrap_or_else(|| panic!("{} was not answered: {:?}", O::NUM.name(), self.status));
        O::Res::decode(&mut Decoder::new(&answer.body)).unwrap()
    }

    /// The body after the status of the failed operation.
    pub fn failure<T: Decode>(&self) -> T {
        let last = self.answers.last().unwrap();
        assert_ne!(last.status, Status::Ok);
        let mut d = Decoder::new(&last.body);
        let value = T::decode(&mut d).unwrap();
        d.finish().unwrap();
        value
    }

    /// Returns the answer, which must be a success.
    pub fn ok(self) -> Self {
        assert_eq!(self.status, Status::Ok, "after {} answers", self.answers.len());
        self
    }

    /// Converts the answer to a result.
    pub fn result(self) -> Result<Self, Status> {
        if self.status == Status::Ok { Ok(self) } else { Err(self.status) }
    }
}
