//! Every bound on what an NFS peer can push or make the server keep.

/// Longest file handle of NFSv4 in bytes (RFC 8881 §3.1, NFS4_FHSIZE).
pub const MAX_FH_BYTES: usize = 128;
/// Longest file handle of NFSv3 in bytes (RFC 1813 §2.4).
pub const MAX_FH3_BYTES: usize = 64;
/// Bytes the server puts before a store's node handle.
pub const FH_PREFIX_BYTES: usize = 8;
/// Longest opaque owner or client id string (RFC 8881 §3.1, NFS4_OPAQUE_LIMIT).
pub const MAX_OPAQUE_BYTES: usize = 1024;
/// Longest path component accepted on the wire, in bytes; the store's own
/// limit (usually 255) is checked after decoding, so that a longer name gets
/// NFS4ERR_NAMETOOLONG instead of a refusal to decode.
pub const MAX_COMPONENT_BYTES: usize = 4096;
/// Longest symbolic link target in bytes (PATH_MAX).
pub const MAX_LINK_BYTES: usize = 4096;
/// Longest COMPOUND tag in bytes.
pub const MAX_TAG_BYTES: usize = 1024;
/// Most operations in a COMPOUND of minor version 0.
pub const MAX_OPS: usize = 128;
/// Largest COMPOUND answer of minor version 0 in bytes; later ones negotiate
/// theirs.
pub const MAX_REPLY_BYTES: usize = MAX_TRANSFER_BYTES + (64 << 10);
/// Most words of an attribute bitmap.
pub const MAX_BITMAP_WORDS: usize = 64;
/// Most bytes of one fattr4 value list (ACLs make it long).
pub const MAX_FATTR_BYTES: usize = 64 << 10;
/// Most ACEs in an ACL.
pub const MAX_ACES: usize = 1024;
/// Longest owner, group or ACE principal string in bytes.
pub const MAX_PRINCIPAL_BYTES: usize = 1024;
/// Largest transfer of one READ or WRITE in bytes.
pub const MAX_TRANSFER_BYTES: usize = 4 << 20;
/// Longest extended attribute name in bytes (XATTR_NAME_MAX without `user.`).
pub const MAX_XATTR_NAME_BYTES: usize = 250;
/// Largest extended attribute value in bytes (XATTR_SIZE_MAX).
pub const MAX_XATTR_BYTES: usize = 64 << 10;
/// Most slots of a fore channel.
pub const MAX_SLOTS: u32 = 128;
/// Most slots of a back channel that are used.
pub const MAX_BACK_SLOTS: u32 = 16;
/// Most bytes kept in one slot's reply cache.
pub const MAX_CACHED_REPLY_BYTES: u32 = 8 << 10;
/// Most bytes promised to the reply caches of all sessions together.
pub const MAX_REPLY_CACHE_BYTES: usize = 1 << 30;
/// What a session gets once that is used up: slots, and bytes kept for each.
pub const SPARE_SLOTS: u32 = 8;
/// See [`SPARE_SLOTS`].
pub const SPARE_CACHED_REPLY_BYTES: u32 = 2 << 10;
/// Bytes a slot of a session takes beside the reply it keeps.
pub const SLOT_BYTES: usize = 256;
/// Least usable request or response size of a channel in bytes; smaller ones
/// are refused with NFS4ERR_TOOSMALL.
pub const MIN_CHANNEL_BYTES: u32 = 256;
/// Most sessions of one client.
pub const MAX_SESSIONS_PER_CLIENT: usize = 64;
/// Most addresses a client may act from at a time.
pub const MAX_HOSTS_PER_CLIENT: usize = 16;
/// Most clients.
pub const MAX_CLIENTS: usize = 16_384;
/// Most sessions of all clients.
pub const MAX_SESSIONS: usize = 32_768;
/// Most files open or delegated at the same time; the gateway lowers it to what
/// it has descriptors for.
pub const MAX_OPEN_FILES: usize = 1 << 20;
/// Most opens of all clients.
pub const MAX_OPENS: usize = 1 << 20;
/// Most lock stateids of all clients.
pub const MAX_LOCK_STATES: usize = 1 << 20;
/// Most byte ranges locked in all files.
pub const MAX_RANGES: usize = 1 << 20;
/// Most delegations of all clients.
pub const MAX_DELEGATIONS: usize = 1 << 19;
/// Most open and lock owners of all clients.
pub const MAX_OWNERS: usize = 1 << 20;
/// A host may take more of what is divided among hosts as long as it then holds
/// at most so many times what is then free: alone, three quarters of all.
pub const HOST_SHARE_OF_FREE: usize = 3;
/// Most open, lock and delegation states of one client.
pub const MAX_STATES_PER_CLIENT: usize = 262_144;
/// Most open and lock owners of one client.
pub const MAX_OWNERS_PER_CLIENT: usize = 65_536;
/// Most byte ranges locked in one file.
pub const MAX_RANGES_PER_FILE: usize = 16_384;
/// Most lock stateids made from one open: they go with it at once.
pub const MAX_LOCK_STATES_PER_OPEN: usize = 4096;
/// Most opens, lock stateids and delegations of a client that is gone removed at
/// once, while everybody waits: a few milliseconds.
pub const MAX_STATES_PER_SLICE: usize = 1024;
/// Most of these slices in one tick.
pub const MAX_SLICES_PER_TICK: usize = 16;
/// Most bytes of a directory reply.
pub const MAX_READDIR_BYTES: u32 = 1 << 20;
/// Most stateids in one TEST_STATEID.
pub const MAX_TEST_STATEIDS: usize = 4096;
/// Most client records on their way to stable storage; further new clients come
/// again (NFS4ERR_DELAY). Removals are bounded by the clients there are.
pub const MAX_RECORD_WRITES: usize = 1024;
/// How long a new client is made to wait for its record to be on stable storage,
/// in milliseconds; then it comes again (NFS4ERR_DELAY).
pub const RECORD_WAIT_MILLISECONDS: u64 = 5_000;
/// How often the removal of a client record is tried again that failed, in
/// seconds.
pub const RECORD_RETRY_SECONDS: u64 = 5;
/// Time between two log lines about client records that do not get to stable
/// storage, in seconds.
pub const RECORD_LOG_PAUSE_SECONDS: u64 = 60;
/// How long a request is made to wait for what was taken from another client to
/// be free, in milliseconds; then it comes again (NFS4ERR_DELAY).
pub const SETTLE_WAIT_MILLISECONDS: u64 = 1_000;
/// Grace goes on beyond its regular end while the latest reclaim is no older
/// than this, in seconds.
pub const RECLAIM_PAUSE_SECONDS: u64 = 10;
/// Longest path in MOUNT in bytes (RFC 1813 §5.1.2, MNTPATHLEN).
pub const MAX_MOUNT_PATH_BYTES: usize = 1024;
/// Longest host or group name in MOUNT in bytes (RFC 1813 §5.1.2, MNTNAMLEN).
pub const MAX_MOUNT_NAME_BYTES: usize = 255;
/// Most mounts remembered for MOUNT's DUMP.
pub const MAX_MOUNT_RECORDS: usize = 1024;

