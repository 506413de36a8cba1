//! Building COMPOUNDs and reading their answers.

use crate::error::ClientError;
use crate::transport::Landing;
use bytes::Bytes;
use zgate_nfs::namespace::Fh;
use zgate_nfs::v4::wire::{Bitmap, OpNum, Stateid, Status};
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message};

/// Operations to be sent in one COMPOUND.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    body: Encoder,
    count: u32,
}

impl Ops {
    /// No operations yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operation with its arguments.
    #[must_use]
    pub fn op(mut self, num: OpNum, args: &impl Encode) -> Self {
        num.encode(&mut self.body);
        args.encode(&mut self.body);
        self.count += 1;
        self
    }

    /// PUTROOTFH.
    #[must_use]
    pub fn putrootfh(self) -> Self {
        self.op(OpNum::Putrootfh, &())
    }

    /// PUTFH.
    #[must_use]
    pub fn putfh(self, fh: &Fh) -> Self {
        self.op(OpNum::Putfh, fh)
    }

    /// LOOKUP.
    #[must_use]
    pub fn lookup(self, name: &[u8]) -> Self {
        self.op(OpNum::Lookup, &Name(name))
    }

    /// GETFH.
    #[must_use]
    pub fn getfh(self) -> Self {
        self.op(OpNum::Getfh, &())
    }

    /// GETATTR.
    #[must_use]
    pub fn getattr(self, want: &Bitmap) -> Self {
        self.op(OpNum::Getattr, want)
    }

    /// READ.
    #[must_use]
    pub fn read(self, stateid: Stateid, offset: u64, count: u32) -> Self {
        self.op(OpNum::Read, &(Triple(stateid, offset, count)))
    }

    /// WRITE of bytes in memory.
    #[must_use]
    pub fn write(mut self, stateid: Stateid, offset: u64, stable: u32, data: Bytes) -> Self {
        self = self.op(OpNum::Write, &Triple(stateid, offset, stable));
        self.body.bulk(zgate_store::Payload::Bytes(data));
        self
    }

    /// COMMIT.
    #[must_use]
    pub fn commit(self, offset: u64, count: u32) -> Self {
        self.op(OpNum::Commit, &Pair(offset, count))
    }

    /// REMOVE.
    #[must_use]
    pub fn remove(self, name: &[u8]) -> Self {
        self.op(OpNum::Remove, &Name(name))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn into_message(self) -> Message {
        self.body.finish()
    }
}

struct Name<'a>(&'a [u8]);

impl Encode for Name<'_> {
    fn encode(&self, e: &mut Encoder) {
        e.opaque(self.0);
    }
}

struct Pair(u64, u32);

impl Encode for Pair {
    fn encode(&self, e: &mut Encoder) {
        e.u64(self.0);
        e.u32(self.1);
    }
}

struct Triple(Stateid, u64, u32);

impl Encode for Triple {
    fn encode(&self, e: &mut Encoder) {
        self.0.encode(e);
        e.u64(self.1);
        e.u32(self.2);
    }
}

/// The answer to a COMPOUND, read operation by operation.
#[derive(Debug)]
pub struct Results {
    raw: Bytes,
    at: usize,
    placed: Option<usize>,
    /// Status of the whole.
    pub status: Status,
}

impl Results {
    /// Reads the head; `raw` begins at the COMPOUND result.
    pub(crate) fn parse(raw: Bytes) -> Result<Self, ClientError> {
        let garbled = |_| ClientError::Garbled("COMPOUND");
        let mut d = Decoder::new(&raw);
        let status = Status::decode(&mut d).map_err(garbled)?;
        d.opaque(zgate_nfs::limits::MAX_TAG_BYTES).map_err(garbled)?;
        d.u32().map_err(garbled)?;
        let at = d.position();
        Ok(Self { raw, at, placed: None, status })
    }

    /// The next operation's result; an error when the server refused it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Garbled`].
    pub fn next<T: Decode>(&mut self, num: OpNum) -> Result<T, ClientError> {
        let (value, at) = {
            let mut d = self.header(num)?;
            let value = T::decode(&mut d).map_err(|_| ClientError::Garbled(num.name()))?;
            (value, d.position())
        };
        self.at += at;
        Ok(value)
    }

    /// Skips an operation without a result body.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn skip(&mut self, num: OpNum) -> Result<(), ClientError> {
        self.next::<()>(num)
    }

    /// The data of the READ in it lies elsewhere, so many bytes.
    pub(crate) fn set_placed(&mut self, placed: Option<usize>) {
        self.placed = placed;
    }

    /// READ's answer when its memory was lent: whether it reached the end, and
    /// how many bytes were read. `landing` has them when this returns, wherever
    /// the transport left them.
    ///
    /// # Errors
    /// As [`Self::next`]; more data than there is memory.
    pub fn read_into(&mut self, landing: &mut Landing) -> Result<(bool, usize), ClientError> {
        let garbled = |_| ClientError::Garbled("READ");
        let Some(placed) = self.placed else {
            let (eof, data) = self.read()?;
            let place =
                landing.bytes().get_mut(..data.len()).ok_or(ClientError::Garbled("READ"))?;
            place.copy_from_slice(&data);
            return Ok((eof, data.len()));
        };
        let mut d = self.header(OpNum::Read)?;
        let eof = bool::decode(&mut d).map_err(garbled)?;
        let len = d.length(zgate_nfs::limits::MAX_TRANSFER_BYTES).map_err(garbled)?;
        if len == placed { Ok((eof, len)) } else { Err(ClientError::Garbled("READ")) }
    }

    /// READ's answer: whether it reached the end, and the data, not copied.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn read(&mut self) -> Result<(bool, Bytes), ClientError> {
        let garbled = |_| ClientError::Garbled("READ");
        let (eof, start, len, at) = {
            let mut d = self.header(OpNum::Read)?;
            let eof = bool::decode(&mut d).map_err(garbled)?;
            let len = d.length(zgate_nfs::limits::MAX_TRANSFER_BYTES).map_err(garbled)?;
            let start = d.position();
            d.opaque_fixed(len).map_err(garbled)?;
            (eof, start, len, d.position())
        };
        let data = self.raw.slice(self.at + start..self.at + start + len);
        self.at += at;
        Ok((eof, data))
    }

    fn header(&self, num: OpNum) -> Result<Decoder<'_>, ClientError> {
        let garbled = |_| ClientError::Garbled(num.name());
        let mut d = Decoder::new(&self.raw[self.at..]);
        if d.remaining() == 0 && self.status != Status::Ok {
            return Err(ClientError::Refused { operation: num.name(), status: self.status });
        }
        let seen = d.u32().map_err(garbled)?;
        let status = Status::decode(&mut d).map_err(garbled)?;
        if status != Status::Ok {
            return Err(ClientError::Refused { operation: num.name(), status });
        }
        if seen != num as u32 {
            return Err(ClientError::Garbled(num.name()));
        }
        Ok(d)
    }
}
