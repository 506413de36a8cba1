//! Mutable state of a logical unit, under one lock that is never held across an
//! await.

use super::attention::Attentions;
use super::background::Progress;
use super::config::AccessState;
use super::copy_result::CopyResult;
use super::losses::Losses;
use super::thin_space::ThinSpace;
use crate::command::mode::ModePages;
use crate::command::persistent::state::Registry;
use crate::command::token::TokenTable;
use crate::limits::MAX_NEXUSES;
use crate::nexus::{Nexus, NexusId};
use crate::sense::Asc;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// State that a logical unit keeps for one I_T nexus.
#[derive(Debug)]
pub(crate) struct NexusState {
    pub(crate) nexus: Arc<Nexus>,
    pub(crate) attentions: Attentions,
    pub(crate) prevents_removal: bool,
    pub(crate) copies: VecDeque<CopyResult>,
}

/// Mutable state of a logical unit.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) nexuses: BTreeMap<NexusId, NexusState>,
    pub(crate) registry: Registry,
    /// I_T nexus that holds a RESERVE (6).
    pub(crate) legacy_holder: Option<NexusId>,
    /// Set if that I_T nexus has ended while its commands may still run.
    pub(crate) legacy_holder_lost: bool,
    pub(crate) mode: ModePages,
    /// Set while a write cache is still on that is to be off once it is empty.
    pub(crate) empties_cache: bool,
    pub(crate) losses: Losses,
    pub(crate) ejected: bool,
    pub(crate) sanitize: Progress,
    pub(crate) tokens: TokenTable,
    /// Access state of each target port group.
    pub(crate) access: Vec<(u16, AccessState)>,
    pub(crate) thin_space: Option<ThinSpace>,
    /// Set if initiators were warned that space runs short.
    pub(crate) thin_warned: bool,
}

impl State {
    pub(crate) fn new(
        registry: Registry,
        mode: ModePages,
        access: Vec<(u16, AccessState)>,
    ) -> Self {
        Self {
            nexuses: BTreeMap::new(),
            registry,
            legacy_holder: None,
            legacy_holder_lost: false,
            mode,
            empties_cache: false,
            losses: Losses::default(),
            ejected: false,
            sanitize: Progress::Idle,
            tokens: TokenTable::default(),
            access,
            thin_space: None,
            thin_warned: false,
        }
    }

    /// Returns the state of the nexus. It is created for a new nexus, whose
    /// first command gets POWER ON, RESET, OR BUS DEVICE RESET OCCURRED.
    pub(crate) fn nexus(&mut self, nexus: &Arc<Nexus>) -> &mut NexusState {
        if !self.nexuses.contains_key(&nexus.id) && self.nexuses.len() >= MAX_NEXUSES {
            // The oldest session is dropped; if it is still in use, it gets the
            // power-on attention again.
            if let Some((_, oldest)) = self.nexuses.pop_first() {
                self.losses.nexus_gone(oldest.nexus);
            }
        }
        self.nexuses.entry(nexus.id).or_insert_with(|| {
            let mut attentions = Attentions::default();
            attentions.raise(Asc::POWER_ON_OR_RESET);
            NexusState {
                nexus: Arc::clone(nexus),
                attentions,
                prevents_removal: false,
                copies: VecDeque::new(),
            }
        })
    }

    /// Puts mode pages into effect that no MODE SELECT has set. A write cache that they turn
    /// off stays on until the background work has emptied it: once it is off, no host flushes
    /// any more. The caller raises the signal of that work.
    pub(crate) fn set_mode(&mut self, wanted: ModePages) {
        self.empties_cache = self.mode.write_cache() && !wanted.write_cache();
        self.mode = wanted.with_write_cache(wanted.write_cache() || self.empties_cache);
    }

    /// Queues a unit attention for every I_T nexus.
    pub(crate) fn raise_for_all(&mut self, asc: Asc) {
        for nexus in self.nexuses.values_mut() {
            nexus.attentions.raise(asc);
        }
    }

    /// Queues a unit attention for every I_T nexus but one.
    pub(crate) fn raise_for_others(&mut self, but: NexusId, asc: Asc) {
        for (id, nexus) in &mut self.nexuses {
            if *id != but {
                nexus.attentions.raise(asc);
            }
        }
    }

    /// Returns whether an I_T nexus prevents the removal of the medium.
    pub(crate) fn removal_prevented(&self) -> bool {
        self.nexuses.values().any(|nexus| nexus.prevents_removal)
    }
}
