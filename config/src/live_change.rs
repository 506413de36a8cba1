//! Changes by live commands, and where they are kept in the files.

use crate::changed_entries;
use crate::edit::{Entry, lun_fields, rule_fields, with_entry, with_size, without_entry};
use crate::files::{Checked, ConfigFiles};
use crate::merge::{Origin, TargetOrigins};
use crate::parse::{ConfigError, SourceText};
use crate::problem::{Diagnostic, Problem};
use crate::schema::{ByteSize, Config};
use crate::target::{InitiatorConfig, LunConfig, NamePattern};
use std::path::PathBuf;
use thiserror::Error;

/// File of `conf_dir` that new entries go to.
const LIVE_FILE: &str = "live.toml";

/// A change of what a target has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LiveChange {
    /// Adds a logical unit.
    AddLun {
        /// Name of the target.
        target: String,
        /// The logical unit.
        lun: LunConfig,
    },
    /// Sets the size of a logical unit's file, where a file of `conf_dir` has one.
    ResizeLun {
        /// Name of the target.
        target: String,
        /// Its number.
        number: u16,
        /// The new size.
        size: ByteSize,
    },
    /// Removes a logical unit.
    RemoveLun {
        /// Name of the target.
        target: String,
        /// Its number.
        number: u16,
    },
    /// Adds a rule for initiators.
    AddRule {
        /// Name of the target.
        target: String,
        /// The rule.
        rule: InitiatorConfig,
    },
    /// Removes the rules of a name.
    RemoveRule {
        /// Name of the target.
        target: String,
        /// The name, or the beginning of names.
        name: NamePattern,
    },
}

/// A new text of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The file.
    pub file: PathBuf,
    /// Its present text; none if it does not exist.
    pub before: Option<String>,
    /// Its new text.
    pub after: String,
}

/// Reason for which the files cannot keep a change.
#[derive(Debug, Error)]
pub enum NotEdited {
    /// The files have problems already.
    #[error("the configuration has problems, which must be corrected first:\n{0}")]
    Broken(ConfigError),
    /// They would have problems afterwards.
    #[error("{0}")]
    Wrong(String),
    /// The entry stands in the main file, which is never edited.
    #[error(
        "{entry} stands in {}:{line}: remove it there, then `zgate reload`; --runtime-only removes \
         it until the next reload or restart", .file.display()
    )]
    InMainFile {
        /// The entry.
        entry: String,
        /// The main file.
        file: PathBuf,
        /// Line of the entry.
        line: usize,
    },
}

impl LiveChange {
    fn target(&self) -> &str {
        match self {
            Self::AddLun { target, .. }
            | Self::ResizeLun { target, .. }
            | Self::RemoveLun { target, .. }
            | Self::AddRule { target, .. }
            | Self::RemoveRule { target, .. } => target,
        }
    }

    fn entry(&self) -> Entry<'_> {
        match self {
            Self::AddLun { lun, .. } => Entry::Lun(lun.number),
            Self::ResizeLun { number, .. } | Self::RemoveLun { number, .. } => Entry::Lun(*number),
            Self::AddRule { rule, .. } => Entry::Initiator(&rule.name),
            Self::RemoveRule { name, .. } => Entry::Initiator(name),
        }
    }

    /// Returns the name of the entry as [`crate::changed_entries`] has it.
    #[must_use]
    pub fn entry_name(&self) -> String {
        let target = self.target().to_lowercase();
        match self.entry() {
            Entry::Lun(number) => format!("LUN {number} of target {target}"),
            Entry::Initiator(name) => format!("rule {name} of target {target}"),
        }
    }

    /// Makes the change in a configuration; nothing if it has no such target.
    pub fn apply(&self, config: &mut Config) {
        let Some(target) = config.target_mut(self.target()) else { return };
        match self {
            Self::AddLun { lun, .. } => target.luns.push(lun.clone()),
            Self::ResizeLun { number, size, .. } => {
                let known = target.luns.iter_mut().filter(|lun| lun.number == *number);
                known.for_each(|lun| lun.size = Some(*size));
            }
            Self::RemoveLun { number, .. } => target.luns.retain(|lun| lun.number != *number),
            Self::AddRule { rule, .. } => {
                target.insert_rule(rule.clone());
            }
            Self::RemoveRule { name, .. } => target.initiators.retain(|rule| rule.name != *name),
        }
    }
}

