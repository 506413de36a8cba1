//! Tables and documents that must name what exists.

use super::{Findings, Source};
use std::fs;
use std::io;
use std::path::Path;

const OPERATIONS: &str = "protocol/nfs/src/v4/op";

/// Operations that have a rule but no row.
pub(super) fn operations(sources: &[Source]) -> Findings {
    let in_table = sources
        .iter()
        .find(|source| source.path == Path::new(OPERATIONS).join("table.rs"))
        .map_or("", |source| &source.text);
    let mut found = Findings::new();
    for source in sources.iter().filter(|source| source.is_below(OPERATIONS)) {
        for line in source.code().lines() {
            let Some(rest) = line.trim_start().strip_prefix("impl Operation for ") else {
                continue;
            };
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            let row = in_table.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
            if !row {
                found.push(format!("{}: {name} is not in the table", source.path.display()));
            }
        }
    }
    found
}

/// Documents the code points to, and dependencies without a reason.
///
/// # Errors
/// When a document cannot be read.
pub(super) fn documents(sources: &[Source]) -> io::Result<Findings> {
    let mut found = Findings::new();
    for source in sources {
        for (at, _) in source.text.match_indices("docs/") {
            let path: String = source.text[at..]
                .chars()
                .take_while(|c| c.is_ascii_alphanumeric() || "/-_.".contains(*c))
                .collect();
            let path = path.trim_end_matches('.');
            if path.ends_with(".md") && !Path::new(path).is_file() {
                found.push(format!("{}: {path} does not exist", source.path.display()));
            }
        }
    }
    let reasons = fs::read_to_string("docs/dependencies.md")?;
    let manifest = fs::read_to_string("Cargo.toml")?;
    let section = manifest.split("[workspace.dependencies]").nth(1).unwrap_or_default();
    for line in section.lines().take_while(|line| !line.starts_with('[')) {
        let Some((name, _)) = line.split_once('=') else { continue };
        let name = name.trim();
        let listed = reasons.lines().any(|line| {
            let cell = line.split('|').nth(1).unwrap_or_default();
            cell.split(',').any(|word| word.trim() == name)
        });
        if !name.starts_with("zgate-") && !listed {
            found.push(format!("docs/dependencies.md: no reason for {name}"));
        }
    }
    Ok(found)
}
