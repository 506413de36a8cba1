//! One logical unit: configuration, store and everything that changes.

pub(crate) mod attention;
pub(crate) mod background;
pub(crate) mod config;
pub(crate) mod losses;
pub(crate) mod range_lock;
pub(crate) mod reservation_store;
pub(crate) mod running;
pub(crate) mod signal;
mod state;
pub(crate) mod store_error;

pub(crate) use state::State;

use crate::command::mode::ModePages;
use crate::command::persistent::state::Registry;
use crate::limits::{MAX_ATOMIC_BYTES, MAX_REPORTED_PHYSICAL_BLOCK_BYTES, THRESHOLD_SET_BYTES};
use crate::nexus::{Nexus, NexusId};
use crate::sense::Asc;
use background::Background;
use config::{AccessState, ConfigError, DiskConfig};
use range_lock::RangeLocks;
use reservation_store::ReservationStore;
use running::RunningCommands;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;
use zgate_store::block_store::BlockGeometry;
use zgate_store::{BlockStore, StoreError};

/// Why a logical unit cannot be brought up.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The configuration does not fit.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The kept reservations cannot be read.
    #[error("reading persistent reservations: {0}")]
    Reservations(#[source] StoreError),
    /// The kept reservations make no sense. Going on without them would
    /// let hosts write that are fenced off.
    #[error("the kept persistent reservations are damaged")]
    DamagedReservations,
}

/// Why a logical unit was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetReason {
    /// LOGICAL UNIT RESET.
    LunReset,
    /// TARGET WARM RESET.
    TargetWarmReset,
    /// TARGET COLD RESET.
    TargetColdReset,
}

impl ResetReason {
    fn attention(self) -> Asc {
        match self {
            Self::LunReset | Self::TargetWarmReset => Asc::DEVICE_RESET,
            Self::TargetColdReset => Asc::POWER_ON_OR_RESET,
        }
    }
}

/// Space behind a thin logical unit: what the Logical Block Provisioning log
/// and mode pages tell, and when hosts are warned (SBC-4 §4.7.3.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThinSpace {
    /// Bytes the store can still allocate for this logical unit.
    pub available_bytes: u64,
    /// Bytes it has allocated.
    pub used_bytes: u64,
    /// Hosts are warned once no more than this is available; 0: never.
    pub threshold_bytes: u64,
}

impl ThinSpace {
    /// Whether so little is left that hosts should know.
    #[must_use]
    pub fn is_short(&self) -> bool {
        self.threshold_bytes > 0 && self.available_bytes <= self.threshold_bytes
    }

    /// Whether enough is there again for another warning: a tenth more than
    /// the threshold, so that a store at the border does not warn each time.
    fn is_relaxed(&self) -> bool {
        self.available_bytes > self.threshold_bytes.saturating_add(self.threshold_bytes / 10)
    }
}

/// One direct-access block device over a [`BlockStore`].
pub struct Disk {
    pub(crate) config: DiskConfig,
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) reservation_store: Arc<dyn ReservationStore>,
    pub(crate) ranges: RangeLocks,
    pub(crate) background: Background,
    /// Serializes PERSISTENT RESERVE OUT, whose save to stable storage must
    /// not be overtaken by the next one.
    pub(crate) reserving: futures_util::lock::Mutex<()>,
    pub(crate) running: Arc<RunningCommands>,
    /// Whether somebody has to be told of lost writes.
    pub(crate) owes: AtomicBool,
    state: Mutex<State>,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("serial", &self.config.serial).finish_non_exhaustive()
    }
}