const _: () =
    assert!(FH_PREFIX_BYTES + zgate_store::handle::MAX_NODE_HANDLE_BYTES <= MAX_FH3_BYTES);
const _: () = assert!(MAX_FH3_BYTES <= MAX_FH_BYTES);
const _: () = assert!(MAX_RECORD_WRITES <= MAX_CLIENTS);
const _: () = assert!(RECORD_RETRY_SECONDS < RECORD_LOG_PAUSE_SECONDS);
const _: () = assert!(SPARE_SLOTS <= MAX_SLOTS);
// One host alone may have what one client may.
const fn one_host_may(all: usize, wanted: usize) -> bool {
    all - all / (HOST_SHARE_OF_FREE + 1) >= wanted
}
const _: () = assert!(one_host_may(MAX_SESSIONS, MAX_SESSIONS_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_OPENS, MAX_STATES_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_LOCK_STATES, MAX_STATES_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_DELEGATIONS, MAX_STATES_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_OWNERS, MAX_OWNERS_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_RANGES, MAX_RANGES_PER_FILE));
// What sessions get when the memory of reply caches is used up is bounded by
// their number.
const _: () = assert!(
    MAX_SESSIONS * SPARE_SLOTS as usize * (SPARE_CACHED_REPLY_BYTES as usize + SLOT_BYTES)
        <= MAX_REPLY_CACHE_BYTES
);
// What a client leaves behind, its owners included, is gone within a minute.
const _: () = assert!(
    (MAX_STATES_PER_CLIENT + MAX_OWNERS_PER_CLIENT) / MAX_STATES_PER_SLICE
        <= 60 * MAX_SLICES_PER_TICK
);
const _: () = assert!(SPARE_CACHED_REPLY_BYTES <= MAX_CACHED_REPLY_BYTES);
const _: () = assert!(MAX_TRANSFER_BYTES + (16 << 10) < zgate_rpc::limits::MAX_RECORD_BYTES);
