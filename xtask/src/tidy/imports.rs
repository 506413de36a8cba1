//! Imports between the files of a crate.
//!
//! Paths that begin with `crate`, `self`, `super`, a child module or an imported name are
//! followed to the file that defines the item: a name that `mod.rs` only passes on counts
//! as an import of the file behind it. `mod x;` is no import.

use super::tokens::shipped;
use super::tree::{Source, Tree};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Names passed on from file to file before the search is given up.
const MAX_REEXPORTS: usize = 16;
const DEFINITIONS: [&str; 8] =
    ["struct", "enum", "fn", "trait", "const", "static", "type", "union"];

type ModulePath<'a> = Vec<&'a str>;

/// Files of one crate and the imports between them.
#[derive(Debug, Default)]
pub(super) struct Imports<'a> {
    /// The crate's folder.
    pub(super) dir: &'a str,
    /// Files, by position.
    pub(super) files: Vec<&'a Source>,
    /// Imported files, by the position of the importing one.
    pub(super) edges: BTreeMap<usize, BTreeSet<usize>>,
}

/// A path of a `use` statement.
struct Use<'a> {
    path: ModulePath<'a>,
    /// Name in the importing file; `*` for a glob.
    name: &'a str,
    public: bool,
}

/// Names, paths and definitions of a file.
struct File<'a> {
    module: ModulePath<'a>,
    uses: Vec<Use<'a>>,
    /// Paths of at least two segments outside of `use` statements.
    paths: Vec<ModulePath<'a>>,
    words: HashSet<&'a str>,
    defined: HashSet<&'a str>,
}

struct Crate<'a> {
    files: Vec<File<'a>>,
    /// Position of a module's file.
    modules: HashMap<ModulePath<'a>, usize>,
}

/// Reads the imports of every crate.
pub(super) fn of_all_crates(tree: &Tree) -> Vec<Imports<'_>> {
    tree.manifests
        .iter()
        .filter_map(|manifest| manifest.path.parent()?.to_str())
        .map(|dir| of_crate(dir, &tree.sources))
        .collect()
}

fn of_crate<'a>(dir: &'a str, sources: &'a [Source]) -> Imports<'a> {
    let mut found = Vec::new();
    let mut test_modules = HashSet::new();
    for source in sources {
        let Some(module) = module_path(dir, source) else { continue };
        let code = shipped(&source.text);
        for name in &code.test_modules {
            let mut path = module.clone();
            path.push(name);
            test_modules.insert(path);
        }
        found.push((source, read(module, &code.tokens)));
    }
    found.retain(|(_, file)| {
        !(0..=file.module.len()).any(|n| test_modules.contains(&file.module[..n]))
    });
    let mut of_crate = Crate { files: Vec::new(), modules: HashMap::new() };
    let mut imports = Imports { dir, ..Imports::default() };
    for (position, (source, file)) in found.into_iter().enumerate() {
        of_crate.modules.insert(file.module.clone(), position);
        of_crate.files.push(file);
        imports.files.push(source);
    }
    for position in 0..of_crate.files.len() {
        let targets = of_crate.imports(position);
        imports.edges.insert(position, targets);
    }
    imports
}

/// `a::b` for `DIR/src/a/b.rs` and `DIR/src/a/b/mod.rs`.
fn module_path<'a>(dir: &str, source: &'a Source) -> Option<ModulePath<'a>> {
    let below = source.path.strip_prefix(dir).ok()?.strip_prefix("src").ok()?;
    if source.is_test() {
        return None;
    }
    let mut path: ModulePath<'a> = below.iter().map(|part| part.to_str()).collect::<Option<_>>()?;
    let last = path.pop()?.trim_end_matches(".rs");
    if !(last == "mod" || path.is_empty() && ["lib", "main"].contains(&last)) {
        path.push(last);
    }
    Some(path)
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn read<'a>(module: ModulePath<'a>, tokens: &[&'a str]) -> File<'a> {
    let mut file = File {
        module,
        uses: Vec::new(),
        paths: Vec::new(),
        words: HashSet::new(),
        defined: HashSet::new(),
    };
    let mut at = 0;
    while at < tokens.len() {
        let token = tokens[at];
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        at += 1;
        if token == "use" && tokens.get(at) != Some(&"<") {
            let public = before == "pub" || before == ")";
            at = use_tree(tokens, at, &[], public, &mut file.uses);
        } else if is_word(token) && !["::", ".", "$"].contains(&before) {
            let mut path = vec![token];
            while tokens.get(at) == Some(&"::") && tokens.get(at + 1).is_some_and(|t| is_word(t)) {
                path.push(tokens[at + 1]);
                at += 2;
            }
            if DEFINITIONS.contains(&before)
                || before == "!" && at > 2 && tokens[at - 3] == "macro_rules"
            {
                file.defined.insert(token);
            }
            file.words.insert(token);
            if path.len() > 1 {
                file.paths.push(path);
            }
        }
    }
    file
}

/// Reads one tree of a `use` statement and returns the position behind it.
fn use_tree<'a>(
    tokens: &[&'a str],
    mut at: usize,
    prefix: &[&'a str],
    public: bool,
    into: &mut Vec<Use<'a>>,
) -> usize {
    let mut path = prefix.to_vec();
    while let Some(token) = tokens.get(at) {
        match *token {
            "::" => at += 1,
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|token| *token != "}") {
                    at = use_tree(tokens, at, &path, public, into);
                    at += usize::from(tokens.get(at) == Some(&","));
                }
                return at + 1;
            }
            "*" => {
                into.push(Use { path, name: "*", public });
                return at + 1;
            }
            "as" => {
                let name = tokens.get(at + 1).copied().unwrap_or_default();
                into.push(Use { path, name, public });
                return at + 2;
            }
            word if is_word(word) => {
                if word != "self" || path.is_empty() {
                    path.push(word);
                }
                at += 1;
            }
            _ => break,
        }
    }
    if let Some(name) = path.last().copied() {
        into.push(Use { path, name, public });
    }
    at
}

