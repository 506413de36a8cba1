//! Items that are configured, but absent: shown by `zgate status` and the metrics,
//! logged when they go and when they come.

use crate::exports::absent::{AbsentItem, AbsentKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use utoipa::ToSchema;

/// Part of the gateway that reports its absent items as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    /// Paths and host names of exports.
    Exports,
    /// Datasets that do not exist or are not mounted.
    Datasets,
    Luns,
    Addresses,
}

struct Known {
    item: AbsentItem,
    since: Instant,
}

/// All absent items.
#[derive(Default)]
pub(crate) struct AbsentList(Mutex<BTreeMap<(Source, String), Known>>);

/// An absent item in status and in the answer of a reload.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct AbsentView {
    pub(super) kind: AbsentKind,
    pub(super) name: String,
    pub(super) reason: String,
    pub(super) next_step: String,
    pub(super) absent_seconds: u64,
}

impl AbsentView {
    /// Returns the kind and the text of a problem.
    pub(super) fn problem(&self) -> (AbsentKind, String) {
        (self.kind, format!("{} is absent: {}; {}", self.name, self.reason, self.next_step))
    }
}

impl AbsentList {
    fn items(&self) -> MutexGuard<'_, BTreeMap<(Source, String), Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the items of one source; logs those that are new or gone.
    pub(crate) fn update(&self, source: Source, now: Vec<AbsentItem>) {
        let mut items = self.items();
        items.retain(|(of, name), known| {
            let stays = *of != source || now.iter().any(|item| item.name == *name);
            if !stays {
                let absent_seconds = known.since.elapsed().as_secs();
                tracing::info!(item = name, absent_seconds, "no longer absent");
            }
            stays
        });
        for item in now {
            let key = (source, item.name.clone());
            if let Some(known) = items.get_mut(&key) {
                known.item = item;
                continue;
            }
            tracing::warn!(
                item = item.name,
                reason = item.reason,
                next_step = item.next_step,
                "absent; it comes into service as soon as it is there"
            );
            items.insert(key, Known { item, since: Instant::now() });
        }
    }

    /// Returns all items.
    pub(crate) fn views(&self) -> Vec<AbsentView> {
        let view = |known: &Known| {
            let AbsentItem { kind, name, reason, next_step } = known.item.clone();
            let absent_seconds = known.since.elapsed().as_secs();
            AbsentView { kind, name, reason, next_step, absent_seconds }
        };
        self.items().values().map(view).collect()
    }

    /// Returns the number of items of each kind.
    pub(super) fn counts(&self) -> [(AbsentKind, usize); AbsentKind::ALL.len()] {
        let items = self.items();
        AbsentKind::ALL
            .map(|kind| (kind, items.values().filter(|known| known.item.kind == kind).count()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::absent::Fault;

    #[test]
    fn items_stay_until_their_source_has_them_no_more() {
        let list = AbsentList::default();
        let item = |kind, name: &str, reason: &str| {
            AbsentItem::new(kind, name.to_owned(), Fault::absent(reason.to_owned(), "wait"))
        };
        let export = |reason| item(AbsentKind::Export, "export /a", reason);
        list.update(Source::Exports, vec![export("missing"), item(AbsentKind::Client, "c", "x")]);
        list.update(Source::Luns, vec![item(AbsentKind::Lun, "lun 1", "missing")]);
        let since_of_export = || {
            list.items().get(&(Source::Exports, "export /a".to_owned())).map(|known| known.since)
        };
        let since = since_of_export();
        list.update(Source::Exports, vec![export("not a directory")]);
        assert_eq!(since_of_export(), since);
        let views = list.views();
        let shown: Vec<_> = views.iter().map(AbsentView::problem).collect();
        assert_eq!(shown[0].1, "export /a is absent: not a directory; wait");
        assert_eq!((shown.len(), shown[1].0), (2, AbsentKind::Lun));
        let counted: Vec<_> = list
            .counts()
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(kind, _)| kind)
            .collect();
        assert_eq!(counted, [AbsentKind::Export, AbsentKind::Lun]);
        let kinds = serde_json::to_value(AbsentKind::ALL).unwrap();
        assert_eq!(kinds, serde_json::json!(AbsentKind::ALL.map(AbsentKind::label)));
    }
}
