//! Checks of exports and their file systems.

use crate::Verdict;
use crate::facts::{ExportFacts, ServerFacts, mount_point};
use std::path::Path;
use zgate_control::{Dataset, DatasetKind};

/// Record size below which large transfers become many small ones, in bytes.
const SMALL_RECORD_BYTES: u64 = 32 << 10;

/// Checks that the directory exists.
pub(super) fn path(facts: &ServerFacts) -> Vec<Verdict> {
    let show = facts.exports.iter().filter_map(|export| {
        let pseudo = &export.pseudo;
        match (&export.path_problem, &export.path) {
            (Some(problem), _) => Some(Verdict::error(
                format!("{pseudo}: {problem}"),
                "the gateway starts without this export, and serves it as soon as the path is there; \
                 `serve --strict` does not start",
                match &export.path {
                    Some(path) => {
                        format!("`mkdir -p {0}`, or mount its file system", path.display())
                    }
                    None => "see dataset-mounted".to_owned(),
                },
            )),
            (None, Some(path)) => Some(Verdict::ok(format!("{pseudo}: {}", path.display()))),
            (None, None) => None,
        }
    });
    show.collect()
}

/// Returns the command that mounts a dataset.
fn mount_command(dataset: &Dataset) -> String {
    let name = &dataset.name;
    if dataset.is_locked() {
        format!("`zfs load-key {name} && zfs mount {name}`")
    } else {
        format!("`zfs mount {name}`")
    }
}

/// Checks that the dataset of an export is mounted.
pub(super) fn dataset_mounted(facts: &ServerFacts) -> Vec<Verdict> {
    facts.exports.iter().flat_map(|export| mounted(facts, export)).collect()
}

fn mounted(facts: &ServerFacts, export: &ExportFacts) -> Vec<Verdict> {
    let pseudo = &export.pseudo;
    let named = export.dataset.as_deref().filter(|name| !name.contains('*'));
    if let Some(name) = named {
        let Some(dataset) = facts.zfs.dataset(name) else {
            // If ZFS did not answer, no verdict is possible.
            return match &facts.zfs.datasets_problem {
                Some(problem) => vec![Verdict::error(
                    format!("{pseudo}: cannot determine whether {name} is mounted: {problem}"),
                    "the gateway needs this information when it starts",
                    format!("`zfs list {name}`, `zpool status`"),
                )],
                None => vec![Verdict::error(
                    format!("{pseudo}: there is no dataset {name}"),
                    "the export cannot be opened",
                    format!(
                        "`zpool import {0}` if its pool is not imported, `zfs create {name}`, or \
                         correct dataset in {1}",
                        name.split('/').next().unwrap_or(name),
                        facts.config_path.display()
                    ),
                )],
            };
        };
        return vec![if dataset.mounted_at().is_some() {
            Verdict::ok(format!("{pseudo}: {name} is mounted"))
        } else {
            Verdict::error(
                format!("{pseudo}: dataset {name} is not mounted"),
                "the export cannot be opened: clients do not find it, or get stale handles",
                mount_command(dataset),
            )
        }];
    }
    let Some(path) = &export.path else { return Vec::new() };
    let missing = facts.zfs.datasets.iter().filter_map(|dataset| {
        let (point, mounted) = mount_point(dataset)?;
        if mounted {
            return None;
        }
        let name = &dataset.name;
        if path.starts_with(point) {
            // The directory below the mount point is served instead.
            return Some(Verdict::error(
                format!(
                    "{pseudo}: {} belongs to dataset {name}, which is not mounted",
                    path.display()
                ),
                "clients see the empty directory below it and write to the file system it lies on",
                mount_command(dataset),
            ));
        }
        point.starts_with(path).then(|| {
            Verdict::warning(
                format!("{pseudo}: dataset {name} below it is not mounted"),
                "clients see an empty directory there and write to the file system above",
                mount_command(dataset),
            )
        })
    });
    let missing: Vec<_> = missing.collect();
    match &export.mount {
        Some(mount) if missing.is_empty() && mount.kind == "zfs" => {
            vec![Verdict::ok(format!("{pseudo}: {} is mounted", mount.source))]
        }
        _ => missing,
    }
}

