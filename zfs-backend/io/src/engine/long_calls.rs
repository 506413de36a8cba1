//! Calls that may take long.

use super::IoEngine;
use crate::store_name::StoreName;
use crate::workers::RunAs;
use std::io;

impl IoEngine {
    /// Runs a call that may take long (copying, allocating, discarding) on a
    /// data worker, under the process's own identity.
    ///
    /// # Errors
    /// If the pool has ended.
    pub async fn run_long<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.inner.data.run((self.store, self.demand), RunAs::Process, work).await
    }

    /// Does the same for a call that a request makes behind a short one: the metadata worker
    /// that continues the request runs it at once, if another one of the store is free and
    /// none of them is in such a call. Short calls do not wait for it: the store has all its
    /// metadata workers besides. It runs under any identity, and makes no system call that
    /// depends on it.
    ///
    /// # Errors
    /// If the pool has ended.
    pub async fn run_long_in_place<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        match self.inner.metadata.run_long_here(self.store, work) {
            Ok(result) => result,
            Err(work) => self.run_long(work).await,
        }
    }

    /// Runs a call that may take long without waiting for it. A store has workers of its
    /// own for such calls, so that they keep none from requests. The call waits for one as
    /// long as the store takes: the caller must bound the number of such calls.
    pub fn detach_long(&self, work: impl FnOnce() + Send + 'static) {
        let stores = &self.inner.stores;
        let background = stores.slot(&StoreName::of_background(&stores.name(self.store)));
        self.inner.data.detach(background, work);
    }
}
