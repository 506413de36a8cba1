//! Rules of the house that the compiler does not check.

mod circles;
mod imports;
mod layers;
mod order;
mod paths;
mod rooms;
mod sources;
mod tables;
mod tokens;
mod tree;
mod wording;

use crate::totals::Outcome;
use std::io;
use std::path::Path;
use tree::{Findings, Tree};

/// Checks everything.
///
/// # Errors
/// The error of an unreadable file.
pub(crate) fn run(outcome: &mut Outcome) -> io::Result<()> {
    let mut tree = Tree::default();
    tree.read(Path::new("."))?;
    tree.sources.sort_by(|a, b| a.path.cmp(&b.path));
    let sources = &tree.sources;
    let imports = imports::of_all_crates(&tree);
    let rules: [(&str, Findings); 15] = [
        ("files are at most 600 lines", sources::too_long(sources)),
        ("module names say something", sources::empty_names(sources)),
        ("nothing is left undone", sources::undone(sources)),
        ("unsafe stays in its places", sources::misplaced_unsafe(sources)),
        ("doc comments begin with a noun or a verb", wording::openings(&tree)),
        ("types have names of the field", wording::private_names(&tree)),
        ("crates use only crates below them", layers::manifests(&tree)),
        ("products do not use tests", layers::test_crates(&tree)),
        (
            "protocol code has no sockets, files, clock, threads or randomness",
            layers::impure(sources),
        ),
        ("rooms of the gateway use only rooms below them", rooms::upwards(&imports)),
        ("folders of a crate use only folders below them", order::upwards(&imports)),
        ("no import circle of more than two files", circles::circles(&imports)),
        ("every operation is in its table", tables::operations(sources)),
        ("documents name what the code refers to", tables::documents(sources)?),
        ("paths in documents lead somewhere", paths::in_documents()?),
    ];
    for (rule, findings) in rules {
        let result = if findings.is_empty() { Ok(()) } else { Err(findings.join("; ")) };
        outcome.check(rule, result);
    }
    Ok(())
}
