//! A driver for machines without one, built from `fake/libcuda.c`. What it was
//! asked is in its log; what it is to refuse can be told at any time.
#![allow(dead_code, reason = "each test has its own use of it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One library in a directory of its own.
pub(crate) struct StandIn {
    dir: tempfile::TempDir,
}

/// What the log counts.
pub(crate) type Counts = BTreeMap<String, usize>;

impl StandIn {
    /// Compiles it.
    ///
    /// # Panics
    /// When there is no C compiler.
    pub(crate) fn build() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .ancestors()
            .map(|at| at.join("loader/cuda/tests/fake/libcuda.c"))
            .find(|path| path.is_file())
            .unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-pthread"]);
        cc.arg(format!("-DDIR=\"{}\"", dir.path().display()));
        let built = cc.arg("-o").arg(dir.path().join("libcuda.so")).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Self { dir }
    }

    /// The library.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("libcuda.so")
    }

    /// Makes functions answer these codes; none, when there are none.
    pub(crate) fn fail(&self, functions: &[(&str, u32)]) {
        let lines: Vec<String> = functions.iter().map(|(f, code)| format!("{f} {code}")).collect();
        std::fs::write(self.dir.path().join("fail"), lines.join("\n")).unwrap();
    }

    /// The calls so far, a line each.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// How often each call was made.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::new();
        for line in self.log().lines() {
            let what = line.split(' ').next().unwrap_or_default().to_owned();
            *counts.entry(what).or_default() += 1;
        }
        counts
    }

    /// Everything that was taken was given back.
    ///
    /// # Panics
    /// Otherwise.
    pub(crate) fn assert_nothing_left(&self) {
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