impl Disk {
    /// Brings a logical unit up, with the reservations kept from before.
    ///
    /// # Errors
    /// The configuration does not fit the store, or the kept reservations
    /// cannot be read.
    pub async fn open(
        config: DiskConfig,
        store: Arc<dyn BlockStore>,
        reservation_store: Arc<dyn ReservationStore>,
    ) -> Result<Self, OpenError> {
        config.check()?;
        let geometry = store.geometry();
        if geometry.capacity_bytes < u64::from(config.logical_block_bytes) {
            return Err(ConfigError::NoBlocks.into());
        }
        let image = reservation_store.load().await.map_err(OpenError::Reservations)?;
        let registry = match image {
            Some(image) if !image.is_empty() => {
                Registry::decode(&image).ok_or(OpenError::DamagedReservations)?
            }
            _ => Registry::default(),
        };
        let mode = ModePages::new(config.write_cache.unwrap_or(geometry.write_cache));
        let access = config.port_groups.iter().map(|group| (group.id, group.state)).collect();
        Ok(Self {
            state: Mutex::new(State::new(registry, mode, access)),
            config,
            store,
            reservation_store,
            ranges: RangeLocks::default(),
            background: Background::default(),
            reserving: futures_util::lock::Mutex::new(()),
            running: Arc::default(),
            owes: AtomicBool::new(false),
        })
    }

    /// This logical unit in place of one over the same store, whose commands may still
    /// run.
    #[must_use]
    pub fn in_place_of(mut self, before: &Self) -> Self {
        self.running = Arc::clone(&before.running);
        self
    }

    /// The commands that may still change this logical unit, whatever became of their
    /// sessions.
    #[must_use]
    pub fn running(&self) -> &RunningCommands {
        &self.running
    }

    /// Waits until the commands that such I_T nexuses have here now can change nothing
    /// any more: neither blocks nor reservations. Takes as long as the store does.
    pub async fn settled(&self, which: impl Fn(&Nexus) -> bool) {
        self.running.left(which).await;
        // PERSISTENT RESERVE OUT waits for others itself, so it is not among them.
        drop(self.reserving.lock().await);
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &DiskConfig {
        &self.config
    }

    /// The store underneath.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.store
    }

