//! Bounds of the driver: on requests, on what it remembers and on time.

use std::time::Duration;

/// Longest id that CSI 1.12 allows for a volume or a snapshot, in bytes.
pub const MAX_ID_BYTES: usize = 128;
/// Longest name of a dataset that the driver makes, in bytes: that of a claim's
/// volume, `pvc-` and a UUID. Longer names are shortened to a hash.
pub const MAX_VOLUME_NAME_BYTES: usize = 40;
/// Longest name of a snapshot that the driver makes, in bytes: `snapshot-` and a
/// UUID.
pub const MAX_SNAPSHOT_NAME_BYTES: usize = 45;
/// Longest `gateway:parent` of the settings, so that ids stay within
/// [`MAX_ID_BYTES`].
pub const MAX_PLACE_BYTES: usize =
    MAX_ID_BYTES - MAX_VOLUME_NAME_BYTES - MAX_SNAPSHOT_NAME_BYTES - 2;
const _: () = assert!(MAX_PLACE_BYTES >= 40, "a pool and a parent have room");

/// Longest id of a node that CSI 1.12 allows, in bytes.
pub const MAX_NODE_ID_BYTES: usize = 192;
/// Longest name of a node that the gateway accepts, in bytes.
pub const MAX_ACCESS_NAME_BYTES: usize = zgate_api::access::MAX_NODE_BYTES;

/// Longest name of a volume, snapshot or group in a request, in bytes.
pub const MAX_REQUEST_NAME_BYTES: usize = 128;
/// Most capabilities in a request.
pub const MAX_CAPABILITIES: usize = 64;
/// Most gateways of the settings.
pub const MAX_GATEWAYS: usize = 32;
/// Most parents of one gateway.
pub const MAX_PARENTS: usize = 32;
/// Most entries of one page of a list.
pub const MAX_PAGE_ENTRIES: usize = 1000;
const _: () = assert!(MAX_PAGE_ENTRIES <= zgate_api::volume::MAX_PAGE_ITEMS);
/// Most bytes of the entries in one answer with a list. Clients of gRPC take no message of more
/// than 4 MiB unless they are told to, and no sidecar is: a volume names each node that it is
/// attached to.
pub const MAX_LIST_BYTES: usize = 3 << 20;
/// Most pages that are read while one snapshot is looked for by its name.
pub const MAX_SEARCHED_PAGES: usize = 1000;
/// Most calls that the driver answers at a time.
pub const MAX_CONCURRENT_CALLS: usize = 256;

/// Size of a volume whose request names none, in bytes.
pub const DEFAULT_SIZE_BYTES: u64 = 1 << 30;
/// Sizes are multiples of this, in bytes: of each block size that ZFS has up to it.
pub const SIZE_STEP_BYTES: u64 = 1 << 20;

/// Longest time until a gateway has answered one request.
pub const REQUEST_SECONDS: Duration = Duration::from_secs(60);
/// Longest time until the gateways that one call asks at the same time have all answered.
/// The sidecars wait longer: `--timeout` in deploy/kubernetes.
pub const GATHER_SECONDS: Duration = Duration::from_secs(70);
const _: () = assert!(
    REQUEST_SECONDS.as_secs() < GATHER_SECONDS.as_secs(),
    "one request fails with its own reason before"
);
/// Longest time of a call that makes a volume, which asks all places where it may be, and then
/// one gateway for it. The sidecars wait longer.
pub const CREATE_SECONDS: Duration = Duration::from_secs(80);
const _: () = assert!(
    GATHER_SECONDS.as_secs() < CREATE_SECONDS.as_secs(),
    "gateways that do not answer are named"
);
/// Longest wait of an attachment, a detachment, a publish or an unpublish for the end of another
/// change of the same volume. Nodes and pods that share it come at the same moment, and Kubernetes
/// repeats what is refused at intervals that double, up to minutes.
pub const LOCK_SECONDS: Duration = Duration::from_secs(20);
const _: () = assert!(
    LOCK_SECONDS.as_secs() + REQUEST_SECONDS.as_secs() <= CREATE_SECONDS.as_secs(),
    "the sidecars wait longer"
);
/// Most volumes that are not made yet whose places are remembered.
pub const MAX_CHOSEN_PLACES: usize = 1024;
/// Most requests to one gateway at a time; others wait, within their own time. A gateway closes
/// the connections of a host that has 64 over TCP.
pub const MAX_GATEWAY_REQUESTS: usize = 48;
/// Longest time until a connection to a gateway is established.
pub const CONNECT_SECONDS: Duration = Duration::from_secs(10);
/// Longest answer of a gateway that is read, in bytes.
pub const MAX_ANSWER_BYTES: usize = 16 << 20;

