//! Invariants of every run, by name.

/// An invariant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A write acknowledged as stable, or committed, survives a power loss.
    DurableWrite,
    /// A change of names that was acknowledged survives a power loss.
    DurableNames,
    /// A read never returns an older version than one already seen or
    /// acknowledged, nor half of one.
    NoOlderData,
    /// The write verifier changes when unstable data was lost.
    VerifierChanges,
    /// A request that must run once does, although it is repeated.
    ExactlyOnce,
    /// Two conflicting locks are never held together.
    LockExclusion,
    /// Two opens of which one denies the other are never held together.
    ShareExclusion,
    /// A login with a wrong secret is refused.
    OnlyAdmitted,
    /// A call that somebody repeats, changes or forges has no effect and no reply with
    /// success; the reply to a call of a client has the code of its sequence number.
    OnlyAuthentic,
    /// The server touches memory of a client or host only while it is offered,
    /// and only as it is offered.
    RemoteMemory,
    /// A client that keeps to the credits it was granted is served.
    Credits,
    /// State of a client whose lease is valid is known to the server, or was
    /// lost with an earlier start, as the server says.
    StateKept,
    /// Data that a client reads from its cache under a delegation is not older
    /// than anything acknowledged to another client.
    FreshDelegation,
    /// After a PREEMPT AND ABORT nothing of the preempted host lands any more.
    Fence,
    /// COMPARE AND WRITE replaces each value once.
    AtomicCompare,
    /// A persistent reservation survives restarts and power losses.
    ReservationKept,
    /// Every request is answered, or its connection ended, within a bound once
    /// the faults end.
    BoundedAnswer,
    /// Every client finishes its steps within a bound once the faults end.
    Progress,
    /// A load returns the bytes of its file, or says that the file was changed.
    LoadedData,
    /// A load ends with its data, or for a reason that its user can know.
    LoadEnds,
    /// A loader that unregisters leaves nothing behind: at the server, and of the
    /// memory that it was lent.
    LoaderLeaves,
    /// Nothing is left of clients that have gone: files, sessions, locks.
    NothingLeft,
    /// No request panics, and every reply is one that a correct client may get.
    NoPanic,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 23] = [
        Self::DurableWrite,
        Self::DurableNames,
        Self::NoOlderData,
        Self::VerifierChanges,
        Self::ExactlyOnce,
        Self::LockExclusion,
        Self::ShareExclusion,
        Self::OnlyAdmitted,
        Self::OnlyAuthentic,
        Self::RemoteMemory,
        Self::Credits,
        Self::StateKept,
        Self::FreshDelegation,
        Self::Fence,
        Self::AtomicCompare,
        Self::ReservationKept,
        Self::BoundedAnswer,
        Self::Progress,
        Self::LoadedData,
        Self::LoadEnds,
        Self::LoaderLeaves,
        Self::NothingLeft,
        Self::NoPanic,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DurableWrite => "durable-write",
            Self::DurableNames => "durable-names",
            Self::NoOlderData => "no-older-data",
            Self::VerifierChanges => "verifier-changes",
            Self::ExactlyOnce => "exactly-once",
            Self::LockExclusion => "lock-exclusion",
            Self::ShareExclusion => "share-exclusion",
            Self::OnlyAdmitted => "only-admitted",
            Self::OnlyAuthentic => "only-authentic",
            Self::RemoteMemory => "remote-memory",
            Self::Credits => "credits",
            Self::StateKept => "state-kept",
            Self::FreshDelegation => "fresh-delegation",
            Self::Fence => "fence",
            Self::AtomicCompare => "atomic-compare",
            Self::ReservationKept => "reservation-kept",
            Self::BoundedAnswer => "bounded-answer",
            Self::Progress => "progress",
            Self::LoadedData => "loaded-data",
            Self::LoadEnds => "load-ends",
            Self::LoaderLeaves => "loader-leaves",
            Self::NothingLeft => "nothing-left",
            Self::NoPanic => "no-panic",
        }
    }
}

/// A violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// Description, for people.
    pub text: String,
}

/// Time from the end of the faults, or from the request if that is later, to
/// the reply or the end of the connection, in seconds. A client gives up a
/// connection after the same time.
pub const ANSWER_SECONDS: u64 = 10;
/// Time from the recall of a delegation after which its client reads nothing any more that it
/// had cached under it, in seconds: a lease, and a second or two until the server's clock finds it
/// over and revokes it, and a lease more, which the client may have renewed just before that.
pub const RECALL_SECONDS: u64 = 23;
/// Time from the end of the faults to the end of all clients' steps, in
/// seconds: a grace period at its longest, a lease, and the steps themselves.
pub const PROGRESS_SECONDS: u64 = 240;