    /// Logical block size in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.config.logical_block_bytes
    }

    /// Number of logical blocks now.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        self.store.geometry().capacity_bytes / u64::from(self.block_bytes())
    }

    /// Physical blocks as configured or as the store has them.
    pub(crate) fn physical_block_bytes(&self, geometry: &BlockGeometry) -> u32 {
        self.config.physical_block_bytes.unwrap_or(geometry.physical_block_bytes)
    }

    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    pub(crate) fn physical_exponent(&self, geometry: &BlockGeometry) -> u8 {
        let bytes = self.physical_block_bytes(geometry).min(MAX_REPORTED_PHYSICAL_BLOCK_BYTES);
        let ratio = (bytes / self.block_bytes()).max(1);
        u8::try_from(ratio.ilog2()).unwrap_or(0)
    }

    /// ATOMIC ALIGNMENT and ATOMIC TRANSFER LENGTH GRANULARITY in logical
    /// blocks: a write that covers a physical block only in part becomes a
    /// read-modify-write below, which may tear. 0 means no restriction.
    pub(crate) fn atomic_unit_blocks(&self, geometry: &BlockGeometry) -> (u32, u32) {
        let ratio = self.physical_block_bytes(geometry) / self.block_bytes();
        let largest = MAX_ATOMIC_BYTES / u64::from(self.block_bytes());
        if ratio < 2 || u64::from(ratio) > largest { (0, 0) } else { (ratio, ratio) }
    }

    /// Whether blocks can be unmapped (LBPME).
    pub(crate) fn is_thin(&self, geometry: &BlockGeometry) -> bool {
        self.config.thin && geometry.discard_granularity_bytes.is_some()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets the logical unit: RESERVE (6) and PREVENT ALLOW end, mode pages
    /// go back to their defaults, every I_T nexus learns of it. Persistent
    /// reservations and SANITIZE are untouched (SPC-4 §5.13.1, SBC-4 §4.11).
    /// The caller has aborted the tasks and waited for them ([`Self::settled`]).
    pub fn reset_lun(&self, reason: ResetReason) {
        let defaults =
            ModePages::new(self.config.write_cache.unwrap_or(self.store.geometry().write_cache));
        let mut state = self.state();
        state.legacy_holder = None;
        state.legacy_holder_lost = false;
        state.mode = defaults;
        for nexus in state.nexuses.values_mut() {
            nexus.prevents_removal = false;
            nexus.copies.clear();
            nexus.attentions.reset(reason.attention());
        }
    }

    /// An I_T nexus ended: its PREVENT and unit attentions go with it, its RESERVE (6)
    /// with the last of its commands. Its persistent reservations stay (SPC-4 §5.13.1).
    pub fn nexus_lost(&self, nexus: NexusId) {
        let mut state = self.state();
        if let Some(known) = state.nexuses.remove(&nexus) {
            state.losses.nexus_gone(known.nexus);
        }
        if state.legacy_holder == Some(nexus) {
            state.legacy_holder_lost = true;
            self.release_lost_holder(&mut state);
        }
    }

    /// Ends the RESERVE (6) of an I_T nexus that is lost once its commands have ended:
    /// who reserves next must not be overwritten by them.
    pub(crate) fn release_lost_holder(&self, state: &mut State) {
        if let Some(holder) = state.legacy_holder
            && state.legacy_holder_lost
            && !self.running.any(|nexus| nexus.id == holder)
        {
            state.legacy_holder = None;
            state.legacy_holder_lost = false;
        }
    }

    /// Another I_T nexus cleared the tasks of `nexus` (CLEAR TASK SET).
    pub fn tasks_cleared(&self, nexus: NexusId) {
        self.attention_for(nexus, Asc::COMMANDS_CLEARED);
    }

    /// The store's size changed: every I_T nexus learns of it.
    pub fn capacity_changed(&self) {
        self.attention_for_all(Asc::CAPACITY_CHANGED);
    }

    /// The set of logical units behind the target changed.
    pub fn reported_luns_changed(&self) {
        self.attention_for_all(Asc::LUNS_CHANGED);
    }

    /// INQUIRY data changed.
    pub fn inquiry_changed(&self) {
        self.attention_for_all(Asc::INQUIRY_CHANGED);
    }

    /// The space behind the logical unit as it is now; `None` where that
    /// cannot be known. Every I_T nexus is warned when it falls to the
    /// threshold, once until it has grown again. Returns whether they were.
    pub fn set_thin_space(&self, space: Option<ThinSpace>) -> bool {
        let mut state = self.state();
        state.thin_space = space;
        let Some(space) = space else { return false };
        if space.is_relaxed() {
            state.thin_warned = false;
        }
        let warns = space.is_short() && !state.thin_warned;
        if warns {
            state.thin_warned = true;
            state.raise_for_all(Asc::THIN_SOFT_THRESHOLD);
        }
        warns
    }

    /// The space as it was told last.
    #[must_use]
    pub fn thin_space(&self) -> Option<ThinSpace> {
        self.state().thin_space
    }

    /// The space behind it, when blocks can be unmapped and it is known.
    pub(crate) fn provisioned(&self, geometry: &BlockGeometry) -> Option<ThinSpace> {
        self.state().thin_space.filter(|_| self.is_thin(geometry))
    }

    /// THRESHOLD EXPONENT: a threshold set is [`THRESHOLD_SET_BYTES`] long.
    pub(crate) fn threshold_exponent(&self) -> u8 {
        let blocks = THRESHOLD_SET_BYTES / u64::from(self.block_bytes());
        u8::try_from(blocks.max(1).ilog2()).unwrap_or(0)
    }

    /// Changes the access state of a target port group (implicit ALUA).
    pub fn set_access_state(&self, group: u16, access: AccessState) {
        let mut state = self.state();
        let mut changed = false;
        for (id, current) in &mut state.access {
            if *id == group && *current != access {
                *current = access;
                changed = true;
            }
        }
        if changed {
            state.raise_for_all(Asc::ACCESS_STATE_CHANGED);
        }
    }

    fn attention_for(&self, nexus: NexusId, asc: Asc) {
        if let Some(nexus) = self.state().nexuses.get_mut(&nexus) {
            nexus.attentions.raise(asc);
        }
    }

    fn attention_for_all(&self, asc: Asc) {
        self.state().raise_for_all(asc);
    }
}
