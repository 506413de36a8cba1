//! First words of doc comments, and names of types.

use super::tokens::tokens;
use super::tree::{Findings, Source, Tree};

/// Words that an item's doc comment does not begin with: it begins with a noun or a verb.
const OPENINGS: [&str; 6] = ["What", "Whether", "Who", "Whose", "Whom", "How"];

/// Names that types do not have: a reader from the field would have to learn what
/// they stand for here.
const PRIVATE_NAMES: [&str; 10] =
    ["Actor", "Bed", "Clerk", "Door", "House", "Porter", "Scene", "Seat", "UnderWay", "World"];

const TYPE_KEYWORDS: [&str; 4] = ["struct", "enum", "trait", "type"];

/// Types with a name that only this project would understand.
pub(super) fn private_names(tree: &Tree) -> Findings {
    tree.sources.iter().flat_map(private_types).collect()
}

fn private_types(source: &Source) -> Findings {
    let tokens = tokens(&source.text);
    let named = tokens.windows(2).filter(|pair| TYPE_KEYWORDS.contains(&pair[0]));
    let private = named.filter(|pair| PRIVATE_NAMES.contains(&pair[1]));
    private.map(|pair| format!("{}: {}", source.path.display(), pair[1])).collect()
}

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
    use super::{openings, private_names};

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

    #[test]
    fn private_names_of_types_are_found() {
        let text = "//! A struct Scene.\npub(crate) struct Scene;\nenum Door {}\nstruct SceneOf;\n\
                    fn f(world: World) {}";
        let tree = Tree::of(&[("new/Cargo.toml", ""), ("new/src/a.rs", text)]);
        assert_eq!(private_names(&tree), ["new/src/a.rs: Scene", "new/src/a.rs: Door"]);
    }
}
