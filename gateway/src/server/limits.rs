//! Limits of the API and the web page: on the number of rows and the length of
//! texts that peers make long, and on waiting.

use crate::admin;
use std::time::Duration;

/// Most rows of a list in an answer of the API; the answer has their total number.
pub(crate) const MAX_API_ROWS: usize = 1000;
/// Most rows of a table of the page.
pub(crate) const MAX_PAGE_ROWS: usize = 200;
/// Longest text of a cell of the page, in characters.
pub(crate) const MAX_PAGE_TEXT_CHARS: usize = 120;
/// Interval between points of the history.
pub(crate) const HISTORY_STEP: Duration = Duration::from_secs(5);
/// Most points of the history: those of an hour.
pub(crate) const HISTORY_POINTS: usize = 720;
/// Age up to which a collected status answers requests: however many browsers
/// look, it is collected about once in this time.
pub(crate) const STATUS_AGE: Duration = Duration::from_millis(900);
/// Time limit for collecting the status. Later requests do not wait: they are
/// answered with the last one, and its age.
pub(crate) const COLLECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Age up to which findings of `zgate doctor` are shown as they are.
pub(crate) const DOCTOR_AGE: Duration = Duration::from_secs(300);
/// Time limit of `zgate doctor`, in seconds.
pub(crate) const DOCTOR_SECONDS: u64 = 60;
/// Shortest token, in bytes: one that cannot be guessed.
pub(crate) const MIN_TOKEN_BYTES: usize = 16;
/// Longest file of a token, in bytes.
pub(crate) const MAX_TOKEN_FILE_BYTES: u64 = 4096;

/// Most requests of the API that are read or answered at once, at its socket and over TCP each;
/// more connections wait.
pub(crate) const MAX_API_CONNECTIONS: usize = 128;
/// Most of those over TCP from one host.
pub(crate) const MAX_API_CONNECTIONS_PER_HOST: usize = 64;
/// Most changes and queries of the API that run at once; more wait.
pub(crate) const MAX_API_JOBS: usize = 96;
/// Most of those about one pool: while it hangs, those of others run.
pub(crate) const MAX_API_JOBS_PER_POOL: usize = 32;
/// Largest body of a request, in bytes.
pub(crate) const MAX_API_BODY_BYTES: usize = 64 << 10;
/// Longest head of a request, in bytes: ids of volumes are in its path.
pub(crate) const MAX_API_HEAD_BYTES: usize = 16 << 10;
/// Time limit for the head of a request, and for a TLS handshake.
pub(crate) const API_HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the body of a request.
pub(crate) const API_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of an answer. What has not ended by then goes on, and the same
/// request completes or finds it.
pub(crate) const API_ANSWER_TIMEOUT: Duration = Duration::from_secs(25);
/// Time limit of a connection, until its client has taken the whole answer.
pub(crate) const API_CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// Time limit of each `zfs` of the API, in seconds.
pub(crate) const API_TOOL_SECONDS: u64 = 15;
/// Most volumes of a pool that change at the same time: enough to share a transaction
/// of the pool, and few enough that their commands do not slow each other.
pub(crate) const MAX_VOLUME_CHANGES: usize = 4;
/// Time for which a change waits for others of its pool.
pub(crate) const POOL_PATIENCE: Duration = Duration::from_secs(20);
/// Time for which the destruction of a busy dataset is tried again, and the first pause
/// between attempts, of which each is twice the last.
pub(crate) const BUSY_PATIENCE: Duration = Duration::from_secs(3);
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(100);
/// Attempts to serve a volume whose device has not appeared, and the pause
/// between them.
pub(crate) const DEVICE_ATTEMPTS: u32 = 40;
pub(crate) const DEVICE_PAUSE: Duration = Duration::from_millis(100);
/// Looks for commands of a node whose access has ended that still run, and the pause between
/// them.
pub(crate) const SETTLE_ATTEMPTS: u32 = 20;
pub(crate) const SETTLE_PAUSE: Duration = Duration::from_millis(100);

