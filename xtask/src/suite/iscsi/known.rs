//! Tests of libiscsi whose result is not counted, each with its reason, and the
//! disk each test needs. docs/CONFORMANCE.md lists the same tests.

use super::disks::lun;

/// Most tests that may be skipped.
pub(crate) const MAX_SKIPS: usize = 6;

/// Tests that skip themselves, and the reason why that is correct.
const SKIPS: &[(&str, &str)] = &[
    (
        "WriteSame10.ZeroBlocks",
        "only for disks with WSNZ=0; ours reports WSNZ=1 in VPD page B0h and refuses 0 blocks",
    ),
    (
        "WriteSame16.ZeroBlocks",
        "only for disks with WSNZ=0; ours reports WSNZ=1 in VPD page B0h and refuses 0 blocks",
    ),
];

/// Tests that are wrong themselves, with the proof.
const WRONG: &[(&str, &str)] = &[(
    "iSCSITMF.LUNResetSimpleAsync",
    "asserts that the LUN RESET was answered right after queueing it, before a byte of it is \
     sent (test_async_lu_reset_simple.c:157): no target can pass",
)];

/// Tests that need another disk than the one with large physical blocks.
const DISKS: &[(&str, u16)] = &[
    // Unmaps single blocks and expects each to be reported as unmapped.
    ("GetLBAStatus.UnmapSingle", lun::SMALL_PHYSICAL),
    ("ReadOnly.ReadOnlySBC", lun::READ_ONLY),
];

fn find<T: Copy>(table: &[(&str, T)], test: &str) -> Option<T> {
    table.iter().find(|(name, _)| *name == test).map(|(_, value)| *value)
}

/// Returns the reason for which a test may skip itself.
pub(crate) fn skip(test: &str) -> Option<&'static str> {
    find(SKIPS, test)
}

/// Returns the reason for which a test's failure is its own error.
pub(crate) fn wrong(test: &str) -> Option<&'static str> {
    find(WRONG, test)
}

/// Returns the disk that a test needs.
pub(crate) fn disk(test: &str) -> u16 {
    find(DISKS, test).unwrap_or(lun::LARGE_PHYSICAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tests_are_left_out() {
        assert!(SKIPS.len() + WRONG.len() <= MAX_SKIPS);
        assert_eq!(disk("ReadOnly.ReadOnlySBC"), lun::READ_ONLY);
        assert_eq!(skip("no such test"), None);
    }
}
