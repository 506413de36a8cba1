//! Rules of the house that the compiler does not check.

mod layers;
mod sources;
mod tables;

use crate::totals::Outcome;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A source file, read once for all rules.
#[derive(Debug)]
pub(crate) struct Source {
    /// Relative to the root of the workspace.
    path: PathBuf,
    text: String,
}

impl Source {
    fn is_test(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "tests")
    }

    fn is_below(&self, dir: &str) -> bool {
        self.path.starts_with(dir)
    }

    /// The text without its unit tests, which may do what the code may not.
    fn code(&self) -> &str {
        self.text.split("#[cfg(test)]\nmod ").next().unwrap_or(&self.text)
    }
}

/// What a rule found: file and reason.
type Findings = Vec<String>;

/// Checks everything.
///
/// # Errors
/// When a file cannot be read.
pub(crate) fn run(outcome: &mut Outcome) -> io::Result<()> {
    let mut sources = Vec::new();
    read(Path::new("."), &mut sources)?;
    let rules: [(&str, Findings); 8] = [
        ("files are at most 600 lines", sources::too_long(&sources)),
        ("module names say something", sources::empty_names(&sources)),
        ("nothing is left undone", sources::undone(&sources)),
        ("unsafe stays in its places", sources::misplaced_unsafe(&sources)),
        ("imports point downwards", layers::manifests()?),
        ("protocol code has no sockets, files, clock or threads", layers::impure(&sources)),
        ("every operation is in its table", tables::operations(&sources)),
        ("documents name what the code refers to", tables::documents(&sources)?),
    ];
    for (rule, findings) in rules {
        let result = if findings.is_empty() { Ok(()) } else { Err(findings.join("; ")) };
        outcome.check(rule, result);
    }
    Ok(())
}

fn read(dir: &Path, into: &mut Vec<Source>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !name.starts_with("target") || dir == Path::new(name) {
                read(&path, into)?;
            }
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path)?;
            into.push(Source { path: path.strip_prefix(".").unwrap_or(&path).to_owned(), text });
        }
    }
    Ok(())
}
