//! The program under test.

use std::path::PathBuf;

/// Path of the `zgate` program that Cargo built beside the running test.
///
/// Cargo builds a package's programs before it runs the package's integration
/// tests, and puts these into `deps` below the programs.
///
/// # Panics
/// Panics if there is none: Cargo does not build it for tests of another
/// package.
pub fn zgate_binary() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("zgate");
    assert!(path.is_file(), "{} is not built; run: cargo build", path.display());
    path
}