/// Returns where the entry stands: all of its places.
fn places<'a>(checked: &'a Checked<'_>, change: &LiveChange) -> Vec<&'a Origin> {
    let Some(index) = checked.config.target_index(change.target()) else { return Vec::new() };
    let target = &checked.config.targets[index];
    let TargetOrigins { luns, initiators } = &checked.origins.0[index];
    match change.entry() {
        Entry::Lun(number) => {
            let known = target.luns.iter().zip(luns);
            known.filter(|(lun, _)| lun.number == number).map(|(_, origin)| origin).collect()
        }
        Entry::Initiator(name) => {
            let known = target.initiators.iter().zip(initiators);
            known.filter(|(rule, _)| rule.name == *name).map(|(_, origin)| origin).collect()
        }
    }
}

impl ConfigFiles {
    /// Returns the edit that keeps a change; none if no file has the entry that
    /// it removes. Afterwards the files are as valid as before.
    ///
    /// # Errors
    /// The reason for which the files cannot keep it.
    pub fn edit(&self, change: &LiveChange) -> Result<Option<Edit>, NotEdited> {
        let checked = self.examine(|_| Vec::new()).map_err(NotEdited::Broken)?;
        if checked.config.target_index(change.target()).is_none() {
            let (main, target) = (self.sources[0].file.display(), change.target());
            return Err(NotEdited::Wrong(format!(
                "{main} has no target {target} any longer: `zgate reload` removes it, \
                 --runtime-only changes it until then"
            )));
        }
        let edit = match change {
            LiveChange::AddLun { target, lun } => {
                self.adding(target, change.entry(), &lun_fields(lun))?
            }
            LiveChange::AddRule { target, rule } => {
                self.adding(target, change.entry(), &rule_fields(rule))?
            }
            LiveChange::ResizeLun { number, size, .. } => {
                match self.resizing(&checked, change, (*number, *size))? {
                    Some(edit) => edit,
                    None => return Ok(None),
                }
            }
            LiveChange::RemoveLun { .. } | LiveChange::RemoveRule { .. } => {
                match self.removing(&checked, change)? {
                    Some(edit) => edit,
                    None => return Ok(None),
                }
            }
        };
        let mut wanted = checked.config;
        change.apply(&mut wanted);
        self.says(&edit, &wanted)?;
        Ok(Some(edit))
    }

    fn adding(
        &self,
        target: &str,
        entry: Entry<'_>,
        fields: &crate::edit::Fields,
    ) -> Result<Edit, NotEdited> {
        let file = self.dir.join(LIVE_FILE);
        let before = self.sources.iter().skip(1).find(|source| source.file == file);
        let before = before.map(|source| source.text.clone());
        let text = before.as_deref().unwrap_or_default();
        let after = with_entry(text, target, entry, fields)
            .map_err(|error| NotEdited::Wrong(format!("{}: {error}", file.display())))?;
        Ok(Edit { file, before, after })
    }

    /// Returns the edit of a size that stands in a file of `conf_dir`.
    fn resizing(
        &self,
        checked: &Checked<'_>,
        change: &LiveChange,
        (number, size): (u16, ByteSize),
    ) -> Result<Option<Edit>, NotEdited> {
        let places = places(checked, change);
        let [Origin { file: 1.., .. }] = places.as_slice() else { return Ok(None) };
        let source = &self.sources[places[0].file];
        let after = with_size(&source.text, change.target(), number, &size.to_string())
            .map_err(|error| NotEdited::Wrong(format!("{}: {error}", source.file.display())))?;
        let (file, before) = (source.file.clone(), Some(source.text.clone()));
        Ok(after.map(|after| Edit { file, before, after }))
    }

