//! Rules about single files.

use super::tree::{Findings, Source};

const MAX_LINES: usize = 600;
/// Names that do not describe the contents.
const EMPTY_NAMES: [&str; 6] = ["utils", "util", "helpers", "helper", "common", "manager"];
/// Paths that may contain `unsafe`, besides their tests.
const UNSAFE_PLACES: [&str; 6] = [
    "gss/src",
    "zfs-backend/io/src",
    "rdma/sys/src",
    "rdma/verbs/src",
    "loader/cuda/src",
    "loader/python/src/buffer.rs",
];

fn named(source: &Source, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", source.path.display())
}

/// Files longer than the limit.
pub(super) fn too_long(sources: &[Source]) -> Findings {
    let lines = |source: &Source| source.text.lines().count();
    let long = sources.iter().filter(|source| lines(source) > MAX_LINES);
    long.map(|source| named(source, format!("{} lines", lines(source)))).collect()
}

/// Files and folders with empty names.
pub(super) fn empty_names(sources: &[Source]) -> Findings {
    let empty = |source: &&Source| {
        source.path.iter().any(|part| {
            let stem = part.to_str().unwrap_or_default().trim_end_matches(".rs");
            EMPTY_NAMES.contains(&stem)
        })
    };
    sources.iter().filter(empty).map(|source| named(source, "the name says nothing")).collect()
}

/// Placeholders and tests that do not run.
pub(super) fn undone(sources: &[Source]) -> Findings {
    // Written in two parts, so that this file does not find itself.
    let marks = [concat!("tod", "o!("), concat!("unimpl", "emented!("), concat!("#[ign", "ore")];
    let mut found = Findings::new();
    for source in sources {
        for mark in marks {
            if source.text.contains(mark) {
                found.push(named(source, mark));
            }
        }
    }
    found
}

/// `unsafe` where it does not belong, and blocks without a reason.
pub(super) fn misplaced_unsafe(sources: &[Source]) -> Findings {
    let mut found = Findings::new();
    for source in sources {
        let lines: Vec<&str> = source.text.lines().collect();
        for (index, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let block =
                [concat!("uns", "afe {"), concat!("uns", "afe impl"), concat!("uns", "afe fn")];
            if !block.iter().any(|word| code.contains(word)) {
                continue;
            }
            if !UNSAFE_PLACES.iter().any(|place| source.is_below(place)) {
                found.push(named(source, format!("line {}: not here", index + 1)));
            }
            let above = &lines[index.saturating_sub(8)..index];
            if !above.iter().any(|line| line.contains("SAFETY") || line.contains("# Safety")) {
                found.push(named(source, format!("line {}: no SAFETY reason", index + 1)));
            }
        }
    }
    found
}
