//! The files of a configuration: the main file, and those of `conf_dir`, which
//! add LUNs and rules to its targets.

use crate::deserialize::{Misfit, deserialize};
use crate::document::{self, Value, locate};
use crate::merge::{self, Origins, Part};
use crate::parse::{ConfigError, SourceText};
use crate::problem::{Diagnostic, Place, Problem};
use crate::schema::Config;
use crate::validate::problems;
use std::io;
use std::path::{Path, PathBuf};
use toml::de::DeValue;

/// Directory of further files, beside the main file unless `conf_dir` names
/// another one.
const USUAL_DIR: &str = "conf.d";

/// Texts of all files of a configuration.
#[derive(Clone, Debug)]
pub struct ConfigFiles {
    /// The main file, then those of the directory, by name.
    pub(crate) sources: Vec<SourceText>,
    pub(crate) dir: PathBuf,
}

/// A configuration, and where its entries stand.
pub(crate) struct Checked<'t> {
    pub(crate) config: Config,
    pub(crate) origins: Origins,
    roots: Vec<Value<'t>>,
}

/// Configuration as far as the files could be read, and the problems so far.
pub(crate) struct Merged<'t> {
    config: Config,
    origins: Origins,
    roots: Vec<Value<'t>>,
    /// Set if everything could be read.
    complete: bool,
    found: Vec<Diagnostic>,
}

fn unreadable(file: &Path, error: &io::Error) -> ConfigError {
    let problem = format!("cannot read it: {error}");
    let next_step = "name another file, or correct its path and permissions".to_owned();
    let problem = Diagnostic::new((file, ""), None, String::new(), problem, next_step);
    ConfigError { sources: Vec::new(), problems: vec![problem] }
}

fn read_text(file: &Path) -> Result<SourceText, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|error| unreadable(file, &error))?;
    Ok(SourceText { file: file.to_owned(), text })
}

/// Returns the files of the directory, by name: all that end in `.toml` and do not begin
/// with a dot, but for directories and the like. A link to nothing is one of them: what it
/// has stood for must not vanish in silence. None if there is no such directory.
fn listed(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes()[0] == b'.');
        let is_other = || std::fs::metadata(&path).is_ok_and(|found| !found.is_file());
        if !hidden && path.extension().is_some_and(|end| end == "toml") && !is_other() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the value of `server.conf_dir` in the text of a main file.
fn named_dir(text: &str) -> Option<PathBuf> {
    let root = document::read(text).ok()?;
    let steps = Place::root("server").key("conf_dir").0;
    let found = steps.iter().try_fold(&root, |at, step| document::child(at.get_ref(), step))?;
    match found.get_ref() {
        DeValue::String(path) => Some(PathBuf::from(path.as_ref())),
        _ => None,
    }
}

