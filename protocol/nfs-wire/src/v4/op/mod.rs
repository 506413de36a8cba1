//! The operations: a table of number, name, arguments and result of each; types
//! of a single operation are in a file of its own (RFC 7530 §16, RFC 8881 §18,
//! RFC 7862 §15, RFC 8276 §8).

pub mod access;
pub mod allocate;
pub mod backchannel_ctl;
pub mod bind_conn_to_session;
pub mod clone;
pub mod close;
pub mod commit;
pub mod copy;
pub mod copy_notify;
pub mod create;
pub mod create_session;
pub mod deallocate;
pub mod delegpurge;
pub mod delegreturn;
pub mod destroy_clientid;
pub mod destroy_session;
pub mod exchange_id;
pub mod free_stateid;
pub mod io_advise;
pub mod layout;
pub mod listxattrs;
pub mod lock;
pub mod lockt;
pub mod locku;
pub mod offload_cancel;
pub mod offload_status;
pub mod open;
pub mod open_confirm;
pub mod open_downgrade;
pub mod read;
pub mod read_plus;
pub mod readdir;
pub mod reclaim_complete;
pub mod release_lockowner;
pub mod rename;
pub mod renew;
pub mod secinfo;
pub mod secinfo_no_name;
pub mod seek;
pub mod sequence;
pub mod setattr;
pub mod setclientid;
pub mod setclientid_confirm;
pub mod setxattr;
pub mod test_stateid;
pub mod want_delegation;
pub mod write;
pub mod write_same;

#[cfg(test)]
mod round_trip;

use super::{Bitmap, ChangeInfo, Component, Fattr, Fh, Verifier};
use crate::limits::{MAX_LINK_BYTES, MAX_XATTR_BYTES};
use zgate_xdr::{Decode, DirectOpaque, Encode, Opaque};

/// Wire format of an operation of a COMPOUND.
pub trait Operation {
    /// Its number.
    const NUM: OpNum;
    /// Arguments.
    type Args: Decode + Encode;
    /// Result after NFS4_OK.
    type Res: Decode + Encode;
}

macro_rules! operations {
    ($($number:literal $op:ident $name:literal: $args:ty => $res:ty;)*) => {
        crate::named_enum! {
            /// nfs_opnum4.
            pub enum OpNum { $($op = $number $name,)* Illegal = 10044 "ILLEGAL" }
        }
        $(
            #[doc = $name]
            pub struct $op;
            impl Operation for $op {
                const NUM: OpNum = OpNum::$op;
                type Args = $args;
                type Res = $res;
            }
        )*

        #[test]
        fn every_operation_survives_the_trip() {
            $(round_trip::both::<$op>();)*
        }
    };
}

