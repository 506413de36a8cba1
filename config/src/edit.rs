//! Edits of the text of a file of `conf_dir`: all comments, blanks and orders
//! that are not those of the edited entry stay.

use crate::target::{InitiatorConfig, LunConfig, NamePattern};
use serde::Serialize;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, TableLike};

/// First lines of a new file.
const HEADER: &str = "\
# Changes by `zgate lun` and `zgate acl`, which edit this file and keep its
# comments. `zgate reload` applies what you change here.
";

/// Entry of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry<'a> {
    Lun(u16),
    Initiator(&'a NamePattern),
}

impl Entry<'_> {
    /// Key of the list that the entry stands in.
    pub(crate) fn list(self) -> &'static str {
        match self {
            Self::Lun(_) => "lun",
            Self::Initiator(_) => "initiator",
        }
    }

    fn is(self, table: &dyn TableLike) -> bool {
        match self {
            Self::Lun(number) => {
                let known = table.get("number").and_then(Item::as_integer);
                known == Some(number.into())
            }
            Self::Initiator(name) => {
                let known = table.get("name").and_then(Item::as_str);
                known.and_then(|known| known.parse().ok()).as_ref() == Some(name)
            }
        }
    }
}

/// Fields of a new entry, those that people look for first.
pub(crate) type Fields = Vec<(String, toml::Value)>;

/// Returns the fields that differ from those of `plain`, and the `first` ones.
fn fields(entry: &impl Serialize, plain: &impl Serialize, first: &[&str]) -> Fields {
    let table = |value| match value {
        Ok(toml::Value::Table(table)) => table,
        _ => toml::Table::new(),
    };
    let mut rest = table(toml::Value::try_from(entry));
    let plain = table(toml::Value::try_from(plain));
    let mut fields: Fields =
        first.iter().filter_map(|key| Some(((*key).to_owned(), rest.remove(*key)?))).collect();
    fields.extend(rest.into_iter().filter(|(key, value)| plain.get(key) != Some(value)));
    fields
}

/// Returns the fields of a LUN; those with their default are left out.
pub(crate) fn lun_fields(lun: &LunConfig) -> Fields {
    let plain = toml::from_str::<LunConfig>("number = 0\npath = \"/\"\n").ok();
    fields(lun, &plain, &["number", "path", "size"])
}

/// Returns the fields of a rule.
pub(crate) fn rule_fields(rule: &InitiatorConfig) -> Fields {
    fields(rule, &toml::Table::new(), &["name", "clients", "luns"])
}

/// Tables of a list, which is written as `[[...]]` or in brackets.
fn tables(list: &Item) -> Vec<&dyn TableLike> {
    match list {
        Item::ArrayOfTables(tables) => tables.iter().map(|table| table as &dyn TableLike).collect(),
        Item::Value(toml_edit::Value::Array(items)) => {
            let inline = items.iter().filter_map(toml_edit::Value::as_inline_table);
            inline.map(|table| table as &dyn TableLike).collect()
        }
        _ => Vec::new(),
    }
}

fn table_mut(list: &mut Item, at: usize) -> Option<&mut dyn TableLike> {
    match list {
        Item::ArrayOfTables(tables) => tables.get_mut(at).map(|table| table as &mut dyn TableLike),
        Item::Value(toml_edit::Value::Array(items)) => {
            let table = items.get_mut(at)?.as_inline_table_mut()?;
            Some(table as &mut dyn TableLike)
        }
        _ => None,
    }
}

fn remove_at(list: &mut Item, at: usize) {
    match list {
        Item::ArrayOfTables(tables) => {
            tables.remove(at);
        }
        Item::Value(toml_edit::Value::Array(items)) => {
            items.remove(at);
        }
        _ => {}
    }
}

fn position(list: &Item, is: impl Fn(&dyn TableLike) -> bool) -> Option<usize> {
    tables(list).into_iter().position(is)
}

fn is_target(table: &dyn TableLike, name: &str) -> bool {
    let known = table.get("name").and_then(Item::as_str);
    known.is_some_and(|known| known.to_lowercase() == name.to_lowercase())
}

fn value(value: &toml::Value) -> Result<toml_edit::Value, toml_edit::TomlError> {
    value.to_string().parse()
}

fn table_of(fields: &Fields) -> Result<Table, toml_edit::TomlError> {
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    for (key, field) in fields {
        table.insert(key, Item::Value(value(field)?));
    }
    Ok(table)
}

