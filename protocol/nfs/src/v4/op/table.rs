//! Table of the operations: minor versions, session rules and implementation.

use super::read::leave_data;
use super::wrong_flavor::is_left_to_next;
use super::{Immediate, Rule, reply_room};
use crate::v4::failure::Failure;
use crate::v4::request::Cx;
use zgate_nfs_wire::v4::{Bitmap, OpNum, Operation, Status, op};
use zgate_xdr::{Decode, Decoder, Encode, Encoder};

/// Boxed future of one operation; returns the status it wrote.
pub type RunFuture<'a> = std::pin::Pin<Box<dyn Future<Output = Status> + Send + 'a>>;

/// Decodes the arguments, runs the operation, writes status and result.
pub type RunInTime =
    for<'a, 'b, 'd> fn(&'a mut Cx<'b>, &'a mut Decoder<'d>, &'a mut Encoder) -> RunFuture<'a>;

/// Does the same without waiting; returns the status it wrote.
pub type RunAtOnce = fn(&mut Cx<'_>, &mut Decoder<'_>, &mut Encoder) -> Status;

/// Way in which an operation runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// It waits for nothing: it needs no future.
    AtOnce(RunAtOnce),
    /// It may wait, for storage or for a client.
    InTime(RunInTime),
}

/// Relation of an operation to sessions (RFC 8881 §2.10.1, §18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRule {
    /// After SEQUENCE only.
    Inside,
    /// After SEQUENCE, or alone in a COMPOUND.
    InsideOrAlone,
    /// Alone in a COMPOUND, never after SEQUENCE.
    Alone,
    /// SEQUENCE itself: first operation only.
    First,
}

/// One operation.
pub struct Row {
    /// Its number.
    pub num: OpNum,
    /// Lowest and highest minor version that has the operation.
    pub minors: (u8, u8),
    /// Relation to sessions, from minor version 1 on.
    pub session: SessionRule,
    /// Runs it.
    pub run: Run,
}

fn run<'a, 'b, 'd, O: Rule>(
    cx: &'a mut Cx<'b>,
    d: &'a mut Decoder<'d>,
    e: &'a mut Encoder,
) -> RunFuture<'a> {
    Box::pin(async move {
        let Ok(args) = O::Args::decode(d) else {
            return refuse_arguments(e, O::NUM);
        };
        if let Err(status) = reply_room::check(cx, O::NUM, d) {
            encode_refusal(e, O::NUM, status);
            return status;
        }
        if matches!(O::NUM, OpNum::Read | OpNum::ReadPlus) {
            let left = cx.op_count.saturating_sub(cx.op_index + 1);
            cx.data_stays = leave_data(d.clone(), left);
        }
        let result = O::run(cx, args).await;
        write_result(result, e)
    })
}

fn run_at_once<O: Immediate>(cx: &mut Cx<'_>, d: &mut Decoder<'_>, e: &mut Encoder) -> Status {
    let Ok(args) = O::Args::decode(d) else {
        return refuse_arguments(e, O::NUM);
    };
    match O::run(cx, args) {
        Err(failure) if failure.status == Status::Wrongsec && is_left_to_next(cx, O::NUM, d) => {
            write_result(Ok(()), e)
        }
        result => write_result(result, e),
    }
}

fn refuse_arguments(e: &mut Encoder, num: OpNum) -> Status {
    encode_refusal(e, num, Status::Badxdr);
    Status::Badxdr
}

fn write_result<R: Encode>(result: Result<R, Failure>, e: &mut Encoder) -> Status {
    match result {
        Ok(res) => {
            Status::Ok.encode(e);
            res.encode(e);
            Status::Ok
        }
        Err(failure) => {
            failure.status.encode(e);
            e.raw(&failure.body);
            failure.status
        }
    }
}

/// Writes the status of an operation that was not run. SETATTR returns the
/// attributes that were set with every status (RFC 8881 §18.30.2).
pub(crate) fn encode_refusal(e: &mut Encoder, num: OpNum, status: Status) {
    status.encode(e);
    if num == OpNum::Setattr {
        Bitmap::default().encode(e);
    }
}

macro_rules! rows {
    (@ $op:ident) => { Run::InTime(run::<op::$op>) };
    (@ $op:ident at_once) => { Run::AtOnce(run_at_once::<op::$op>) };
    ($($op:ident, $first:literal ..= $last:literal, $session:ident $($how:ident)?;)*) => {
        &[$(Row {
            num: <op::$op as Operation>::NUM,
            minors: ($first, $last),
            session: SessionRule::$session,
            run: rows!(@ $op $($how)?),
        }),*]
    };
}