impl ConfigFiles {
    /// Reads the main file at `path`, and the files of its directory.
    ///
    /// # Errors
    /// The file that cannot be read.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        Self::read_as(path, path)
    }

    /// Reads the main file at `path` as if it stood at `place`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_as(path: &Path, place: &Path) -> Result<Self, ConfigError> {
        let main = read_text(path)?;
        let beside = || place.with_file_name(USUAL_DIR);
        let dir = named_dir(&main.text).unwrap_or_else(beside);
        let mut sources = vec![main];
        for file in listed(&dir).map_err(|error| unreadable(&dir, &error))? {
            sources.push(read_text(&file)?);
        }
        Ok(Self { sources, dir })
    }

    /// Makes files of the text of a main file alone.
    pub(crate) fn alone(text: &str, path: &Path) -> Self {
        let main = SourceText { file: path.to_owned(), text: text.to_owned() };
        Self { sources: vec![main], dir: path.with_file_name(USUAL_DIR) }
    }

    /// Returns the directory of the further files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Checks the configuration. `further` finds more problems, and is given
    /// what could be read of files that have some.
    ///
    /// # Errors
    /// All problems, in the order of the files.
    pub fn check(
        &self,
        further: impl FnOnce(&Config) -> Vec<Problem>,
    ) -> Result<Config, ConfigError> {
        Ok(self.examine(further)?.config)
    }

    pub(crate) fn examine(
        &self,
        further: impl FnOnce(&Config) -> Vec<Problem>,
    ) -> Result<Checked<'_>, ConfigError> {
        let mut merged = self.merged()?;
        let mut rules = problems(&merged.config, merged.complete);
        // What breaks a rule need not exist as well.
        let known: Vec<Place> = rules.iter().map(|known| known.place.clone()).collect();
        let more = further(&merged.config).into_iter();
        rules.extend(more.filter(|problem| !known.contains(&problem.place)));
        for problem in rules {
            let problem = self.resolved(&merged, problem);
            merged.found.push(problem);
        }
        let Merged { config, origins, roots, found, .. } = merged;
        if found.is_empty() {
            Ok(Checked { config, origins, roots })
        } else {
            Err(self.failed(found))
        }
    }

    /// Reads the files into one configuration.
    ///
    /// # Errors
    /// Wrong syntax. Other problems are part of the result.
    pub(crate) fn merged(&self) -> Result<Merged<'_>, ConfigError> {
        let mut roots = self.documents()?;
        let mut found = Vec::new();
        let (config, misfits) = deserialize::<Config>(&mut roots[0]);
        let mut config = config.unwrap_or_default();
        let main_complete = misfits.is_empty();
        let mut complete = main_complete;
        found.extend(misfits.into_iter().map(|misfit| self.diagnostic(0, misfit)));
        let mut origins = Origins::of(&config);
        for (file, root) in roots.iter_mut().enumerate().skip(1) {
            let (part, misfits) = deserialize::<Part>(root);
            complete &= misfits.is_empty();
            found.extend(misfits.into_iter().map(|misfit| self.diagnostic(file, misfit)));
            let strangers = merge::add(part.unwrap_or_default(), file, &mut config, &mut origins);
            // A target of the main file may be there, but wrong.
            for problem in strangers.into_iter().filter(|_| main_complete) {
                found.push(self.located(root, file, problem));
            }
        }
        Ok(Merged { config, origins, roots, complete, found })
    }

    /// Returns a problem of the whole configuration with the file it is in.
    pub(crate) fn resolved(&self, merged: &Merged<'_>, problem: Problem) -> Diagnostic {
        let (file, place) = merged.origins.resolve(&problem.place);
        self.located(&merged.roots[file], file, Problem { place, ..problem })
    }

    /// Reads the syntax of all files.
    fn documents(&self) -> Result<Vec<Value<'_>>, ConfigError> {
        let (mut roots, mut found) = (Vec::new(), Vec::new());
        for source in &self.sources {
            match document::read(&source.text) {
                Ok(root) => roots.push(root),
                Err(faults) => {
                    let next_step = "correct it: the rest of the file can be checked only then";
                    found.extend(faults.iter().map(|fault| {
                        let (span, message) = (fault.span(), fault.message().to_owned());
                        let named = (&*source.file, &*source.text);
                        Diagnostic::new(named, span, String::new(), message, next_step.to_owned())
                    }));
                }
            }
        }
        if found.is_empty() { Ok(roots) } else { Err(self.failed(found)) }
    }

    fn diagnostic(&self, file: usize, (span, key, problem, next_step): Misfit) -> Diagnostic {
        let source = &self.sources[file];
        Diagnostic::new((&source.file, &source.text), span, key, problem, next_step)
    }

    fn located(&self, root: &Value<'_>, file: usize, problem: Problem) -> Diagnostic {
        let (span, key) = locate(root, &problem.place);
        self.diagnostic(file, (span, key, problem.problem, problem.next_step))
    }

    fn failed(&self, mut problems: Vec<Diagnostic>) -> ConfigError {
        self.sort(&mut problems);
        ConfigError { sources: self.sources.clone(), problems }
    }

    /// Puts problems into the order of the files.
    pub(crate) fn sort(&self, problems: &mut [Diagnostic]) {
        let position = |file: &Path| self.sources.iter().position(|source| source.file == file);
        problems.sort_by_key(|problem| (position(&problem.file), problem.line, problem.column));
    }

    /// Returns the file and the line of an entry.
    pub(crate) fn line(
        &self,
        checked: &Checked<'_>,
        file: usize,
        place: &Place,
    ) -> (PathBuf, usize) {
        let problem =
            Problem { place: place.clone(), problem: String::new(), next_step: String::new() };
        let found = self.located(&checked.roots[file], file, problem);
        (found.file, found.line.unwrap_or(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_not_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let (main, further) = (dir.path().join("zgate.toml"), dir.path().join(USUAL_DIR));
        std::fs::write(&main, "").unwrap();
        std::fs::create_dir_all(further.join("directory.toml")).unwrap();
        let link = |name: &str| std::os::unix::fs::symlink("gone", further.join(name)).unwrap();
        // An editor's mark.
        link(".#live.toml");
        assert_eq!(ConfigFiles::read(&main).unwrap().sources.len(), 1);
        link("live.toml");
        let said = ConfigFiles::read(&main).unwrap_err().to_string();
        let file = further.join("live.toml");
        assert!(said.starts_with(&format!("{}: cannot read it", file.display())), "{said}");
    }
}
