//! One logical unit: configuration, store and mutable state.

mod absent;
pub(crate) mod attention;
pub(crate) mod background;
pub(crate) mod block_range;
pub(crate) mod config;
pub(crate) mod copy_result;
pub(crate) mod losses;
pub(crate) mod reservation_store;
pub(crate) mod running;
mod shared;
mod state;
pub(crate) mod store_error;
mod sync;
mod thin_space;

pub(crate) use state::State;
pub use thin_space::ThinSpace;

use crate::command::mode::ModePages;
use crate::command::persistent::state::Registry;
use crate::limits::{MAX_ATOMIC_BYTES, MAX_REPORTED_PHYSICAL_BLOCK_BYTES, THRESHOLD_SET_BYTES};
use crate::nexus::{Nexus, NexusId};
use crate::sense::Asc;
use absent::AbsentStore;
use config::{AccessState, ConfigError, DiskConfig};
use reservation_store::{MemoryReservations, ReservationStore};
use running::RunningCommands;
use shared::Shared;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use thiserror::Error;
use zgate_store::block_store::BlockGeometry;
use zgate_store::{BlockStore, StoreError};

/// Reason for which a logical unit cannot be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The saved reservations cannot be read.
    #[error("reading persistent reservations: {0}")]
    Reservations(#[source] StoreError),
    /// The saved reservations are damaged. Ignoring them would let fenced
    /// initiators write.
    #[error(
        "the saved persistent reservations are damaged; remove them only if no initiator must stay fenced"
    )]
    DamagedReservations,
}

/// Reason of a reset of a logical unit.
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

/// One direct-access block device over a [`BlockStore`].
pub struct Disk {
    pub(crate) config: DiskConfig,
    pub(crate) store: Arc<dyn BlockStore>,
    pub(crate) reservation_store: Arc<dyn ReservationStore>,
    pub(crate) shared: Arc<Shared>,
    /// Set until the first command if the logical unit was opened again.
    arrives: AtomicBool,
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("serial", &self.config.serial).finish_non_exhaustive()
    }
}

/// Checks a configuration, also against the store.
fn check(config: &DiskConfig, store: &dyn BlockStore) -> Result<(), ConfigError> {
    config.check()?;
    if store.geometry().capacity_bytes < u64::from(config.logical_block_bytes) {
        return Err(ConfigError::NoBlocks);
    }
    Ok(())
}

/// Returns the default of WCE: the configured one, or the store's.
fn initial_write_cache(config: &DiskConfig, store: &dyn BlockStore) -> bool {
    config.write_cache.unwrap_or_else(|| store.geometry().write_cache)
}

impl Disk {
    /// Opens a logical unit, with the reservations saved earlier.
    ///
    /// # Errors
    /// The configuration does not fit the store, or the saved reservations
    /// cannot be read.
    pub async fn open(
        config: DiskConfig,
        store: Arc<dyn BlockStore>,
        reservation_store: Arc<dyn ReservationStore>,
    ) -> Result<Self, OpenError> {
        check(&config, store.as_ref())?;
        let image = reservation_store.load().await.map_err(OpenError::Reservations)?;
        let registry = match image {
            Some(image) if !image.is_empty() => {
                Registry::decode(&image).ok_or(OpenError::DamagedReservations)?
            }
            _ => Registry::default(),
        };
        Ok(Self::of(config, store, reservation_store, registry))
    }

    /// Creates a logical unit whose storage cannot be opened now and had this geometry when it
    /// was served last. It is there to be described ([`Self::describe`]): it moves no data, and
    /// knows no reservation.
    ///
    /// # Errors
    /// The configuration does not fit the geometry.
    pub(crate) fn without_storage(
        config: DiskConfig,
        geometry: BlockGeometry,
    ) -> Result<Self, ConfigError> {
        let store: Arc<dyn BlockStore> = Arc::new(AbsentStore(geometry));
        check(&config, store.as_ref())?;
        let reservations = Arc::new(MemoryReservations::default());
        Ok(Self::of(config, store, reservations, Registry::default()))
    }

    fn of(
        config: DiskConfig,
        store: Arc<dyn BlockStore>,
        reservation_store: Arc<dyn ReservationStore>,
        registry: Registry,
    ) -> Self {
        let mode = ModePages::new(initial_write_cache(&config, store.as_ref()));
        let access = config.port_groups.iter().map(|group| (group.id, group.state)).collect();
        let shared = Arc::new(Shared::new(State::new(registry, mode, access)));
        Self { config, store, reservation_store, shared, arrives: AtomicBool::new(false) }
    }