/// Time limit for writing what file systems and disks hold back, before a handover stops
/// anything; it goes on afterwards.
pub(crate) const SYNC_PATIENCE: Duration = Duration::from_secs(8);
/// Time limit of a handover for running requests to end and for replies to reach
/// their clients.
pub(crate) const HOLD_PATIENCE: Duration = Duration::from_secs(15);
/// Pause between two looks for that.
pub(crate) const HOLD_PAUSE: Duration = Duration::from_millis(20);
/// Longest time for which connections are held, in seconds: a gateway that nobody
/// stops serves again.
pub(crate) const MAX_HOLD_SECONDS: u64 = 600;
/// Most connections that are listed for the next start.
pub(crate) const MAX_LISTED_CONNECTIONS: usize = 16 << 10;
/// Most addresses of the gateway before that are looked for.
pub(crate) const MAX_LISTED_ADDRESSES: usize = 64;
/// Shortest time between two writes of this list.
pub(crate) const LIST_PAUSE: Duration = Duration::from_secs(5);
/// Interval at which changes of connections are looked for, and shortest time between two writes
/// of the list after a handover, which the stop follows.
pub(crate) const CONNECTIONS_POLL: Duration = Duration::from_millis(200);
/// Interval at which the address of the gateway before is looked for: clients wait for it.
pub(crate) const ADDRESS_POLL: Duration = Duration::from_millis(50);
/// Time after the start for which this address is waited for.
pub(crate) const ADDRESS_PATIENCE: Duration = Duration::from_secs(300);
/// Number of times that the peers of the gateway before are asked to connect again.
pub(crate) const TICKLES: u32 = 5;
/// Pause after the first of these times; each is twice the one before. Linux answers what is out
/// of a connection's window once in 500 ms (`tcp_invalid_ratelimit`).
pub(crate) const FIRST_TICKLE_PAUSE: Duration = Duration::from_millis(600);
/// Time limit for reading the mount table: longer than a rollback keeps a file system
/// suspended as a rule, which takes a transaction group of its pool.
pub(crate) const MOUNT_TABLE_PATIENCE: Duration = Duration::from_secs(10);

/// Most replacements of datasets that wait for the thread that follows datasets, and most that
/// wait for its search. Behind them any dataset counts as replaced.
pub(crate) const MAX_WAITING_REPLACEMENTS: usize = 4096;

const _: () = assert!(POOL_PATIENCE.as_secs() < API_ANSWER_TIMEOUT.as_secs());
const _: () = assert!(MOUNT_TABLE_PATIENCE.as_secs() < API_ANSWER_TIMEOUT.as_secs());
const _: () = assert!(SYNC_PATIENCE.as_secs() + HOLD_PATIENCE.as_secs() < admin::TIMEOUT.as_secs());
// An NFSv3 change that waits for the end of grace is finished, too.
const _: () = assert!(zgate_nfs::limits::GRACE_WAIT_MILLISECONDS < HOLD_PATIENCE.as_secs() * 1000);
const _: () = assert!(API_TOOL_SECONDS < API_ANSWER_TIMEOUT.as_secs());
const _: () = assert!(
    API_HEAD_TIMEOUT.as_secs() + API_BODY_TIMEOUT.as_secs() + API_ANSWER_TIMEOUT.as_secs()
        < API_CONNECTION_TIMEOUT.as_secs()
);
const _: () = assert!(MAX_API_CONNECTIONS_PER_HOST < MAX_API_CONNECTIONS);
const _: () = assert!(2 * MAX_API_JOBS_PER_POOL < MAX_API_JOBS);
const _: () =
    assert!(BUSY_PATIENCE.as_secs() + POOL_PATIENCE.as_secs() < API_ANSWER_TIMEOUT.as_secs());
const _: () = assert!(DEVICE_PAUSE.as_millis() as u64 * (DEVICE_ATTEMPTS as u64) < 10_000);
const _: () = assert!(zgate_api::volume::MAX_PAGE_ITEMS <= MAX_API_ROWS);
const _: () = assert!(HISTORY_STEP.as_secs() * HISTORY_POINTS as u64 == 3600);
const _: () = assert!(DOCTOR_SECONDS < DOCTOR_AGE.as_secs());
const _: () = assert!(MAX_PAGE_ROWS <= MAX_API_ROWS);
const _: () = assert!(crate::observe::http::ANSWER_TIMEOUT.as_secs() < COLLECT_TIMEOUT.as_secs());
