//! Bounds on work for clients of Kerberos. Those on contexts and tokens are in
//! `zgate_rpc::gss`.

use crate::nfs::limits::CALLBACK_TIMEOUT;
use std::time::Duration;

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

/// Workers that ask the KDC for tickets to clients, and most such questions at a
/// time. They share nothing with the workers above: a KDC that is silent holds up
/// no client's token.
pub(crate) const TICKET_WORKERS: usize = 4;
/// Those for clients of one host.
pub(crate) const TICKETS_PER_HOST: usize = 2;
/// Time in which a ticket must be there, including the wait for a worker;
/// otherwise the client has no callback path.
pub(crate) const TICKET_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a callback that begins its context, from the connection on.
pub(crate) const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(10);
/// Times that a token is sent again to a client that closes the connection.
pub(crate) const MAX_TOKEN_REPETITIONS: u32 = 6;
/// Pause before the first of them; doubled each time.
pub(crate) const FIRST_TOKEN_PAUSE: Duration = Duration::from_millis(100);
/// Time limit of a callback under Kerberos as a whole: a call in a context that the
/// client has lost, a ticket, a new context.
pub(crate) const PROTECTED_CALLBACK_TIMEOUT: Duration = Duration::from_secs(25);
/// Contexts for callbacks that are kept for the next call, one for each client at
/// most. Without one, a callback begins its own.
pub(crate) const MAX_KEPT_CALLBACK_CONTEXTS: usize = 4096;
/// Clients that are told at a time that a context for callbacks has ended; each
/// takes a connection. Those beyond are not told.
pub(crate) const MAX_FAREWELLS: usize = 16;
/// Time limit of that call, with its connection.
pub(crate) const FAREWELL_TIMEOUT: Duration = Duration::from_secs(5);
/// Principals of the gateway with tickets: clients choose them from the keytab.
pub(crate) const MAX_CALLBACK_PRINCIPALS: usize = 16;
/// Tickets to clients that a principal's cache holds before it is replaced: the
/// library searches it from one end to the other.
pub(crate) const MAX_TICKETS_PER_CREDENTIAL: usize = 1024;
/// Pause between attempts to renew a ticket that is still valid.
pub(crate) const TICKET_RETRY: Duration = Duration::from_secs(60);

const _: () = assert!(
    (FIRST_TOKEN_PAUSE.as_millis() << MAX_TOKEN_REPETITIONS) < ESTABLISH_TIMEOUT.as_millis()
);
const _: () = assert!(TICKETS_PER_HOST < TICKET_WORKERS);
const _: () = assert!(
    TICKET_TIMEOUT.as_secs() + CALLBACK_TIMEOUT.as_secs() + ESTABLISH_TIMEOUT.as_secs()
        <= PROTECTED_CALLBACK_TIMEOUT.as_secs()
);
const _: () = assert!(MAX_ESTABLISHING_PER_HOST <= MAX_ESTABLISHING / 4);
// Memory of tokens that wait.
const _: () = assert!(MAX_ESTABLISHING * zgate_rpc::gss::MAX_TOKEN_BYTES <= 32 << 20);
