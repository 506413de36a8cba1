//! Iteration over the operations of a COMPOUND, to find the data of a WRITE or
//! a READ in a record, and to classify a COMPOUND. Supports only the operations
//! that clients combine with these.

use super::op::{readdir, secinfo, sequence};
use super::{Bitmap, OpNum, Status};
use crate::limits::{
    MAX_COMPONENT_BYTES, MAX_FATTR_BYTES, MAX_FH_BYTES, MAX_LINK_BYTES, MAX_OPAQUE_BYTES, MAX_OPS,
    MAX_TAG_BYTES, MAX_TRANSFER_BYTES,
};
use zgate_xdr::{Decode, Decoder, XdrError};

/// Decoder of the arguments of a COMPOUND.
#[derive(Debug)]
pub struct Arguments<'d, 'a> {
    /// Positioned at the next number, or at the arguments of the operation
    /// whose number was read last.
    pub d: &'d mut Decoder<'a>,
    /// Minor version.
    pub minor: u32,
    left: usize,
}

impl<'d, 'a> Arguments<'d, 'a> {
    /// Decodes the header.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn open(d: &'d mut Decoder<'a>) -> Result<Self, XdrError> {
        d.opaque(MAX_TAG_BYTES)?;
        let minor = d.u32()?;
        let left = d.u32()? as usize;
        Ok(Self { d, minor, left })
    }

    /// The next operation's number; `None` at the end.
    ///
    /// # Errors
    /// [`XdrError::BadValue`] for an unknown operation number.
    pub fn next_op(&mut self) -> Result<Option<OpNum>, XdrError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        OpNum::decode(self.d).map(Some)
    }

    /// Skips the arguments of the operation; false if it is not supported.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn skip(&mut self, op: OpNum) -> Result<bool, XdrError> {
        let d = &mut *self.d;
        match op {
            OpNum::Getfh
            | OpNum::Lookupp
            | OpNum::Putpubfh
            | OpNum::Putrootfh
            | OpNum::Readlink
            | OpNum::Restorefh
            | OpNum::Savefh => {}
            OpNum::Sequence => {
                sequence::Args::decode(d)?;
            }
            OpNum::Access => drop(d.take(4)?),
            OpNum::Renew => drop(d.take(8)?),
            OpNum::Commit => drop(d.take(8 + 4)?),
            // Stateid, offset, count.
            OpNum::Read => drop(d.take(16 + 8 + 4)?),
            OpNum::Putfh => drop(d.opaque(MAX_FH_BYTES)?),
            OpNum::Lookup | OpNum::Secinfo => drop(d.opaque(MAX_COMPONENT_BYTES)?),
            OpNum::Getattr => drop(Bitmap::decode(d)?),
            OpNum::Verify | OpNum::Nverify => {
                Bitmap::decode(d)?;
                d.opaque(MAX_FATTR_BYTES)?;
            }
            // Cookie, verifier, two limits, attributes.
            OpNum::Readdir => {
                d.take(8 + 8 + 4 + 4)?;
                Bitmap::decode(d)?;
            }
            // Type, offset, length, client id, owner.
            OpNum::Lockt => {
                d.take(4 + 8 + 8 + 8)?;
                d.opaque(MAX_OPAQUE_BYTES)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Decoder of the results of a COMPOUND.
#[derive(Debug)]
pub struct Results<'d, 'a> {
    /// Positioned at the next number, or after the status that was read last.
    pub d: &'d mut Decoder<'a>,
    /// Status of the whole.
    pub status: Status,
    left: usize,
}

impl<'d, 'a> Results<'d, 'a> {
    /// Decodes the header.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn open(d: &'d mut Decoder<'a>) -> Result<Self, XdrError> {
        let status = Status::decode(d)?;
        d.opaque(MAX_TAG_BYTES)?;
        let left = d.length(MAX_OPS)?;
        Ok(Self { d, status, left })
    }

    /// Number and status of the next operation; `None` at the end.
    ///
    /// # Errors
    /// [`XdrError::BadValue`] for an unknown number or status.
    pub fn next_op(&mut self) -> Result<Option<(OpNum, Status)>, XdrError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        Ok(Some((OpNum::decode(self.d)?, Status::decode(self.d)?)))
    }

    /// Returns whether the operation was the last one.
    #[must_use]
    pub fn is_last(&self) -> bool {
        self.left == 0
    }

    /// Skips the result of a successful operation; false if it is not
    /// supported.
    ///
    /// # Errors
    /// [`XdrError`].
    pub fn skip(&mut self, op: OpNum) -> Result<bool, XdrError> {
        let d = &mut *self.d;
        match op {
            OpNum::Lockt
            | OpNum::Lookup
            | OpNum::Lookupp
            | OpNum::Nverify
            | OpNum::Putfh
            | OpNum::Putpubfh
            | OpNum::Putrootfh
            | OpNum::Renew
            | OpNum::Restorefh
            | OpNum::Savefh
            | OpNum::Verify => {}
            OpNum::Sequence => {
                sequence::Res::decode(d)?;
            }
            OpNum::Access | OpNum::Commit => drop(d.take(8)?),
            OpNum::Read => {
                bool::decode(d)?;
                d.opaque(MAX_TRANSFER_BYTES)?;
            }
            OpNum::Readlink => drop(d.opaque(MAX_LINK_BYTES)?),
            OpNum::Readdir => drop(readdir::Res::decode(d)?),
            OpNum::Secinfo => drop(secinfo::Res::decode(d)?),
            OpNum::Getfh => drop(d.opaque(MAX_FH_BYTES)?),
            OpNum::Getattr => {
                Bitmap::decode(d)?;
                d.opaque(MAX_FATTR_BYTES)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}
