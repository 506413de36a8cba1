//! COMMIT (RFC 1813 §3.3.21). The whole file is committed, whatever the range.

use super::Procedure;
use crate::v3::cx::{Cx, Object};
use crate::v3::wire::{Fh3, Status, WccData};

/// The procedure.
#[derive(Debug)]
pub struct Commit;

zgate_xdr::xdr_struct! {
    /// COMMIT3args.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Args {
        /// The file.
        pub file: Fh3,
        /// First byte.
        pub offset: u64,
        /// Bytes; 0: to the end.
        pub count: u32,
    }
}

zgate_xdr::xdr_struct! {
    /// COMMIT3resok.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Committed {
        /// The file.
        pub wcc: WccData,
        /// Differs from the one of a WRITE whose data may have been lost.
        pub verifier: [u8; 8],
    }
}

impl Procedure for Commit {
    const NUMBER: u32 = 21;
    type Args = Args;
    type Ok = Committed;
    type Fail = WccData;

    async fn run(cx: &Cx<'_>, args: Args, fail: &mut WccData) -> Result<Committed, Status> {
        let object = cx.enter_writable(&args.file)?;
        let verifier = cx.server.write_verifier.get();
        let committed = commit(cx, &object).await;
        *fail = object.wcc_after().await;
        committed?;
        Ok(Committed { wcc: std::mem::take(fail), verifier })
    }
}

async fn commit(cx: &Cx<'_>, object: &Object) -> Result<(), Status> {
    let open = object.open(false, true).await?;
    let committed = object.store().commit(&open).await;
    Ok(committed.inspect_err(|error| cx.server.write_verifier.note(*error))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v3::proc::rig::Rig;

    #[test]
    fn the_verifier_is_that_of_the_writes() {
        let rig = Rig::new();
        let file = rig.file("f", b"x");
        let args = |file| Args { file, offset: 0, count: 0 };
        assert_eq!(rig.call::<Commit>(&args(file)).unwrap().verifier, rig.verifier());
        assert_eq!(rig.call::<Commit>(&args(rig.root())).unwrap_err().0, Status::Inval);
    }
}
