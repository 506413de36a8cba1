//! From a problem that rules found to the line it is about.

use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The line a place in a text is on, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or(text).matches('\n').count() + 1
}

/// Returns the line of the key named at the beginning of a problem:
/// `server.KEY`, or `export NAME: KEY`, `target NAME lun NUMBER: KEY` and
/// similar; the line of its table if the key is not in the file.
pub(crate) fn problem_line(text: &str, problem: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let (place, rest) = problem.split_once(": ").unwrap_or((problem, ""));
    let mut words = place.split(' ');
    let first = words.next()?;
    let span = match first.split_once('.') {
        Some((section, key)) => in_section(root.get_ref(), section, key)?,
        None => {
            let mut at = entry(root.get_ref(), first, words.next()?)?;
            while let (Some(kind), Some(name)) = (words.next(), words.next()) {
                at = entry(table(at)?, kind, name)?;
            }
            let key = rest.split([' ', ':', '=']).next().unwrap_or_default();
            let inner = table(at).and_then(|table| table.get_key_value(key));
            inner.map_or(at.span(), |(key, _)| key.span())
        }
    };
    Some(line_of(text, span.start))
}

fn in_section(root: &DeTable<'_>, section: &str, key: &str) -> Option<Range<usize>> {
    let (name, value) = root.get_key_value(section)?;
    let key = key.split(' ').next().unwrap_or(key);
    Some(match table(value).and_then(|table| table.get_key_value(key)) {
        Some((key, _)) => key.span(),
        None => name.span(),
    })
}

type Value<'t, 'i> = &'t Spanned<DeValue<'i>>;

fn table<'t, 'i>(value: Value<'t, 'i>) -> Option<&'t DeTable<'i>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Returns the last entry with this name in a list of tables: the second of two
/// equal names is the wrong one.
fn entry<'t, 'i>(of: &'t DeTable<'i>, kind: &str, name: &str) -> Option<Value<'t, 'i>> {
    /// Keys that hold the name of an entry.
    const NAMES: [&str; 6] = ["pseudo", "name", "number", "tag", "dataset", "match"];
    let list = of.get(kind).and_then(|value| match value.get_ref() {
        DeValue::Array(list) => Some(list),
        _ => None,
    })?;
    let name = name.trim_matches('"');
    let called = |entry: &&Spanned<DeValue<'i>>| {
        table(entry).is_some_and(|table| {
            NAMES.iter().filter_map(|key| table.get(*key)).any(|value| match value.get_ref() {
                DeValue::String(text) => text == name,
                DeValue::Integer(number) => number.as_str() == name,
                _ => false,
            })
        })
    };
    list.iter().rfind(called).or_else(|| list.get(name.parse::<usize>().ok()?.checked_sub(1)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[server]\ncores = 1\n\n[[export]]\npseudo = \"/a\"\npath = \"x\"\n\n\
                        [[export]]\npseudo = \"/a\"\n\n[[target]]\nname = \"iqn.t\"\n\n\
                        [[target.lun]]\nnumber = 3\nblock_bytes = 7\n";

    #[test]
    fn problems_are_found_where_they_stand() {
        let line = |problem| problem_line(FILE, problem);
        assert_eq!(line("server.cores = 1: must be more"), Some(2));
        assert_eq!(line("server.listen is empty: name one"), Some(1));
        assert_eq!(line("export /a: pseudo = \"/a\" is there twice"), Some(9));
        assert_eq!(line("export /a: path or dataset is missing"), Some(8));
        assert_eq!(line("target iqn.t: alias must be printable"), Some(11));
        assert_eq!(line("target iqn.t lun 3: block_bytes = 7: must be 512"), Some(16));
        assert_eq!(line("nothing of the kind"), None);
    }
}
