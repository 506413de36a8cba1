//! How the arguments of every operation are built (RFC 7531, RFC 5662, RFC
//! 7863, RFC 8276), one letter for each item, and how its result is read.
//!
//! Digits stand for themselves; `w` a small number, `l` an offset or length,
//! `q` a sequence number, `n` a name, `f` a file handle, `s` a stateid,
//! `b` a bitmap, `a` a fattr4, `d` opaque data, `v` a verifier, `c` a client
//! id, `O` an owner, `S` a session id.

use zgate_nfs::v4::op::*;
use zgate_nfs::v4::wire::Status;
use zgate_xdr::{Decode, Decoder, XdrError};

type Skip = fn(&mut Decoder<'_>) -> Result<(), XdrError>;

/// One way to call an operation.
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
    3 "w" access::Access,
    4 "qs" close::Close,
    5 "lw" commit::Commit,
    6 "2na" create::Create,
    6 "5nna" create::Create,
    6 "wna" create::Create,
    7 "c" delegpurge::Delegpurge,
    8 "s" delegreturn::Delegreturn,
    9 "b" getattr::Getattr,
    10 "" getfh::Getfh,
    11 "n" link::Link,
    12 "w0ll1qsqO" lock::Lock,
    12 "w0ll0sq" lock::Lock,
    13 "wllO" lockt::Lockt,
    14 "wqsll" locku::Locku,
    15 "n" lookup::Lookup,
    16 "" lookupp::Lookupp,
    17 "a" nverify::Nverify,
    18 "qwwO00n" open::Open,
    18 "qwwO10a0n" open::Open,
    18 "qwwO11a0n" open::Open,
    18 "qwwO12v0n" open::Open,
    18 "qwwO13va0n" open::Open,
    18 "qwwO04" open::Open,
    18 "qwwO01w" open::Open,
    18 "qwwO02sn" open::Open,
    19 "w" openattr::Openattr,
    20 "sq" open_confirm::OpenConfirm,
    21 "sqww" open_downgrade::OpenDowngrade,
    22 "f" putfh::Putfh,
    23 "" putpubfh::Putpubfh,
    24 "" putrootfh::Putrootfh,
    25 "slw" read::Read,
    26 "lvwwb" readdir::Readdir,
    27 "" readlink::Readlink,
    28 "n" remove::Remove,
    29 "nn" rename::Rename,
    30 "c" renew::Renew,
    31 "" restorefh::Restorefh,
    32 "" savefh::Savefh,
    33 "n" secinfo::Secinfo,
    34 "sa" setattr::Setattr,
    35 "vdwddw" setclientid::Setclientid,
    36 "cv" setclientid_confirm::SetclientidConfirm,
    37 "a" verify::Verify,
    38 "slwd" write::Write,
    39 "O" release_lockowner::ReleaseLockowner,
    40 "w10" backchannel_ctl::BackchannelCtl,
    41 "Sw0" bind_conn_to_session::BindConnToSession,
    42 "vdw00" exchange_id::ExchangeId,
    43 "cqwwwwwww0wwwwww0w10" create_session::CreateSession,
    44 "S" destroy_session::DestroySession,
    45 "s" free_stateid::FreeStateid,
    52 "w" secinfo_no_name::SecinfoNoName,
    53 "Sqww0" sequence::Sequence,
    55 "1s" test_stateid::TestStateid,
    55 "2ss" test_stateid::TestStateid,
    57 "c" destroy_clientid::DestroyClientid,
    58 "0" reclaim_complete::ReclaimComplete,
    59 "sll" allocate::Allocate,
    60 "sslll110" copy::Copy,
    62 "sll" deallocate::Deallocate,
    63 "sllb" io_advise::IoAdvise,
    66 "s" offload_cancel::OffloadCancel,
    67 "s" offload_status::OffloadStatus,
    68 "slw" read_plus::ReadPlus,
    69 "slw" seek::Seek,
    71 "sslll" clone::Clone,
    72 "n" getxattr::Getxattr,
    73 "wnd" setxattr::Setxattr,
    74 "lw" listxattrs::Listxattrs,
    75 "n" removexattr::Removexattr,
};

/// Reads a whole answer: as many results as there are, nothing behind them, an
/// end at the first failure. Returns the COMPOUND's status.
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
                (34, _) => skip::<zgate_nfs::v4::wire::Bitmap>(&mut d).expect("what was set"),
                // SETCLIENTID's CLID_INUSE and CREATE_SESSION's TOOSMALL have more.
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
