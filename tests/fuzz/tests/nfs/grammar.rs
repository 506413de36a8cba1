//! Grammar of the arguments and results of every operation (RFC 7531, RFC 5662,
//! RFC 7863, RFC 8276), one letter for each item.
//!
//! Digits stand for themselves; `w` a small number, `l` an offset or length,
//! `q` a sequence number, `n` a name, `f` a file handle, `s` a stateid,
//! `b` a bitmap, `a` a fattr4, `d` opaque data, `v` a verifier, `c` a client
//! id, `O` an owner, `S` a session id.

use zgate_nfs_wire::v4::Status;
use zgate_nfs_wire::v4::op::*;
use zgate_xdr::{Decode, Decoder, XdrError};

type Skip = fn(&mut Decoder<'_>) -> Result<(), XdrError>;

/// One form of the arguments of an operation.
pub(crate) struct Row {
    pub(crate) number: u32,
    pub(crate) args: &'static str,
    skip: Skip,
}

fn skip<T: Decode>(d: &mut Decoder<'_>) -> Result<(), XdrError> {
    T::decode(d).map(|_| ())
}

macro_rules! rows {
    ($($number:literal $args:literal $op:ty,)*) => {
        &[$(Row { number: $number, args: $args, skip: skip::<<$op as Operation>::Res> },)*]
    };
}

pub(crate) const ROWS: &[Row] = rows! {
    3 "w" Access,
    4 "qs" Close,
    5 "lw" Commit,
    6 "2na" Create,
    6 "5nna" Create,
    6 "wna" Create,
    7 "c" Delegpurge,
    8 "s" Delegreturn,
    9 "b" Getattr,
    10 "" Getfh,
    11 "n" Link,
    12 "w0ll1qsqO" Lock,
    12 "w0ll0sq" Lock,
    13 "wllO" Lockt,
    14 "wqsll" Locku,
    15 "n" Lookup,
    16 "" Lookupp,
    17 "a" Nverify,
    18 "qwwO00n" Open,
    18 "qwwO10a0n" Open,
    18 "qwwO11a0n" Open,
    18 "qwwO12v0n" Open,
    18 "qwwO13va0n" Open,
    18 "qwwO04" Open,
    18 "qwwO01w" Open,
    18 "qwwO02sn" Open,
    19 "w" Openattr,
    20 "sq" OpenConfirm,
    21 "sqww" OpenDowngrade,
    22 "f" Putfh,
    23 "" Putpubfh,
    24 "" Putrootfh,
    25 "slw" Read,
    26 "lvwwb" Readdir,
    27 "" Readlink,
    28 "n" Remove,
    29 "nn" Rename,
    30 "c" Renew,
    31 "" Restorefh,
    32 "" Savefh,
    33 "n" Secinfo,
    34 "sa" Setattr,
    35 "vdwddw" Setclientid,
    36 "cv" SetclientidConfirm,
    37 "a" Verify,
    38 "slwd" Write,
    39 "O" ReleaseLockowner,
    40 "w10" BackchannelCtl,
    41 "Sw0" BindConnToSession,
    42 "vdw00" ExchangeId,
    43 "cqwwwwwww0wwwwww0w10" CreateSession,
    44 "S" DestroySession,
    45 "s" FreeStateid,
    52 "w" SecinfoNoName,
    53 "Sqww0" Sequence,
    55 "1s" TestStateid,
    55 "2ss" TestStateid,
    57 "c" DestroyClientid,
    58 "0" ReclaimComplete,
    59 "sll" Allocate,
    60 "sslll110" Copy,
    62 "sll" Deallocate,
    63 "sllb" IoAdvise,
    66 "s" OffloadCancel,
    67 "s" OffloadStatus,
    68 "slw" ReadPlus,
    69 "slw" Seek,
    71 "sslll" Clone,
    72 "n" Getxattr,
    73 "wnd" Setxattr,
    74 "lw" Listxattrs,
    75 "n" Removexattr,
};

/// Decodes a whole answer: the stated number of results, no bytes after them,
/// and an end at the first failure. Returns the COMPOUND's status.
pub(crate) fn check_answer(raw: &[u8], asked: usize) -> Status {
    let mut d = Decoder::new(raw);
    let status = Status::decode(&mut d).expect("a status");
    d.opaque(1024).expect("the tag");
    let count = d.u32().expect("a count") as usize;
    assert!(count <= asked.max(1), "{count} answers to {asked} operations");
    for index in 0..count {
        let number = d.u32().expect("an operation");
        let of = Status::decode(&mut d).expect("its status");
        if of != Status::Ok {
            assert_eq!((index + 1, of), (count, status), "operations run after a failure");
            match (number, of) {
                (12 | 13, Status::Denied) => skip::<lock::Denied>(&mut d).expect("who holds it"),
                (34, _) => skip::<zgate_nfs_wire::v4::Bitmap>(&mut d).expect("what was set"),
                // SETCLIENTID's CLID_INUSE and CREATE_SESSION's TOOSMALL have a
                // body.
                _ => drop(d.take(d.remaining())),
            }
            break;
        }
        let row = ROWS.iter().find(|row| row.number == number).expect("an operation that was sent");
        (row.skip)(&mut d).unwrap_or_else(|e| panic!("op {number} answers badly: {e}"));
        if index + 1 == count {
            assert_eq!(status, Status::Ok);
        }
    }
    d.finish().expect("nothing behind the answers");
    status
}
