//! Questions to the model of ZFS about all properties of datasets.

use super::{Parsed, Said, State};

/// Native properties that `zfs get all` prints, as far as the model has them.
const NATIVE: [&str; 26] = [
    "type",
    "guid",
    "createtxg",
    "creation",
    "referenced",
    "written",
    "origin",
    "used",
    "available",
    "quota",
    "refquota",
    "reservation",
    "refreservation",
    "recordsize",
    "volsize",
    "volblocksize",
    "sync",
    "logbias",
    "compression",
    "special_small_blocks",
    "encryption",
    "readonly",
    "snapdir",
    "canmount",
    "mounted",
    "mountpoint",
];

impl State {
    /// Answers `zfs get all`: about all that is asked for, or not at all.
    pub(super) fn get(&self, parsed: &Parsed<'_>) -> Said {
        let names = parsed.operands.get(1..).unwrap_or_default();
        let found = self.asked(parsed, names)?;
        Ok(found.iter().map(|name| self.all_of(name)).collect())
    }

    /// Returns what a command that fails prints all the same: `zfs get` does it for those of its
    /// datasets that are there.
    pub(super) fn printed(&self, arguments: &[&str]) -> String {
        if self.is_exported || arguments.first() != Some(&"get") {
            return String::new();
        }
        let parsed = Parsed::of(&arguments[1..], &["-o", "-t", "-d", "-s"]);
        let names = parsed.operands.get(1..).unwrap_or_default();
        let there = names.iter().filter_map(|name| self.below(&parsed, name).ok()).flatten();
        there.map(|name| self.all_of(&name)).collect()
    }

    /// Returns the lines of all properties of a dataset.
    fn all_of(&self, name: &str) -> String {
        let mut text = String::new();
        let local = &self.datasets[name].properties;
        for (property, value) in local {
            text += &format!("{name}\t{property}\t{value}\tlocal\n");
        }
        for property in NATIVE.iter().filter(|property| !local.contains_key(**property)) {
            let value = self.value(name, property);
            if value != "-" {
                text += &format!("{name}\t{property}\t{value}\t-\n");
            }
        }
        text
    }
}
