//! Building COMPOUNDs and parsing their results.

use crate::error::ClientError;
use crate::transport::ReadBuffer;
use bytes::Bytes;
use zgate_nfs_wire::limits::MAX_TRANSFER_BYTES;
use zgate_nfs_wire::v4::op::{commit, read, write};
use zgate_nfs_wire::v4::{Bitmap, Component, Fh, OpNum, StableHow, Stateid, Status, walk};
use zgate_store::Payload;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, Message};

/// Operations to be sent in one COMPOUND.
#[derive(Clone, Debug, Default)]
pub struct Ops {
    body: Encoder,
    count: u32,
}

impl Ops {
    /// Creates an empty list.
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

    /// Adds PUTROOTFH.
    #[must_use]
    pub fn putrootfh(self) -> Self {
        self.op(OpNum::Putrootfh, &())
    }

    /// Adds PUTFH.
    #[must_use]
    pub fn putfh(self, fh: &Fh) -> Self {
        self.op(OpNum::Putfh, fh)
    }

    /// Adds LOOKUP.
    #[must_use]
    pub fn lookup(self, name: &[u8]) -> Self {
        self.op(OpNum::Lookup, &Component::from(name))
    }

    /// Adds GETFH.
    #[must_use]
    pub fn getfh(self) -> Self {
        self.op(OpNum::Getfh, &())
    }

    /// Adds GETATTR.
    #[must_use]
    pub fn getattr(self, want: &Bitmap) -> Self {
        self.op(OpNum::Getattr, want)
    }

    /// Adds READ.
    #[must_use]
    pub fn read(self, stateid: Stateid, offset: u64, count: u32) -> Self {
        self.op(OpNum::Read, &read::Args { stateid, offset, count })
    }

    /// Adds WRITE of bytes in memory.
    #[must_use]
    pub fn write(self, stateid: Stateid, offset: u64, stable: StableHow, data: Bytes) -> Self {
        self.op(OpNum::Write, &write::Args { stateid, offset, stable, data })
    }

    /// Adds COMMIT.
    #[must_use]
    pub fn commit(self, offset: u64, count: u32) -> Self {
        self.op(OpNum::Commit, &commit::Args { offset, count })
    }

    /// Adds REMOVE.
    #[must_use]
    pub fn remove(self, name: &[u8]) -> Self {
        self.op(OpNum::Remove, &Component::from(name))
    }

    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    pub(crate) fn into_message(self) -> Message {
        self.body.finish()
    }
}

/// Results of a COMPOUND, parsed operation by operation.
#[derive(Debug)]
pub struct Results {
    /// Not read yet.
    rest: Bytes,
    placed: Option<usize>,
    /// Status of the COMPOUND.
    pub status: Status,
}

impl Results {
    /// Parses the head; `raw` begins at the COMPOUND result.
    pub(crate) fn parse(raw: Bytes) -> Result<Self, ClientError> {
        let mut d = Decoder::new(&raw);
        let head = walk::Results::open(&mut d).map_err(|_| ClientError::Garbled("COMPOUND"))?;
        let status = head.status;
        let at = d.position();
        Ok(Self { rest: raw.slice(at..), placed: None, status })
    }

    /// Returns the next operation's result; an error if the server refused it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and [`ClientError::Garbled`].
    pub fn next<T: Decode>(&mut self, num: OpNum) -> Result<T, ClientError> {
        let rest = self.rest.clone();
        let mut d = self.header(num, &rest)?;
        let value = T::decode(&mut d).map_err(|_| ClientError::Garbled(num.name()))?;
        self.rest = rest.slice(d.position()..);
        Ok(value)
    }

    /// Skips an operation without a result body.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn skip(&mut self, num: OpNum) -> Result<(), ClientError> {
        self.next::<()>(num)
    }

    /// Records that the data of the READ was placed elsewhere, with its length.
    pub(crate) fn set_placed(&mut self, placed: Option<usize>) {
        self.placed = placed;
    }

    /// Returns the result of a READ with lent memory: whether it reached the
    /// end, and the number of bytes read. `read_buffer` holds them on return,
    /// wherever the transport put them.
    ///
    /// # Errors
    /// As [`Self::next`]; more data than the memory can hold.
    pub fn read_into(
        &mut self,
        read_buffer: &mut ReadBuffer,
    ) -> Result<(bool, usize), ClientError> {
        let garbled = |_| ClientError::Garbled("READ");
        let Some(placed) = self.placed else {
            let (eof, data) = self.read()?;
            let place =
                read_buffer.bytes().get_mut(..data.len()).ok_or(ClientError::Garbled("READ"))?;
            place.copy_from_slice(&data);
            return Ok((eof, data.len()));
        };
        let mut d = self.header(OpNum::Read, &self.rest)?;
        let eof = bool::decode(&mut d).map_err(garbled)?;
        let (_, len) = d.bulk_position(MAX_TRANSFER_BYTES).map_err(garbled)?;
        if len == placed { Ok((eof, len)) } else { Err(ClientError::Garbled("READ")) }
    }

    /// Returns READ's result: whether it reached the end, and the data, without
    /// a copy.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn read(&mut self) -> Result<(bool, Bytes), ClientError> {
        match self.next(OpNum::Read)? {
            read::Res { eof, data: Payload::Bytes(data) } => Ok((eof, data)),
            read::Res { .. } => Err(ClientError::Garbled("READ")),
        }
    }

    fn header<'a>(&self, num: OpNum, rest: &'a Bytes) -> Result<Decoder<'a>, ClientError> {
        let garbled = |_| ClientError::Garbled(num.name());
        let mut d = Decoder::shared(rest);
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
