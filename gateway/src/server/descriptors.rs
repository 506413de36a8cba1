//! Budget of the process's descriptors.
//!
//! | for | descriptors |
//! | --- | --- |
//! | the process: standard streams, state directory, client records being written, admin and metrics connections, callbacks of NFSv4.0, mounts | [`PROCESS`] |
//! | each listener | [`PER_LISTENER`] |
//! | each core: its event queue, ring and wakers | [`PER_CORE`] |
//! | pipes for file data on its way to a socket | [`PER_PIPE`] |
//! | each worker thread: what it opens within one call | [`PER_WORKER`] |
//! | each export: its root and the file systems below | [`PER_EXPORT`] |
//! | each logical unit | [`PER_UNIT`] |
//! | each connection, up to a third of what is left | 1, over RDMA [`PER_RDMA_CONNECTION`] |
//! | cached objects and open files, of all exports | the rest |
//!
//! Of the rest, files that NFSv4 clients have open may use three quarters, at
//! [`PER_OPEN_FILE`] each; so there is always room to look up other objects.

use crate::net::connections::ConnectionLimits;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;
use zgate_posix::DescriptorBudget;

const PROCESS: usize = 128;
const PER_LISTENER: usize = 1;
const PER_CORE: usize = 8;
const PER_PIPE: usize = 2;
const PER_WORKER: usize = 3;
const PER_EXPORT: usize = 8;
const PER_UNIT: usize = 4;
const PER_RDMA_CONNECTION: usize = 3;
const PER_OPEN_FILE: usize = 3;
/// Least number of connections, however few descriptors there are.
const LEAST_CONNECTIONS: usize = 16;
/// Least number of descriptors for the stores.
const LEAST_FOR_STORES: usize = 64;
/// Share of the connections that one host may have if there is room for few.
const HOST_PART: (usize, usize) = (3, 4);

/// Configured users of descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    /// RLIMIT_NOFILE.
    pub limit: usize,
    pub listeners: usize,
    pub cores: usize,
    /// Number of worker threads of all kinds.
    pub workers: usize,
    pub exports: usize,
    /// Number of logical units.
    pub units: usize,
    /// Set if connections may use RDMA.
    pub rdma: bool,
    pub connections: ConnectionLimits,
}

/// Division of the process's descriptors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DescriptorPlan {
    /// RLIMIT_NOFILE.
    pub limit: usize,
    /// Descriptors reserved for the process itself.
    pub reserved: usize,
    /// Limits of connections.
    pub connections: ConnectionLimits,
    /// Descriptors that stores may keep open.
    pub stores: usize,
    /// Files that NFSv4 clients may have open.
    pub open_files: usize,
}

impl DescriptorPlan {
    /// Divides the limit among the users.
    pub(crate) fn divide(wanted: Wanted) -> Self {
        let reserved = PROCESS
            + PER_LISTENER * wanted.listeners
            + PER_CORE * wanted.cores
            + PER_PIPE * zgate_io::max_pipes(wanted.limit)
            + PER_WORKER * wanted.workers
            + PER_EXPORT * wanted.exports
            + PER_UNIT * wanted.units;
        let left = wanted.limit.saturating_sub(reserved);
        let each = if wanted.rdma { PER_RDMA_CONNECTION } else { 1 };
        let asked = wanted.connections;
        let total = asked.total.min((left / 3 / each).max(LEAST_CONNECTIONS));
        let (part, of) = HOST_PART;
        let per_client = if total < asked.total {
            asked.per_client.min(total / of * part)
        } else {
            asked.per_client
        };
        let stores = left.saturating_sub(total * each).max(LEAST_FOR_STORES);
        Self {
            limit: wanted.limit,
            reserved,
            connections: ConnectionLimits { total, per_client },
            stores,
            open_files: stores / 4 * 3 / PER_OPEN_FILE,
        }
    }

