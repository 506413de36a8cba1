//! First words of doc comments.

use super::tree::{Findings, Source, Tree};

/// Words that an item's doc comment does not begin with: it begins with a noun or a verb.
const OPENINGS: [&str; 6] = ["What", "Whether", "Who", "Whose", "Whom", "How"];

/// Doc comments that open with a question word.
pub(super) fn openings(tree: &Tree) -> Findings {
    tree.sources.iter().flat_map(question_words).collect()
}

fn question_words(source: &Source) -> Findings {
    let mut found = Findings::new();
    let mut inside = false;
    for (index, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        if let Some(text) = doc.filter(|_| !inside) {
            let first = text.trim_start().split(|c: char| !c.is_alphabetic()).next();
            if let Some(word) = first.filter(|word| OPENINGS.contains(word)) {
                let path = source.path.display();
                found.push(format!("{path}: line {}: begins with {word}", index + 1));
            }
        }
        inside = doc.is_some();
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::tree::{Findings, Tree};
    use super::openings;

    #[test]
    fn question_words_are_found_where_a_comment_begins() {
        let text = "//! Whether it is.\n\n/// Bytes.\n/// Who sent them.\nstruct A;\n/// How many.\nfn f() {}\n\
                    /// Whatever.\nfn g() {}";
        let tree = Tree::of(&[("new/Cargo.toml", ""), ("new/src/a.rs", text)]);
        assert_eq!(
            openings(&tree),
            ["new/src/a.rs: line 1: begins with Whether", "new/src/a.rs: line 6: begins with How"]
        );
        let clean =
            Tree::of(&[("new/Cargo.toml", ""), ("new/src/a.rs", "/// Bytes sent.\nstruct A;")]);
        assert_eq!(openings(&clean), Findings::new());
    }
}