/// The table.
pub static ROWS: &[Row] = rows! {
    Access, 0..=2, Inside;
    Close, 0..=2, Inside;
    Commit, 0..=2, Inside;
    Create, 0..=2, Inside;
    Delegpurge, 0..=2, Inside;
    Delegreturn, 0..=2, Inside;
    Getattr, 0..=2, Inside;
    Getfh, 0..=2, Inside at_once;
    Link, 0..=2, Inside;
    Lock, 0..=2, Inside;
    Lockt, 0..=2, Inside;
    Locku, 0..=2, Inside;
    Lookup, 0..=2, Inside;
    Lookupp, 0..=2, Inside;
    Nverify, 0..=2, Inside;
    Open, 0..=2, Inside;
    Openattr, 0..=2, Inside;
    OpenConfirm, 0..=0, Inside;
    OpenDowngrade, 0..=2, Inside;
    Putfh, 0..=2, Inside at_once;
    Putpubfh, 0..=2, Inside at_once;
    Putrootfh, 0..=2, Inside at_once;
    Read, 0..=2, Inside;
    Readdir, 0..=2, Inside;
    Readlink, 0..=2, Inside;
    Remove, 0..=2, Inside;
    Rename, 0..=2, Inside;
    Renew, 0..=0, Inside;
    Restorefh, 0..=2, Inside at_once;
    Savefh, 0..=2, Inside at_once;
    Secinfo, 0..=2, Inside;
    Setattr, 0..=2, Inside;
    Setclientid, 0..=0, Inside;
    SetclientidConfirm, 0..=0, Inside;
    Verify, 0..=2, Inside;
    Write, 0..=2, Inside;
    ReleaseLockowner, 0..=0, Inside;
    BackchannelCtl, 1..=2, Inside;
    BindConnToSession, 1..=2, Alone;
    ExchangeId, 1..=2, InsideOrAlone;
    CreateSession, 1..=2, InsideOrAlone;
    DestroySession, 1..=2, InsideOrAlone;
    FreeStateid, 1..=2, Inside;
    GetDirDelegation, 1..=2, Inside;
    Getdeviceinfo, 1..=2, Inside;
    Getdevicelist, 1..=2, Inside;
    Layoutcommit, 1..=2, Inside;
    Layoutget, 1..=2, Inside;
    Layoutreturn, 1..=2, Inside;
    SecinfoNoName, 1..=2, Inside;
    Sequence, 1..=2, First at_once;
    SetSsv, 1..=2, Inside;
    TestStateid, 1..=2, Inside;
    WantDelegation, 1..=2, Inside;
    DestroyClientid, 1..=2, InsideOrAlone;
    ReclaimComplete, 1..=2, Inside;
    Allocate, 2..=2, Inside;
    Copy, 2..=2, Inside;
    CopyNotify, 2..=2, Inside;
    Deallocate, 2..=2, Inside;
    IoAdvise, 2..=2, Inside;
    Layouterror, 2..=2, Inside;
    Layoutstats, 2..=2, Inside;
    OffloadCancel, 2..=2, Inside;
    OffloadStatus, 2..=2, Inside;
    ReadPlus, 2..=2, Inside;
    Seek, 2..=2, Inside;
    WriteSame, 2..=2, Inside;
    Clone, 2..=2, Inside;
    Getxattr, 2..=2, Inside;
    Setxattr, 2..=2, Inside;
    Listxattrs, 2..=2, Inside;
    Removexattr, 2..=2, Inside;
};

/// Highest operation number in the table.
const MAX_NUM: usize = OpNum::Removexattr as usize;

static BY_NUM: [Option<u8>; MAX_NUM + 1] = index();

const fn index() -> [Option<u8>; MAX_NUM + 1] {
    let mut by_num = [None; MAX_NUM + 1];
    let mut at = 0;
    while at < ROWS.len() {
        by_num[ROWS[at].num as usize] = Some(at as u8);
        at += 1;
    }
    by_num
}

/// Reason why a number names no operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRow {
    /// Unknown to this minor version: OP_ILLEGAL.
    Illegal,
    /// Of minor version 0 only: NFS4ERR_NOTSUPP (RFC 8881 §18, "MNI").
    Withdrawn(OpNum),
}

/// The operation with this number in this minor version.
///
/// # Errors
/// [`NoRow`].
pub fn find(num: u32, minor: u8) -> Result<&'static Row, NoRow> {
    let row = BY_NUM
        .get(num as usize)
        .copied()
        .flatten()
        .map(|at| &ROWS[usize::from(at)])
        .ok_or(NoRow::Illegal)?;
    if minor < row.minors.0 {
        return Err(NoRow::Illegal);
    }
    if minor > row.minors.1 {
        return Err(NoRow::Withdrawn(row.num));
    }
    Ok(row)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_one_row() {
        let mut seen = std::collections::HashSet::new();
        for row in ROWS {
            assert!(seen.insert(row.num), "{} twice", row.num.name());
        }
        for (num, row) in BY_NUM.iter().enumerate().skip(3) {
            assert!(row.is_some(), "{num} has no row");
        }
    }

    #[test]
    fn minor_versions_are_kept_apart() {
        let sequence = OpNum::Sequence as u32;
        assert_eq!(find(sequence, 0).err(), Some(NoRow::Illegal));
        assert!(find(sequence, 1).is_ok());
        let renew = OpNum::Renew as u32;
        assert_eq!(find(renew, 1).err(), Some(NoRow::Withdrawn(OpNum::Renew)));
        assert_eq!(find(OpNum::Clone as u32, 1).err(), Some(NoRow::Illegal));
        assert_eq!(find(2, 0).err(), Some(NoRow::Illegal));
        assert_eq!(find(u32::MAX, 2).err(), Some(NoRow::Illegal));
    }
}