    /// Lowers the limits of connections.
    pub(crate) fn limit_connections(&mut self, most: usize) {
        let limits = &mut self.connections;
        if most < limits.total {
            let (part, of) = HOST_PART;
            limits.per_client = limits.per_client.min(most / of * part).max(1);
            limits.total = most;
        }
    }

    /// Logs the division in one line, and in another one what does not fit.
    pub(crate) fn report(&self, wanted: &Wanted) {
        let Self { limit, reserved, connections, stores, open_files } = *self;
        let connections = connections.total;
        tracing::info!(limit, reserved, connections, stores, open_files, "descriptors");
        if connections < wanted.connections.total {
            tracing::warn!(
                limit,
                connections,
                max_connections = wanted.connections.total,
                open_files,
                "the limit of open files is low: fewer connections and files; set LimitNOFILE= \
                 in the unit, or `ulimit -n`"
            );
        }
    }

    /// Returns the budget of the stores.
    pub(crate) fn budget(&self) -> Arc<DescriptorBudget> {
        DescriptorBudget::new(self.stores)
    }
}

/// Descriptors in the output of `status`.
#[derive(Clone, Copy, Debug, Default, Serialize, ToSchema)]
pub(crate) struct DescriptorStatus {
    limit: usize,
    reserved: usize,
    connections: usize,
    stores: usize,
    stores_in_use: usize,
    open_files: usize,
    open_files_in_use: usize,
}

/// The plan, and the present use of each part.
#[derive(Debug)]
pub(crate) struct Descriptors {
    pub plan: DescriptorPlan,
    budget: Arc<DescriptorBudget>,
}

impl Descriptors {
    pub(crate) fn new(plan: DescriptorPlan, budget: Arc<DescriptorBudget>) -> Self {
        Self { plan, budget }
    }

    /// Returns the status for people and programs.
    pub(crate) fn status(&self, open_files_in_use: usize) -> DescriptorStatus {
        DescriptorStatus {
            limit: self.plan.limit,
            reserved: self.plan.reserved,
            connections: self.plan.connections.total,
            stores: self.plan.stores,
            stores_in_use: self.budget.held(),
            open_files: self.plan.open_files,
            open_files_in_use,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(limit: usize) -> Wanted {
        Wanted {
            limit,
            listeners: 3,
            cores: 16,
            workers: 16,
            exports: 4,
            units: 10,
            rdma: false,
            connections: ConnectionLimits { total: 4096, per_client: 256 },
        }
    }

    #[test]
    fn everything_fits_into_the_limit() {
        for limit in [512, 1024, 4096, 65_536, 1 << 20] {
            for rdma in [false, true] {
                let plan = DescriptorPlan::divide(Wanted { rdma, ..wanted(limit) });
                let each = if rdma { PER_RDMA_CONNECTION } else { 1 };
                let all = plan.reserved + plan.connections.total * each + plan.stores;
                assert!(all <= limit, "{plan:?}");
                assert!(plan.open_files * PER_OPEN_FILE < plan.stores, "{plan:?}");
                assert!(plan.connections.per_client < plan.connections.total, "{plan:?}");
            }
        }
    }

    #[test]
    fn a_high_limit_takes_nothing_from_what_is_configured() {
        let plan = DescriptorPlan::divide(wanted(1 << 20));
        assert_eq!((plan.connections.total, plan.connections.per_client), (4096, 256));
        assert!(plan.open_files > 250_000, "{plan:?}");
    }

    #[test]
    fn without_any_limit_it_counts_all_the_same() {
        let plan = DescriptorPlan::divide(wanted(usize::MAX));
        assert_eq!(plan.connections.total, 4096);
    }

    #[test]
    fn a_hopeless_limit_still_starts() {
        let plan = DescriptorPlan::divide(wanted(64));
        assert_eq!(plan.connections.total, LEAST_CONNECTIONS);
        assert_eq!(plan.stores, LEAST_FOR_STORES);
    }
}
