//! Planted faults: what the invariants must find. Each is built into a wrapper
//! around the product, at the place where the product meets the disk, the
//! network, the clock or its records.

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutant {
    /// COMMIT answers without syncing.
    CommitSyncsNothing,
    /// Stable writes are written as unstable ones.
    StableWriteUnstable,
    /// The write verifier is the same at every start.
    VerifierKeptAtStart,
    /// A failed sync does not change the write verifier.
    VerifierKeptAfterError,
    /// A write is acknowledged before it is carried out.
    WriteBehindAnswer,
    /// Writes of a server that died are still carried out.
    DeadServerWrites,
    /// There is no duplicate request cache.
    NoReplyCache,
    /// A repeated request of a session runs again.
    SlotRunsAgain,
    /// Client records are acknowledged before they are on stable storage.
    RecordsNotSynced,
    /// There is no grace period after a restart.
    NoGrace,
    /// Grace ends after a fifth of its time.
    GraceEndsEarly,
    /// The server's clock runs ahead: leases end early.
    ClockRunsFast,
    /// One reply in forty is lost although the connection lives.
    ReplyLost,
    /// The server's periodic work is never done.
    NoTick,
    /// A read returns what the block was before the latest write.
    ReadFromOldCopy,
    /// NFSv3 recalls no delegations and asks for no locks.
    NoRecallByV3,
    /// Every start has the same number: stateids of an earlier one look valid.
    EpochReused,
    /// A copy of a running request that comes over a new connection is dropped.
    CopyDropped,
    /// A copy of a running request runs beside it.
    CopyRunsToo,
    /// Changes of names are acknowledged before they are synced.
    NamesNotSynced,
    /// Leases are counted by the wall clock, which jumps.
    LeaseByWallClock,
    /// Recalls of delegations are taken for delivered, and are not.
    RecallLost,
    /// RENEW of a client that the server does not know is answered with success.
    RenewAlwaysGood,
    /// Unstable writes are acknowledged as stable.
    UnstableToldStable,
    /// A failed sync is answered with success.
    SyncErrorHidden,
    /// Half of the client records are not read at a start.
    RecordsForgotten,
    /// One write in ten writes a half, and is acknowledged as a whole.
    ShortWriteHidden,
    /// Writes to a full disk are acknowledged.
    FullDiskHidden,
    /// Writes that fail are acknowledged.
    WriteErrorHidden,
    /// Writes with force unit access stay in the cache.
    FuaIgnored,
    /// SYNCHRONIZE CACHE does nothing.
    FlushIgnored,
    /// UNMAP does nothing.
    UnmapIgnored,
    /// Reservations are not read at a start.
    ReservationsForgotten,
    /// Reservations are acknowledged before they are stable.
    ReservationsNotSynced,
    /// WRITE looks at no reservation and at no abort.
    ReservationIgnored,
    /// COMPARE AND WRITE lets others in between its halves.
    CompareNotAtomic,
    /// A login does not wait for commands of the host's earlier session.
    FormerNotAwaited,
    /// A reset of the unit does not wait for commands of others.
    ResetNotAwaited,
    /// An aborted command that has not begun still runs.
    AbortNotSeen,
    /// PREEMPT AND ABORT does not wait for running commands.
    PreemptNotAwaited,
    /// ABORT TASK is answered while the command still writes.
    AbortAnsweredEarly,
    /// OPEN looks at no deny modes.
    DenyIgnored,
    /// Writes of a server that another machine has replaced still reach the disk.
    FenceIgnored,
    /// An account that is not configured is admitted.
    StrangerAdmitted,
    /// PDUs with wrong digests are taken for good.
    DigestNotChecked,
    /// An RDMA Write goes to memory of an earlier call.
    KeyReused,
    /// A reply over RDMA grants twice the credits that there are.
    CreditsDoubled,
    /// One reply in twenty over RDMA is sent twice.
    ReplySentTwice,
    /// A reply invalidates memory of another call.
    AnotherInvalidated,
    /// RDMA Writes arrive behind the reply that announces them.
    WriteBehindSend,
    /// The data of an R2T is read by RDMA seconds later, whatever has become of
    /// the task.
    ReadAfterAbort,
    /// The target answers no SNACK.
    SnackIgnored,
    /// The target moves no task to another connection.
    ReassignIgnored,
    /// The target never asks by time for Data-Out that was lost.
    LostDataNotMissed,
    /// Client records of a server that another machine has replaced still
    /// change.
    RecordsUnfenced,
    /// A call under Kerberos uses up its sequence number before its header is
    /// verified.
    WindowBeforeMic,
    /// A sequence number that was seen before is served.
    ReplayServed,
    /// A call signed in the context of another client is served.
    ContextOfAnother,
    /// The verifier of a reply is the code over another sequence number.
    ReplyOfAnother,
    /// Contexts that are over are kept.
    ContextsKept,
    /// The loader's first READ over another connection has a wrong offset.
    OffsetAfterReconnect,
    /// A reply that arrives for a dead connection of the loader is taken for
    /// another one's.
    DeadReplyTaken,
    /// The loader returns another delegation than the one that it holds.
    DelegationKept,
    /// The loader's DESTROY_CLIENTID names another client.
    LeavesWithoutAWord,
    /// A call in the clear is served where TLS is required.
    PlainServed,
    /// A client without a certificate is served where one is required.
    CertificateIgnored,
    /// A record of TLS with a wrong tag is taken.
    TagNotChecked,
    /// A record of TLS that comes twice is taken twice.
    RecordReplayed,
    /// Bytes in the clear behind a request for TLS are taken as if they had come
    /// under TLS.
    InjectedBeforeTls,
    /// A handshake that stalls is never ended.
    StallKept,
    /// A connection whose certificate has been revoked goes on.
    RevokedServes,
    /// The write verifier is the same behind a rollback to a snapshot.
    RollbackKeepsVerifier,
    /// Delegations are not recalled at a rollback to a snapshot.
    RollbackRecallsNothing,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 73] = [
        Self::CommitSyncsNothing,
        Self::StableWriteUnstable,
        Self::VerifierKeptAtStart,
        Self::VerifierKeptAfterError,
        Self::WriteBehindAnswer,
        Self::DeadServerWrites,
        Self::NoReplyCache,
        Self::SlotRunsAgain,
        Self::RecordsNotSynced,
        Self::NoGrace,
        Self::GraceEndsEarly,
        Self::ClockRunsFast,
        Self::ReplyLost,
        Self::NoTick,
        Self::ReadFromOldCopy,
        Self::NoRecallByV3,
        Self::EpochReused,
        Self::CopyDropped,
        Self::CopyRunsToo,
        Self::NamesNotSynced,
        Self::LeaseByWallClock,
        Self::RecallLost,
        Self::RenewAlwaysGood,
        Self::UnstableToldStable,
        Self::SyncErrorHidden,
        Self::RecordsForgotten,
        Self::ShortWriteHidden,
        Self::FullDiskHidden,
        Self::WriteErrorHidden,
        Self::FuaIgnored,
        Self::FlushIgnored,
        Self::UnmapIgnored,
        Self::ReservationsForgotten,
        Self::ReservationsNotSynced,
        Self::ReservationIgnored,
        Self::CompareNotAtomic,
        Self::FormerNotAwaited,
        Self::ResetNotAwaited,
        Self::AbortNotSeen,
        Self::PreemptNotAwaited,
        Self::AbortAnsweredEarly,
        Self::DenyIgnored,
        Self::FenceIgnored,
        Self::StrangerAdmitted,
        Self::DigestNotChecked,
        Self::KeyReused,
        Self::CreditsDoubled,
        Self::ReplySentTwice,
        Self::AnotherInvalidated,
        Self::WriteBehindSend,
        Self::ReadAfterAbort,
        Self::SnackIgnored,
        Self::ReassignIgnored,
        Self::LostDataNotMissed,
        Self::RecordsUnfenced,
        Self::WindowBeforeMic,
        Self::ReplayServed,
        Self::ContextOfAnother,
        Self::ReplyOfAnother,
        Self::ContextsKept,
        Self::OffsetAfterReconnect,
        Self::DeadReplyTaken,
        Self::DelegationKept,
        Self::LeavesWithoutAWord,
        Self::PlainServed,
        Self::CertificateIgnored,
        Self::TagNotChecked,
        Self::RecordReplayed,
        Self::InjectedBeforeTls,
        Self::StallKept,
        Self::RevokedServes,
        Self::RollbackKeepsVerifier,
        Self::RollbackRecallsNothing,
    ];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CommitSyncsNothing => "commit-syncs-nothing",
            Self::StableWriteUnstable => "stable-write-unstable",
            Self::VerifierKeptAtStart => "verifier-kept-at-start",
            Self::VerifierKeptAfterError => "verifier-kept-after-error",
            Self::WriteBehindAnswer => "write-behind-answer",
            Self::DeadServerWrites => "dead-server-writes",
            Self::NoReplyCache => "no-reply-cache",
            Self::SlotRunsAgain => "slot-runs-again",
            Self::RecordsNotSynced => "records-not-synced",
            Self::NoGrace => "no-grace",
            Self::GraceEndsEarly => "grace-ends-early",
            Self::ClockRunsFast => "clock-runs-fast",
            Self::ReplyLost => "reply-lost",
            Self::NoTick => "no-tick",
            Self::ReadFromOldCopy => "read-from-old-copy",
            Self::NoRecallByV3 => "no-recall-by-v3",
            Self::EpochReused => "epoch-reused",
            Self::CopyDropped => "copy-dropped",
            Self::CopyRunsToo => "copy-runs-too",
            Self::NamesNotSynced => "names-not-synced",
            Self::LeaseByWallClock => "lease-by-wall-clock",
            Self::RecallLost => "recall-lost",
            Self::RenewAlwaysGood => "renew-always-good",
            Self::UnstableToldStable => "unstable-told-stable",
            Self::SyncErrorHidden => "sync-error-hidden",
            Self::RecordsForgotten => "records-forgotten",
            Self::ShortWriteHidden => "short-write-hidden",
            Self::FullDiskHidden => "full-disk-hidden",
            Self::WriteErrorHidden => "write-error-hidden",
            Self::FuaIgnored => "fua-ignored",
            Self::FlushIgnored => "flush-ignored",
            Self::UnmapIgnored => "unmap-ignored",
            Self::ReservationsForgotten => "reservations-forgotten",
            Self::ReservationsNotSynced => "reservations-not-synced",
            Self::ReservationIgnored => "reservation-ignored",
            Self::CompareNotAtomic => "compare-not-atomic",
            Self::FormerNotAwaited => "former-not-awaited",
            Self::ResetNotAwaited => "reset-not-awaited",
            Self::AbortNotSeen => "abort-not-seen",
            Self::PreemptNotAwaited => "preempt-not-awaited",
            Self::AbortAnsweredEarly => "abort-answered-early",
            Self::DenyIgnored => "deny-ignored",
            Self::FenceIgnored => "fence-ignored",
            Self::StrangerAdmitted => "stranger-admitted",
            Self::DigestNotChecked => "digest-not-checked",
            Self::KeyReused => "key-reused",
            Self::CreditsDoubled => "credits-doubled",
            Self::ReplySentTwice => "reply-sent-twice",
            Self::AnotherInvalidated => "another-invalidated",
            Self::WriteBehindSend => "write-behind-send",
            Self::ReadAfterAbort => "read-after-abort",
            Self::SnackIgnored => "snack-ignored",
            Self::ReassignIgnored => "reassign-ignored",
            Self::LostDataNotMissed => "lost-data-not-missed",
            Self::RecordsUnfenced => "records-unfenced",
            Self::WindowBeforeMic => "window-before-mic",
            Self::ReplayServed => "replay-served",
            Self::ContextOfAnother => "context-of-another",
            Self::ReplyOfAnother => "reply-of-another",
            Self::ContextsKept => "contexts-kept",
            Self::OffsetAfterReconnect => "offset-after-reconnect",
            Self::DeadReplyTaken => "dead-reply-taken",
            Self::DelegationKept => "delegation-kept",
            Self::LeavesWithoutAWord => "leaves-without-a-word",
            Self::PlainServed => "plain-served",
            Self::CertificateIgnored => "certificate-ignored",
            Self::TagNotChecked => "tag-not-checked",
            Self::RecordReplayed => "record-replayed",
            Self::InjectedBeforeTls => "injected-before-tls",
            Self::StallKept => "stall-kept",
            Self::RevokedServes => "revoked-serves",
            Self::RollbackKeepsVerifier => "rollback-keeps-verifier",
            Self::RollbackRecallsNothing => "rollback-recalls-nothing",
        }
    }

    /// The planted fault of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }
}
