//! Settings of the process in the kernel: limits, capabilities, priority.

use super::descriptors::{DescriptorPlan, Wanted};
use super::settings::Settings;
use crate::exports::settings::ExportSettings;
use crate::iscsi::settings::IscsiSettings;

/// Raises the limit of descriptors above the usual soft limit of 1024, for the
/// cache of open files.
pub(super) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        tracing::warn!("cannot raise the limit of open files; fewer files are kept open");
    }
}

/// Divides the descriptors of the process among their uses.
pub(super) fn divide_descriptors(
    settings: &Settings,
    exports: &[ExportSettings],
    block: &IscsiSettings,
) -> DescriptorPlan {
    use rustix::process::{Resource, getrlimit};
    let limit = getrlimit(Resource::Nofile).current;
    let wanted = Wanted {
        limit: limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        // Listeners of NFS and iSCSI, metrics, and the admin socket.
        listeners: settings.nfs.len() + settings.rdma.listen.len() + block.portals.len() + 2,
        cores: settings.cores.max(1),
        // As many for metadata as for data, and one beside a metadata worker that syncs.
        workers: 2 * settings.worker_threads + 1,
        exports: exports.len(),
        units: block.targets.iter().map(|target| target.luns.len()).sum(),
        rdma: !settings.rdma.listen.is_empty() || settings.rdma.iser,
        connections: settings.connections,
    };
    let plan = DescriptorPlan::divide(wanted);
    plan.report(&wanted);
    plan
}

/// Drops CAP_SYS_RESOURCE. With it ext4 lets a process exceed quotas and use
/// the blocks reserved for root. Threads of the gateway write clients' data, so
/// the capability is dropped before the first one starts.
pub(super) fn drop_cap_sys_resource() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Ok(mut sets) = capabilities(None) else { return };
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    sets.permitted.remove(CapabilitySet::SYS_RESOURCE);
    if let Err(error) = set_capabilities(None, sets) {
        tracing::debug!(%error, "cannot drop CAP_SYS_RESOURCE; quotas may be exceeded");
    }
}

/// Sets the nice value of the calling thread. Arrived data, and with it the
/// client, waits for this thread: where processors are short it must run before
/// batch work. The kernel's own targets do the same (their completion work
/// queues have high priority, nice -20).
pub(super) fn prefer_thread(nice: i32) {
    use rustix::process::{Resource, getrlimit, setpriority_process};
    if nice == 0 {
        return;
    }
    // For Linux "this process" is this thread.
    let Err(error) = setpriority_process(None, nice) else { return };
    let allowed = allowed_nice(nice, getrlimit(Resource::Nice).current);
    if allowed >= 0 || setpriority_process(None, allowed).is_err() {
        tracing::debug!(%error, nice, "cannot raise the priority of serving threads; set \
            LimitNICE= to allow it");
    }
}

/// Returns the nice value that the kernel's limit allows: down to 20 minus the
/// limit (getrlimit(2)).
fn allowed_nice(nice: i32, limit: Option<u64>) -> i32 {
    let least = limit.map_or(-20, |limit| 20 - limit.min(40) as i32);
    nice.max(least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    #[test]
    fn as_far_as_the_limit_allows() {
        assert_eq!(allowed_nice(-20, Some(30)), -10);
        assert_eq!(allowed_nice(-5, Some(30)), -5);
        assert_eq!(allowed_nice(-20, Some(0)), 20);
        assert_eq!(allowed_nice(-20, None), -20);
    }

    /// A higher nice value is always allowed.
    #[test]
    fn one_thread_is_preferred_and_no_other() {
        let before = getpriority_process(None).ok();
        let thread = std::thread::spawn(|| {
            prefer_thread(19);
            getpriority_process(None).ok()
        });
        assert_eq!(thread.join().ok().flatten(), Some(19));
        assert_eq!(getpriority_process(None).ok(), before);
    }
}
