//! Execution of a plan: large reads, many at a time, directly into memory that
//! the tensors own afterwards. The bytes in flight and not yet taken are
//! bounded.

use super::destination::{Destination, RegionLoader, Tensor};
use super::host::Host;
use super::options::{LoadOptions, Progress};
use super::plan::{Plan, Region};
use super::reader::{Reader, not_shared};
use super::regions::{self, Delivery};
use super::{LoadError, Model};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_util::task::AbortOnDropHandle;

/// A running load. Dropping it stops it.
#[derive(Debug)]
pub struct Load<D: Destination = Host> {
    pub(super) destination: Arc<D>,
    total_bytes: u64,
    progress: Arc<Progress>,
    arriving: mpsc::UnboundedReceiver<Delivery<Tensor<D::Data>>>,
    waiting: std::vec::IntoIter<Tensor<D::Data>>,
    /// Permit for the memory of `waiting`.
    held: Option<OwnedSemaphorePermit>,
    /// Size of the bound, in units.
    units: u32,
    /// Set when everything was sent, or the lack of it was reported.
    ended: Arc<AtomicBool>,
    /// The task that loads; it ends with this.
    _driver: AbortOnDropHandle<()>,
}

impl Load {
    /// Starts loading to this host's memory; needs a tokio runtime.
    #[must_use]
    pub fn start(model: &Model, plan: Plan, options: &LoadOptions) -> Self {
        run(model, plan, options, Host::new(options.inflight_bytes))
    }
}

impl<D: Destination> Load<D> {
    /// Returns the bytes it reads in total.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns the progress, which can be kept and read elsewhere.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Returns the next complete tensor, in about the order of the file; none
    /// at the end.
    ///
    /// # Errors
    /// The reason for which the rest cannot be loaded.
    pub async fn next(&mut self) -> Result<Option<Tensor<D::Data>>, LoadError> {
        loop {
            if let Some(tensor) = self.waiting.next() {
                return Ok(Some(tensor));
            }
            // A caller that drops tensors has dropped the last one by now: its
            // memory is free for the next read.
            self.held = None;
            match self.arriving.recv().await {
                Some((region, room)) => {
                    self.waiting = region?.into_iter();
                    // A region that fills the whole bound is taken while the
                    // next one is read.
                    let all = self.units as usize;
                    self.held = room.filter(|room| room.num_permits() < all);
                }
                None if self.ended.swap(true, Ordering::AcqRel) => return Ok(None),
                None => {
                    let reason = "the load ended unexpectedly: tensors are missing";
                    return Err(LoadError::Ended(reason.to_owned()));
                }
            }
        }
    }
}

/// Starts a load.
pub(super) fn run<D: RegionLoader>(
    model: &Model,
    plan: Plan,
    options: &LoadOptions,
    destination: D,
) -> Load<D> {
    let (sender, arriving) = mpsc::unbounded_channel();
    let (destination, progress) = (Arc::new(destination), Arc::<Progress>::default());
    let (total_bytes, units) = (plan.bytes(), regions::units(options.inflight_bytes));
    let (stretches, first) = match options.share {
        Some(_) => stretches(&plan, D::STRETCH_BYTES),
        // They are counted for the ranks only.
        None => (Plan::default(), vec![0; plan.regions.len()]),
    };
    let ended = Arc::new(AtomicBool::new(false));
    let driver = match Reader::new(model, &stretches, options, &progress) {
        Ok(reader) => {
            let numbered = first.into_iter().zip(plan.regions).collect();
            let (destination, ended) = (Arc::clone(&destination), Arc::clone(&ended));
            tokio::spawn(async move {
                drive(destination, reader, numbered, units, &sender).await;
                // Before the sender is dropped, which is the end to the caller.
                ended.store(true, Ordering::Release);
                drop(sender);
            })
        }
        Err(error) => {
            ended.store(true, Ordering::Release);
            // The receiver still exists here.
            let _ = sender.send((Err(not_shared(&error)), None));
            tokio::spawn(std::future::ready(()))
        }
    };
    Load {
        destination,
        total_bytes,
        progress,
        arriving,
        waiting: Vec::new().into_iter(),
        held: None,
        units,
        ended,
        _driver: AbortOnDropHandle::new(driver),
    }
}

/// The stretches of the regions, and the number of each region's first.
fn stretches(plan: &Plan, most_bytes: usize) -> (Plan, Vec<usize>) {
    let (mut all, mut first) = (Plan::default(), Vec::new());
    for region in &plan.regions {
        first.push(all.regions.len());
        for at in (0..region.bytes).step_by(most_bytes) {
            let bytes = (region.bytes - at).min(most_bytes as u64);
            let (shard, offset) = (region.shard, region.offset + at);
            all.regions.push(Region { shard, offset, bytes, targets: Vec::new() });
        }
    }
    (all, first)
}

async fn drive<D: RegionLoader>(
    destination: Arc<D>,
    reader: Arc<Reader>,
    numbered: Vec<(usize, Region)>,
    units: u32,
    sender: &mpsc::UnboundedSender<Delivery<Tensor<D::Data>>>,
) {
    let one = |first, region| {
        let (destination, reader) = (Arc::clone(&destination), Arc::clone(&reader));
        async move { destination.load_region(&reader, first, region).await }
    };
    regions::load_all(numbered, units, reader.source(), reader.hashes(), sender, one).await;
    // Drop first: a caller that sees the end must find unused memory returned.
    drop((destination, reader));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_driver_that_ends_early_is_an_error() {
        let (sender, arriving) = mpsc::unbounded_channel();
        drop(sender);
        let mut load = Load {
            destination: Arc::new(Host::new(1 << 20)),
            total_bytes: 1,
            progress: Arc::default(),
            arriving,
            waiting: Vec::new().into_iter(),
            held: None,
            units: 1,
            ended: Arc::default(),
            _driver: AbortOnDropHandle::new(tokio::spawn(std::future::ready(()))),
        };
        assert!(matches!(load.next().await, Err(LoadError::Ended(_))));
        assert!(matches!(load.next().await, Ok(None)));
    }
}
