//! State that a logical unit keeps when it is opened again: the new disk and the one
//! it replaces, on which commands may still run, are one unit for initiators.

use super::State;
use super::background::Background;
use super::running::RunningCommands;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zgate_store::range_lock::RangeLocks;

/// State and locks of a logical unit, whatever disk a command runs on.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) ranges: RangeLocks,
    pub(crate) background: Background,
    /// Serializes PERSISTENT RESERVE OUT: a later command must not overtake the
    /// save to stable storage.
    pub(crate) reserving: futures_util::lock::Mutex<()>,
    pub(crate) running: RunningCommands,
    /// Set while an I_T nexus still has to be told of lost writes.
    pub(crate) owes: AtomicBool,
    /// Number of resets that have begun.
    resets: AtomicU64,
    state: Mutex<State>,
}

impl Shared {
    pub(super) fn new(state: State) -> Self {
        Self {
            ranges: RangeLocks::default(),
            background: Background::default(),
            reserving: futures_util::lock::Mutex::new(()),
            running: RunningCommands::default(),
            owes: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            state: Mutex::new(state),
        }
    }

    /// Returns the number of resets that have begun.
    pub(crate) fn resets(&self) -> u64 {
        self.resets.load(Ordering::SeqCst)
    }

    pub(super) fn begin_reset(&self) {
        self.resets.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
