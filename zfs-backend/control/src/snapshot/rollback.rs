//! Return of a destination to the snapshot that an increment starts from. Nothing
//! but what was written since is lost: `zfs rollback` without `-r` destroys no
//! snapshot, where `zfs receive -F` would destroy all that are newer.

use super::send::{Base, run_there};
use crate::name::{DatasetName, SnapshotName};
use crate::tool::{Tool, ToolError, command_line};

/// Reason for which a destination was not rolled back: nothing has changed there.
#[derive(Debug, thiserror::Error)]
pub enum RollbackError {
    /// A program failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The destination does not have the base.
    #[error(
        "{destination} has no copy of {base}, which the stream starts from; send from a snapshot \
         that it has, or everything to a new dataset"
    )]
    NoBase {
        /// The dataset that is to receive.
        destination: DatasetName,
        /// The base of the increment.
        base: String,
    },
    /// The destination has newer snapshots than the base.
    #[error(
        "the newest snapshot of the destination is {newest}, and the stream starts from {base}: the \
         snapshots after {base} would have to be destroyed, which its administrator has to do; \
         `zfs list -t snapshot {}` lists them", .base.dataset()
    )]
    NewerSnapshots {
        /// The newest snapshot of the destination.
        newest: SnapshotName,
        /// The destination's copy of the base.
        base: SnapshotName,
    },
}

/// Discards what was written to the destination after its newest snapshot, which
/// must be the base of an increment to `snapshot`. `ask` is the command that runs
/// `zfs` on the receiving machine, empty for this machine.
///
/// # Errors
/// See [`RollbackError`].
pub fn roll_back_destination(
    tool: &dyn Tool,
    ask: &[String],
    destination: &DatasetName,
    snapshot: &SnapshotName,
    base: &Base,
) -> Result<(), RollbackError> {
    let base = base.full_name(snapshot);
    let guid = tool.run("zfs", &["get", "-Hp", "-o", "value", "guid", &base])?;
    let question =
        ["list", "-Hp", "-t", "snapshot", "-o", "name,guid", "-s", "createtxg", "-d", "1"];
    let question = [&question[..], &[destination.as_str()]].concat();
    let listed = run_there(tool, ask, &question)?;
    // A copy has the guid of its original, whatever its name.
    let copy = listed.lines().filter_map(|line| line.rsplit_once('\t'));
    let copy = copy.filter(|(_, of)| of.trim() == guid.trim()).map(|(name, _)| name).next_back();
    let newest = listed.lines().next_back().and_then(|line| line.rsplit_once('\t'));
    let (Some(copy), Some((newest, _))) = (copy, newest) else {
        return Err(RollbackError::NoBase { destination: destination.clone(), base });
    };
    let name = |text: &str| {
        text.parse::<SnapshotName>().map_err(|error| ToolError::Answer {
            command: command_line("zfs", &question),
            reason: error.to_string(),
        })
    };
    let (copy, newest) = (name(copy)?, name(newest)?);
    if copy != newest {
        return Err(RollbackError::NewerSnapshots { newest, base: copy });
    }
    // Without -r: one that was taken this moment is refused, not destroyed.
    run_there(tool, ask, &["rollback", newest.as_str()])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::Recorded;

    const GUID: &str = "zfs get -Hp -o value guid p/a@one";
    const LIST: &str = "zfs list -Hp -t snapshot -o name,guid -s createtxg -d 1 b/c";

    fn roll_back(tool: &Recorded, ask: &[String], base: &str) -> Result<(), RollbackError> {
        let (destination, snapshot) = ("b/c".parse().unwrap(), "p/a@two".parse().unwrap());
        roll_back_destination(tool, ask, &destination, &snapshot, &base.parse().unwrap())
    }

    #[test]
    fn the_newest_snapshot_is_the_base_and_nothing_is_forced() {
        let tool = Recorded::default()
            .then(GUID, "7\n")
            .then(LIST, "b/c@zero\t6\nb/c@one\t7\n")
            .then("zfs rollback b/c@one", "");
        roll_back(&tool, &[], "@one").unwrap();
        let ssh = ["ssh", "--", "nas"].map(str::to_owned);
        let there = Recorded::default()
            .then("zfs get -Hp -o value guid 'p/a#mark'", "7\n")
            .then(&format!("ssh -- nas '{LIST}'"), "b/c@named-otherwise\t7\n")
            .then("ssh -- nas 'zfs rollback b/c@named-otherwise'", "");
        roll_back(&there, &ssh, "#mark").unwrap();
        assert!(tool.is_done() && there.is_done());
    }

    #[test]
    fn snapshots_that_only_the_destination_has_stay() {
        // The script ends before any rollback.
        let tool = Recorded::default().then(GUID, "7\n").then(LIST, "b/c@one\t7\nb/c@own\t9\n");
        let error = roll_back(&tool, &[], "p/a@one").unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, RollbackError::NewerSnapshots { .. }), "{said}");
        for part in ["b/c@own", "b/c@one", "administrator", "zfs list -t snapshot b/c`"] {
            assert!(said.contains(part), "{said}");
        }
        for listed in ["", "b/c@other\t9\n"] {
            let tool = Recorded::default().then(GUID, "7\n").then(LIST, listed);
            let error = roll_back(&tool, &[], "@one").unwrap_err();
            assert!(matches!(error, RollbackError::NoBase { .. }), "{error}");
        }
    }
}
