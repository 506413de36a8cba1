//! Bounds on attempts to open storage and to resolve host names.

use std::time::Duration;

/// Time that a start waits for storage to open. Storage that takes longer is
/// absent, and comes into service when it has opened.
pub(crate) const START_PATIENCE: Duration = Duration::from_secs(15);
/// The same with `--strict`, for datasets, and for live commands, which fail then.
pub(crate) const OPEN_PATIENCE: Duration = Duration::from_secs(30);
/// Time that a reload waits for storage to open; its caller waits 30 s.
pub(crate) const RELOAD_PATIENCE: Duration = Duration::from_secs(5);
/// Time that a start or a reload waits for the addresses of host names.
pub(crate) const NAME_PATIENCE: Duration = Duration::from_secs(5);
/// Longest time from the start for which clients are told to retry because a pool has
/// not told its datasets: as long as a handover may last at most, the longest that
/// clients are kept waiting elsewhere. A pool that needs longer is broken, and clients
/// of exports that do not exist any more must learn it some time. It is longer where
/// `away_seconds` is.
pub(crate) const UNKNOWN_PATIENCE: Duration = Duration::from_secs(600);
/// Interval before the second attempt for an absent item; it doubles with every
/// further one.
pub(crate) const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longest interval between two attempts.
pub(crate) const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// First and longest interval between two searches for what is away, of whose return nothing may
/// tell: it doubles while nothing changes.
pub(crate) const FIRST_LOOK: Duration = Duration::from_secs(2);
pub(crate) const LONGEST_LOOK: Duration = Duration::from_secs(30);
/// Interval between two looks at the paths of exports that are served.
pub(crate) const PLACE_INTERVAL: Duration = Duration::from_secs(5);
/// Most attempts of one kind that are under way at the same time and do not
/// hang.
pub(crate) const MAX_UNDER_WAY: usize = 64;
/// Age at which an attempt counts as hanging, and others begin in spite of it.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(5);

const _: () = assert!(FIRST_RETRY.as_secs() <= LONGEST_RETRY.as_secs());
const _: () = assert!(FIRST_LOOK.as_secs() <= LONGEST_LOOK.as_secs());
// A start with `config check` before it stays below the 90 s of systemd. The check: what is
// wrong, what is absent, names, the state directory, ZFS. The start: directories, LUNs, names.
const _: () = assert!(4 * (NAME_PATIENCE.as_secs() + START_PATIENCE.as_secs()) < 90);
// A reload answers before its caller gives up.
const _: () = assert!(NAME_PATIENCE.as_secs() + 2 * RELOAD_PATIENCE.as_secs() < 30);
