//! The files that the rules look at.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Violations of a rule: file and reason.
pub(super) type Findings = Vec<String>;

/// A file, read once for all rules.
#[derive(Debug)]
pub(super) struct Source {
    /// Relative to the root of the workspace.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Source {
    pub(super) fn is_test(&self) -> bool {
        let in_folder = self.path.components().any(|part| part.as_os_str() == "tests");
        in_folder || self.path.to_str().is_some_and(|path| path.ends_with("_tests.rs"))
    }

    pub(super) fn is_below(&self, dir: &str) -> bool {
        self.path.starts_with(dir)
    }

    /// The text before its unit tests, which may do what the code may not. The declaration
    /// of a module of tests (`mod tests;`) has code behind it.
    pub(super) fn code(&self) -> &str {
        let text = self.text.as_str();
        let is_inline = |at: &usize| text[*at..].lines().nth(1).is_some_and(|l| l.contains('{'));
        let mut modules = text.match_indices("#[cfg(test)]\nmod ").map(|(at, _)| at);
        modules.find(is_inline).map_or(text, |at| &text[..at])
    }
}

/// Rust files and manifests of the workspace.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub(super) sources: Vec<Source>,
    /// Every `Cargo.toml`.
    pub(super) manifests: Vec<Source>,
}

impl Tree {
    pub(super) fn read(&mut self, dir: &Path) -> io::Result<()> {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if path.is_dir() {
                if !name.starts_with('.') && !name.starts_with("target") {
                    self.read(&path)?;
                }
            } else if name.ends_with(".rs") || name == "Cargo.toml" {
                let text = fs::read_to_string(&path)?;
                self.add(path.strip_prefix(".").unwrap_or(&path).to_owned(), text);
            }
        }
        Ok(())
    }

    fn add(&mut self, path: PathBuf, text: String) {
        let manifest = path.ends_with("Cargo.toml");
        let list = if manifest { &mut self.manifests } else { &mut self.sources };
        list.push(Source { path, text });
    }

    #[cfg(test)]
    pub(super) fn of(files: &[(&str, &str)]) -> Self {
        let mut tree = Self::default();
        for (path, text) in files {
            tree.add(PathBuf::from(path), (*text).to_owned());
        }
        tree
    }
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn code_ends_where_tests_begin() {
        let text = "#[cfg(test)]\nmod rig;\nfn f() {}\n#[cfg(test)]\nmod tests {\n}\n";
        let tree = Tree::of(&[("a/src/a.rs", text), ("a/src/b.rs", "fn g() {}\n")]);
        let code: Vec<_> = tree.sources.iter().map(super::Source::code).collect();
        assert_eq!(code, ["#[cfg(test)]\nmod rig;\nfn f() {}\n", "fn g() {}\n"]);
    }
}