/// Longest time of one attempt to mount.
pub const MOUNT_SECONDS: Duration = Duration::from_secs(30);
/// Longest time of one login to a portal.
pub const LOGIN_SECONDS: Duration = Duration::from_secs(20);
/// Logins to a portal that are tried before the next transport.
pub const LOGIN_ATTEMPTS: u32 = 3;
/// Pause between them.
pub const LOGIN_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait for the disk of a session.
pub const DISK_SECONDS: Duration = Duration::from_secs(15);
/// Longest wait for the multipath device of a disk with several paths.
pub const MULTIPATH_SECONDS: Duration = Duration::from_secs(10);
/// Time for which commands of a disk with one path wait for a gateway that is away, in seconds,
/// if nobody sets it: more than a machine needs for a start.
pub const PATIENCE_SECONDS: u32 = 3600;
/// Longest time of these that can be set, in seconds.
pub const MAX_PATIENCE_SECONDS: u32 = 7 * 24 * 3600;
// Linux counts it in ticks, up to 1000 a second, in an `int`.
const _: () = assert!(MAX_PATIENCE_SECONDS < i32::MAX as u32 / 1000, "no overflow in the kernel");
/// Longest wait until a disk that has grown shows its new size.
pub const GROWTH_SECONDS: Duration = Duration::from_secs(10);
/// Pause between looks at a disk.
pub const POLL_PAUSE: Duration = Duration::from_millis(100);
/// Longest time until a file system is made, checked or grown: a check reads all of a large
/// disk's metadata. Callers give up long before, and repeat the call.
pub const FORMAT_SECONDS: Duration = Duration::from_secs(12 * 3600);
/// Time between looks at such a program while it runs, and longest wait for its place.
pub const FORMAT_LOOK_SECONDS: Duration = Duration::from_secs(60);
/// Looks in a row without a session after which it is given up: its volume can then be
/// unstaged.
pub const MAX_LOOKS_AWAY: u32 = 2;
/// Most of these programs at a time; each has its part of the driver's memory.
pub const MAX_FORMATS: usize = 16;
/// Longest time of a command that has nothing to wait for.
pub const COMMAND_SECONDS: Duration = Duration::from_secs(10);
/// Longest time until what was written has reached the server, in one unstage; on a
/// live server the next one goes on.
pub const FLUSH_SECONDS: Duration = Duration::from_secs(4);
/// Longest time of an orderly unmount.
pub const UNMOUNT_SECONDS: Duration = Duration::from_secs(3);
/// Longest time until a server that answers has answered.
pub const PROBE_SECONDS: Duration = Duration::from_millis(1500);
/// Longest time of each of the two attempts after it: forced, and lazy.
pub const FORCED_UNMOUNT_SECONDS: Duration = Duration::from_millis(2500);
/// Longest time until a multipath device is removed.
pub const MULTIPATH_REMOVE_SECONDS: Duration = Duration::from_millis(2500);
/// Longest time of a logout.
pub const LOGOUT_SECONDS: Duration = Duration::from_millis(4500);
/// Longest time until a multipath device is told to fail what waits in it. multipathd answers
/// within 4 s, or says that it cannot.
pub const MULTIPATH_FAIL_SECONDS: Duration = Duration::from_secs(4);
/// Longest time until the record of a session is removed, from its turn on.
pub const FORGET_SECONDS: Duration = Duration::from_secs(4);
/// Attempts at a record, within its time, while those of other volumes change.
pub const RECORDS_ATTEMPTS: u32 = 5;
/// Pause between them.
pub const RECORDS_PAUSE: Duration = Duration::from_millis(200);
/// Shortest time with which a command for records is started, also after a wait for its place or
/// as a repetition. One that is killed may leave the lock of the records behind.
pub const MIN_RECORDS_SECONDS: Duration = Duration::from_secs(2);
const _: () = assert!(
    MIN_RECORDS_SECONDS.as_millis() + RECORDS_PAUSE.as_millis() < FORGET_SECONDS.as_millis(),
    "one that fails at once is repeated"
);
/// Longest wait of a login for its turn at the records of open-iscsi, which the driver changes by
/// one command at a time. The stage fails after it, and Kubernetes repeats it.
pub const TURN_SECONDS: Duration = Duration::from_secs(60);
/// Longest wait for a turn to remove the record of a portal that did not answer. The record stays
/// until the unstage after it.
pub const FORGET_TURN_SECONDS: Duration = Duration::from_secs(5);
/// Longest time of a look at one local file.
pub const FIND_SECONDS: Duration = Duration::from_secs(1);
/// Longest time from the end of a child's limit until it is left behind: a
/// process that waits for a dead server cannot be killed.
pub const REAP_SECONDS: Duration = Duration::from_millis(300);
/// Time within which a volume of a dead server is unstaged.
pub const UNSTAGE_SECONDS: Duration = Duration::from_secs(30);
const _: () = assert!(
    FLUSH_SECONDS.as_millis()
        + UNMOUNT_SECONDS.as_millis()
        + PROBE_SECONDS.as_millis()
        + FORCED_UNMOUNT_SECONDS.as_millis()
        + MULTIPATH_REMOVE_SECONDS.as_millis()
        + LOGOUT_SECONDS.as_millis()
        + MULTIPATH_FAIL_SECONDS.as_millis()
        + FORGET_SECONDS.as_millis()
        + FIND_SECONDS.as_millis()
        + 9 * REAP_SECONDS.as_millis()
        < UNSTAGE_SECONDS.as_millis(),
    "the attempts for a disk end within the time of an unstage; NFS has two that are forced, and no session"
);
/// Time from the start of an unstage after which what is left of a multipath device is left to the
/// next stage.
pub const LAST_REMOVAL_SECONDS: Duration = Duration::from_secs(25);
/// Pause between attempts to remove it.
pub const REMOVAL_PAUSE: Duration = Duration::from_millis(500);
/// Longest wait for the end of a brief use of it, such as by udev after an unmount.
pub const BRIEF_USE_SECONDS: Duration = Duration::from_secs(2);
const _: () = assert!(
    LAST_REMOVAL_SECONDS.as_millis()
        + REMOVAL_PAUSE.as_millis()
        + MULTIPATH_REMOVE_SECONDS.as_millis()
        + REAP_SECONDS.as_millis()
        < UNSTAGE_SECONDS.as_millis(),
    "the last attempt ends within the time of an unstage"
);
/// Time from the start of an unstage after which it waits no longer for its turn at the records of
/// open-iscsi. Of 100 unstages at once on a slow node, those that have had none by then fail, and
/// Kubernetes repeats them: nothing but the record is left to do.
pub const LAST_TURN_SECONDS: Duration = Duration::from_secs(24);
const _: () = assert!(
    LAST_TURN_SECONDS.as_millis()
        + FORGET_SECONDS.as_millis()
        + FIND_SECONDS.as_millis()
        + 2 * REAP_SECONDS.as_millis()
        < UNSTAGE_SECONDS.as_millis(),
    "a turn that comes last ends within the time of an unstage"
);
/// Longest time until the figures of a volume are read.
pub const STATS_SECONDS: Duration = Duration::from_secs(10);
/// Most volumes whose last figures are remembered.
pub const MAX_KNOWN_USAGES: usize = 1024;
/// Longest output of a command that is kept, in bytes.
pub const MAX_OUTPUT_BYTES: usize = 64 << 10;
/// Most commands at a time, with those that wait for a dead server. A further one waits for a
/// place, which is part of its own limit.
pub const MAX_STUCK_CHILDREN: usize = 64;
/// Most commands at a time that end what others wait for, beside [`MAX_STUCK_CHILDREN`]: those
/// of sessions, with the records of them, and of multipath devices, and unmounts that are forced
/// or lazy.
pub const MAX_ENDINGS: usize = 32;
/// Most commands that read disks for their condition at a time. One of a disk that is gone
/// may wait for ever; the others of [`MAX_STUCK_CHILDREN`] are for volumes that come and go.
pub const MAX_PROBES: usize = 16;
const _: () = assert!(
    2 * MAX_PROBES + MAX_FORMATS <= MAX_STUCK_CHILDREN * 3 / 4,
    "reads, figures and file systems that are checked leave places"
);
