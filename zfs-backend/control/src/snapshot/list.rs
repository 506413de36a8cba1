//! Lists of snapshots and volumes.

use crate::name::{DatasetName, SnapshotName};
use crate::tool::{Tool, ToolError, command_line};
use serde::Serialize;

const PROPERTIES: &str = "name,guid,creation,createtxg,used,referenced,userrefs,clones";

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Its name.
    pub name: SnapshotName,
    /// GUID of the snapshot; a received copy has the same.
    pub guid: u64,
    /// Creation time in seconds since 1970, by the clock of the machine that
    /// took it.
    pub creation_seconds: i64,
    /// Transaction group of its creation: the reliable order of snapshots.
    pub createtxg: u64,
    /// Space held only by this snapshot, in bytes.
    pub used_bytes: u64,
    /// Space it references, in bytes.
    pub referenced_bytes: u64,
    /// Number of holds (`zfs hold`).
    pub holds: u64,
    /// Clones of the snapshot.
    pub clones: Vec<String>,
}

/// Lists the snapshots of a dataset, oldest first; with `recursive`, also those
/// of everything below it.
///
/// # Errors
/// The error of `zfs`, or an answer that cannot be parsed.
pub fn list(
    tool: &dyn Tool,
    dataset: Option<&DatasetName>,
    recursive: bool,
) -> Result<Vec<Snapshot>, ToolError> {
    let mut arguments = vec!["list", "-Hp", "-t", "snapshot", "-o", PROPERTIES, "-s", "createtxg"];
    if let Some(dataset) = dataset {
        if recursive {
            arguments.push("-r");
        } else {
            arguments.extend(["-d", "1"]);
        }
        arguments.push(dataset.as_str());
    }
    let text = tool.run("zfs", &arguments)?;
    text.lines()
        .map(|line| {
            parse(line).ok_or_else(|| ToolError::Answer {
                command: command_line("zfs", &arguments),
                reason: format!("{line:?} cannot be parsed"),
            })
        })
        .collect()
}

fn parse(line: &str) -> Option<Snapshot> {
    let mut fields = line.split('\t');
    let name = fields.next()?.parse().ok()?;
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (guid, creation, createtxg) = (number()?, number()?, number()?);
    let (used_bytes, referenced_bytes, holds) = (number()?, number()?, number()?);
    let clones = fields.next().unwrap_or_default().split(',');
    Some(Snapshot {
        name,
        guid,
        creation_seconds: i64::try_from(creation).ok()?,
        createtxg,
        used_bytes,
        referenced_bytes,
        holds,
        clones: clones.filter(|clone| !matches!(*clone, "" | "-")).map(str::to_owned).collect(),
    })
}

/// Lists the zvol at `dataset`, and with `recursive` the zvols below it: their
/// LUNs are flushed before a snapshot.
///
/// # Errors
/// The error of `zfs`, or an answer that cannot be parsed.
pub fn volumes(
    tool: &dyn Tool,
    dataset: &DatasetName,
    recursive: bool,
) -> Result<Vec<DatasetName>, ToolError> {
    let mut arguments = vec!["list", "-Hp", "-t", "filesystem,volume", "-o", "name,type"];
    if recursive {
        arguments.push("-r");
    }
    arguments.push(dataset.as_str());
    let text = tool.run("zfs", &arguments)?;
    let names = text.lines().filter_map(|line| line.strip_suffix("\tvolume"));
    names
        .map(|name| {
            name.parse().map_err(|error| ToolError::Answer {
                command: command_line("zfs", &arguments),
                reason: format!("{error}"),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    #[test]
    fn snapshots_and_volumes() {
        let lines = "p/a@x\t7\t1763719200\t120\t4096\t8192\t1\tp/c1,p/c2\n\
                     p/a@y\t8\t1763719300\t130\t0\t8192\t0\t-\n";
        let tool = Recorded::default()
            .then(
                "zfs list -Hp -t snapshot -o name,guid,creation,createtxg,used,referenced,userrefs,clones -s createtxg -r p/a",
                lines,
            )
            .then("zfs list -Hp -t filesystem,volume -o name,type -r p", "p\tfilesystem\np/v\tvolume\n")
            .then("zfs list -Hp -t snapshot -o name,guid,creation,createtxg,used,referenced,userrefs,clones -s createtxg", "rubbish\n");
        let found = list(&tool, Some(&"p/a".parse().unwrap()), true).unwrap();
        assert_eq!((found[0].holds, found[0].clones.len(), found[0].createtxg), (1, 2, 120));
        assert!(found[1].clones.is_empty());
        let volumes = volumes(&tool, &"p".parse().unwrap(), true).unwrap();
        assert_eq!(volumes, ["p/v".parse().unwrap()]);
        assert!(matches!(list(&tool, None, true), Err(ToolError::Answer { .. })));
        assert!(tool.is_done());
    }
}