    /// Opens a logical unit again over the same storage, with another
    /// configuration, while sessions use it and commands run. Everything that
    /// initiators rely on goes on: reservations, lost writes to be told, mode
    /// pages, running commands and their locks. Saved reservations are not
    /// loaded: a change of them may be about to be saved. Initiators are told
    /// with the first command.
    ///
    /// # Errors
    /// The configuration does not fit the store.
    pub fn reopen(
        &self,
        config: DiskConfig,
        store: Arc<dyn BlockStore>,
        reservation_store: Arc<dyn ReservationStore>,
    ) -> Result<Self, OpenError> {
        check(&config, store.as_ref())?;
        let shared = Arc::clone(&self.shared);
        Ok(Self { config, store, reservation_store, shared, arrives: AtomicBool::new(true) })
    }

    /// Returns whether both are one logical unit, which was opened again.
    #[must_use]
    pub fn is_same_unit(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Puts the configuration of a logical unit that was opened again into
    /// effect. That is for its first command to do: until then initiators use
    /// the disk that it replaces, if it is put in its place at all.
    pub(crate) fn arrive(&self, state: &mut State) {
        // The state is locked: no other command comes in between.
        if !self.arrives.load(Ordering::Relaxed) {
            return;
        }
        self.arrives.store(false, Ordering::Relaxed);
        let write_cache = initial_write_cache(&self.config, self.store.as_ref());
        let wanted = state.mode.with_default_write_cache(write_cache);
        if wanted != state.mode {
            state.set_mode(wanted);
            self.shared.background.changed.raise();
        }
        state.ejected &= self.config.removable;
        // Logical blocks may have another size now.
        state.tokens.forget_all();
        state.raise_for_all(Asc::POWER_ON_OR_RESET);
    }

    /// Returns the commands that may still change this logical unit, including
    /// those of ended sessions.
    #[must_use]
    pub fn running(&self) -> &RunningCommands {
        &self.shared.running
    }

    /// Waits until the present commands of the selected I_T nexuses can no
    /// longer change blocks or reservations. Takes as long as the store does.
    pub async fn settled(&self, which: impl Fn(&Nexus) -> bool) {
        self.shared.running.left(which).await;
        // PERSISTENT RESERVE OUT waits for others itself, so it is not
        // registered among them.
        drop(self.shared.reserving.lock().await);
    }

    /// Returns the configuration.
    #[must_use]
    pub fn config(&self) -> &DiskConfig {
        &self.config
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn BlockStore> {
        &self.store
    }

    /// Returns the logical block size in bytes.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        self.config.logical_block_bytes
    }

    /// Returns the current number of logical blocks.
    #[must_use]
    pub fn capacity_blocks(&self) -> u64 {
        self.store.geometry().capacity_bytes / u64::from(self.block_bytes())
    }

    /// Returns the physical block size in bytes: the configured one, or the
    /// store's.
    pub(crate) fn physical_block_bytes(&self, geometry: &BlockGeometry) -> u32 {
        self.config.physical_block_bytes.unwrap_or(geometry.physical_block_bytes)
    }

    /// Returns LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT.
    pub(crate) fn physical_exponent(&self, geometry: &BlockGeometry) -> u8 {
        let bytes = self.physical_block_bytes(geometry).min(MAX_REPORTED_PHYSICAL_BLOCK_BYTES);
        let ratio = (bytes / self.block_bytes()).max(1);
        u8::try_from(ratio.ilog2()).unwrap_or(0)
    }

    /// Returns ATOMIC ALIGNMENT and ATOMIC TRANSFER LENGTH GRANULARITY in
    /// logical blocks: a write that covers a physical block in part becomes a
    /// read-modify-write in the store, which may tear. 0 means no restriction.
    pub(crate) fn atomic_unit_blocks(&self, geometry: &BlockGeometry) -> (u32, u32) {
        let ratio = self.physical_block_bytes(geometry) / self.block_bytes();
        let largest = MAX_ATOMIC_BYTES / u64::from(self.block_bytes());
        if ratio < 2 || u64::from(ratio) > largest { (0, 0) } else { (ratio, ratio) }
    }

    /// Returns whether blocks can be unmapped (LBPME).
    pub(crate) fn is_thin(&self, geometry: &BlockGeometry) -> bool {
        self.config.thin && geometry.discard_granularity_bytes.is_some()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state()
    }

    /// Begins a reset: what commands to other logical units copy to this one ends. The caller
    /// aborts the tasks next, waits for them ([`Self::settled`]) and resets the unit
    /// ([`Self::reset_lun`]).
    pub fn begin_reset(&self) {
        self.shared.begin_reset();
    }

    /// Resets the logical unit: RESERVE (6) and PREVENT ALLOW end, mode pages
    /// return to their defaults, every I_T nexus gets a unit attention.
    /// Persistent reservations and SANITIZE are not affected (SPC-4 §5.13.1,
    /// SBC-4 §4.11). The caller has aborted the tasks and waited for them
    /// ([`Self::settled`]).
    pub fn reset_lun(&self, reason: ResetReason) {
        let defaults = ModePages::new(initial_write_cache(&self.config, self.store.as_ref()));
        let mut state = self.state();
        state.legacy_holder = None;
        state.legacy_holder_lost = false;
        state.set_mode(defaults);
        for nexus in state.nexuses.values_mut() {
            nexus.prevents_removal = false;
            nexus.copies.clear();
            nexus.attentions.reset(reason.attention());
        }
        drop(state);
        self.shared.background.changed.raise();
    }

    /// Ends an I_T nexus: its PREVENT and unit attentions end at once, its
    /// RESERVE (6) with the last of its commands. Its persistent reservations
    /// stay (SPC-4 §5.13.1).
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

    /// Ends the RESERVE (6) of a lost I_T nexus once its commands have ended:
    /// they must not overwrite data of the next holder.
    pub(crate) fn release_lost_holder(&self, state: &mut State) {
        if let Some(holder) = state.legacy_holder
            && state.legacy_holder_lost
            && !self.shared.running.any(|nexus| nexus.id == holder)
        {
            state.legacy_holder = None;
            state.legacy_holder_lost = false;
        }
    }

    /// Returns whether a unit attention is pending for `nexus`, which the logical unit may not
    /// know yet.
    #[must_use]
    pub fn has_attention(&self, nexus: NexusId) -> bool {
        let state = self.state();
        // The first command of a new nexus is told one, and so is that of a unit opened again.
        let is_pending =
            state.nexuses.get(&nexus).is_none_or(|known| known.attentions.is_pending());
        is_pending || self.arrives.load(Ordering::Relaxed)
    }

    /// Informs `nexus` that another I_T nexus cleared its tasks (CLEAR TASK
    /// SET).
    pub fn tasks_cleared(&self, nexus: NexusId) {
        self.attention_for(nexus, Asc::COMMANDS_CLEARED);
    }

    /// Informs every I_T nexus that the store's size changed.
    pub fn capacity_changed(&self) {
        self.attention_for_all(Asc::CAPACITY_CHANGED);
    }

    /// Informs `nexus`, which the logical unit may not know yet, that it was told another size.
    pub(crate) fn capacity_differs(&self, nexus: &Arc<Nexus>) {
        self.state().nexus(nexus).attentions.raise(Asc::CAPACITY_CHANGED);
    }

    /// Informs `nexus` that the set of logical units that it can access changed.
    pub fn reported_luns_changed(&self, nexus: NexusId) {
        self.attention_for(nexus, Asc::LUNS_CHANGED);
    }

    /// Withdraws that information from `nexus`, which has it from another logical unit.
    pub(crate) fn luns_change_is_known(&self, nexus: NexusId) {
        if let Some(nexus) = self.state().nexuses.get_mut(&nexus) {
            nexus.attentions.clear(Asc::LUNS_CHANGED);
        }
    }

    /// Informs every I_T nexus that INQUIRY data changed.
    pub fn inquiry_changed(&self) {
        self.attention_for_all(Asc::INQUIRY_CHANGED);
    }

    /// Sets the current space of the logical unit; `None` if it cannot be
    /// determined. Every I_T nexus is warned when it falls to the threshold,
    /// once until it has grown again. Returns whether they were.
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

    /// Returns the space set last.
    #[must_use]
    pub fn thin_space(&self) -> Option<ThinSpace> {
        self.state().thin_space
    }

    /// Returns the space, if blocks can be unmapped and it is known.
    pub(crate) fn provisioned(&self, geometry: &BlockGeometry) -> Option<ThinSpace> {
        self.state().thin_space.filter(|_| self.is_thin(geometry))
    }

    /// Returns THRESHOLD EXPONENT: a threshold set is [`THRESHOLD_SET_BYTES`]
    /// long.
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
