//! WRITE (RFC 8881 §18.32).

use super::read::kind_first;
use super::{Failure, Operation};
use crate::limits::MAX_TRANSFER_BYTES;
use crate::v4::cx::Cx;
use crate::v4::state::io::{IoAccess, open_for_change};
use crate::v4::wire::{OpNum, StableHow, Stateid, Status, Verifier};
use bytes::Bytes;
use zgate_store::Payload;
use zgate_store::file_store::Stability;
use zgate_xdr::{Decode, Decoder, Encode, Encoder, XdrError, xdr_struct};

/// WRITE4args.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Args {
    /// An open, lock or delegation, or the anonymous one.
    pub stateid: Stateid,
    /// First byte.
    pub offset: u64,
    /// How stable before the answer.
    pub stable: StableHow,
    /// The data.
    pub data: Bytes,
}

impl Encode for Args {
    fn encode(&self, e: &mut Encoder) {
        self.stateid.encode(e);
        e.u64(self.offset);
        self.stable.encode(e);
        e.bulk(Payload::Bytes(self.data.clone()));
    }
}

impl Decode for Args {
    fn decode(d: &mut Decoder<'_>) -> Result<Self, XdrError> {
        Ok(Self {
            stateid: Decode::decode(d)?,
            offset: d.u64()?,
            stable: Decode::decode(d)?,
            data: d.bulk(MAX_TRANSFER_BYTES)?,
        })
    }
}

xdr_struct! {
    /// WRITE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// Bytes written.
        pub count: u32,
        /// How stable they are.
        pub committed: StableHow,
        /// Changes when unstable data may have been lost.
        pub verifier: Verifier,
    }
}

/// stable_how4 as the store knows it.
#[must_use]
pub fn stability(how: StableHow) -> Stability {
    match how {
        StableHow::Unstable => Stability::Unstable,
        StableHow::DataSync => Stability::DataSync,
        StableHow::FileSync => Stability::FileSync,
    }
}

/// And back.
#[must_use]
pub fn stable_how(stability: Stability) -> StableHow {
    match stability {
        Stability::Unstable => StableHow::Unstable,
        Stability::DataSync => StableHow::DataSync,
        Stability::FileSync => StableHow::FileSync,
    }
}

/// The operation.
pub struct Write;

impl Operation for Write {
    const NUM: OpNum = OpNum::Write;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let object = match cx.writable_object() {
            Ok(object) => object,
            Err(status) => {
                let object = cx.object(Status::Isdir)?;
                return Err(kind_first(cx, &object, status).await.into());
            }
        };
        let opened = open_for_change(cx, &object, args.stateid, IoAccess::Write).await;
        let (file, changing) = match opened {
            Ok(opened) => opened,
            Err(status) => return Err(kind_first(cx, &object, status).await.into()),
        };
        let verifier = cx.server.write_verifier.of(&*object.export.store);
        let len = args.data.len() as u64;
        let end = args.offset.checked_add(len).ok_or(Status::Inval)?;
        if end > object.export.store.traits().max_file_bytes {
            return Err(Status::Fbig.into());
        }
        if len == 0 {
            return Ok(Res { count: 0, committed: args.stable, verifier });
        }
        let store = &object.export.store;
        let write = store.write(&file, args.offset, args.data, stability(args.stable));
        let written = changing.in_store(write).await;
        let (count, done) = written?;
        Ok(Res { count: count as u32, committed: stable_how(done), verifier })
    }
}
