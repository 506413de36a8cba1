//! Bounds on everything that an NFS peer can send or make the server keep.

pub use zgate_nfs_wire::limits::*;

/// Bytes the server puts before a store's node handle.
pub const FH_PREFIX_BYTES: usize = 8;
/// Largest COMPOUND answer of minor version 0 in bytes; later ones negotiate
/// theirs.
pub const MAX_REPLY_BYTES: usize = MAX_TRANSFER_BYTES + (64 << 10);
/// Most ACEs in an ACL.
pub const MAX_ACES: usize = 1024;
/// Longest extended attribute name in bytes (XATTR_NAME_MAX without `user.`).
pub const MAX_XATTR_NAME_BYTES: usize = 250;
/// Most slots of a fore channel.
pub const MAX_SLOTS: u32 = 128;
/// Most slots of a back channel that are used.
pub const MAX_BACK_SLOTS: u32 = 16;
/// Most bytes kept in one slot's reply cache.
pub const MAX_CACHED_REPLY_BYTES: u32 = 8 << 10;
/// Most bytes promised to the reply caches of all sessions together.
pub const MAX_REPLY_CACHE_BYTES: usize = 1 << 30;
/// Slots of a session, and bytes kept for each, once [`MAX_REPLY_CACHE_BYTES`]
/// is used up.
pub const SPARE_SLOTS: u32 = 8;
/// See [`SPARE_SLOTS`].
pub const SPARE_CACHED_REPLY_BYTES: u32 = 2 << 10;
/// Bytes of a slot beside its cached reply.
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
/// Most files open or delegated at the same time; the gateway lowers it to the
/// available descriptors.
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
/// Most blocked locks that are remembered, in order to tell their clients when
/// they are free. Each is looked at once a second.
pub const MAX_BLOCKED_LOCKS: usize = 8192;
/// Limit of one host's share of a divided resource: a host may take more as
/// long as it then holds at most this many times the free part. A single host
/// can thus use three quarters.
pub const HOST_SHARE_OF_FREE: usize = 3;
/// Most open, lock and delegation states of one client.
pub const MAX_STATES_PER_CLIENT: usize = 262_144;
/// Most open and lock owners of one client.
pub const MAX_OWNERS_PER_CLIENT: usize = 65_536;
/// Most revoked delegations of one client of minor version 0 that are remembered until it
/// returns them. If more are revoked, it may reclaim nothing as long as its id lasts.
pub const MAX_UNRETURNED_PER_CLIENT: usize = 1024;
/// Leases in which SEQUENCE tells a client of revoked delegations that it does not
/// acknowledge.
pub const LEASES_OF_UNHEEDED_REVOCATIONS: u64 = 8;
/// Most byte ranges locked in one file.
pub const MAX_RANGES_PER_FILE: usize = 16_384;
/// Most lock stateids of one open: they are removed with it in one step.
pub const MAX_LOCK_STATES_PER_OPEN: usize = 4096;
/// Most opens, lock stateids and delegations of an expired client, or lock stateids
/// of an owner, that are removed under one lock: a few milliseconds.
pub const MAX_STATES_PER_SLICE: usize = 1024;
/// Most of these slices in one tick.
pub const MAX_SLICES_PER_TICK: usize = 16;
/// Most bytes of a directory reply.
pub const MAX_READDIR_BYTES: u32 = 1 << 20;
/// Most client records being written to stable storage; further new clients
/// must retry (NFS4ERR_DELAY). Removals are bounded by the number of clients.
pub const MAX_RECORD_WRITES: usize = 1024;
/// Longest time a new client waits for its record on stable storage, in
/// milliseconds; then it must retry (NFS4ERR_DELAY).
pub const RECORD_WAIT_MILLISECONDS: u64 = 5_000;
/// Interval between attempts to remove a client record, in seconds.
pub const RECORD_RETRY_SECONDS: u64 = 5;
/// Least time between two log lines about client records that cannot be written
/// to stable storage, in seconds.
pub const RECORD_LOG_PAUSE_SECONDS: u64 = 60;
/// Longest time a request waits for state that is being taken from another
/// client, in milliseconds; then it must retry (NFS4ERR_DELAY).
pub const SETTLE_WAIT_MILLISECONDS: u64 = 1_000;
/// First pause of such a wait, in milliseconds; each is twice the one before.
pub const FIRST_PAUSE_MILLISECONDS: u64 = 4;
/// Longest time an NFSv3 change waits for the end of grace, in milliseconds; then its client must
/// retry (NFS3ERR_JUKEBOX).
pub const GRACE_WAIT_MILLISECONDS: u64 = 5_000;
/// Pause between two looks of such a wait, in milliseconds.
pub const GRACE_PAUSE_MILLISECONDS: u64 = 20;
/// Most NFSv3 changes that wait for the end of grace; the clients of further ones must retry. Few
/// enough that those of one connection leave room for its reads.
pub const MAX_GRACE_WAITERS: usize = 32;
/// Most bytes of data that these changes hold.
pub const MAX_GRACE_HELD_BYTES: usize = 32 << 20;
/// Longest time for which CREATE and OPEN attempt to set the ACL of an object that they
/// have made, in milliseconds; then the reply tells that it is not set.
pub const NEW_ACL_WAIT_MILLISECONDS: u64 = 5_000;
/// Leases for which a running request of a client keeps its lease from expiring,
/// since the last renewal: storage that never answers must not hold what others
/// wait for without an end.
pub const LEASES_OF_A_RUNNING_REQUEST: u64 = 10;
/// Time for which CREATE_SESSION of a restarted client waits, with NFS4ERR_DELAY, for
/// the requests of its old self, in seconds from its first EXCHANGE_ID: storage of one
/// pool that hangs longer must not keep the host out of the others.
pub const RESTART_PATIENCE_SECONDS: u64 = 30;
/// Grace is extended beyond its regular end while the latest reclaim is no
/// older than this, in seconds.
pub const RECLAIM_PAUSE_SECONDS: u64 = 10;
/// Most mounts remembered for MOUNT's DUMP.
pub const MAX_MOUNT_RECORDS: usize = 1024;

