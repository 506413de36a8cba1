//! Attribute numbers.

/// supported_attrs.
pub const SUPPORTED_ATTRS: u32 = 0;
/// type.
pub const TYPE: u32 = 1;
/// fh_expire_type.
pub const FH_EXPIRE_TYPE: u32 = 2;
/// change.
pub const CHANGE: u32 = 3;
/// size.
pub const SIZE: u32 = 4;
/// link_support.
pub const LINK_SUPPORT: u32 = 5;
/// symlink_support.
pub const SYMLINK_SUPPORT: u32 = 6;
/// named_attr.
pub const NAMED_ATTR: u32 = 7;
/// fsid.
pub const FSID: u32 = 8;
/// unique_handles.
pub const UNIQUE_HANDLES: u32 = 9;
/// lease_time.
pub const LEASE_TIME: u32 = 10;
/// rdattr_error.
pub const RDATTR_ERROR: u32 = 11;
/// acl.
pub const ACL: u32 = 12;
/// aclsupport.
pub const ACLSUPPORT: u32 = 13;
/// cansettime.
pub const CANSETTIME: u32 = 15;
/// case_insensitive.
pub const CASE_INSENSITIVE: u32 = 16;
/// case_preserving.
pub const CASE_PRESERVING: u32 = 17;
/// chown_restricted.
pub const CHOWN_RESTRICTED: u32 = 18;
/// filehandle.
pub const FILEHANDLE: u32 = 19;
/// fileid.
pub const FILEID: u32 = 20;
/// files_avail.
pub const FILES_AVAIL: u32 = 21;
/// files_free.
pub const FILES_FREE: u32 = 22;
/// files_total.
pub const FILES_TOTAL: u32 = 23;
/// fs_locations.
pub const FS_LOCATIONS: u32 = 24;
/// homogeneous.
pub const HOMOGENEOUS: u32 = 26;
/// maxfilesize.
pub const MAXFILESIZE: u32 = 27;
/// maxlink.
pub const MAXLINK: u32 = 28;
/// maxname.
pub const MAXNAME: u32 = 29;
/// maxread.
pub const MAXREAD: u32 = 30;
/// maxwrite.
pub const MAXWRITE: u32 = 31;
/// mode.
pub const MODE: u32 = 33;
/// no_trunc.
pub const NO_TRUNC: u32 = 34;
/// numlinks.
pub const NUMLINKS: u32 = 35;
/// owner.
pub const OWNER: u32 = 36;
/// owner_group.
pub const OWNER_GROUP: u32 = 37;
/// quota_avail_hard.
pub const QUOTA_AVAIL_HARD: u32 = 38;
/// quota_avail_soft.
pub const QUOTA_AVAIL_SOFT: u32 = 39;
/// quota_used.
pub const QUOTA_USED: u32 = 40;
/// rawdev.
pub const RAWDEV: u32 = 41;
/// space_avail.
pub const SPACE_AVAIL: u32 = 42;
/// space_free.
pub const SPACE_FREE: u32 = 43;
/// space_total.
pub const SPACE_TOTAL: u32 = 44;
/// space_used.
pub const SPACE_USED: u32 = 45;
/// time_access.
pub const TIME_ACCESS: u32 = 47;
/// time_access_set.
pub const TIME_ACCESS_SET: u32 = 48;
/// time_create.
pub const TIME_CREATE: u32 = 50;
/// time_delta.
pub const TIME_DELTA: u32 = 51;
/// time_metadata.
pub const TIME_METADATA: u32 = 52;
/// time_modify.
pub const TIME_MODIFY: u32 = 53;
/// time_modify_set.
pub const TIME_MODIFY_SET: u32 = 54;
/// mounted_on_fileid.
pub const MOUNTED_ON_FILEID: u32 = 55;
/// mode_set_masked.
pub const MODE_SET_MASKED: u32 = 74;
/// suppattr_exclcreat.
pub const SUPPATTR_EXCLCREAT: u32 = 75;
/// clone_blksize.
pub const CLONE_BLKSIZE: u32 = 77;
/// change_attr_type.
pub const CHANGE_ATTR_TYPE: u32 = 79;
/// mode_umask.
pub const MODE_UMASK: u32 = 81;
/// xattr_support.
pub const XATTR_SUPPORT: u32 = 82;
/// time_deleg_access.
pub const TIME_DELEG_ACCESS: u32 = 84;
/// time_deleg_modify.
pub const TIME_DELEG_MODIFY: u32 = 85;
/// open_arguments.
pub const OPEN_ARGUMENTS: u32 = 86;