/// Adds a table to the list under a key of `parent`, which is written in braces
/// or not.
fn push(parent: &mut dyn TableLike, is_inline: bool, key: &str, table: Table) {
    let inline = |table: Table| {
        let mut table: InlineTable = table.into_inline_table();
        table.fmt();
        toml_edit::Value::InlineTable(table)
    };
    match parent.get_mut(key) {
        Some(Item::ArrayOfTables(list)) => list.push(table),
        Some(Item::Value(toml_edit::Value::Array(list))) => list.push(inline(table)),
        _ => {
            // Within a table in braces there are no `[[...]]`.
            let list = if is_inline {
                Item::Value(Array::from_iter([inline(table)]).into())
            } else {
                let mut list = ArrayOfTables::new();
                list.push(table);
                Item::ArrayOfTables(list)
            };
            parent.insert(key, list);
        }
    }
}

/// Returns the text of a file with a new entry of a target; `text` is empty for
/// a new file.
///
/// # Errors
/// The fault of the syntax.
pub(crate) fn with_entry(
    text: &str,
    target: &str,
    entry: Entry<'_>,
    fields: &Fields,
) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let new = table_of(fields)?;
    if let Some(list) = document.get_mut("target")
        && let Some(at) = position(list, |table| is_target(table, target))
    {
        let is_inline = list.is_value();
        if let Some(known) = table_mut(list, at) {
            push(known, is_inline, entry.list(), new);
        }
        return Ok(document.to_string());
    }
    let mut table = Table::new();
    table.decor_mut().set_prefix("\n");
    table.insert("name", toml_edit::value(target));
    push(&mut table, false, entry.list(), new);
    if !document.is_empty() {
        push(document.as_table_mut(), false, "target", table);
        return Ok(document.to_string());
    }
    // What stands in a file without tables stays above the first one.
    let mut begin = if text.is_empty() { HEADER.to_owned() } else { text.to_owned() };
    if !begin.ends_with('\n') {
        begin.push('\n');
    }
    let mut first = DocumentMut::new();
    push(first.as_table_mut(), false, "target", table);
    Ok(begin + &first.to_string())
}

/// Returns the text of a file without all such entries of a target. A target
/// without entries is removed, too, unless a comment stands above it.
///
/// # Errors
/// The fault of the syntax.
pub(crate) fn without_entry(
    text: &str,
    target: &str,
    entry: Entry<'_>,
) -> Result<String, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let Some(targets) = document.get_mut("target") else { return Ok(text.to_owned()) };
    let mut at = 0;
    while let Some(table) = table_mut(targets, at) {
        let mine = is_target(table, target);
        if mine && let Some(list) = table.get_mut(entry.list()) {
            while let Some(found) = position(list, |table| entry.is(table)) {
                remove_at(list, found);
            }
            if tables(list).is_empty() {
                table.remove(entry.list());
            }
        }
        let bare = mine && table.iter().all(|(key, _)| key == "name");
        if bare && !has_comment(targets, at) {
            remove_at(targets, at);
        } else {
            at += 1;
        }
    }
    if tables(targets).is_empty() {
        document.remove("target");
    }
    Ok(document.to_string())
}

/// Returns the text of a file with another size of a LUN; none if it has no size
/// there.
///
/// # Errors
/// The fault of the syntax.
pub(crate) fn with_size(
    text: &str,
    target: &str,
    number: u16,
    size: &str,
) -> Result<Option<String>, toml_edit::TomlError> {
    let mut document: DocumentMut = text.parse()?;
    let entry = Entry::Lun(number);
    let Some(targets) = document.get_mut("target") else { return Ok(None) };
    let mut at = 0;
    while let Some(table) = table_mut(targets, at) {
        at += 1;
        if !is_target(table, target) {
            continue;
        }
        let Some(list) = table.get_mut(entry.list()) else { continue };
        let Some(found) = position(list, |table| entry.is(table)) else { continue };
        let known = table_mut(list, found).and_then(|table| table.get_mut("size"));
        let Some(known) = known.and_then(Item::as_value_mut) else { return Ok(None) };
        let decor = known.decor().clone();
        *known = size.into();
        *known.decor_mut() = decor;
        return Ok(Some(document.to_string()));
    }
    Ok(None)
}