/// Memory of one open with its index entries, in bytes, at most; the others
/// likewise. They divide a memory limit of the gateway.
pub const OPEN_BYTES: usize = 1536;
/// See [`OPEN_BYTES`].
pub const LOCK_STATE_BYTES: usize = 1280;
/// See [`OPEN_BYTES`].
pub const RANGE_BYTES: usize = 192;
/// See [`OPEN_BYTES`].
pub const DELEGATION_BYTES: usize = 1280;
/// See [`OPEN_BYTES`]; an owner's name has up to 1024 bytes.
pub const OWNER_BYTES: usize = 2 << 10;
/// See [`OPEN_BYTES`]; with its owner's name.
pub const BLOCKED_LOCK_BYTES: usize = 2 << 10;
/// See [`OPEN_BYTES`].
pub const CLIENT_BYTES: usize = 4 << 10;
/// See [`OPEN_BYTES`]: a session with the slots that each one gets.
pub const SESSION_BYTES: usize =
    SPARE_SLOTS as usize * (SPARE_CACHED_REPLY_BYTES as usize + SLOT_BYTES) + (2 << 10);

const _: () =
    assert!(FH_PREFIX_BYTES + zgate_store::handle::MAX_NODE_HANDLE_BYTES <= MAX_FH3_BYTES);
const _: () = assert!(MAX_RECORD_WRITES <= MAX_CLIENTS);
const _: () = assert!(MAX_TRANSFER_BYTES <= MAX_GRACE_HELD_BYTES);
const _: () = assert!(RECORD_RETRY_SECONDS < RECORD_LOG_PAUSE_SECONDS);
// What a client has not returned yet counts as its state, and keeps no room from it.
const _: () = assert!(MAX_UNRETURNED_PER_CLIENT < MAX_STATES_PER_CLIENT / 64);
const _: () = assert!(SPARE_SLOTS <= MAX_SLOTS);
// A client whose requests run has longer than a silent one.
const _: () = assert!(LEASES_OF_A_RUNNING_REQUEST > 1);
// The calls of a session stay within a Kerberos context's window, over many
// connections (RFC 2203 §5.3.3.1): none that waits in a socket falls out of it.
const _: () = assert!(8 * MAX_SLOTS <= zgate_rpc::gss::SEQUENCE_WINDOW);
// One host can have at least the share of one client.
const fn one_host_may(all: usize, wanted: usize) -> bool {
    all - all / (HOST_SHARE_OF_FREE + 1) >= wanted
}
/// Time in which the name service tells the names in a request, or all of those
/// for the reply to a COMPOUND, in milliseconds: afterwards the client is told to
/// try again, or gets numbers.
pub const NAME_PATIENCE_MILLISECONDS: u64 = 3000;
/// Time in which holders of write delegations tell the attributes for the reply to a
/// COMPOUND, all of them together, in milliseconds: afterwards the store's are told.
pub const HOLDER_PATIENCE_MILLISECONDS: u64 = 5000;

const _: () = assert!(one_host_may(MAX_SESSIONS, MAX_SESSIONS_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_OPENS, MAX_STATES_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_LOCK_STATES, MAX_STATES_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_DELEGATIONS, MAX_STATES_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_OWNERS, MAX_OWNERS_PER_CLIENT));
const _: () = assert!(one_host_may(MAX_RANGES, MAX_RANGES_PER_FILE));
// The sessions' reserve after the memory of reply caches is used up is bounded
// by their number.
const _: () = assert!(
    MAX_SESSIONS * SPARE_SLOTS as usize * (SPARE_CACHED_REPLY_BYTES as usize + SLOT_BYTES)
        <= MAX_REPLY_CACHE_BYTES
);
// The state of an expired client, including its owners, is removed within a
// minute.
const _: () = assert!(
    (MAX_STATES_PER_CLIENT + MAX_OWNERS_PER_CLIENT) / MAX_STATES_PER_SLICE
        <= 60 * MAX_SLICES_PER_TICK
);
const _: () = assert!(SPARE_CACHED_REPLY_BYTES <= MAX_CACHED_REPLY_BYTES);
