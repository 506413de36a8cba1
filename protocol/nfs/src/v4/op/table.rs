//! Every operation, when it is legal, and how it is run.

use super::*;
use crate::v4::wire::Bitmap;
use zgate_xdr::Decoder;

/// A boxed run of one operation; answers what it wrote as status.
pub type RunFuture<'a> = std::pin::Pin<Box<dyn Future<Output = Status> + 'a>>;

/// Decodes the arguments, runs the rule, writes status and result.
pub type Run =
    for<'a, 'b, 'd> fn(&'a mut Cx<'b>, &'a mut Decoder<'d>, &'a mut Encoder) -> RunFuture<'a>;

/// How an operation relates to sessions (RFC 8881 §2.10.1, §18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRule {
    /// Behind SEQUENCE only.
    Inside,
    /// Behind SEQUENCE, or alone in a COMPOUND.
    InsideOrAlone,
    /// Alone in a COMPOUND, never behind SEQUENCE.
    Alone,
    /// SEQUENCE itself: first.
    First,
}

/// One operation.
pub struct Row {
    /// Its number.
    pub num: OpNum,
    /// Lowest and highest minor version that has it.
    pub minors: (u8, u8),
    /// How it relates to sessions, from minor version 1 on.
    pub session: SessionRule,
    /// Runs it.
    pub run: Run,
}

fn run<'a, 'b, 'd, O: Operation>(
    cx: &'a mut Cx<'b>,
    d: &'a mut Decoder<'d>,
    e: &'a mut Encoder,
) -> RunFuture<'a> {
    Box::pin(async move {
        let args = match O::Args::decode(d) {
            Ok(args) => args,
            Err(_) => {
                encode_refusal(e, O::NUM, Status::Badxdr);
                return Status::Badxdr;
            }
        };
        match O::run(cx, args).await {
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
    })
}

/// The status of an operation that was not run. SETATTR tells the attributes
/// that were set with every status (RFC 8881 §18.30.2).
pub(crate) fn encode_refusal(e: &mut Encoder, num: OpNum, status: Status) {
    status.encode(e);
    if num == OpNum::Setattr {
        Bitmap::default().encode(e);
    }
}

macro_rules! rows {
    ($($op:ty, $first:literal ..= $last:literal, $session:ident;)*) => {
        &[$(Row {
            num: <$op as Operation>::NUM,
            minors: ($first, $last),
            session: SessionRule::$session,
            run: run::<$op>,
        }),*]
    };
}

/// The table.
pub static ROWS: &[Row] = rows! {
    access::Access, 0..=2, Inside;
    close::Close, 0..=2, Inside;
    commit::Commit, 0..=2, Inside;
    create::Create, 0..=2, Inside;
    delegpurge::Delegpurge, 0..=2, Inside;
    delegreturn::Delegreturn, 0..=2, Inside;
    getattr::Getattr, 0..=2, Inside;
    getfh::Getfh, 0..=2, Inside;
    link::Link, 0..=2, Inside;
    lock::Lock, 0..=2, Inside;
    lockt::Lockt, 0..=2, Inside;
    locku::Locku, 0..=2, Inside;
    lookup::Lookup, 0..=2, Inside;
    lookupp::Lookupp, 0..=2, Inside;
    nverify::Nverify, 0..=2, Inside;
    open::Open, 0..=2, Inside;
    openattr::Openattr, 0..=2, Inside;
    open_confirm::OpenConfirm, 0..=0, Inside;
    open_downgrade::OpenDowngrade, 0..=2, Inside;
    putfh::Putfh, 0..=2, Inside;
    putpubfh::Putpubfh, 0..=2, Inside;
    putrootfh::Putrootfh, 0..=2, Inside;
    read::Read, 0..=2, Inside;
    readdir::Readdir, 0..=2, Inside;
    readlink::Readlink, 0..=2, Inside;
    remove::Remove, 0..=2, Inside;
    rename::Rename, 0..=2, Inside;
    renew::Renew, 0..=0, Inside;
    restorefh::Restorefh, 0..=2, Inside;
    savefh::Savefh, 0..=2, Inside;
    secinfo::Secinfo, 0..=2, Inside;
    setattr::Setattr, 0..=2, Inside;
    setclientid::Setclientid, 0..=0, Inside;
    setclientid_confirm::SetclientidConfirm, 0..=0, Inside;
    verify::Verify, 0..=2, Inside;
    write::Write, 0..=2, Inside;
    release_lockowner::ReleaseLockowner, 0..=0, Inside;
    backchannel_ctl::BackchannelCtl, 1..=2, Inside;
    bind_conn_to_session::BindConnToSession, 1..=2, Alone;
    exchange_id::ExchangeId, 1..=2, InsideOrAlone;
    create_session::CreateSession, 1..=2, InsideOrAlone;
    destroy_session::DestroySession, 1..=2, InsideOrAlone;
    free_stateid::FreeStateid, 1..=2, Inside;
    want_delegation::GetDirDelegation, 1..=2, Inside;
    layout::Getdeviceinfo, 1..=2, Inside;
    layout::Getdevicelist, 1..=2, Inside;
    layout::Layoutcommit, 1..=2, Inside;
    layout::Layoutget, 1..=2, Inside;
    layout::Layoutreturn, 1..=2, Inside;
    secinfo_no_name::SecinfoNoName, 1..=2, Inside;
    sequence::Sequence, 1..=2, First;
    want_delegation::SetSsv, 1..=2, Inside;
    test_stateid::TestStateid, 1..=2, Inside;
    want_delegation::WantDelegation, 1..=2, Inside;
    destroy_clientid::DestroyClientid, 1..=2, InsideOrAlone;
    reclaim_complete::ReclaimComplete, 1..=2, Inside;
    allocate::Allocate, 2..=2, Inside;
    copy::Copy, 2..=2, Inside;
    copy_notify::CopyNotify, 2..=2, Inside;
    deallocate::Deallocate, 2..=2, Inside;
    io_advise::IoAdvise, 2..=2, Inside;
    layout::Layouterror, 2..=2, Inside;
    layout::Layoutstats, 2..=2, Inside;
    offload_cancel::OffloadCancel, 2..=2, Inside;
    offload_status::OffloadStatus, 2..=2, Inside;
    read_plus::ReadPlus, 2..=2, Inside;
    seek::Seek, 2..=2, Inside;
    write_same::WriteSame, 2..=2, Inside;
    clone::Clone, 2..=2, Inside;
    getxattr::Getxattr, 2..=2, Inside;
    setxattr::Setxattr, 2..=2, Inside;
    listxattrs::Listxattrs, 2..=2, Inside;
    removexattr::Removexattr, 2..=2, Inside;
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

/// Why a number names no operation here.
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
