//! Order of the folders inside a crate: imports point downwards.

use super::imports::Imports;
use super::tree::{Findings, Source};

/// Folders and files of a folder, from top to bottom.
struct Order {
    /// The crate.
    dir: &'static str,
    /// A folder in it.
    folder: &'static str,
    names: &'static [&'static str],
}

/// The orders, as ARCHITECTURE.md shows them.
const ORDERS: &[Order] = &[
    Order {
        dir: "protocol/nfs",
        folder: "src",
        names: &[
            "dispatch",
            "mount",
            "v4",
            "v3",
            "namespace",
            "changes",
            "patience",
            "write_verifier",
            "assurance",
            "runtime",
            "callback_security",
            "limits",
        ],
    },
    Order {
        dir: "protocol/nfs",
        folder: "src/v4",
        names: &[
            "compound", "op", "attrs", "guard", "request", "server", "state", "callback", "tables",
            "failure", "retry",
        ],
    },
    Order {
        dir: "loader",
        folder: "src",
        names: &[
            "blocking",
            "model",
            "directory",
            "file",
            "client",
            "leave",
            "background",
            "channel",
            "state",
            "session",
            "compound",
            "transport",
            "callback",
            "safetensors",
            "backoff",
            "explain",
            "url",
            "error",
        ],
    },
];

/// Imports that point upwards, and folders without a position.
pub(super) fn upwards(crates: &[Imports<'_>]) -> Findings {
    let mut found = Findings::new();
    for order in ORDERS {
        let Some(imports) = crates.iter().find(|imports| imports.dir == order.dir) else {
            continue;
        };
        for (from, targets) in &imports.edges {
            let file = imports.files[*from];
            let Some(name) = order.name(file) else { continue };
            let Some(position) = order.position(name) else {
                found.push(format!("{}: {name} has no position", file.path.display()));
                continue;
            };
            for target in targets.iter().map(|target| imports.files[*target]) {
                let above = order.name(target).and_then(|name| order.position(name));
                if above.is_some_and(|above| above < position) {
                    let (path, target) = (file.path.display(), target.path.display());
                    found.push(format!("{path}: {target} is not below {name}"));
                }
            }
        }
    }
    found
}

impl Order {
    /// The folder or file of a source; none for `mod.rs` and the root of the crate.
    fn name<'a>(&self, source: &'a Source) -> Option<&'a str> {
        let below = source.path.strip_prefix(self.dir).ok()?.strip_prefix(self.folder).ok()?;
        let name = below.iter().next()?.to_str()?.trim_end_matches(".rs");
        (!["lib", "mod"].contains(&name)).then_some(name)
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::imports::of_all_crates;
    use super::super::tree::{Findings, Tree};
    use super::upwards;

    fn found(path: &str, text: &str) -> Findings {
        let tree = Tree::of(&[
            ("protocol/nfs/Cargo.toml", ""),
            ("protocol/nfs/src/v4/op/read.rs", "pub struct Read;"),
            ("protocol/nfs/src/v4/state/mod.rs", "pub struct State;"),
            ("protocol/nfs/src/v4/tables/open.rs", "pub struct Open;"),
            (path, text),
        ]);
        upwards(&of_all_crates(&tree))
    }

    #[test]
    fn records_do_not_know_the_rules() {
        let path = "protocol/nfs/src/v4/tables/file.rs";
        assert_eq!(
            found(path, "use crate::v4::state::State;"),
            [format!("{path}: protocol/nfs/src/v4/state/mod.rs is not below tables")]
        );
        assert_eq!(found(path, "use super::open::Open;"), Findings::new());
    }

    #[test]
    fn operations_know_the_state_and_the_records() {
        let text = "use crate::v4::{state::State, tables::open::Open};";
        assert_eq!(found("protocol/nfs/src/v4/op/close.rs", text), Findings::new());
    }

    #[test]
    fn a_new_folder_needs_a_position() {
        let path = "protocol/nfs/src/v4/other.rs";
        assert_eq!(found(path, ""), [format!("{path}: other has no position")]);
    }
}