operations! {
    3 Access "ACCESS": access::Args => access::Res;
    4 Close "CLOSE": close::Args => close::Res;
    5 Commit "COMMIT": commit::Args => Verifier;
    6 Create "CREATE": create::Args => create::Res;
    7 Delegpurge "DELEGPURGE": delegpurge::Args => ();
    8 Delegreturn "DELEGRETURN": delegreturn::Args => ();
    9 Getattr "GETATTR": Bitmap => Fattr;
    10 Getfh "GETFH": () => Fh;
    11 Link "LINK": Component => ChangeInfo;
    12 Lock "LOCK": lock::Args => lock::Res;
    13 Lockt "LOCKT": lockt::Args => ();
    14 Locku "LOCKU": locku::Args => locku::Res;
    15 Lookup "LOOKUP": Component => ();
    16 Lookupp "LOOKUPP": () => ();
    17 Nverify "NVERIFY": Fattr => ();
    18 Open "OPEN": open::Args => open::Res;
    19 Openattr "OPENATTR": bool => ();
    20 OpenConfirm "OPEN_CONFIRM": open_confirm::Args => open_confirm::Res;
    21 OpenDowngrade "OPEN_DOWNGRADE": open_downgrade::Args => open_downgrade::Res;
    22 Putfh "PUTFH": Fh => ();
    23 Putpubfh "PUTPUBFH": () => ();
    24 Putrootfh "PUTROOTFH": () => ();
    25 Read "READ": read::Args => read::Res;
    26 Readdir "READDIR": readdir::Args => readdir::Res;
    27 Readlink "READLINK": () => DirectOpaque<MAX_LINK_BYTES>;
    28 Remove "REMOVE": Component => ChangeInfo;
    29 Rename "RENAME": rename::Args => rename::Res;
    30 Renew "RENEW": renew::Args => ();
    31 Restorefh "RESTOREFH": () => ();
    32 Savefh "SAVEFH": () => ();
    33 Secinfo "SECINFO": Component => secinfo::Res;
    34 Setattr "SETATTR": setattr::Args => Bitmap;
    35 Setclientid "SETCLIENTID": setclientid::Args => setclientid::Res;
    36 SetclientidConfirm "SETCLIENTID_CONFIRM": setclientid_confirm::Args => ();
    37 Verify "VERIFY": Fattr => ();
    38 Write "WRITE": write::Args => write::Res;
    39 ReleaseLockowner "RELEASE_LOCKOWNER": release_lockowner::Args => ();
    40 BackchannelCtl "BACKCHANNEL_CTL": backchannel_ctl::Args => ();
    41 BindConnToSession "BIND_CONN_TO_SESSION": bind_conn_to_session::Args => bind_conn_to_session::Res;
    42 ExchangeId "EXCHANGE_ID": exchange_id::Args => exchange_id::Res;
    43 CreateSession "CREATE_SESSION": create_session::Args => create_session::Res;
    44 DestroySession "DESTROY_SESSION": destroy_session::Args => ();
    45 FreeStateid "FREE_STATEID": free_stateid::Args => ();
    46 GetDirDelegation "GET_DIR_DELEGATION": want_delegation::GetDirArgs => want_delegation::GetDirRes;
    47 Getdeviceinfo "GETDEVICEINFO": layout::Unread => ();
    48 Getdevicelist "GETDEVICELIST": layout::Unread => ();
    49 Layoutcommit "LAYOUTCOMMIT": layout::Unread => ();
    50 Layoutget "LAYOUTGET": layout::GetArgs => ();
    51 Layoutreturn "LAYOUTRETURN": layout::Unread => ();
    52 SecinfoNoName "SECINFO_NO_NAME": secinfo_no_name::Style => secinfo::Res;
    53 Sequence "SEQUENCE": sequence::Args => sequence::Res;
    54 SetSsv "SET_SSV": want_delegation::SsvArgs => Opaque<1024>;
    55 TestStateid "TEST_STATEID": test_stateid::Args => test_stateid::Res;
    56 WantDelegation "WANT_DELEGATION": want_delegation::WantArgs => ();
    57 DestroyClientid "DESTROY_CLIENTID": destroy_clientid::Args => ();
    58 ReclaimComplete "RECLAIM_COMPLETE": reclaim_complete::Args => ();
    59 Allocate "ALLOCATE": allocate::Args => ();
    60 Copy "COPY": copy::Args => copy::Res;
    61 CopyNotify "COPY_NOTIFY": copy_notify::Args => ();
    62 Deallocate "DEALLOCATE": deallocate::Args => ();
    63 IoAdvise "IO_ADVISE": io_advise::Args => Bitmap;
    64 Layouterror "LAYOUTERROR": layout::Unread => ();
    65 Layoutstats "LAYOUTSTATS": layout::Unread => ();
    66 OffloadCancel "OFFLOAD_CANCEL": offload_cancel::Args => ();
    67 OffloadStatus "OFFLOAD_STATUS": offload_status::Args => offload_status::Res;
    68 ReadPlus "READ_PLUS": read_plus::Args => read_plus::Res;
    69 Seek "SEEK": seek::Args => seek::Res;
    70 WriteSame "WRITE_SAME": write_same::Args => ();
    71 Clone "CLONE": clone::Args => ();
    72 Getxattr "GETXATTR": Component => Opaque<MAX_XATTR_BYTES>;
    73 Setxattr "SETXATTR": setxattr::Args => ChangeInfo;
    74 Listxattrs "LISTXATTRS": listxattrs::Args => listxattrs::Res;
    75 Removexattr "REMOVEXATTR": Component => ChangeInfo;
}