/// Names exports that share files, in case this is not intended. Those that the API
/// makes are named after their parent.
pub(super) fn shared_files(facts: &ServerFacts) -> Vec<Verdict> {
    let mut sources: Vec<(String, &Path)> = Vec::new();
    for export in &facts.exports {
        if let Some(path) = &export.real_path {
            sources.push((export.pseudo.clone(), path.as_path()));
        } else if export.path.is_none() {
            let datasets = facts.zfs.of_export(export).into_iter();
            let mounted = datasets.filter_map(Dataset::mounted_at);
            sources.extend(mounted.map(|path| (export.pseudo.clone(), path)));
        }
    }
    for parent in facts.config.volumes.parents.iter().filter(|parent| parent.pseudo.is_some()) {
        let made = facts.zfs.datasets.iter().filter(|dataset| {
            dataset.name.parent().is_some_and(|above| above.as_str() == parent.dataset)
        });
        let name = format!("volumes of {}", parent.dataset);
        sources.extend(made.filter_map(Dataset::mounted_at).map(|path| (name.clone(), path)));
    }
    let named: Vec<_> = sources.iter().map(|(name, path)| (name.as_str(), *path)).collect();
    let verdict =
        |(name, other): (&str, &str)| Verdict::ok(format!("{name}: shares files with {other}"));
    zgate_gateway::sharing(&named).into_iter().map(verdict).collect()
}

/// Checks that writable exports can be written.
pub(super) fn read_only(facts: &ServerFacts) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for export in facts.exports.iter().filter(|export| export.writable) {
        let pseudo = &export.pseudo;
        for dataset in facts.zfs.of_export(export).into_iter().filter(|dataset| dataset.readonly) {
            verdicts.push(Verdict::warning(
                format!("{pseudo} is exported for writing, dataset {} is read-only", dataset.name),
                "clients mount it read-write and get \"Read-only file system\" at the first write",
                format!(
                    "`zfs set readonly=off {}`, or read_only = true for the export",
                    dataset.name
                ),
            ));
        }
        let by_mount = export.mount.as_ref().filter(|mount| mount.has("ro"));
        if let Some(mount) = by_mount.filter(|_| verdicts.is_empty()) {
            let target = mount.target.display();
            verdicts.push(Verdict::warning(
                format!("{pseudo} is exported for writing, {target} is mounted read-only"),
                "clients mount it read-write and get \"Read-only file system\" at the first write",
                format!("`mount -o remount,rw {target}`, or read_only = true for the export"),
            ));
        }
    }
    verdicts
}

/// Checks that acknowledged writes are stable.
pub(super) fn sync(facts: &ServerFacts) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for export in facts.exports.iter().filter(|export| export.writable) {
        let losing = |dataset: &&Dataset| dataset.loses_sync_writes();
        for dataset in facts.zfs.of_export(export).into_iter().filter(losing) {
            verdicts.push(Verdict::warning(
                format!("{}: dataset {} has sync=disabled", export.pseudo, dataset.name),
                "a power failure loses up to some seconds of acknowledged writes: acceptable for \
                 scratch data only",
                format!("`zfs set sync=standard {}`", dataset.name),
            ));
        }
    }
    verdicts
}

