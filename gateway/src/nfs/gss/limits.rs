//! Bounds on work for clients of Kerberos. Those on contexts and tokens are in
//! `zgate_rpc::gss`.

/// Worker threads for calls that may block, and as many for long bodies.
pub(crate) const WORKERS: usize = 8;
/// Tokens of new contexts that are being worked on or wait for a worker.
pub(crate) const MAX_ESTABLISHING: usize = 512;
/// Those of one host: users of a login server whose contexts all ended at once.
pub(crate) const MAX_ESTABLISHING_PER_HOST: usize = 128;
/// Length from which arguments or results are signed, checked or encrypted by a
/// worker, in bytes: below, that takes less time than the way there.
pub(crate) const WORKER_BODY_BYTES: usize = 32 << 10;
/// Time for which a principal's user and groups count as known, in seconds. They
/// are then looked up again, while calls go on with the old ones.
pub(crate) const IDENTITY_SECONDS: u64 = 600;
/// Interval between removals of contexts that are over, in seconds.
pub(crate) const EXPIRY_INTERVAL_SECONDS: u64 = 60;

const _: () = assert!(MAX_ESTABLISHING_PER_HOST <= MAX_ESTABLISHING / 4);
// Memory of tokens that wait.
const _: () = assert!(MAX_ESTABLISHING * zgate_rpc::gss::MAX_TOKEN_BYTES <= 32 << 20);
