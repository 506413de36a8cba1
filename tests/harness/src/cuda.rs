//! A fake driver for machines without one, built from `fake/libcuda.c`. It logs
//! its calls; the calls that it refuses can be set at any time.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One library in a directory of its own.
pub struct FakeDriver {
    dir: tempfile::TempDir,
}

/// Number of calls in the log, by function.
pub type Counts = BTreeMap<String, usize>;

impl FakeDriver {
    /// Compiles the library.
    ///
    /// # Panics
    /// Panics if there is no C compiler.
    pub fn build() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../loader/cuda/tests/fake/libcuda.c");
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread"]);
        cc.arg(format!("-DDIR=\"{}\"", dir.path().display()));
        let built = cc.arg("-o").arg(dir.path().join("libcuda.so")).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Self { dir }
    }

    /// Path of the library.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("libcuda.so")
    }

    /// Makes functions return these codes; an empty list clears them.
    pub fn fail(&self, functions: &[(&str, u32)]) {
        let lines: Vec<String> = functions.iter().map(|(f, code)| format!("{f} {code}")).collect();
        std::fs::write(self.dir.path().join("fail"), lines.join("\n")).unwrap();
    }

    /// The calls so far, one per line.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Number of calls of each function.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for line in self.log().lines() {
            let what = line.split(' ').next().unwrap_or_default().to_owned();
            *counts.entry(what).or_default() += 1;
        }
        counts
    }

    /// Asserts that everything allocated was freed.
    ///
    /// # Panics
    /// Panics if anything was not freed.
    pub fn assert_nothing_left(&self) {
        let counts = self.counts();
        let count = |what: &str| counts.get(what).copied().unwrap_or(0);
        for (taken, given) in [
            ("alloc", "free"),
            ("register", "unregister"),
            ("stream", "unstream"),
            ("retain", "release"),
        ] {
            assert_eq!(count(taken), count(given), "{taken}, {given}: {}", self.log());
        }
    }
}
