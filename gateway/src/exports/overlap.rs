//! Exports that share files, because their directories are equal or lie in each
//! other. Opens, locks and delegations of their clients conflict, since the state of
//! a file is found by its identity; but a name that changes in one of them must be
//! looked up, even where this export or other clients could hold no delegation of
//! the file. Where an identity is less than certain, they give no delegations.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// Returns the names of exports that share files, each with another one that it
/// shares them with. Takes names and directories, which are free of symbolic
/// links; directories of the same name belong to one export.
#[must_use]
pub fn sharing<'a>(sources: &[(&'a str, &'a Path)]) -> BTreeMap<&'a str, &'a str> {
    let mut at: HashMap<&Path, Vec<&'a str>> = HashMap::new();
    for &(name, path) in sources {
        at.entry(path).or_default().push(name);
    }
    let mut found = BTreeMap::new();
    for &(name, path) in sources {
        for &other in path.ancestors().filter_map(|above| at.get(above)).flatten() {
            if other != name {
                found.entry(name).or_insert(other);
                found.entry(other).or_insert(name);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_and_nested_directories_share_files() {
        let sources = [
            ("/a", "/tank/a"),
            ("/again", "/tank/a"),
            ("/top", "/tank/top"),
            ("/deep", "/tank/top/one/two"),
            ("/topmost", "/tank/topmost"),
            ("/pattern", "/tank/p"),
            ("/pattern", "/tank/p/child"),
        ];
        let sources = sources.map(|(name, path)| (name, Path::new(path)));
        let expected = [("/a", "/again"), ("/again", "/a"), ("/deep", "/top"), ("/top", "/deep")];
        assert_eq!(sharing(&sources), BTreeMap::from(expected));
        let everything = [("/", Path::new("/")), ("/a", Path::new("/tank/a"))];
        assert_eq!(sharing(&everything).len(), 2);
    }
}