impl<'a> Crate<'a> {
    /// Files that a file imports.
    fn imports(&self, position: usize) -> BTreeSet<usize> {
        let file = &self.files[position];
        let mut targets = BTreeSet::new();
        for import in &file.uses {
            let Some(path) = self.absolute(file, &import.path, 0) else { continue };
            let passed_on = import.public && !file.words.contains(import.name);
            let module = import.name != "*" && self.modules.contains_key(&path);
            if !passed_on && !module {
                targets.extend(self.file_of(&path, 0));
            }
        }
        for path in &file.paths {
            let Some(path) = self.absolute(file, path, 0) else { continue };
            targets.extend(self.file_of(&path, 0));
        }
        targets.remove(&position);
        targets
    }

    /// The path from the root of the crate; none for what another crate defines.
    fn absolute(&self, file: &File<'a>, path: &[&'a str], depth: usize) -> Option<ModulePath<'a>> {
        let (first, mut rest) = path.split_first()?;
        let mut base = match *first {
            "crate" => Vec::new(),
            "self" => file.module.clone(),
            "super" => {
                let mut base = file.module.clone();
                base.pop()?;
                while let Some(("super", after)) = rest.split_first().map(|(a, b)| (*a, b)) {
                    base.pop()?;
                    rest = after;
                }
                base
            }
            name => {
                let imported = file.uses.iter().find(|import| import.name == name);
                match imported.filter(|import| import.path.first() != Some(first)) {
                    Some(import) if depth < MAX_REEXPORTS => {
                        self.absolute(file, &import.path, depth + 1)?
                    }
                    _ => {
                        let mut base = file.module.clone();
                        base.push(name);
                        self.modules.get(&base)?;
                        base
                    }
                }
            }
        };
        base.extend(rest);
        Some(base)
    }

    /// The file that defines what a path from the root of the crate names.
    fn file_of(&self, path: &[&'a str], depth: usize) -> Option<usize> {
        let length = (0..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n]))?;
        let position = self.modules[&path[..length]];
        let file = &self.files[position];
        let Some((name, rest)) = path[length..].split_first() else { return Some(position) };
        if depth == MAX_REEXPORTS || file.defined.contains(name) {
            return Some(position);
        }
        for import in &file.uses {
            if import.name != *name && import.name != "*" {
                continue;
            }
            let Some(mut behind) = self.absolute(file, &import.path, 0) else {
                // A name of another crate that this file passes on.
                if import.name == *name {
                    return None;
                }
                continue;
            };
            if import.name == "*" {
                behind.push(name);
            }
            behind.extend(rest);
            let found = self.file_of(&behind, depth + 1);
            let defines = |position: usize| self.files[position].defined.contains(name);
            if import.name != "*" || found.is_some_and(defines) {
                return found;
            }
        }
        Some(position)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::of_all_crates;

    fn edges(files: &[(&str, &str)]) -> Vec<String> {
        let mut files = files.to_vec();
        files.push(("a/Cargo.toml", ""));
        let tree = Tree::of(&files);
        let imports = of_all_crates(&tree);
        let name = |at: usize| imports[0].files[at].path.strip_prefix("a/src").unwrap().display();
        let pairs =
            imports[0].edges.iter().flat_map(|(from, to)| to.iter().map(move |to| (*from, *to)));
        pairs.map(|(from, to)| format!("{} {}", name(from), name(to))).collect()
    }

    #[test]
    fn paths_lead_to_the_file_that_defines_the_item() {
        let found = edges(&[
            ("a/src/lib.rs", "mod one; mod two; pub use one::One;"),
            ("a/src/one.rs", "use crate::two; struct One; fn f() { two::deep::g(); }"),
            ("a/src/two/mod.rs", "mod deep; pub(crate) use deep::Deep;"),
            ("a/src/two/deep.rs", "use super::super::One; struct Deep; fn g() {}"),
            (
                "a/src/three.rs",
                "use crate::{one, two::{Deep as D, other::X}}; fn f() -> one::One {}",
            ),
        ]);
        let expected = [
            "one.rs two/deep.rs",
            "two/deep.rs one.rs",
            "three.rs one.rs",
            "three.rs two/mod.rs",
            "three.rs two/deep.rs",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn tests_and_other_crates_are_no_imports() {
        let found = edges(&[
            ("a/src/lib.rs", "mod one;\n#[cfg(test)]\nmod rig;"),
            (
                "a/src/one.rs",
                "use std::fmt; use bytes::Bytes; #[cfg(test)] mod tests { use crate::rig; }",
            ),
            ("a/src/rig.rs", "use crate::one::X;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }
}