fn has_comment(targets: &Item, at: usize) -> bool {
    let Item::ArrayOfTables(tables) = targets else { return false };
    let text = tables.get(at).map(ToString::to_string).unwrap_or_default();
    let prefix = tables.get(at).and_then(|table| table.decor().prefix()?.as_str());
    prefix.is_some_and(|prefix| prefix.contains('#')) || text.contains('#')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: &str = "iqn.2026-11.test:a";

    fn lun(number: u16) -> Fields {
        let text = format!("number = {number}\npath = \"/luns/{number}.img\"\nsize = \"1GiB\"\n");
        lun_fields(&toml::from_str(&text).unwrap())
    }

    fn add(text: &str, target: &str, number: u16) -> String {
        with_entry(text, target, Entry::Lun(number), &lun(number)).unwrap()
    }

    fn remove(text: &str, number: u16) -> String {
        without_entry(text, TARGET, Entry::Lun(number)).unwrap()
    }

    #[test]
    fn a_new_file_says_whose_it_is_and_has_what_was_given() {
        let expected = format!(
            "{HEADER}\n[[target]]\nname = \"{TARGET}\"\n\n[[target.lun]]\nnumber = 7\n\
             path = \"/luns/7.img\"\nsize = \"1GiB\"\n"
        );
        assert_eq!(add("", TARGET, 7), expected);
        let rule = "name = \"iqn.2026-11.test:h\"\nluns = [7]\nclients = [\"10.0.0.0/8\"]\n\
            chap = { user = \"u\", secret_file = \"/s\" }\n";
        let rule: InitiatorConfig = toml::from_str(rule).unwrap();
        let both = with_entry(&expected, TARGET, Entry::Initiator(&rule.name), &rule_fields(&rule));
        let added = "\n[[target.initiator]]\nname = \"iqn.2026-11.test:h\"\n\
            clients = [\"10.0.0.0/8\"]\nluns = [7]\n\
            chap = { secret_file = \"/s\", user = \"u\" }\n";
        assert_eq!(both.unwrap(), expected + added);
    }

    #[test]
    fn what_was_added_can_be_removed_and_the_rest_stays_as_it_was() {
        let mut text = add(&add("", TARGET, 7), "iqn.2026-11.test:b", 1);
        let before = text.clone();
        for number in [8, 9] {
            text = add(&text, "IQN.2026-11.test:A", number);
        }
        assert_eq!(text.matches("[[target]]").count(), 2, "{text}");
        assert!(text.find("number = 9") < text.find("number = 1"), "{text}");
        for number in [8, 9] {
            text = remove(&text, number);
        }
        assert_eq!(text, before);
        assert_eq!(remove(&text, 5), before);
    }

    #[test]
    fn a_size_is_replaced_where_it_stands() {
        let text = "[[target]]\nname = \"iqn.2026-11.test:a\"\n\n[[target.lun]] # one\nnumber = 1\n\
            path = \"/1\"\nsize = \"1GiB\" # at first\n\n[[target.lun]]\nnumber = 2\npath = \"/2\"\n";
        let new = with_size(text, TARGET, 1, "2GiB").unwrap().unwrap();
        assert_eq!(new, text.replace("1GiB", "2GiB"));
        for (target, number) in [(TARGET, 2), (TARGET, 3), ("iqn.2026-11.test:b", 1)] {
            assert_eq!(with_size(text, target, number, "2GiB").unwrap(), None);
        }
    }

    #[test]
    fn comments_are_kept() {
        let text = "# our disks\n\n[[target]] # the cluster\nname = \"iqn.2026-11.test:a\"\n\n\
            # database\n[[target.lun]]\nnumber = 1 # one\npath = \"/1\"\n\n\
            # scratch\n[[target.lun]]\nnumber = 2\npath = \"/2\"\n# the end\n";
        let more = add(text, TARGET, 3);
        for comment in ["# our disks", "# the cluster", "# database", "# one", "# scratch"] {
            assert_eq!(more.matches(comment).count(), 1, "{comment}: {more}");
        }
        assert!(more.starts_with("# our disks\n\n[[target]] # the cluster\n"), "{more}");
        let less = remove(&more, 2);
        assert!(!less.contains("scratch") && less.contains("# database"), "{less}");
        // The last entry leaves; what was written above the target does not.
        let bare = remove(&remove(&less, 1), 3);
        assert!(bare.contains("# our disks") && bare.contains("# the cluster"), "{bare}");
        assert!(!bare.contains("target.lun") && bare.contains("# the end"), "{bare}");
        let only_comments = add("# nothing yet\n", TARGET, 1);
        assert!(only_comments.starts_with("# nothing yet\n\n[[target]]\n"), "{only_comments}");
        // Without a comment nothing is left of a target.
        let gone = remove(&add(&add("", "iqn.2026-11.test:b", 1), TARGET, 2), 2);
        assert!(!gone.contains(TARGET) && gone.contains("test:b"), "{gone}");
    }

    #[test]
    fn lists_in_brackets_stay_lists_in_brackets() {
        let text =
            "target = [{ name = \"iqn.2026-11.test:a\", lun = [{ number = 1, path = \"/1\" }] }]\n";
        let more = add(text, TARGET, 2);
        let rule: InitiatorConfig = toml::from_str("name = \"iqn.2026-11.test:h\"").unwrap();
        let more = with_entry(&more, TARGET, Entry::Initiator(&rule.name), &rule_fields(&rule));
        let read: toml::Table = more.clone().unwrap().parse().unwrap();
        assert_eq!(read["target"][0]["lun"][1]["number"].as_integer(), Some(2));
        assert_eq!(read["target"][0]["initiator"].as_array().map(Vec::len), Some(1));
        let less: toml::Table = remove(&more.unwrap(), 1).parse().unwrap();
        assert_eq!(less["target"][0]["lun"].as_array().map(Vec::len), Some(1));
    }
}
