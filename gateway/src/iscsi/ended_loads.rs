//! Loads of sessions that have ended while their initiator has another one with the same target:
//! what is counted for the two together never falls. Prometheus would take that for a new
//! beginning, and what is left for as much that was moved at this moment.

use super::session::LiveSession;
use crate::observe::load::LoadFigures;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use zgate_iscsi::names::IscsiName;

/// An initiator, and a target.
pub(crate) type Pair = (IscsiName, IscsiName);

/// Returns the pair of a session; none for a discovery session, which moves no data.
pub(super) fn pair_of(live: &LiveSession) -> Option<Pair> {
    Some((live.key.initiator.clone(), live.key.target.clone()?))
}

/// The loads, by pair.
#[derive(Default)]
pub(super) struct EndedLoads(Mutex<HashMap<Pair, LoadFigures>>);

impl EndedLoads {
    fn lock(&self) -> MutexGuard<'_, HashMap<Pair, LoadFigures>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the end of a session; `others` are all that go on. With the last one of a pair, its
    /// load is forgotten.
    pub(super) fn note<'a>(
        &self,
        ended: &LiveSession,
        mut others: impl Iterator<Item = &'a Arc<LiveSession>>,
    ) {
        let Some(pair) = pair_of(ended) else { return };
        let (initiator, target) = (&ended.key.initiator, &ended.key.target);
        if others.any(|other| other.key.initiator == *initiator && other.key.target == *target) {
            let load = LoadFigures { running: 0, ..ended.load.figures() };
            *self.lock().entry(pair).or_default() += load;
        } else {
            self.lock().remove(&pair);
        }
    }

    /// Returns all of them.
    pub(super) fn all(&self) -> Vec<(Pair, LoadFigures)> {
        self.lock().iter().map(|(pair, load)| (pair.clone(), *load)).collect()
    }
}
