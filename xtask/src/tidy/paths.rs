//! Paths of the tree that documents name.

use super::tree::Findings;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folders of lab scenarios, which documents name without their folder and ending.
const SCENARIOS: &str = "tests/lab/scenarios";
/// The last part of a path in instructions, in place of a name that the reader chooses.
const CHOSEN: &str = "NAME";

/// Paths in the README and in `docs` at which there is nothing.
///
/// # Errors
/// The error of an unreadable folder or document.
pub(super) fn in_documents() -> io::Result<Findings> {
    let mut documents = vec![PathBuf::from("README.md")];
    add_documents(Path::new("docs"), &mut documents)?;
    let folders = top_folders()?;
    let mut found = Findings::new();
    for document in documents {
        let text = fs::read_to_string(&document)?;
        let dir = document.parent().unwrap_or(Path::new(""));
        let absent = |path: &str| !is_there(path, dir);
        found.extend(absent_paths(&document, &text, &folders, absent));
    }
    Ok(found)
}

/// ADRs tell of the time when they were written: their paths may be gone.
fn add_documents(dir: &Path, documents: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() && !path.ends_with("adr") {
            add_documents(&path, documents)?;
        } else if path.extension().is_some_and(|ending| ending == "md") {
            documents.push(path);
        }
    }
    Ok(())
}

fn top_folders() -> io::Result<Vec<String>> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(".")? {
        let entry = entry?;
        let name = entry.file_name().into_string().unwrap_or_default();
        if entry.path().is_dir() && !name.starts_with('.') && !name.starts_with("target") {
            folders.push(name);
        }
    }
    Ok(folders)
}

fn is_there(path: &str, dir: &Path) -> bool {
    let scenario = Path::new(SCENARIOS).join(path);
    Path::new(path).exists()
        || dir.join(path).exists()
        || scenario.exists()
        || scenario.with_extension("sh").exists()
}

fn absent_paths(
    document: &Path,
    text: &str,
    folders: &[String],
    absent: impl Fn(&str) -> bool,
) -> Findings {
    let mut found = Findings::new();
    let in_path = |c: char| c.is_ascii_alphanumeric() || "_.-/@".contains(c);
    for (index, line) in text.lines().enumerate() {
        for word in line.split(|c: char| !in_path(c)) {
            let path = word.trim_end_matches(['.', '/']);
            let Some((folder, rest)) = path.split_once('/') else { continue };
            let chosen = Path::new(rest).file_stem().is_some_and(|name| name == CHOSEN);
            if folders.iter().any(|top| top == folder) && !chosen && absent(path) {
                found.push(format!("{}: line {}: no {path}", document.display(), index + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::Findings;
    use super::absent_paths;
    use std::path::Path;

    #[test]
    fn a_path_without_anything_is_found() {
        let found = |text| {
            let folders = ["gateway".to_owned(), "docs".to_owned()];
            let absent = |path: &str| path != "gateway/src/net";
            absent_paths(Path::new("README.md"), text, &folders, absent)
        };
        assert_eq!(
            found("The room\n`gateway/src/net` and `gateway/src/serve/`."),
            ["README.md: line 2: no gateway/src/serve"]
        );
        assert_eq!(found("  gateway/listen   accept"), ["README.md: line 1: no gateway/listen"]);
        let others = "/tank/gateway/a, tank/models, gateway, `gateway/src/NAME.rs`";
        assert_eq!(found(others), Findings::new());
    }
}
