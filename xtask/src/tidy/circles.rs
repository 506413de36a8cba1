//! Import circles.

use super::imports::Imports;
use super::tree::Findings;
use std::collections::BTreeSet;

/// An import: the importing file and the imported one.
type Edge = (usize, usize);

/// Finds import circles of more than two files, and prints the imports of those that touch.
///
/// A module and its children may know each other: `a -> b -> a` is no such circle.
pub(super) fn circles(crates: &[Imports<'_>]) -> Findings {
    let mut found = Findings::new();
    for imports in crates {
        let mut edges = long_circles(imports);
        while let Some(first) = edges.pop_first() {
            let group = touching(first, &mut edges);
            let files: BTreeSet<usize> = group.iter().flat_map(|(from, to)| [*from, *to]).collect();
            let name = |file: usize| {
                let path = &imports.files[file].path;
                path.strip_prefix(imports.dir).unwrap_or(path).display().to_string()
            };
            let arrows: Vec<String> = group
                .iter()
                .map(|(from, to)| format!("{} -> {}", name(*from), name(*to)))
                .collect();
            found.push(format!("{}, {} files: {}", imports.dir, files.len(), arrows.join(", ")));
        }
    }
    found
}

/// Imports that are part of a circle of more than two files.
fn long_circles(imports: &Imports<'_>) -> BTreeSet<Edge> {
    let all = imports.edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
    all.filter(|(from, to)| leads_back(imports, *to, *from)).collect()
}

/// `true` when `from` imports `to` by way of at least one other file.
fn leads_back(imports: &Imports<'_>, from: usize, to: usize) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        for target in imports.edges.get(&file).into_iter().flatten() {
            if *target == to && file != from {
                return true;
            }
            if *target != to && seen.insert(*target) {
                open.push(*target);
            }
        }
    }
    false
}

/// Takes the imports that share files with `first` out of `edges`.
fn touching(first: Edge, edges: &mut BTreeSet<Edge>) -> BTreeSet<Edge> {
    let mut group = BTreeSet::from([first]);
    let mut files = BTreeSet::from([first.0, first.1]);
    loop {
        let (touch, rest): (BTreeSet<Edge>, BTreeSet<Edge>) =
            edges.iter().partition(|(from, to)| files.contains(from) || files.contains(to));
        *edges = rest;
        if touch.is_empty() {
            return group;
        }
        files.extend(touch.iter().flat_map(|(from, to)| [*from, *to]));
        group.extend(touch);
    }
}

#[cfg(test)]
mod tests {
    use super::super::imports;
    use super::super::tree::{Findings, Tree};
    use super::circles;

    fn found(files: &[(&str, &str)]) -> Findings {
        let mut files = files.to_vec();
        files.push(("a/Cargo.toml", ""));
        circles(&imports::of_all_crates(&Tree::of(&files)))
    }

    #[test]
    fn three_files_in_a_circle_are_found() {
        let files = [
            ("a/src/one.rs", "use crate::two::f;"),
            ("a/src/two.rs", "fn f() { crate::three::g() }"),
            ("a/src/three.rs", "use super::one;\nfn g() { one::h() }"),
        ];
        assert_eq!(
            found(&files),
            ["a, 3 files: src/one.rs -> src/two.rs, src/two.rs -> src/three.rs, \
              src/three.rs -> src/one.rs"]
        );
        assert_eq!(found(&files[..2]), Findings::new());
    }

    #[test]
    fn a_circle_beside_a_pair_names_its_own_files_only() {
        let files = [
            ("a/src/one.rs", "use crate::two::f; use crate::four::i;"),
            ("a/src/two.rs", "use crate::three::g; use crate::one::e;"),
            ("a/src/three.rs", "use crate::one::e;"),
            ("a/src/four.rs", "use crate::one::e;"),
        ];
        assert_eq!(
            found(&files),
            ["a, 3 files: src/one.rs -> src/two.rs, src/two.rs -> src/three.rs, \
              src/three.rs -> src/one.rs"]
        );
    }

    #[test]
    fn a_module_and_its_children_may_know_each_other() {
        let files = [
            ("a/src/table/mod.rs", "mod one; mod two; fn f() { one::g(); two::h() }"),
            ("a/src/table/one.rs", "use super::f;"),
            ("a/src/table/two.rs", "use super::f;"),
        ];
        assert_eq!(found(&files), Findings::new());
    }

    #[test]
    fn two_files_may_know_each_other() {
        let files =
            [("a/src/one.rs", "use crate::two::X;"), ("a/src/two.rs", "use crate::one::Y;")];
        assert_eq!(found(&files), Findings::new());
    }
}
