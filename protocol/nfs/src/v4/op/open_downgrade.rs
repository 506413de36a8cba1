//! OPEN_DOWNGRADE (RFC 8881 §18.18).

use super::{Failure, Operation};
use crate::v4::cx::Cx;
use crate::v4::state::sequenced::sequenced;
use crate::v4::state::tables::StateKind;
use crate::v4::wire::{OpNum, Stateid, Status};
use zgate_xdr::xdr_struct;

xdr_struct! {
    /// OPEN_DOWNGRADE4args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The open.
        pub stateid: Stateid,
        /// Owner's sequence number (minor version 0).
        pub seqid: u32,
        /// What is left of the access.
        pub access: u32,
        /// What is left of the denial.
        pub deny: u32,
    }
}

xdr_struct! {
    /// OPEN_DOWNGRADE4resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Res {
        /// The open's new version.
        pub stateid: Stateid,
    }
}

/// The operation.
pub struct OpenDowngrade;

impl Operation for OpenDowngrade {
    const NUM: OpNum = OpNum::OpenDowngrade;
    type Args = Args;
    type Res = Res;

    async fn run(cx: &mut Cx<'_>, args: Args) -> Result<Res, Failure> {
        cx.current()?;
        let stateid = cx.resolve_stateid(args.stateid)?;
        let result = sequenced(cx, stateid, args.seqid, async |cx: &mut Cx<'_>| {
            // WANT bits may come along and mean nothing here
            // (RFC 8881 §18.18.3).
            let access = if cx.minor > 0 { args.access & 3 } else { args.access };
            if access == 0 || access > 3 || args.deny > 3 {
                return Err(Status::Inval.into());
            }
            let file = cx.object(Status::BadStateid)?.file_key();
            let state = &cx.server.state;
            let mut tables = state.lock();
            let (key, kind) = state.find_state(&tables, cx, stateid, Some(&file))?;
            if kind != StateKind::Open {
                return Err(Status::BadStateid.into());
            }
            let stateid = state.downgrade_open(&mut tables, key, access, args.deny)?;
            Ok(Res { stateid })
        })
        .await?;
        cx.current_stateid = Some(result.stateid);
        Ok(result)
    }
}
