//! The procedures whose result begins with a status, all except NULL: a table
//! of number, name, arguments, result and failure body of each; types of a
//! single procedure are in a file of its own (RFC 1813 §3.3).

pub mod access;
pub mod commit;
pub mod create;
pub mod fsinfo;
pub mod fsstat;
pub mod link;
pub mod lookup;
pub mod mkdir;
pub mod mknod;
pub mod pathconf;
pub mod read;
pub mod readdir;
pub mod readdirplus;
pub mod readlink;
pub mod rename;
pub mod setattr;
pub mod symlink;
pub mod write;

use super::{Attributes, Created, DirOpArgs, Fh3, WccData};
use zgate_xdr::{Decode, Encode};

/// Wire format of a procedure.
pub trait Procedure {
    /// Its number.
    const NUMBER: u32;
    /// Its name, for logs and metrics.
    const NAME: &'static str;
    /// Arguments.
    type Args: Decode + Encode + Send + 'static;
    /// Result after NFS3_OK.
    type Ok: Decode + Encode + Send;
    /// Result after any other status.
    type Fail: Decode + Encode + Default + Send;
}

macro_rules! procedures {
    ($($number:literal $proc:ident $name:literal: $args:ty => $ok:ty, $fail:ty;)*) => {$(
        #[doc = $name]
        #[derive(Debug)]
        pub struct $proc;
        impl Procedure for $proc {
            const NUMBER: u32 = $number;
            const NAME: &'static str = $name;
            type Args = $args;
            type Ok = $ok;
            type Fail = $fail;
        }
    )*};
}

procedures! {
    1 GetAttr "GETATTR": Fh3 => Attributes, ();
    2 SetAttr "SETATTR": setattr::Args => WccData, WccData;
    3 Lookup "LOOKUP": DirOpArgs => lookup::Found, Option<Attributes>;
    4 Access "ACCESS": access::Args => access::Granted, Option<Attributes>;
    5 ReadLink "READLINK": Fh3 => readlink::Target, Option<Attributes>;
    6 Read "READ": read::Args => read::Data, Option<Attributes>;
    7 Write "WRITE": write::Args => write::Written, WccData;
    8 Create "CREATE": create::Args => Created, WccData;
    9 MkDir "MKDIR": mkdir::Args => Created, WccData;
    10 Symlink "SYMLINK": symlink::Args => Created, WccData;
    11 MkNod "MKNOD": mknod::Args => Created, WccData;
    12 Remove "REMOVE": DirOpArgs => WccData, WccData;
    13 RmDir "RMDIR": DirOpArgs => WccData, WccData;
    14 Rename "RENAME": rename::Args => rename::Both, rename::Both;
    15 Link "LINK": link::Args => link::Linked, link::Linked;
    16 ReadDir "READDIR": readdir::Args => readdir::Page, Option<Attributes>;
    17 ReadDirPlus "READDIRPLUS": readdirplus::Args => readdirplus::Page, Option<Attributes>;
    18 FsStat "FSSTAT": Fh3 => fsstat::Space, Option<Attributes>;
    19 FsInfo "FSINFO": Fh3 => fsinfo::Info, Option<Attributes>;
    20 PathConf "PATHCONF": Fh3 => pathconf::Limits, Option<Attributes>;
    21 Commit "COMMIT": commit::Args => commit::Committed, WccData;
}