    fn removing(
        &self,
        checked: &Checked<'_>,
        change: &LiveChange,
    ) -> Result<Option<Edit>, NotEdited> {
        let places = places(checked, change);
        if let Some(main) = places.iter().find(|origin| origin.file == 0) {
            let (file, line) = self.line(checked, 0, &main.place);
            return Err(NotEdited::InMainFile { entry: change.entry_name(), file, line });
        }
        let Some(first) = places.first() else { return Ok(None) };
        let source = &self.sources[first.file];
        if let Some(other) = places.iter().find(|origin| origin.file != first.file) {
            return Err(NotEdited::Wrong(format!(
                "{} stands in {} and in {}: remove it there, then `zgate reload`",
                change.entry_name(),
                source.file.display(),
                self.sources[other.file].file.display()
            )));
        }
        let after = without_entry(&source.text, change.target(), change.entry())
            .map_err(|error| NotEdited::Wrong(format!("{}: {error}", source.file.display())))?;
        let (file, before) = (source.file.clone(), Some(source.text.clone()));
        Ok(Some(Edit { file, before, after }))
    }

    /// Checks that the configuration is `wanted` after an edit.
    fn says(&self, edit: &Edit, wanted: &Config) -> Result<(), NotEdited> {
        let mut edited = self.clone();
        let source = SourceText { file: edit.file.clone(), text: edit.after.clone() };
        match edited.sources.iter_mut().skip(1).find(|known| known.file == edit.file) {
            Some(known) => *known = source,
            None => edited.sources.push(source),
        }
        let now = edited.check(|_: &Config| Vec::<Problem>::new()).map_err(|error| {
            // A line of a text that is not written would mean nothing.
            let line = |one: &Diagnostic| match one.file == edit.file {
                true => format!("{}: {}; {}", one.key, one.problem, one.next_step),
                false => one.to_string(),
            };
            NotEdited::Wrong(error.problems.iter().map(line).collect::<Vec<_>>().join("\n"))
        })?;
        match changed_entries(wanted, &now).first() {
            None => Ok(()),
            Some(other) => Err(NotEdited::Wrong(format!(
                "{} cannot be edited without a change of {}: edit it by hand, then `zgate reload`",
                edit.file.display(),
                other.entry
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const MAIN: &str = "[iscsi]\nlisten = [\"127.0.0.1:3260\"]\n\n[[target]]\n\
        name = \"iqn.2026-11.test:a\"\n[[target.lun]]\nnumber = 1\npath = \"/1\"\n\
        [[target.initiator]]\nname = \"iqn.2026-11.test:*\"\n";
    const TARGET: &str = "iqn.2026-11.test:a";

    fn files(live: &str) -> (tempfile::TempDir, ConfigFiles) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("zgate.toml"), MAIN).unwrap();
        std::fs::create_dir(dir.path().join("conf.d")).unwrap();
        std::fs::write(dir.path().join("conf.d/live.toml"), live).unwrap();
        let files = ConfigFiles::read(&dir.path().join("zgate.toml")).unwrap();
        (dir, files)
    }

    fn add(number: u16, path: &str) -> LiveChange {
        let lun = format!("number = {number}\npath = \"{path}\"\n");
        LiveChange::AddLun { target: TARGET.to_uppercase(), lun: toml::from_str(&lun).unwrap() }
    }

    fn remove(number: u16) -> LiveChange {
        LiveChange::RemoveLun { target: TARGET.to_owned(), number }
    }

    fn rule(name: &str, more: &str) -> LiveChange {
        let rule = toml::from_str(&format!("name = \"{name}\"\n{more}")).unwrap();
        LiveChange::AddRule { target: TARGET.to_owned(), rule }
    }

    /// Returns the configuration after a change, read from its files again.
    fn after(dir: &Path, change: &LiveChange) -> Config {
        let main = dir.join("zgate.toml");
        let edit = ConfigFiles::read(&main).unwrap().edit(change).unwrap().unwrap();
        std::fs::write(&edit.file, &edit.after).unwrap();
        crate::load(&main).unwrap()
    }

    #[test]
    fn a_change_is_the_same_in_memory_and_in_the_files() {
        let (dir, files) = files("");
        let mut expected = files.check(|_| Vec::new()).unwrap();
        let name: NamePattern = "iqn.2026-11.test:h".parse().unwrap();
        let changes = [
            add(2, "/2"),
            rule("iqn.2026-11.test:h", "luns = [2]\n"),
            rule("iqn.2027-11.test:*", ""),
            add(3, "/3"),
            remove(3),
            LiveChange::RemoveRule { target: TARGET.to_owned(), name },
            remove(2),
        ];
        for change in changes {
            change.apply(&mut expected);
            assert_eq!(after(dir.path(), &change), expected, "{change:?}");
        }
        assert_eq!(expected.targets[0].initiators.len(), 2);
    }

    #[test]
    fn a_rule_precedes_the_pattern_that_covers_it() {
        let (dir, _) = files("");
        let config = after(dir.path(), &rule("iqn.2026-11.test:h", ""));
        let names = config.targets[0].initiators.iter().map(|rule| rule.name.to_string());
        assert_eq!(names.collect::<Vec<_>>(), ["iqn.2026-11.test:h", "iqn.2026-11.test:*"]);
    }

    #[test]
    fn what_would_not_load_is_refused() {
        let live = "[[target]]\nname = \"iqn.2026-11.test:a\"\n[[target.lun]]\nnumber = 2\n\
            path = \"/2\"\n[[target.initiator]]\nname = \"iqn.2026-11.test:h\"\nluns = [2]\n";
        let (dir, files) = files(live);
        let said = |change| files.edit(&change).unwrap_err().to_string();
        assert!(said(add(3, "/1")).contains("target iqn.2026-11.test:a lun 1 has it already"));
        assert!(said(add(1, "/9")).contains("lun 1 is listed twice"));
        assert!(said(remove(2)).contains("the target has no lun 2; "));
        let main = dir.path().join("zgate.toml");
        let line = format!("LUN 1 of target {TARGET} stands in {}:6: ", main.display());
        assert!(said(remove(1)).starts_with(&line), "{}", said(remove(1)));
        let name = "iqn.2026-11.test:*".parse().unwrap();
        let gone = said(LiveChange::RemoveRule { target: TARGET.to_owned(), name });
        assert!(gone.contains("zgate.toml:9: remove it there"), "{gone}");
        assert_eq!(files.edit(&remove(7)).unwrap(), None);
        let target = "iqn.2026-11.test:gone".to_owned();
        let gone = said(LiveChange::RemoveLun { target, number: 1 });
        assert!(gone.contains("has no target iqn.2026-11.test:gone any longer"), "{gone}");
    }

    #[test]
    fn problems_are_told_where_they_stand() {
        let live = "[[target]]\nname = \"iqn.2026-11.test:a\"\n[[target.lun]]\nnumber = 2\n\
            path = \"2\"\nsise = 3\n[[target]]\nname = \"iqn.2026-11.test:b\"\n\
            [[target.lun]]\nnumber = 0\npath = \"/0\"\n";
        let (dir, files) = files(live);
        std::fs::write(dir.path().join("conf.d/other.toml"), "[server]\n").unwrap();
        std::fs::write(dir.path().join("conf.d/.hidden.toml"), "no toml").unwrap();
        let error = crate::load(&dir.path().join("zgate.toml")).unwrap_err().to_string();
        let part = |name: &str| dir.path().join("conf.d").join(name).display().to_string();
        let (live, other) = (part("live.toml"), part("other.toml"));
        let begins = [
            format!("{live}:5:8: target {TARGET} lun 2.path: not an absolute path"),
            format!("{live}:6:1: target {TARGET} lun 2.sise: unknown key"),
            format!("{live}:8:8: target iqn.2026-11.test:b.name: the main file has no target"),
            format!("{other}:1:2: server: unknown key \"server\"; the keys here are target"),
        ];
        let lines: Vec<_> = error.lines().collect();
        assert_eq!(lines.len(), begins.len(), "{error}");
        for (line, begin) in lines.iter().zip(&begins) {
            assert!(line.starts_with(begin.as_str()), "{line} is not {begin}");
        }
        assert!(matches!(files.edit(&remove(9)), Err(NotEdited::Broken(_))));
    }

    #[test]
    fn another_directory_can_be_named() {
        let (dir, _) = files("");
        let place = dir.path().join("elsewhere");
        let main = format!("[server]\nconf_dir = \"{}\"\n{MAIN}", place.display());
        std::fs::write(dir.path().join("zgate.toml"), main).unwrap();
        let files = ConfigFiles::read(&dir.path().join("zgate.toml")).unwrap();
        let edit = files.edit(&add(2, "/2")).unwrap().unwrap();
        assert_eq!((edit.file, edit.before), (place.join("live.toml"), None));
    }
}
