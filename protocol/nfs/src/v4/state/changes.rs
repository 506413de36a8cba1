//! Files that were changed a moment ago without an open: by NFSv3, under the
//! anonymous stateid, by name. Whoever changes a file looks for delegations
//! first; a delegation given between that look and the change would promise
//! something that is just becoming untrue. So none is given to others for a
//! few seconds after a change began.

use crate::v4::cx::FileKey;
use crate::v4::wire::ClientId;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

/// Files share places by their hash; two that meet cost a delegation.
const PLACES: usize = 1 << 14;
/// How long a change may take from its look for delegations to its end, in
/// seconds.
const QUIET_SECONDS: u64 = 3;
/// Stands for a change by somebody who is no client, or by several.
const NOBODY: u64 = 0;

/// When which files were changed last, and by whom.
#[derive(Debug)]
pub struct RecentChanges {
    /// Seconds in the upper half, a part of the client id in the lower.
    places: Box<[AtomicU64]>,
}

impl Default for RecentChanges {
    fn default() -> Self {
        Self { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect() }
    }
}

fn mark(client: Option<ClientId>) -> u64 {
    client.map_or(NOBODY, |client| (client.0 & 0xffff_ffff).max(1))
}

fn recent(place: u64, now_seconds: u64) -> bool {
    place != 0 && (place >> 32) + QUIET_SECONDS >= now_seconds
}

impl RecentChanges {
    fn place(&self, file: &FileKey) -> &AtomicU64 {
        let mut hasher = DefaultHasher::new();
        file.hash(&mut hasher);
        &self.places[hasher.finish() as usize % PLACES]
    }

    /// A change of the file begins. To be called before delegations are looked
    /// for.
    pub fn begin(&self, file: &FileKey, by: Option<ClientId>, now_seconds: u64) {
        let place = self.place(file);
        let before = place.load(Ordering::Relaxed);
        let mine = mark(by);
        let alone = !recent(before, now_seconds) || before & 0xffff_ffff == mine;
        place.store(now_seconds << 32 | if alone { mine } else { NOBODY }, Ordering::Release);
    }

    /// Whether somebody else than `client` may be changing the file.
    #[must_use]
    pub fn by_others(&self, file: &FileKey, client: ClientId, now_seconds: u64) -> bool {
        let place = self.place(file).load(Ordering::Acquire);
        recent(place, now_seconds) && place & 0xffff_ffff != mark(Some(client))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::ExportId;
    use zgate_store::NodeHandle;

    #[test]
    fn only_others_wait_and_not_for_long() {
        let changes = RecentChanges::default();
        let file = FileKey { export: ExportId(20), node: NodeHandle::new(&[1; 8]).unwrap() };
        let (a, b) = (ClientId(7), ClientId(8));
        assert!(!changes.by_others(&file, a, 100));
        changes.begin(&file, Some(a), 100);
        assert!(!changes.by_others(&file, a, 100));
        assert!(changes.by_others(&file, b, 100 + QUIET_SECONDS));
        assert!(!changes.by_others(&file, b, 101 + QUIET_SECONDS));
        changes.begin(&file, Some(b), 101);
        assert!(changes.by_others(&file, a, 101) && changes.by_others(&file, b, 101));
        changes.begin(&file, None, 200);
        assert!(changes.by_others(&file, a, 200));
    }
}
