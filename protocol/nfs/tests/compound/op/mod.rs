//! One file per operation or small family: its behaviour, and every error of
//! the RFCs that this server can return for it.

use zgate_nfs::v4::op::table::ROWS;
use zgate_nfs_wire::v4::OpNum;
use zgate_nfs_wire::v4::Status;

mod root_traits;

macro_rules! families {
    ($($file:ident: $($op:ident)+;)*) => {
        $(mod $file;)*
        /// Test file of each operation.
        const FAMILIES: &[(&str, &str, &[OpNum])] = &[
            $((stringify!($file), include_str!(concat!(stringify!($file), ".rs")), &[$(OpNum::$op),+])),*
        ];
    };
}

families! {
    access: Access;
    clientid: Setclientid SetclientidConfirm Renew;
    close: Close;
    commit: Commit;
    copy: Copy CopyNotify Clone OffloadCancel OffloadStatus;
    create: Create;
    delegation: Delegpurge Delegreturn WantDelegation GetDirDelegation;
    filehandle: Putfh Putrootfh Putpubfh Getfh Savefh Restorefh;
    getattr: Getattr;
    layout: Getdeviceinfo Getdevicelist Layoutcommit Layoutget Layoutreturn Layouterror Layoutstats;
    link: Link;
    lock: Lock Lockt Locku ReleaseLockowner;
    lookup: Lookup Lookupp;
    open: Open OpenConfirm OpenDowngrade Openattr;
    read: Read ReadPlus Seek IoAdvise;
    readdir: Readdir;
    readlink: Readlink;
    remove: Remove;
    rename: Rename;
    secinfo: Secinfo SecinfoNoName;
    sequence: Sequence;
    session: ExchangeId CreateSession DestroySession DestroyClientid BindConnToSession BackchannelCtl ReclaimComplete SetSsv;
    setattr: Setattr;
    stateid: FreeStateid TestStateid;
    verify: Verify Nverify;
    write: Write Allocate Deallocate WriteSame;
    xattr: Getxattr Setxattr Listxattrs Removexattr;
}

mod flavor;
mod frame;
mod pseudo;

/// Invalid names, each with its expected status (RFC 8881 §14.5).
const BAD_NAMES: [(&[u8], Status); 7] = [
    (b"", Status::Inval),
    (b".", Status::Badname),
    (b"..", Status::Badname),
    (b"a/b", Status::Badname),
    (b"a\0b", Status::Badname),
    (b"\xff\xfe", Status::Inval),
    (&[b'n'; 256], Status::Nametoolong),
];

#[test]
fn every_operation_of_the_table_has_its_tests() {
    for row in ROWS {
        let family = FAMILIES.iter().find(|(_, _, ops)| ops.contains(&row.num));
        let (file, text, _) =
            family.unwrap_or_else(|| panic!("{} is tested nowhere", row.num.name()));
        assert!(text.contains("#[test]"), "{file} has no test");
        let used = format!("{:?}", row.num);
        assert!(text.contains(&used), "{file} does not run {used}");
    }
}
