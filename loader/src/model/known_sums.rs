//! Search for checksums that a load can be compared with: `SHA256SUMS` beside
//! the files, `sha256:NAME` in their metadata.

use super::LoadError;
use super::catalog::Model;
use super::checksum::{StreamHash, TENSOR_KEY, Verify, parse_sums};
use super::plan::{Plan, Target};
use crate::client::Client;
use crate::directory;
use std::collections::BTreeMap;
use zgate_nfs_wire::v4::Status;

/// File with the checksums of a model's files.
const SUMS: &str = "SHA256SUMS";
/// Longest such file accepted, in bytes.
const MAX_SUMS_BYTES: u64 = 1 << 20;

/// One file as a load reads it.
#[derive(Debug, PartialEq, Eq)]
struct PlannedFile<'a> {
    name: &'a str,
    /// Set if everything behind the header is read.
    is_whole: bool,
    /// Number of tensors that are loaded whole and have a checksum.
    tensors: usize,
}

/// Finds the checksums to compare a load with; also returns a message about
/// them for when they match.
///
/// # Errors
/// [`LoadError::Unverifiable`] if there are none of what the plan reads; a side
/// file that cannot be read or has another format.
pub async fn find(model: &Model, plan: &Plan) -> Result<(Verify, String), LoadError> {
    let sums = in_side_file(model.client(), model.dir()).await?;
    let side_file = side_file(model.dir());
    choose(sums, &planned_files(model, plan)).ok_or_else(|| {
        LoadError::Unverifiable(format!(
            "{side_file} names no file that is read as a whole, and no sha256:NAME metadata a \
             tensor that is; write the first with sha256sum, or load without verification"
        ))
    })
}

/// Finds the checksum of a file that is read as it is, and has none of its own: of a GGUF
/// file. Also returns a message for when it matches.
///
/// # Errors
/// [`LoadError::Unverifiable`] if the side file does not name it; a side file that cannot be
/// read or has another format.
pub async fn of_file(
    client: &Client,
    dir: &str,
    name: &str,
) -> Result<(StreamHash, String), LoadError> {
    let sums = in_side_file(client, dir).await?;
    let expected = sums.get(name).ok_or_else(|| {
        LoadError::Unverifiable(format!(
            "{} does not name {name}, which has no checksum of its own; write it with sha256sum, \
             or load without verification",
            side_file(dir)
        ))
    })?;
    Ok((StreamHash::new(name, expected), format!("1 of 1 files match {SUMS}")))
}

/// Reads the checksums of files; none if there is no side file.
async fn in_side_file(client: &Client, dir: &str) -> Result<BTreeMap<String, String>, LoadError> {
    match directory::read_small(client, dir, SUMS, MAX_SUMS_BYTES).await {
        Ok(raw) => parse_sums(&String::from_utf8_lossy(&raw))
            .map_err(|reason| LoadError::Format { file: side_file(dir), reason }),
        Err(error) if error.status() == Some(Status::Noent) => Ok(BTreeMap::new()),
        Err(source) => Err(LoadError::Client { what: side_file(dir), source }),
    }
}

fn side_file(dir: &str) -> String {
    format!("{dir}/{SUMS}")
}

/// Chooses from the checksums of files and tensors, if there is one of what is
/// read. Files that are read in part have no checksum.
fn choose(
    mut sums: BTreeMap<String, String>,
    files: &[PlannedFile<'_>],
) -> Option<(Verify, String)> {
    sums.retain(|name, _| files.iter().any(|file| file.is_whole && file.name == name));
    if !sums.is_empty() {
        let text = format!("{} of {} files match {SUMS}", sums.len(), files.len());
        return Some((Verify::Files(sums), text));
    }
    let tensors: usize = files.iter().map(|file| file.tensors).sum();
    let text = format!("{tensors} tensors match the checksums in their files");
    (tensors > 0).then_some((Verify::Tensors, text))
}

fn planned_files<'a>(model: &'a Model, plan: &Plan) -> Vec<PlannedFile<'a>> {
    let files = model.shards().iter().enumerate().map(|(number, shard)| {
        let regions = || plan.regions.iter().filter(move |region| region.shard == number);
        let targets = regions().flat_map(|region| &region.targets);
        let has_sum = |target: &Target| {
            let key = format!("{TENSOR_KEY}{}", target.name);
            is_whole(model, target) && shard.metadata.contains_key(&key)
        };
        PlannedFile {
            name: &shard.name,
            // Regions do not overlap, and there is nothing between tensors.
            is_whole: regions().map(|region| region.bytes).sum::<u64>()
                == shard.size - shard.data_offset,
            tensors: targets.filter(|&target| has_sum(target)).count(),
        }
    });
    files.collect()
}

/// Returns whether a tensor is loaded whole.
fn is_whole(model: &Model, target: &Target) -> bool {
    let bytes = model.tensor(&target.name).map(|(_, info)| info.bytes());
    target.cut.is_none() && bytes == Some(target.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums(names: &[&str]) -> BTreeMap<String, String> {
        names.iter().map(|name| ((*name).to_owned(), "0".repeat(64))).collect()
    }

    fn file(name: &str, is_whole: bool, tensors: usize) -> PlannedFile<'_> {
        PlannedFile { name, is_whole, tensors }
    }

    #[test]
    fn whole_files_are_compared_if_their_checksums_are_known() {
        let (verify, text) =
            choose(sums(&["a", "b", "c"]), &[file("a", true, 0), file("b", false, 2)]).unwrap();
        assert_eq!(verify, Verify::Files(sums(&["a"])));
        assert_eq!(text, "1 of 2 files match SHA256SUMS");
    }

    #[test]
    fn tensors_are_compared_if_their_checksums_are_known() {
        for known in [sums(&[]), sums(&["b"]), sums(&["other"])] {
            let chosen = choose(known, &[file("a", true, 3), file("b", false, 2)]);
            let text = "5 tensors match the checksums in their files".to_owned();
            assert_eq!(chosen, Some((Verify::Tensors, text)));
        }
    }

    #[test]
    fn without_a_checksum_of_what_is_read_there_is_nothing_to_compare_with() {
        assert_eq!(choose(sums(&[]), &[file("a", true, 0)]), None);
        assert_eq!(choose(sums(&["other"]), &[file("a", true, 0)]), None);
        assert_eq!(choose(sums(&["a"]), &[file("a", false, 0)]), None);
    }
}
