//! What the process asks of the kernel for itself.

/// More descriptors than the usual soft limit of 1024: the cache of open
/// files lives on them.
pub(super) fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        tracing::warn!("the limit of open files stays as it is; fewer files are kept open");
    }
}

/// With CAP_SYS_RESOURCE ext4 lets a process write beyond quotas and into the
/// blocks reserved for root. Clients' data is written by our own threads, so
/// the capability goes before the first one starts.
pub(super) fn obey_quotas() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let Ok(mut sets) = capabilities(None) else { return };
    sets.effective.remove(CapabilitySet::SYS_RESOURCE);
    sets.permitted.remove(CapabilitySet::SYS_RESOURCE);
    if let Err(error) = set_capabilities(None, sets) {
        tracing::debug!(%error, "capabilities stay as they are");
    }
}

/// Gives the calling thread a nice value. Data that has arrived waits for it,
/// and behind it the client: where processors are short it has to come before
/// those who have work for as long as they get time. The kernel's own targets
/// do the same (its completion work queues are of high priority).
pub(super) fn prefer_thread(nice: i32) {
    // For Linux "this process" is this thread.
    if nice != 0
        && let Err(error) = rustix::process::setpriority_process(None, nice)
    {
        tracing::debug!(%error, nice, "serving threads keep their priority; LimitNICE= allows it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getpriority_process;

    /// Nicer is always allowed.
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