/// Checks that records are large enough for whole-file access.
pub(super) fn record_size(facts: &ServerFacts) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for export in &facts.exports {
        for dataset in facts.zfs.of_export(export) {
            let DatasetKind::Filesystem { recordsize_bytes, .. } = dataset.kind else { continue };
            if recordsize_bytes < SMALL_RECORD_BYTES {
                verdicts.push(Verdict::warning(
                    format!(
                        "{}: dataset {} has recordsize {} KiB",
                        export.pseudo,
                        dataset.name,
                        recordsize_bytes >> 10
                    ),
                    "each transfer of 1 MiB touches many records: slow for files that are read \
                     and written in order",
                    format!(
                        "`zfs set recordsize=1M {}` (new files only), or keep it for a database",
                        dataset.name
                    ),
                ));
            }
            if export.writable && recordsize_bytes > export.max_transfer_bytes {
                verdicts.push(Verdict::warning(
                    format!(
                        "{}: dataset {} has recordsize {} KiB, but a WRITE has at most {} KiB",
                        export.pseudo,
                        dataset.name,
                        recordsize_bytes >> 10,
                        export.max_transfer_bytes >> 10
                    ),
                    "no client can write a whole record at once: when a file is overwritten, each \
                     record is read first unless it is in memory",
                    format!(
                        "`max_transfer` up to 4MiB for {}, or `zfs set recordsize={}K {}`",
                        export.pseudo,
                        export.max_transfer_bytes >> 10,
                        dataset.name
                    ),
                ));
            }
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;
    use crate::server::sound::{server, worst};
    use zgate_control::properties::SyncMode;

    fn unmount(facts: &mut ServerFacts, at: usize) {
        if let DatasetKind::Filesystem { mounted, .. } = &mut facts.zfs.datasets[at].kind {
            *mounted = false;
        }
    }

    #[test]
    fn an_unmounted_dataset_is_found_by_path_and_by_name() {
        let mut facts = server();
        unmount(&mut facts, 1);
        let expected = (Level::Error, "`zfs mount tank/data`".to_owned());
        assert_eq!(worst(&dataset_mounted(&facts)), expected);
        facts.exports[0].path = Some("/tank".into());
        assert_eq!(worst(&dataset_mounted(&facts)).0, Level::Warning, "below the export");
        facts.exports[0].path = None;
        facts.exports[0].dataset = Some("tank/data".into());
        assert_eq!(worst(&dataset_mounted(&facts)), expected);
        facts.exports[0].dataset = Some("tank/no".into());
        assert!(worst(&dataset_mounted(&facts)).1.contains("zpool import tank"));
        facts.exports[0].dataset = Some("tank/**".into());
        assert!(dataset_mounted(&facts).is_empty(), "patterns follow what there is");
    }

    #[test]
    fn a_locked_dataset_needs_its_key_first() {
        let mut facts = server();
        unmount(&mut facts, 1);
        facts.zfs.datasets[1].keystatus = zgate_control::properties::KeyStatus::Unavailable;
        assert!(worst(&dataset_mounted(&facts)).1.contains("zfs load-key tank/data &&"));
    }

    #[test]
    fn files_of_two_exports_are_found() {
        let mut facts = server();
        assert!(shared_files(&facts).is_empty());
        let mut above = facts.exports[0].clone();
        (above.pseudo, above.real_path) = ("/all".into(), Some("/tank".into()));
        facts.exports.push(above);
        let told: Vec<_> = shared_files(&facts).into_iter().map(|one| one.what).collect();
        assert_eq!(told, ["/all: shares files with /data", "/data: shares files with /all"]);
        // By a pattern, and by the API.
        facts.exports.pop();
        let mut pattern = facts.exports[0].clone();
        (pattern.pseudo, pattern.dataset) = ("/p".into(), Some("tank/**".into()));
        (pattern.path, pattern.real_path, pattern.mount) = (None, None, None);
        facts.exports.push(pattern);
        assert_eq!(shared_files(&facts).len(), 2);
        facts.exports.pop();
        let text = "[[volumes.parent]]\ndataset = \"tank\"\npseudo = \"/v\"\n";
        facts.config.volumes = zgate_config::parse(text, Path::new("x")).unwrap().volumes;
        let told = shared_files(&facts).remove(0).what;
        assert_eq!(told, "/data: shares files with volumes of tank");
    }

    #[test]
    fn read_only_and_sync_matter_where_clients_write() {
        let mut facts = server();
        facts.zfs.datasets[1].readonly = true;
        facts.zfs.datasets[1].sync = SyncMode::Disabled;
        assert_eq!(worst(&read_only(&facts)).0, Level::Warning);
        assert!(worst(&sync(&facts)).1.contains("sync=standard tank/data"));
        facts.exports[0].writable = false;
        assert!(read_only(&facts).is_empty());
        assert!(sync(&facts).is_empty());
        let mut facts = server();
        if let Some(mount) = &mut facts.exports[0].mount {
            mount.kind = "xfs".into();
            mount.options = [("ro".to_owned(), String::new())].into();
        }
        assert!(worst(&read_only(&facts)).1.contains("remount,rw"));
    }

    #[test]
    fn small_records_and_missing_directories() {
        let mut facts = server();
        if let DatasetKind::Filesystem { recordsize_bytes, .. } = &mut facts.zfs.datasets[1].kind {
            *recordsize_bytes = 8192;
        }
        assert!(worst(&record_size(&facts)).1.contains("recordsize=1M"));
        let mut facts = server();
        assert!(record_size(&facts).is_empty());
        facts.exports[0].max_transfer_bytes = 64 << 10;
        assert!(worst(&record_size(&facts)).1.contains("recordsize=64K"));
        facts.exports[0].path_problem = Some("/tank/data: not found".into());
        assert_eq!(worst(&path(&facts)).0, Level::Error);
    }
}
