//! Metrics of the build and of the process. Names and values of the latter are
//! those of Prometheus' own client libraries (`process_*`), which dashboards and
//! alert rules for any program expect.

use super::metric::{Page, metrics};
use procfs::process::{LimitValue, Process};
use procfs::{ProcResult, boot_time_secs, page_size, ticks_per_second};
use std::fmt;

metrics! {
    BUILD "zgate_build_info" Gauge ["version", "revision"] "Always 1; the labels name the version of the program and the revision of its source";
    CPU "process_cpu_seconds_total" Counter "CPU time of the process, user and system";
    VIRTUAL "process_virtual_memory_bytes" Gauge "Size of the address space";
    RESIDENT "process_resident_memory_bytes" Gauge "Memory of the process that is in RAM";
    OPEN_FDS "process_open_fds" Gauge "Open file descriptors";
    MAX_FDS "process_max_fds" Gauge "Limit of open file descriptors";
    STARTED "process_start_time_seconds" Gauge "Start time of the process, in seconds since 1970";
}

/// Version of the program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Revision of the source, if the build named it.
const REVISION: &str = match option_env!("ZGATE_REVISION") {
    Some(revision) => revision,
    None => "unknown",
};

/// Resources that the process uses.
struct Usage {
    cpu_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_fds: usize,
    /// None: unlimited.
    max_fds: Option<u64>,
    start_unix_seconds: f64,
}

impl Usage {
    /// Reads `/proc`.
    fn read() -> ProcResult<Self> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second() as f64;
        Ok(Self {
            cpu_seconds: seconds(stat.utime + stat.stime),
            virtual_bytes: stat.vsize,
            resident_bytes: stat.rss * page_size(),
            open_fds: process.fd_count()?,
            max_fds: match process.limits()?.max_open_files.soft_limit {
                LimitValue::Value(limit) => Some(limit),
                LimitValue::Unlimited => None,
            },
            start_unix_seconds: boot_time_secs()? as f64 + seconds(stat.starttime),
        })
    }
}

/// All of them; only the build if `/proc` cannot be read.
pub(crate) fn render(page: &mut Page<'_>) -> fmt::Result {
    page.metric(BUILD)?.add(&[("version", VERSION), ("revision", REVISION)], 1_u64)?;
    let usage = match Usage::read() {
        Ok(usage) => usage,
        Err(error) => {
            tracing::debug!(%error, "cannot read the process's resources");
            return Ok(());
        }
    };
    page.single(CPU, usage.cpu_seconds)?;
    page.single(VIRTUAL, usage.virtual_bytes)?;
    page.single(RESIDENT, usage.resident_bytes)?;
    page.single(OPEN_FDS, usage.open_fds)?;
    page.single(MAX_FDS, usage.max_fds.map_or(f64::INFINITY, |limit| limit as f64))?;
    page.single(STARTED, usage.start_unix_seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::documented::assert_documented;
    use crate::observe::metric::page_text;

    #[test]
    fn every_metric_is_documented_and_named_by_the_rules() {
        assert_documented(ALL);
    }

    #[test]
    fn usage_is_that_of_this_process() {
        let before = Usage::read().unwrap();
        let files: Vec<_> =
            (0..50).map(|_| std::fs::File::open("/proc/self/stat").unwrap()).collect();
        let now = Usage::read().unwrap();
        assert!(now.cpu_seconds >= before.cpu_seconds);
        // Other tests of this process open and close some, too.
        assert!(now.open_fds >= files.len(), "{}", now.open_fds);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        assert_eq!(now.max_fds, limit);
        assert!((4096..=now.virtual_bytes).contains(&now.resident_bytes));
        let clock = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        assert_eq!(now.start_unix_seconds, before.start_unix_seconds);
        assert!(now.start_unix_seconds <= clock.as_secs_f64() + 1.0);
        let text = page_text(render);
        let build =
            format!("zgate_build_info{{version=\"{VERSION}\",revision=\"{REVISION}\"}} 1\n");
        assert!(text.contains(&build), "{text}");
        assert!(ALL.iter().all(|metric| text.contains(&format!("\n{}", metric.name))), "{text}");
    }
}
