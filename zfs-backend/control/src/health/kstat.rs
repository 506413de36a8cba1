//! Counters of the kernel module, `/proc/spl/kstat/zfs`. Reading them takes
//! none of a pool's locks: they can be read while a pool is suspended.

use super::PoolState;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

/// Directory of the counters.
pub const ROOT: &str = "/proc/spl/kstat/zfs";

/// Counters of one file, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kstat(BTreeMap<String, u64>);

impl Kstat {
    /// Parses lines of name, type and number; other lines are skipped.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let (name, _kind, data) = (words.next()?, words.next()?, words.next()?);
            Some((name.to_owned(), data.parse().ok()?))
        };
        Self(text.lines().filter_map(line).collect())
    }

    /// Reads a file below [`ROOT`].
    ///
    /// # Errors
    /// The error of the operating system; not found if the module is not
    /// loaded.
    pub fn read(root: &Path, name: &str) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string(root.join(name))?))
    }

    /// Returns a counter; 0 if there is none of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }
}

/// Counters of the ARC and the L2ARC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ArcStats {
    /// Look-ups answered from memory since the module was loaded.
    pub hits: u64,
    /// Look-ups not answered from memory.
    pub misses: u64,
    /// Bytes held in memory.
    pub size_bytes: u64,
    /// Target size in bytes.
    pub target_bytes: u64,
    /// Largest size in bytes.
    pub max_bytes: u64,
    /// Look-ups answered from an L2ARC.
    pub l2_hits: u64,
    /// Look-ups that missed the L2ARC.
    pub l2_misses: u64,
    /// Bytes in L2ARCs, before compression.
    pub l2_size_bytes: u64,
}

/// Returns `part` divided by the sum, 0 to 1; none if both are 0.
fn share(part: u64, rest: u64) -> Option<f64> {
    let all = part.saturating_add(rest);
    (all > 0).then(|| part as f64 / all as f64)
}

impl ArcStats {
    /// Reads `arcstats`.
    #[must_use]
    pub fn new(kstat: &Kstat) -> Self {
        Self {
            hits: kstat.get("hits"),
            misses: kstat.get("misses"),
            size_bytes: kstat.get("size"),
            target_bytes: kstat.get("c"),
            max_bytes: kstat.get("c_max"),
            l2_hits: kstat.get("l2_hits"),
            l2_misses: kstat.get("l2_misses"),
            l2_size_bytes: kstat.get("l2_size"),
        }
    }

    /// Returns the share of look-ups answered from memory since the module was
    /// loaded, 0 to 1.
    #[must_use]
    pub fn hit_ratio(&self) -> Option<f64> {
        share(self.hits, self.misses)
    }

    /// Returns the share of L2ARC look-ups that the L2ARC answered, 0 to 1.
    #[must_use]
    pub fn l2_hit_ratio(&self) -> Option<f64> {
        share(self.l2_hits, self.l2_misses)
    }
}

/// Counters of the intent log, of all pools together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ZilStats {
    /// Number of ZIL commits.
    pub commits: u64,
    /// Blocks written to separate log devices.
    pub slog_writes: u64,
    /// Bytes written to separate log devices.
    pub slog_bytes: u64,
    /// Blocks written to the pools' ordinary vdevs.
    pub normal_writes: u64,
    /// Bytes written to the pools' ordinary vdevs.
    pub normal_bytes: u64,
}

impl ZilStats {
    /// Reads `zil`.
    #[must_use]
    pub fn new(kstat: &Kstat) -> Self {
        Self {
            commits: kstat.get("zil_commit_count"),
            slog_writes: kstat.get("zil_itx_metaslab_slog_count"),
            slog_bytes: kstat.get("zil_itx_metaslab_slog_bytes"),
            normal_writes: kstat.get("zil_itx_metaslab_normal_count"),
            normal_bytes: kstat.get("zil_itx_metaslab_normal_bytes"),
        }
    }
}

/// Lists the imported pools and their states, sorted by name.
///
/// # Errors
/// The error of the operating system; not found if the module is not loaded.
pub fn pool_states(root: &Path) -> io::Result<Vec<(String, PoolState)>> {
    let mut pools = Vec::new();
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        // Only pools have a directory here, and only a pool's directory has
        // this file.
        let Ok(word) = fs::read_to_string(entry.path().join("state")) else { continue };
        if let Ok(name) = entry.file_name().into_string() {
            pools.push((name, PoolState::from_word(&word)));
        }
    }
    pools.sort();
    Ok(pools)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_ratios() {
        let text = "13 1 0x01 147 39984 10000000 20000000\n\
                    name                            type data\n\
                    hits                            4    75\n\
                    misses                          4    25\n\
                    c_max                           4    268435456\n";
        let arc = ArcStats::new(&Kstat::parse(text));
        assert_eq!(arc.hit_ratio(), Some(0.75));
        assert_eq!(arc.max_bytes, 256 << 20);
        assert_eq!(arc.l2_hit_ratio(), None);
    }

    #[test]
    fn pools_are_folders_with_a_state() {
        let root = tempfile::tempdir().unwrap();
        for (pool, state) in [("tank", "ONLINE\n"), ("llm", "SUSPENDED\n")] {
            fs::create_dir(root.path().join(pool)).unwrap();
            fs::write(root.path().join(pool).join("state"), state).unwrap();
        }
        fs::write(root.path().join("arcstats"), "").unwrap();
        assert_eq!(
            pool_states(root.path()).unwrap(),
            [("llm".to_owned(), PoolState::Suspended), ("tank".to_owned(), PoolState::Online)]
        );
        assert!(pool_states(Path::new("/no/such/folder")).is_err());
    }
}
