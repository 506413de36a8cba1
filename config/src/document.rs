//! Places in a TOML document: their text, their names, and their removal.

use crate::problem::{Place, Step};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

/// Keys that hold the name of an entry of a list of tables.
const NAMES: [&str; 7] = ["pseudo", "name", "number", "tag", "dataset", "match", "address"];

pub(crate) type Value<'i> = Spanned<DeValue<'i>>;

pub(crate) fn child<'t, 'i>(of: &'t DeValue<'i>, step: &Step) -> Option<&'t Value<'i>> {
    match (of, step) {
        (DeValue::Table(table), Step::Key(key)) => table.get(key.as_ref()),
        (DeValue::Array(list), Step::Index(index)) => list.get(*index),
        _ => None,
    }
}

fn name_of(value: &DeValue<'_>) -> Option<String> {
    let DeValue::Table(table) = value else { return None };
    NAMES.iter().filter_map(|key| table.get(*key)).find_map(|name| match name.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => Some(number.to_string()),
        _ => None,
    })
}

/// Returns the text that a place is about, and its name. If the file does not
/// have the value, the text is that of the innermost table or list around it;
/// none if that is the whole file.
pub(crate) fn locate(root: &Value<'_>, place: &Place) -> (Option<Range<usize>>, String) {
    let (mut at, mut span, mut name) = (Some(root), None, String::new());
    let mut named_entry = false;
    for (index, step) in place.0.iter().enumerate() {
        let found = at.and_then(|at| child(at.get_ref(), step));
        span = found.map(Spanned::span).or(span);
        match step {
            Step::Key(key) => {
                // `target iqn.2026-11.x:a lun 3.path`, as differences name it.
                let item = place.0.get(index + 1).and_then(|next| child(found?.get_ref(), next));
                let has_name = item.is_some_and(|item| name_of(item.get_ref()).is_some());
                let separator = if named_entry && has_name { " " } else { "." };
                name += if name.is_empty() { "" } else { separator };
                name += key;
            }
            Step::Index(_) => {
                let entry = found.and_then(|found| name_of(found.get_ref()));
                named_entry = entry.is_some();
                name.extend(entry.map(|entry| format!(" {entry}")));
            }
        }
        at = found;
    }
    (span, name)
}

/// Returns the text of a key of the table at a place.
pub(crate) fn key_span(root: &Value<'_>, place: &Place, key: &str) -> Option<Range<usize>> {
    let mut steps = place.0.iter();
    match steps.try_fold(root, |at, step| child(at.get_ref(), step))?.get_ref() {
        DeValue::Table(table) => Some(table.get_key_value(key)?.0.span()),
        _ => None,
    }
}

/// Removes the value at a place, or what is nearest around it. False if that is
/// the root.
pub(crate) fn remove(root: &mut Value<'_>, steps: &[Step]) -> bool {
    let [step, rest @ ..] = steps else { return false };
    match (root.get_mut(), step) {
        (DeValue::Table(table), Step::Key(key)) => match table.get_mut(key.as_ref()) {
            Some(inner) => remove(inner, rest) || table.remove(key.as_ref()).is_some(),
            None => false,
        },
        (DeValue::Array(list), Step::Index(index)) if *index < list.len() => {
            if !list.get_mut(*index).is_some_and(|item| remove(item, rest)) {
                let before = std::mem::replace(list, DeArray::new());
                let kept = before.into_iter().enumerate().filter(|(at, _)| at != index);
                *list = kept.map(|(_, item)| item).collect();
            }
            true
        }
        _ => false,
    }
}

/// Reads TOML; or returns all faults of its syntax.
pub(crate) fn read(text: &str) -> Result<Value<'_>, Vec<toml::de::Error>> {
    let (root, faults) = DeTable::parse_recoverable(text);
    let span = root.span();
    if faults.is_empty() {
        Ok(Spanned::new(span, DeValue::Table(root.into_inner())))
    } else {
        Err(faults)
    }
}
