//! Tables and documents that must name what exists.

use super::tree::{Findings, Source};
use std::fs;
use std::io;
use std::path::Path;

const OPERATIONS: &str = "protocol/nfs/src/v4/op";

/// Operations with an implementation but without a row.
pub(super) fn operations(sources: &[Source]) -> Findings {
    let in_table = sources
        .iter()
        .find(|source| source.path == Path::new(OPERATIONS).join("table.rs"))
        .map_or("", |source| &source.text);
    let mut found = Findings::new();
    let mut rules = 0;
    for source in sources.iter().filter(|source| source.is_below(OPERATIONS)) {
        for line in source.code().lines() {
            let Some(rest) = line.trim_start().strip_prefix("impl Rule for ") else { continue };
            rules += 1;
            let name: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
            let row = in_table.split(|c: char| !c.is_alphanumeric()).any(|word| word == name);
            if !row {
                found.push(format!("{}: {name} is not in the table", source.path.display()));
            }
        }
    }
    if rules == 0 {
        found.push(format!("{OPERATIONS}: no `impl Rule for`"));
    }
    found
}

/// Missing documents that the code names, and dependencies without a reason.
///
/// # Errors
/// The error of an unreadable document.
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

#[cfg(test)]
mod tests {
    use super::super::tree::{Findings, Tree};
    use super::operations;

    #[test]
    fn an_operation_without_a_row_is_found() {
        let read = ("protocol/nfs/src/v4/op/read.rs", "impl Rule for Read {}");
        let table = |text| ("protocol/nfs/src/v4/op/table.rs", text);
        let found = |text| operations(&Tree::of(&[read, table(text)]).sources);
        assert_eq!(
            found("row::<Write>()"),
            ["protocol/nfs/src/v4/op/read.rs: Read is not in the table"]
        );
        assert_eq!(found("row::<Read>()"), Findings::new());
    }

    #[test]
    fn a_rule_that_finds_nothing_is_found() {
        let none = operations(&Tree::of(&[("protocol/nfs/src/v4/op/table.rs", "")]).sources);
        assert_eq!(none, ["protocol/nfs/src/v4/op: no `impl Rule for`"]);
    }
}
